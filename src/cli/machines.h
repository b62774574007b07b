/* SPDX-License-Identifier: Apache-2.0 */
/* What commands need to know of virtual machines by the settings. */
#ifndef CORDON_CLI_MACHINES_H
#define CORDON_CLI_MACHINES_H

#include "core/settings.h"

struct cordon_cli_machines {
    const char *qemu; /* the settings' */
    char image[4096]; /* folder */
    bool wanted;      /* a door's setting names exec-sandbox */
    bool emulation;   /* is allowed at some door */
    bool forced;      /* … and used, whatever the host has */
};

int cordon_cli_machines(const struct cordon_settings *settings, struct cordon_cli_machines *ret,
                        struct cordon_error *err);

#endif
