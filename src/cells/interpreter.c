/* SPDX-License-Identifier: Apache-2.0 */
/* A context's interpreter: started, found again, interrupted, ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "cells/internal.h"
#include "proto/frame.h"

#define START_US 120000000u /* until it must be ready: Python takes 40 s in an emulated machine of a busy host */
#define SYNC_US 2000000u    /* until one that was found must have ended what it does */
#define STOP_US 3000000u    /* until a killed one is gone */
#define WHY_MAX 200u        /* kept of what it said before it failed to start */
#define ARGV_MAX 8

/* --- starting --- */

static char *fill_in(const char *text, const struct cordon_cells_language *language, uint64_t memory_mb)
{
    const struct cordon_cells_source *boot = &language->sources[0];
    const char *brace = strchr(text, '{');
    char *filled = NULL;
    if (!brace)
        return strdup(text);
    if (strcmp(text, "{boot}") == 0)
        return strndup(boot->text, *boot->size);
    return asprintf(&filled, "%.*s%llu", (int)(brace - text), text, (unsigned long long)memory_mb) < 0 ? NULL : filled;
}

static void free_argv(char *argv[ARGV_MAX])
{
    for (size_t i = 0; i < ARGV_MAX; i++)
        free(argv[i]);
}

static int fill_argv(const char *tenant, const struct cordon_context *context, char *argv[ARGV_MAX], size_t *ret_count,
                     struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    int r = cordon_guests_info(tenant, context->guest, &info, err);
    if (r < 0)
        return r;
    uint64_t memory_mb = info->limits.memory_bytes >> 20;
    cordon_guest_info_free(info);
    for (*ret_count = 0; context->language->argv[*ret_count]; ++*ret_count) {
        argv[*ret_count] = fill_in(context->language->argv[*ret_count], context->language, memory_mb);
        if (!argv[*ret_count])
            return cordon_fail_errno(err, -ENOMEM, "starting an interpreter");
    }
    return 0;
}

static int send_frame(struct cordon_context *context, uint8_t type, const char *name, const char *data, size_t size,
                      struct cordon_error *err)
{
    char header[CORDON_FRAME_HEADER];
    size_t name_size = *name ? strlen(name) + 1 : 0;
    cordon_frame_header(header, type, 0, (uint32_t)(size + name_size));
    int r = cordon_guests_write(context->stream, CORDON_TO_CHANNEL, header, sizeof header, err);
    if (r >= 0 && name_size)
        r = cordon_guests_write(context->stream, CORDON_TO_CHANNEL, name, name_size, err);
    if (r >= 0 && size)
        r = cordon_guests_write(context->stream, CORDON_TO_CHANNEL, data, size, err);
    return r < 0 ? r : 0;
}

static int send_sources(struct cordon_context *context, struct cordon_error *err)
{
    int r = 0;
    for (const struct cordon_cells_source *source = &context->language->sources[1]; source->text && r == 0; source++)
        r = send_frame(context, CORDON_CELL_FRAME_SOURCE, source->name, source->text, *source->size, err);
    return r;
}

static int died(struct cordon_context *context, const struct cordon_exec_exit *exit, const struct cordon_buf *said,
                struct cordon_error *err)
{
    const char *last = said->data ? said->data : "";
    context->ended = true;
    return cordon_fail(err, -ECHILD, CORDON_ERROR_INFRASTRUCTURE,
                       "the %s interpreter of context %s ended before it was ready: %s%s%.*s", context->language->name,
                       context->info.id, exit && exit->message[0] ? exit->message : "it exited",
                       *last ? "; it said: " : "", (int)WHY_MAX, last);
}

