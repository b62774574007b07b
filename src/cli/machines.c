/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/machines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/state_path.h"

static const char backend[] = "exec-sandbox";

static bool wanted(const struct cordon_settings *settings)
{
    const char *name;
    for (int door = 0; door < CORDON_DOOR__COUNT; door++)
        if (strcmp(cordon_settings_string(settings, (enum cordon_door)door, CORDON_SET_BACKEND), backend) == 0)
            return true;
    for (size_t i = 0; (name = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKENDS, i)); i++)
        if (strcmp(name, backend) == 0)
            return true;
    return false;
}

int cordon_cli_machines(const struct cordon_settings *settings, struct cordon_cli_machines *ret,
                        struct cordon_error *err)
{
    char state[sizeof ret->image - sizeof "/images/vm"];
    const char *image = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_VM_IMAGE);
    *ret = (struct cordon_cli_machines){
        .qemu = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_VM_QEMU),
        .wanted = wanted(settings),
        .emulation = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_ALLOW_SOFTWARE_EMULATION) ||
                     cordon_settings_bool(settings, CORDON_DOOR_LANGFLOW, CORDON_SET_ALLOW_SOFTWARE_EMULATION),
        .forced = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_VM_FORCE_EMULATION),
    };
    int r = *image ? 0 : cordon_state_path(settings, state, sizeof state, err);
    if (r < 0)
        return r;
    int size = *image ? snprintf(ret->image, sizeof ret->image, "%s", image)
                      : snprintf(ret->image, sizeof ret->image, "%s/images/vm", state);
    if (size >= (int)sizeof ret->image)
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "CORDON_VM_IMAGE is too long a path");
    return 0;
}
