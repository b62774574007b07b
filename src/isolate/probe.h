/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host lets a sandbox do, each thing by trying it: for `cordon doctor`, for the warden's start, for readyz.
 * A probe that fails says what was tried, what was found and the command that mends it. Blockers are named apart:
 * sysctl, seccomp of an outer container, AppArmor, a masked /proc, missing cgroup delegation, missing interpreters.
 */
#ifndef CORDON_ISOLATE_PROBE_H
#define CORDON_ISOLATE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

enum cordon_probe_weight { CORDON_PROBE_NEEDED, CORDON_PROBE_LESSENS, CORDON_PROBE_INFO };

struct cordon_probe {
    const char *name;                /* "user namespaces" */
    enum cordon_probe_weight weight; /* NEEDED: local can't run without; LESSENS: local declares less */
    bool ok;
    char found[256]; /* what was found, one sentence */
    char fix[256];   /* the command or setting that mends it; "" when ok */
};

struct cordon_probe_paths {
    const char *python, *node, *bash;
};

/* Runs all probes (children of this process are made and waited for); returns how many, at most max. */
size_t cordon_probe_host(const struct cordon_probe_paths *paths, struct cordon_probe *ret, size_t max);

#endif
