/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of cells share. Theory of operation:
 *
 * A context is a row of one table (table.c), counted by references. Whoever has its *turn* (turn.c) is alone with its
 * stream and reader; others may only take `lock` and control the stream (interrupt, kill). A context's interpreter is
 * an exec of its guest with a channel and a tag that tells all that has to be known of it: so a restarted gateway finds
 * it again (table.c), attaches, and asks for a SYNC to find the first whole frame (interpreter.c).
 */
#ifndef CORDON_CELLS_INTERNAL_H
#define CORDON_CELLS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cells/cells.h"
#include "cells/reader.h"
#include "core/guests.h"

struct cordon_cells_language {
    const char *name, *aliases; /* comma separated */
    bool by_frame;              /* interrupts go over the channel, too */
    bool stays;                 /* has an interpreter that keeps state */
    const char *const *argv;    /* NULL-terminated; a {boot} is the boot text, {memory} the guest's memory in MiB */
    const struct cordon_cells_source {
        const char *name; /* "": the driver itself, first */
        const char *text;
        const uint64_t *size;
    } * sources; /* ended by a text of NULL; the first one is the boot text */
};
/* NULL: not known. name may be an alias or NULL. */
const struct cordon_cells_language *cordon_cells_language(const char *name);

struct cordon_cells_waiter {
    struct cordon_cells_waiter *next;
    int fd; /* eventfd: its turn came */
};

struct cordon_context {
    struct cordon_context *next;
    unsigned references; /* under the table's lock */
    char guest[CORDON_GUEST_ID];
    const struct cordon_cells_language *language;
    struct cordon_context_info info; /* state is made when it is told */
    pthread_mutex_t lock;            /* of what follows, up to the turn's own */
    bool busy, removed, restarting;
    struct cordon_cells_waiter *waiters;
    size_t waiting;
    struct cordon_live_stream *stream; /* NULL: not attached. Set and cleared under lock by who has the turn */
    uint32_t cell;                     /* number of the cell that runs; 0: none */
    bool started, ended;               /* an interpreter was started (or found), and has ended since */
    uint32_t pid;                      /* of the interpreter */
    /* only for who has the turn */
    struct cordon_cell_reader reader;
    uint32_t number; /* of the last cell */
};

/* table.c */
int cordon_context_get(const char *tenant, const char *guest, const char *id, struct cordon_context **ret,
                       struct cordon_error *err);
/* The default one of a language; made (not started) when there is none. */
int cordon_context_get_default(const char *tenant, const char *guest, const struct cordon_cells_language *language,
                               struct cordon_context **ret, struct cordon_error *err);
void cordon_context_put(struct cordon_context *context);
void cordon_context_tag(const struct cordon_context *context, char tag[64]);

/* turn.c */
int cordon_context_enter(struct cordon_context *context, int cancel_fd, struct cordon_error *err);
void cordon_context_leave(struct cordon_context *context);

/* interpreter.c; all for who has the turn, but interrupt and kill */
/* Sees to it that there is an interpreter that waits for a cell; *fresh: it was started now. */
int cordon_context_start(const char *tenant, struct cordon_context *context, bool *fresh, struct cordon_error *err);
void cordon_context_stop(struct cordon_context *context); /* its stream is closed; what it ran has ended */
int cordon_context_interrupt(struct cordon_context *context);
void cordon_context_kill(struct cordon_context *context);
int cordon_context_send_cell(struct cordon_context *context, const struct cordon_cell_request *request,
                             struct cordon_error *err);

#endif
