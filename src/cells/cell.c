/* SPDX-License-Identifier: Apache-2.0 */
/* One cell: from the turn of its context to its end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cells/internal.h"

#define GRACE_US 500000u        /* an interrupted cell has this long to end, and keep its context */
#define GONE_US 2000000u        /* a killed one has this long to be gone */
#define LOOK_MS 200             /* between two looks whether the client is still there */
#define SHOWN_MAX 1000u         /* values of one cell */
#define SHOWN_BYTES (64u << 20) /* of all of them */
#define BASH_MAX (120u << 10)   /* an argument's length */

enum ending { RUNNING, INTERRUPTED, KILLED };

struct cordon_cell {
    struct cordon_context *context;
    bool started_told, over, end_told;
    bool fresh;
    uint32_t number;
    enum ending ending;
    enum cordon_cause why;                    /* of ending */
    uint64_t begun_us, deadline_us, grace_us; /* deadline 0: none */
    uint64_t timeout_ms;
    int cancel_fd;
    uint64_t shown, shown_bytes;
    struct cordon_buf text; /* what an event points to */
    struct cordon_cell_end end;
};

const char *cordon_cell_context(const struct cordon_cell *cell)
{
    return cell->context->info.id;
}

/* --- beginning --- */

static int open_bash(struct cordon_cell *cell, const struct cordon_cell_request *request, struct cordon_error *err)
{
    struct cordon_context *context = cell->context;
    if (request->code.size > BASH_MAX || memchr(request->code.data ? request->code.data : "", 0, request->code.size))
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE,
                           "a cell of bash is at most %u KiB of text without NULs", BASH_MAX >> 10);
    char *code = strndup(request->code.data ? request->code.data : "", request->code.size);
    const char *const argv[] = {"bash", "-c", code};
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_EXEC,
                                         .argv = argv,
                                         .argc = 3,
                                         .env = request->env,
                                         .env_count = request->env_count,
                                         .cwd = context->info.cwd,
                                         .kill_on_close = true,
                                         .cancel_fd = -1};
    struct cordon_live_stream *stream = NULL;
    int r = code ? cordon_guests_open(request->tenant, request->guest, &operation, &stream, err)
                 : cordon_fail_errno(err, -ENOMEM, "starting a cell");
    free(code);
    if (r < 0)
        return r;
    pthread_mutex_lock(&context->lock);
    context->stream = stream;
    context->cell = ++context->number;
    pthread_mutex_unlock(&context->lock);
    return 0;
}

static int begin(struct cordon_cell *cell, const struct cordon_cell_request *request, struct cordon_error *err)
{
    struct cordon_context *context = cell->context;
    int r = context->removed
                ? cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "context %s was removed", context->info.id)
                : cordon_context_start(request->tenant, context, &cell->fresh, err);
    if (r == 0)
        r = context->language->stays ? cordon_context_send_cell(context, request, err) : open_bash(cell, request, err);
    cell->number = context->number;
    return r;
}

static int find_context(const struct cordon_cell_request *request, struct cordon_context **ret,
                        struct cordon_error *err)
{
    if (request->context && request->language)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "a cell names its context or its language, not both: a context has one already");
    if (request->context)
        return cordon_context_get(request->tenant, request->guest, request->context, ret, err);
    const struct cordon_cells_language *language = cordon_cells_language(request->language);
    if (!language)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "there are no contexts of \"%.40s\" here; python, javascript and bash there are",
                           request->language);
    return cordon_context_get_default(request->tenant, request->guest, language, ret, err);
}

