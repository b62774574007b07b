/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_SUPERVISOR_FIRST_KEY_H
#define CORDON_SUPERVISOR_FIRST_KEY_H

#include <stdbool.h>

#include "supervisor/state.h"

/*
 * Where there is no key: makes and shows the first one, or refuses to serve beyond loopback without. To be called in a
 * child, which it confines: the database is the gateway's user's, and no root process opens it.
 */
int cordon_first_key(const struct cordon_settings *settings, struct cordon_state *state, bool loopback_only,
                     struct cordon_error *err);

#endif
