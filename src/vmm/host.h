/* SPDX-License-Identifier: Apache-2.0 */
/* What this host has of that which virtual machines need, for `cordon doctor`: rows as isolate/probe.h has them. */
#ifndef CORDON_VMM_HOST_H
#define CORDON_VMM_HOST_H

#include "isolate/probe.h"

struct cordon_vmm_host {
    const char *qemu;  /* path of the program */
    const char *image; /* folder */
    bool wanted;       /* a setting names the backend, so that what is missing is needed; else it is only told */
    bool emulation;    /* software emulation is allowed, so that an accelerator is not needed */
    bool forced;       /* … and the accelerator not used, whatever it is */
};

#define CORDON_VMM_HOST_PROBES 4
/* Fills in CORDON_VMM_HOST_PROBES rows; children are made and waited for. The accelerator is measured anew. */
void cordon_vmm_host_probe(const struct cordon_vmm_host *host, struct cordon_probe ret[CORDON_VMM_HOST_PROBES]);

#endif
