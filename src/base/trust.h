/* SPDX-License-Identifier: Apache-2.0 */
/* Where guests find the authority that signs for hosts whose requests get headers (docs/protocol/egress.md), on a
 * daemon that has one: by itself, and behind what its host trusts. In every guest's tree; what makes a program trust it
 * is its environment alone. */
#ifndef CORDON_BASE_TRUST_H
#define CORDON_BASE_TRUST_H

#define CORDON_TRUST_FOLDER "/run/cordon/"
#define CORDON_TRUST_AUTHORITY "ca.pem"
#define CORDON_TRUST_BUNDLE "ca-bundle.pem"

#endif
