/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_CORE_REUSE_H
#define CORDON_CORE_REUSE_H

#include <cordon/reuse.h>

#include "base/buf.h"
#include "core/guests.h"

/* The settings by which guests are made; borrowed for ever. */
void cordon_reuse_setup(const struct cordon_settings *settings);

/* Files below artifacts/ before a run, so that old ones are told from new ones; and their return. */
struct cordon_artifact_entry {
    char *path; /* absolute in the guest */
    uint64_t size;
    int64_t modified_ns;
};
struct cordon_artifacts {
    const char *tenant, *guest; /* borrowed */
    struct cordon_artifact_entry *before, *after;
    size_t before_count, after_count, at;
    uint32_t files, files_left;
    uint64_t bytes, bytes_left;
    struct cordon_buf content;
    char reason[128];
    bool too_many; /* more than can be listed: told once */
};
/* Makes artifacts/ and notes what is in it. */
int cordon_artifacts_begin(struct cordon_artifacts *artifacts, struct cordon_error *err);
/* Looks what is there now. */
int cordon_artifacts_end(struct cordon_artifacts *artifacts, struct cordon_error *err);
/* The next one that is returned or dropped: 1, or 0. */
int cordon_artifacts_next(struct cordon_artifacts *artifacts, struct cordon_event *event);
void cordon_artifacts_done(struct cordon_artifacts *artifacts);

/* argv for a program's text that was put at path; main: by whom main() is called. */
struct cordon_guest_command {
    char path[128]; /* where the text goes */
    const char *argv[8];
    size_t argc;
    bool calls_main; /* arguments go to the channel, the result comes from it */
};
int cordon_guest_command(const struct cordon_program_request *program, struct cordon_guest_command *ret,
                         struct cordon_error *err);
/* Puts a whole file. */
int cordon_guest_put(const char *tenant, const char *guest, const char *path, uint32_t mode,
                     struct cordon_bytes content, int cancel_fd, struct cordon_error *err);
void cordon_guest_remove(const char *tenant, const char *guest, const char *path); /* what fails is of no matter */

#endif
