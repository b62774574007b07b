/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a kept guest's file workers: one operation, done as the user, told in frames over descriptor fd. */
#ifndef CORDON_AGENT_KEPT_WORKER_H
#define CORDON_AGENT_KEPT_WORKER_H

#include <sys/stat.h>

#include "proto/kept.h"

struct cordon_work {
    int fd; /* to the agent */
    struct cordon_open open;
    char path[CORDON_KEPT_PATH_MAX]; /* absolute */
    char target[CORDON_KEPT_PATH_MAX];
};

/* Each is 0 when all was said (DONE included), or a negative errno that is still to be told. */
int cordon_work_list(struct cordon_work *work);
int cordon_work_move(struct cordon_work *work);
int cordon_work_remove(struct cordon_work *work);
int cordon_work_watch(struct cordon_work *work);

/* Sends a frame, blocking; the process ends when the agent is gone. */
void cordon_work_say(const struct cordon_work *work, uint8_t type, const void *payload, uint32_t length);
/* The fields of an entry; path: as told. */
void cordon_work_entry(struct cordon_buf *to, const char *path, const struct stat *st, const char *link);
/* The entry of what is at path now, in a frame of ENTRY: 0 or negative errno. */
int cordon_work_say_entry(const struct cordon_work *work, const char *path);
/* mkdir -p of all above the last component. */
int cordon_work_make_parents(const char *path);

#endif