/* Reads what comes until `done` says that this was it, or the time is over. */
static int read_until(struct cordon_context *context, uint64_t until_us,
                      bool (*done)(struct cordon_context *context, const void *what), const void *what,
                      struct cordon_error *err)
{
    struct cordon_buf said = CORDON_BUF_INIT(64u << 10);
    int r = 0;
    while (r == 0 && !done(context, what)) {
        struct cordon_stream_event event;
        bool ended = false;
        uint64_t now = cordon_now_us();
        int wait_ms = now >= until_us ? 0 : (int)((until_us - now) / 1000 + 1);
        int got = cordon_guests_next(context->stream, wait_ms, &event, &ended, err);
        if (got < 0)
            r = got;
        else if (got == 0 && (ended || cordon_now_us() >= until_us))
            r = cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE,
                            "the interpreter of context %s was not ready in time", context->info.id);
        else if (got == 1 && event.type == CORDON_STREAM_STARTED)
            context->pid = event.pid;
        else if (got == 1 && event.type == CORDON_STREAM_CHANNEL)
            r = cordon_cell_reader_feed(&context->reader, event.data.data, event.data.size);
        else if (got == 1 && event.type == CORDON_STREAM_EXIT)
            r = died(context, event.exit, &said, err);
        else if (got == 1 && event.type == CORDON_STREAM_STDERR)
            (void)cordon_buf_append(&said, event.data.data, event.data.size); /* more than that says no more */
    }
    cordon_buf_done(&said);
    return r;
}

static bool is_ready(struct cordon_context *context, const void *unused)
{
    struct cordon_cell_reader_event event;
    do
        event = cordon_cell_reader_next(&context->reader);
    while (event.type != CORDON_CELL_READ_MORE && event.type != CORDON_CELL_READ_READY &&
           event.type != CORDON_CELL_READ_BROKEN);
    return event.type == CORDON_CELL_READ_READY;
}

static void set_stream(struct cordon_context *context, struct cordon_live_stream *stream)
{
    pthread_mutex_lock(&context->lock);
    struct cordon_live_stream *old = context->stream;
    context->stream = stream;
    pthread_mutex_unlock(&context->lock);
    cordon_guests_close(old);
}

static int open_stream(const char *tenant, struct cordon_context *context, struct cordon_operation *operation,
                       struct cordon_error *err)
{
    struct cordon_live_stream *stream = NULL;
    operation->struct_size = sizeof *operation;
    operation->cancel_fd = -1;
    cordon_cell_reader_done(&context->reader);
    context->reader = CORDON_CELL_READER_INIT;
    int r = cordon_guests_open(tenant, context->guest, operation, &stream, err);
    if (r >= 0)
        set_stream(context, stream);
    return r < 0 ? r : 0;
}

static int launch(const char *tenant, struct cordon_context *context, struct cordon_error *err)
{
    char *argv[ARGV_MAX] = {0}, tag[64];
    size_t argc = 0;
    cordon_context_tag(context, tag);
    int r = fill_argv(tenant, context, argv, &argc, err);
    struct cordon_operation operation = {.kind = CORDON_OP_EXEC,
                                         .argv = (const char *const *)argv,
                                         .argc = argc,
                                         .cwd = context->info.cwd,
                                         .channel = true,
                                         .tag = tag};
    if (r == 0)
        r = open_stream(tenant, context, &operation, err);
    free_argv(argv);
    if (r == 0)
        r = send_sources(context, err);
    if (r == 0)
        r = read_until(context, cordon_now_us() + START_US, is_ready, NULL, err);
    if (r < 0 && context->stream) {
        cordon_context_kill(context);
        cordon_context_stop(context);
        return r;
    }
    if (r < 0)
        return r;
    context->started = true;
    context->ended = false;
    context->number = 0;
    return 0;
}

/* --- finding one again --- */

static bool is_synced(struct cordon_context *context, const void *nonce)
{
    return cordon_cell_reader_sync(&context->reader, nonce, &context->number) == 1;
}

/* What it still does belongs to a client of an earlier gateway, who is gone: it is interrupted. */
static int attach(const char *tenant, struct cordon_context *context, struct cordon_error *err)
{
    struct cordon_operation operation = {.kind = CORDON_OP_ATTACH, .pid = context->pid};
    unsigned char nonce[CORDON_CELL_NONCE];
    if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return cordon_fail_errno(err, -EIO, "random bytes");
    int r = open_stream(tenant, context, &operation, err);
    if (r == 0)
        r = cordon_context_interrupt(context);
    if (r >= 0)
        r = send_frame(context, CORDON_CELL_FRAME_SYNC, "", (const char *)nonce, sizeof nonce, err);
    return r < 0 ? r : read_until(context, cordon_now_us() + SYNC_US, is_synced, nonce, err);
}