int cordon_cell_open(const struct cordon_cell_request *request, struct cordon_cell **ret, struct cordon_error *err)
{
    struct cordon_cell *cell = calloc(1, sizeof *cell);
    if (!cell)
        return cordon_fail_errno(err, -ENOMEM, "starting a cell");
    cell->cancel_fd = request->cancel_fd;
    cell->timeout_ms = request->timeout_ms;
    cell->text = CORDON_BUF_INIT(1u << 20);
    cell->end.exit_code = -1;
    int r = find_context(request, &cell->context, err);
    if (r == 0)
        r = cordon_context_enter(cell->context, request->cancel_fd, err);
    if (r == 0) {
        r = begin(cell, request, err);
        if (r < 0)
            cordon_context_leave(cell->context);
    }
    if (r < 0) {
        cordon_context_put(cell->context);
        free(cell);
        return r;
    }
    cell->begun_us = cordon_now_us();
    cell->deadline_us = request->timeout_ms ? cell->begun_us + request->timeout_ms * 1000 : 0;
    *ret = cell;
    return 0;
}

/* --- its end --- */

static void finish(struct cordon_cell *cell, enum cordon_cause cause, bool context_ended, const char *message)
{
    struct cordon_context *context = cell->context;
    cell->over = true;
    cell->end.cause = cell->ending != RUNNING ? cell->why : cause;
    cell->end.context_ended = context_ended;
    cell->end.run_us = cordon_now_us() - cell->begun_us;
    (void)snprintf(cell->end.message, sizeof cell->end.message, "%s", message);
    pthread_mutex_lock(&context->lock);
    context->cell = 0;
    pthread_mutex_unlock(&context->lock);
    if (context_ended)
        cordon_context_kill(context);
    if (context_ended || !context->language->stays)
        cordon_context_stop(context);
}

static void finish_kept(struct cordon_cell *cell)
{
    char message[256] = "";
    if (cell->ending != RUNNING && cell->why == CORDON_CAUSE_TIMEOUT)
        (void)snprintf(message, sizeof message,
                       "the cell was interrupted after %llu ms (its timeout); its context is as it left it",
                       (unsigned long long)cell->timeout_ms);
    else if (cell->ending != RUNNING)
        (void)snprintf(message, sizeof message, "the cell was cancelled; its context is as it left it");
    finish(cell, CORDON_CAUSE_EXITED, false, message);
}

/* The interpreter is gone (or what there is of it is of no use). */
static void finish_lost(struct cordon_cell *cell, enum cordon_cause cause, const char *how)
{
    char message[256];
    const struct cordon_context *context = cell->context;
    bool by_us = cell->ending == KILLED;
    if (by_us && cell->why == CORDON_CAUSE_TIMEOUT)
        (void)snprintf(message, sizeof message,
                       "the cell ran for %llu ms (its timeout) and did not heed an interrupt: its context was ended",
                       (unsigned long long)cell->timeout_ms);
    else if (by_us)
        (void)snprintf(message, sizeof message,
                       "the cell was cancelled and did not heed an interrupt: its context was ended");
    else if (context->restarting)
        (void)snprintf(message, sizeof message, "the context was restarted or removed while the cell ran");
    else
        (void)snprintf(message, sizeof message, "the context's interpreter ended: %.180s", how);
    finish(cell, context->restarting ? CORDON_CAUSE_CANCELLED : cause, true, message);
}

static void handle_exit(struct cordon_cell *cell, const struct cordon_exec_exit *exit)
{
    char how[256];
    if (!cell->context->language->stays) {
        cell->end.exit_code = exit->exit_code;
        if (exit->cause == CORDON_CAUSE_EXITED || cell->ending != RUNNING)
            finish_kept(cell);
        else
            finish(cell, exit->cause, false, exit->message);
        return;
    }
    cell->end.exit_code = exit->cause == CORDON_CAUSE_EXITED ? exit->exit_code : -1;
    if (exit->cause == CORDON_CAUSE_EXITED)
        (void)snprintf(how, sizeof how, "it exited with code %d", exit->exit_code);
    else if (exit->message[0])
        (void)snprintf(how, sizeof how, "%.200s", exit->message);
    else
        (void)snprintf(how, sizeof how, "signal %d", exit->signal);
    finish_lost(cell, exit->cause, how);
}

/* --- what happens meanwhile --- */

