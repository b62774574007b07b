/* SPDX-License-Identifier: Apache-2.0 */
/* What a command that runs code itself has instead of a gateway: its own backends. */
#include "backend/builtin.h"
#include "cli/cli.h"
#include "core/registry.h"
#include "plugin/plugin.h"
#include "supervisor/state.h"

int cordon_cli_backends_load(const struct cordon_settings *settings, struct cordon_error *err)
{
    struct cordon_state place;
    cordon_registry_setup(cordon_backend_builtin);
    int r = cordon_state_locate(settings, &place, err);
    if (r == 0)
        r = cordon_backend_setup(settings, err);
    return r < 0 ? r : cordon_plugins_load(settings, place.spare + 1, (gid_t)place.spare + 1, err);
}

void cordon_cli_backends_drop(void)
{
    cordon_registry_shutdown();
    cordon_plugins_stop();
    cordon_backend_teardown();
}
