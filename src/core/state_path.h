/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_CORE_STATE_PATH_H
#define CORDON_CORE_STATE_PATH_H

#include "core/settings.h"

/* Where the state folder is or would be, by the settings, the user and the environment. Nothing is looked at. */
int cordon_state_path(const struct cordon_settings *settings, char *to, size_t size, struct cordon_error *err);

#endif
