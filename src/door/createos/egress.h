/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CreateOS's egress lists in the words of core/egress.h: "*", IPv4 address, CIDR, host, "*.host", each but "*" with an
 * optional port. What can't be read is INVALID: nothing is passed over, so that no typing error opens anything. Fuzzed.
 */
#ifndef CORDON_CREATEOS_EGRESS_H
#define CORDON_CREATEOS_EGRESS_H

#include "door/fields.h"

#define CORDON_CREATEOS_DENY_ALL "240.0.0.0/4" /* the protocol's own way of saying it */

struct cordon_createos_egress {
    bool named; /* the client gave a list: it is held, or refused. Else it gets as much as the operator lets it */
    bool on, all;
    struct cordon_texts rules; /* where on and not all */
};
/* 0, or negative with err. */
int cordon_createos_egress_read(const struct cordon_texts *list, struct cordon_createos_egress *ret,
                                struct cordon_error *err);

#endif