static void interrupt(struct cordon_cell *cell, enum cordon_cause why)
{
    cell->ending = INTERRUPTED;
    cell->why = why;
    cell->grace_us = cordon_now_us() + GRACE_US;
    if (cordon_context_interrupt(cell->context) < 0)
        cell->grace_us = cordon_now_us(); /* nobody there takes one */
}

static bool client_left(const struct cordon_cell *cell)
{
    struct pollfd fd = {.fd = cell->cancel_fd, .events = POLLRDHUP};
    return cell->cancel_fd >= 0 && poll(&fd, 1, 0) == 1;
}

/* What is due: an interrupt, its consequence, or giving up. */
static void look_at_time(struct cordon_cell *cell)
{
    uint64_t now = cordon_now_us();
    if (cell->ending == RUNNING && cell->deadline_us && now >= cell->deadline_us)
        interrupt(cell, CORDON_CAUSE_TIMEOUT);
    else if (cell->ending == RUNNING && client_left(cell))
        interrupt(cell, CORDON_CAUSE_CANCELLED);
    if (cell->ending == INTERRUPTED && now >= cell->grace_us) {
        cell->ending = KILLED;
        cell->grace_us = now + GONE_US;
        cordon_context_kill(cell->context);
    } else if (cell->ending == KILLED && now >= cell->grace_us) {
        finish_lost(cell, CORDON_CAUSE_INFRASTRUCTURE, "it could not be seen to end");
    }
}

/* How long nothing but the stream has to be looked at. */
static int wait_ms(const struct cordon_cell *cell, uint64_t until_us)
{
    uint64_t now = cordon_now_us(), at = until_us;
    if (cell->ending != RUNNING && cell->grace_us < at)
        at = cell->grace_us;
    else if (cell->ending == RUNNING && cell->deadline_us && cell->deadline_us < at)
        at = cell->deadline_us;
    uint64_t wait = at <= now ? 0 : (at - now + 999) / 1000;
    if (cell->ending == RUNNING && cell->cancel_fd >= 0 && wait > LOOK_MS)
        wait = LOOK_MS;
    return wait > 60000 ? 60000 : (int)wait;
}

/* Takes in what the stream has: 1 with an event for the caller, else 0. */
static int pump(struct cordon_cell *cell, uint64_t until_us, struct cordon_cell_event *event)
{
    struct cordon_stream_event got;
    struct cordon_error err = {0};
    bool ended = false;
    int r = cordon_guests_next(cell->context->stream, wait_ms(cell, until_us), &got, &ended, &err);
    if (r < 0 || ended) {
        finish_lost(cell, CORDON_CAUSE_INFRASTRUCTURE, r < 0 ? err.message : "its stream ended");
        return 0;
    }
    if (r == 0)
        return 0;
    if (got.type == CORDON_STREAM_EXIT)
        handle_exit(cell, got.exit);
    else if (got.type == CORDON_STREAM_CHANNEL &&
             cordon_cell_reader_feed(&cell->context->reader, got.data.data, got.data.size) < 0)
        finish_lost(cell, CORDON_CAUSE_INFRASTRUCTURE, "there was no memory for what it told");
    if (got.type != CORDON_STREAM_STDOUT && got.type != CORDON_STREAM_STDERR)
        return 0;
    *event = (struct cordon_cell_event){.data = got.data, .number = cell->number};
    event->type = got.type == CORDON_STREAM_STDOUT ? CORDON_CELL_STDOUT : CORDON_CELL_STDERR;
    return 1;
}

static int tell_shown(struct cordon_cell *cell, const struct cordon_cell_reader_event *read,
                      struct cordon_cell_event *event)
{
    if (cell->shown >= SHOWN_MAX || cell->shown_bytes + read->size > SHOWN_BYTES) {
        cell->end.shown_dropped++;
        return 0;
    }
    cell->shown++;
    cell->shown_bytes += read->size;
    *event =
        (struct cordon_cell_event){.type = CORDON_CELL_SHOWN, .data = {read->data, read->size}, .number = cell->number};
    return 1;
}

