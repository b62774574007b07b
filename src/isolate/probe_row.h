/* SPDX-License-Identifier: Apache-2.0 */
/* Inside isolate: what the probes share. Each fills in `found` and `fix` of its row from what the host was seen to do.
 */
#ifndef CORDON_ISOLATE_PROBE_ROW_H
#define CORDON_ISOLATE_PROBE_ROW_H

#include "base/error.h"
#include "isolate/probe.h"
#include "isolate/probe_try.h"

struct cordon_probe_host { /* what several probes look at */
    const struct cordon_probe_paths *paths;
    int guest[CORDON_TRY__COUNT];
    int guest_error; /* the children themselves couldn't be made */
    struct cordon_try_cgroups cgroups;
    char apparmor[128]; /* the profile around us */
    char masked[128];   /* parts of /proc that are */
    bool filtered;      /* by an outer system call filter */
    char python[512];
    int python_status;
};

typedef void cordon_probe_run(const struct cordon_probe_host *host, struct cordon_probe *probe);

/* One sentence each; cut where too long, since they are for people. */
void cordon_probe_found(struct cordon_probe *probe, bool ok, const char *fmt, ...) CORDON_PRINTF(3, 4);
void cordon_probe_fix(struct cordon_probe *probe, const char *fmt, ...) CORDON_PRINTF(2, 3);
void cordon_probe_skipped(struct cordon_probe *probe); /* what it builds on is missing */
/* A number out of /proc/sys, or `missing` where this kernel has no such setting. */
long cordon_probe_sysctl(const char *path, long missing);

/* probe_outer.c: what stands around this process, found before the others ask */
void cordon_probe_look_around(struct cordon_probe_host *host);
/* Names what stands in the way of a namespace or mount that was refused with `error`, and its remedy. */
void cordon_probe_blame(const struct cordon_probe_host *host, struct cordon_probe *probe, const char *what, int error);
cordon_probe_run cordon_probe_proc, cordon_probe_outer_filter, cordon_probe_apparmor, cordon_probe_masked_proc;

/* probe_programs.c: interpreters */
void cordon_probe_ask_python(struct cordon_probe_host *host);
cordon_probe_run cordon_probe_python, cordon_probe_modules, cordon_probe_node, cordon_probe_bash;

#endif
