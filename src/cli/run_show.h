/* SPDX-License-Identifier: Apache-2.0 */
/* What `cordon run` does with a run's events: output to stdout and stderr, files to a folder, or all into one object.
 */
#ifndef CORDON_CLI_RUN_SHOW_H
#define CORDON_CLI_RUN_SHOW_H

#include <signal.h>

#include "cli/run_options.h"
#include "core/run.h"

struct cordon_run_show {
    const struct cordon_run_options *options;
    struct cordon_answer *answer; /* --json */
    int folder;                   /* --artifacts; -1: none */
    bool folder_failed;           /* a file could not be written */
    bool output_failed;
    bool ended;
    const volatile sig_atomic_t *interrupted; /* a signal's number: we were told to end; 0: not */
    struct cordon_outcome outcome;
};

/* Opens the folder (making it). Free with _done in any case. */
int cordon_run_show_open(const struct cordon_run_options *options, const volatile sig_atomic_t *interrupted,
                         struct cordon_run_show *ret, struct cordon_error *err);
/* 0, or negative when the output can't be written. */
int cordon_run_show_event(struct cordon_run_show *show, const struct cordon_event *event);
/* The end, after the outcome or with the error that took its place: prints what is left to print; the exit status. */
int cordon_run_show_end(struct cordon_run_show *show, const struct cordon_error *err);
void cordon_run_show_done(struct cordon_run_show *show);

/* Writes a file below the folder: the name is relative and plain, no link is followed, only a regular file replaced. */
int cordon_artifact_write(int folder, const char *name, const void *data, size_t size, struct cordon_error *err);

#endif
