/* SPDX-License-Identifier: Apache-2.0 */
/* The backends that are part of this program: what main and the gateway give to cordon_registry_setup. */
#ifndef CORDON_BACKEND_BUILTIN_H
#define CORDON_BACKEND_BUILTIN_H

#include <cordon/backend.h>

extern const struct cordon_backend *const cordon_backend_builtin[]; /* NULL-terminated: none, local */

#endif
