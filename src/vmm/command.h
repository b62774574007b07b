/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's command line, one table. Pure. */
#ifndef CORDON_VMM_COMMAND_H
#define CORDON_VMM_COMMAND_H

#include "base/buf.h"
#include "vmm/wire.h"

#define CORDON_VMM_ARGUMENTS 80

struct cordon_vmm_command {
    char *argv[CORDON_VMM_ARGUMENTS + 1]; /* NULL-terminated; into text */
    struct cordon_buf text;
};

/* 0, or -E2BIG or -ENOMEM; the command is to be given back by _done in any case. */
int cordon_vmm_command(const struct cordon_vmm_start *start, struct cordon_vmm_command *ret);
void cordon_vmm_command_done(struct cordon_vmm_command *command);

#endif