int cordon_context_start(const char *tenant, struct cordon_context *context, bool *fresh, struct cordon_error *err)
{
    struct cordon_error why = {0};
    *fresh = false;
    int r = cordon_guests_wake(tenant, context->guest, err);
    if (r < 0 || !context->language->stays)
        return r;
    if (context->stream && !context->ended) {
        cordon_guests_rest(context->stream, false);
        return 0;
    }
    if (context->started && !context->ended && attach(tenant, context, &why) == 0)
        return 0;
    if (why.kind == CORDON_ERROR_PAUSED || why.kind == CORDON_ERROR_GONE || why.kind == CORDON_ERROR_QUOTA) {
        if (err)
            *err = why;
        return why.code;
    }
    if (context->started)
        cordon_context_kill(context);
    cordon_context_stop(context);
    *fresh = true;
    return launch(tenant, context, err);
}

/* --- ending --- */

void cordon_context_stop(struct cordon_context *context)
{
    uint64_t until_us = cordon_now_us() + STOP_US;
    struct cordon_stream_event event = {0};
    bool ended = !context->stream;
    while (!ended && cordon_now_us() < until_us) {
        int got = cordon_guests_next(context->stream, 100, &event, &ended, NULL);
        ended = ended || got < 0 || (got == 1 && event.type == CORDON_STREAM_EXIT);
    }
    set_stream(context, NULL);
    context->ended = context->started;
    cordon_cell_reader_done(&context->reader);
}

void cordon_context_kill(struct cordon_context *context)
{
    char tag[64];
    pthread_mutex_lock(&context->lock);
    int r = context->stream ? cordon_guests_control(context->stream, CORDON_CONTROL_SIGNAL, SIGKILL, NULL) : -ENOENT;
    pthread_mutex_unlock(&context->lock);
    if (r >= 0 || !context->started)
        return;
    cordon_context_tag(context, tag);
    (void)cordon_guests_exec_control(cordon_guests_all, context->guest, 0, tag, CORDON_CONTROL_SIGNAL, SIGKILL,
                                     NULL); /* gone is what was wanted */
}

/* The frame does not go over our stream, which belongs to who has the turn; it can't meet a cell's: there is none on
 * its way while one runs. */
static int send_interrupt(const struct cordon_context *context, uint32_t number)
{
    char frame[CORDON_FRAME_HEADER + 4], tag[64];
    cordon_context_tag(context, tag);
    cordon_frame_header(frame, CORDON_CELL_FRAME_INTERRUPT, 0, 4);
    for (int i = 0; i < 4; i++)
        frame[CORDON_FRAME_HEADER + i] = (char)(number >> (8 * i));
    return cordon_guests_exec_write(cordon_guests_all, context->guest, 0, tag, CORDON_TO_CHANNEL, frame, sizeof frame,
                                    NULL);
}

int cordon_context_interrupt(struct cordon_context *context)
{
    pthread_mutex_lock(&context->lock);
    int r = context->stream ? cordon_guests_control(context->stream, CORDON_CONTROL_SIGNAL, SIGINT, NULL) : 0;
    uint32_t number = context->language->by_frame ? context->cell : 0;
    pthread_mutex_unlock(&context->lock);
    if (r >= 0 && number)
        r = send_interrupt(context, number);
    return r < 0 ? r : 0;
}

/* --- a cell --- */

int cordon_context_send_cell(struct cordon_context *context, const struct cordon_cell_request *request,
                             struct cordon_error *err)
{
    struct cordon_buf fields = CORDON_BUF_INIT(CORDON_FRAME_MAX);
    (void)cordon_field_put_u32(&fields, CORDON_CELL_FIELD_NUMBER, context->number + 1); /* sticky, all of them */
    for (size_t i = 0; i < request->env_count; i++)
        (void)cordon_field_put(&fields, CORDON_CELL_FIELD_ENV, request->env[i], (uint32_t)strlen(request->env[i]));
    if (request->code.size < CORDON_FRAME_MAX)
        (void)cordon_field_put(&fields, CORDON_CELL_FIELD_CODE, request->code.data, (uint32_t)request->code.size);
    int r = fields.failed || request->code.size >= CORDON_FRAME_MAX
                ? cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE,
                              "the cell's code and environment are larger than %u MiB", CORDON_FRAME_MAX >> 20)
                : send_frame(context, CORDON_CELL_FRAME_CELL, "", fields.data, fields.size, err);
    cordon_buf_done(&fields);
    if (r < 0)
        return r;
    pthread_mutex_lock(&context->lock);
    context->cell = ++context->number;
    pthread_mutex_unlock(&context->lock);
    return 0;
}