static int handle_read(struct cordon_cell *cell, const struct cordon_cell_reader_event *read,
                       struct cordon_cell_event *event)
{
    struct cordon_bytes data = {read->data, read->size};
    switch (read->type) {
    case CORDON_CELL_READ_STDOUT:
        *event = (struct cordon_cell_event){.type = CORDON_CELL_STDOUT, .data = data, .number = cell->number};
        return 1;
    case CORDON_CELL_READ_STDERR:
        *event = (struct cordon_cell_event){.type = CORDON_CELL_STDERR, .data = data, .number = cell->number};
        return 1;
    case CORDON_CELL_READ_SHOWN:
        return tell_shown(cell, read, event);
    case CORDON_CELL_READ_DONE:
        if (read->number != cell->number)
            return 0; /* told twice, as an interrupted driver may */
        finish_kept(cell);
        *event = (struct cordon_cell_event){.type = CORDON_CELL_ERROR, .data = data, .number = cell->number};
        return read->size > 0;
    case CORDON_CELL_READ_BROKEN:
        finish_lost(cell, CORDON_CAUSE_INFRASTRUCTURE, "what it wrote to its channel can not be read");
        return 0;
    case CORDON_CELL_READ_READY: /* says nothing new */
    case CORDON_CELL_READ_MORE:
        break;
    }
    return 0;
}

static int tell_end(struct cordon_cell *cell, struct cordon_cell_event *event)
{
    bool failed = !cell->context->language->stays && cell->end.cause == CORDON_CAUSE_EXITED && cell->end.exit_code > 0;
    if (failed && !cell->text.size) { /* bash's way of telling an error */
        (void)cordon_buf_appendf(&cell->text, "{\"name\":\"ExitStatus\",\"value\":\"%d\",\"traceback\":[]}",
                                 cell->end.exit_code); /* fits */
        *event = (struct cordon_cell_event){
            .type = CORDON_CELL_ERROR, .data = {cell->text.data, cell->text.size}, .number = cell->number};
        return 1;
    }
    cell->end_told = true;
    *event = (struct cordon_cell_event){.type = CORDON_CELL_END, .number = cell->number, .end = &cell->end};
    return 1;
}

int cordon_cell_next(struct cordon_cell *cell, int timeout_ms, struct cordon_cell_event *event)
{
    uint64_t until_us = timeout_ms < 0 ? UINT64_MAX / 2 : cordon_now_us() + (uint64_t)timeout_ms * 1000;
    if (!cell->started_told) {
        cell->started_told = true;
        *event = (struct cordon_cell_event){.type = CORDON_CELL_STARTED, .number = cell->number, .fresh = cell->fresh};
        return 1;
    }
    for (;;) {
        if (cell->over)
            return cell->end_told ? 0 : tell_end(cell, event);
        struct cordon_cell_reader_event read = {0};
        if (cell->context->language->stays)
            read = cordon_cell_reader_next(&cell->context->reader);
        if (read.type != CORDON_CELL_READ_MORE) {
            if (handle_read(cell, &read, event))
                return 1;
            continue;
        }
        if (pump(cell, until_us, event))
            return 1;
        if (!cell->over)
            look_at_time(cell);
        if (!cell->over && cordon_now_us() >= until_us)
            return 0;
    }
}

void cordon_cell_close(struct cordon_cell *cell)
{
    struct cordon_cell_event event;
    if (!cell)
        return;
    cell->started_told = true;
    if (!cell->over && cell->ending == RUNNING)
        interrupt(cell, CORDON_CAUSE_CANCELLED);
    cell->cancel_fd = -1;
    while (!cell->end_told)
        (void)cordon_cell_next(cell, 1000, &event); /* what comes is nobody's any more */
    cordon_context_leave(cell->context);
    cordon_context_put(cell->context);
    cordon_buf_done(&cell->text);
    free(cell);
}
