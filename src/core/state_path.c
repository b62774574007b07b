/* SPDX-License-Identifier: Apache-2.0 */
#include "core/state_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cordon_state_path(const struct cordon_settings *settings, char *to, size_t size, struct cordon_error *err)
{
    const char *set = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_STATE);
    const char *home = getenv("HOME"), *states = getenv("XDG_STATE_HOME");
    int length;
    if (set && *set)
        length = snprintf(to, size, "%s", set);
    else if (geteuid() == 0)
        length = snprintf(to, size, "/var/lib/cordon");
    else if (states && *states == '/') /* its specification has relative ones ignored */
        length = snprintf(to, size, "%s/cordon", states);
    else if (home && *home == '/')
        length = snprintf(to, size, "%s/.local/state/cordon", home);
    else
        return cordon_fail(err, -ENOENT, CORDON_ERROR_INVALID,
                           "no place for the state folder: HOME is not set; give --state DIR");
    if (length < 0 || (size_t)length >= size)
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "the state folder's path is too long");
    return 0;
}
