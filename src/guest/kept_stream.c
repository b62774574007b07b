/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a kept guest, from the side of those who asked for them. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "guest/kept.h"

#define QUEUE_MAX (2u * (CORDON_KEPT_WINDOW + 4u * CORDON_FRAME_DATA_MAX)) /* with what was taken out of it */
#define QUEUE_INFOS (8u << 20) /* of the list of programs, which has no window */
#define GIVE_BACK (CORDON_KEPT_WINDOW / 4)
#define WRITE_MS 60000 /* for a guest to take something in, where no client can leave meanwhile */
#define FIELDS_MAX (CORDON_FRAME_MAX - 4096u)

static void put32(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (8 * i));
}

/* --- open and close --- */

static struct cordon_stream *new_stream(struct cordon_guest_handle *guest, uint32_t kind, int cancel_fd)
{
    struct cordon_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->guest = guest;
    stream->kind = kind;
    stream->cancel_fd = cancel_fd;
    stream->port_fd = -1;
    stream->window = CORDON_KEPT_WINDOW;
    stream->queue.max = kind == CORDON_KEPT_OP_EXECS ? QUEUE_INFOS : QUEUE_MAX;
    stream->current.max = CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER;
    for (int i = 0; i < CORDON_KEPT_WRITES; i++)
        stream->writable[i] = CORDON_KEPT_WRITE_MAX;
    stream->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stream->event_fd < 0) {
        free(stream);
        return NULL;
    }
    return stream;
}

static void free_stream(struct cordon_stream *stream)
{
    cordon_close(&stream->event_fd);
    cordon_close(&stream->port_fd);
    cordon_buf_done(&stream->queue);
    cordon_buf_done(&stream->current);
    free(stream);
}

/* With the lock held: a number that is free, 0 when there is none. */
static uint16_t take_id(struct cordon_guest_handle *guest)
{
    for (unsigned i = 1; i < CORDON_KEPT_STREAM_IDS; i++) {
        uint16_t id = (uint16_t)(1 + (guest->last_id + i) % (CORDON_KEPT_STREAM_IDS - 1));
        if (guest->streams[id] || guest->closing[id])
            continue;
        guest->last_id = id;
        return id;
    }
    return 0;
}

/* Its number is 0 as long as it has not. */
static int enter(struct cordon_stream *stream, struct cordon_error *err)
{
    struct cordon_guest_handle *guest = stream->guest;
    int r = 0;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    if (guest->gone)
        r = cordon_kept_say_gone(guest, err);
    else if (guest->paused || (guest->machine && guest->quiet))
        r = cordon_fail(err, -EBUSY, CORDON_ERROR_PAUSED, "the guest %s is paused: resume it first", guest->id);
    else if ((stream->id = take_id(guest)) == 0)
        r = cordon_fail(err, -EAGAIN, CORDON_ERROR_QUOTA,
                        "%u operations are under way in the guest %s, as many as can be", CORDON_KEPT_STREAM_IDS - 1,
                        guest->id);
    if (r == 0) {
        guest->streams[stream->id] = stream;
        guest->refs++;
    }
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

int cordon_kept_open_fields(struct cordon_guest_handle *guest, uint32_t kind, struct cordon_buf *fields, int cancel_fd,
                            struct cordon_stream **ret, struct cordon_error *err)
{
    if (fields->failed)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE,
                           "arguments and environment are too large: %u bytes can be sent", FIELDS_MAX);
    struct cordon_stream *stream = new_stream(guest, kind, cancel_fd);
    if (!stream)
        return cordon_fail_errno(err, -ENOMEM, "start an operation in the guest %s", guest->id);
    int r = cordon_kept_send_open(stream, enter, fields, err);
    if (r == 0)
        *ret = stream;
    else if (stream->id)
        cordon_kept_stream_close(stream);
    else
        free_stream(stream);
    return r;
}

static bool too_long(const char *path)
{
    return path && strlen(path) >= CORDON_KEPT_PATH_MAX;
}

int cordon_kept_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                     struct cordon_stream **ret, struct cordon_error *err)
{
    if (operation->kind < CORDON_OP_EXEC || operation->kind >= CORDON_OP__COUNT)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "kept guests do not have operation %d",
                           (int)operation->kind);
    if (operation->user && strcmp(operation->user, "user") != 0 && strcmp(operation->user, "root") != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "user \"%.40s\": a guest has user and root",
                           operation->user);
    if (operation->kind == CORDON_OP_EXEC && operation->argc == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "there is no program to execute");
    if (too_long(operation->path) || too_long(operation->target) || too_long(operation->cwd))
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "a path is longer than %u bytes",
                           CORDON_KEPT_PATH_MAX - 1);
    if (operation->tag && strlen(operation->tag) >= CORDON_KEPT_TAG_MAX)
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "a tag is longer than %u bytes",
                           CORDON_KEPT_TAG_MAX - 1);
    struct cordon_buf fields = CORDON_BUF_INIT(FIELDS_MAX);
    cordon_operation_put(&fields, operation);
    int r = cordon_kept_open_fields(guest, operation->kind, &fields, operation->cancel_fd, ret, err);
    cordon_buf_wipe(&fields); /* environment */
    return r;
}

void cordon_kept_stream_close(struct cordon_stream *stream)
{
    if (!stream)
        return;
    struct cordon_guest_handle *guest = stream->guest;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    guest->streams[stream->id] = NULL;
    guest->closing[stream->id] = true;
    (void)pthread_mutex_unlock(&guest->lock);
    (void)cordon_kept_send_frame(guest, CORDON_FRAME_CLOSE, stream->id, NULL, 0, NULL, 0, NULL); /* gone: closed, too */
    free_stream(stream);
    cordon_kept_unref(guest);
}

/* --- waiting --- */

/* 1: something happened, 0: the time is over, -ECANCELED. */
static int wait_for_event(const struct cordon_stream *stream, uint64_t until_us)
{
    struct pollfd fds[] = {{.fd = stream->event_fd, .events = POLLIN}, {.fd = stream->cancel_fd, .events = POLLRDHUP}};
    for (;;) {
        uint64_t now = cordon_now_us();
        int left_ms = until_us == UINT64_MAX ? -1 : now >= until_us ? 0 : (int)((until_us - now + 999) / 1000);
        int n = poll(fds, 2, left_ms);
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0 && fds[0].revents) {
            eventfd_t count;
            (void)eventfd_read(stream->event_fd, &count); /* what it says is looked up under the lock */
            return 1;
        }
        if (n > 0)
            return -ECANCELED;
        if (n == 0)
            return 0;
    }
}

static uint64_t until(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : cordon_now_us() + (uint64_t)timeout_ms * 1000;
}

/* What is left moves to the front once it is the smaller part: with each frame, small ones would cost a move of all. */
static void drop_taken(struct cordon_stream *stream, size_t size)
{
    stream->queue_at += size;
    if (stream->queue_at <= stream->queue.size / 2)
        return;
    cordon_buf_consume(&stream->queue, stream->queue_at);
    stream->queue_at = 0;
}

/* Moves the next frame into `current`: 1; 0: there is none now; negative with err: there will be none. */
static int pop(struct cordon_stream *stream, uint32_t *give_back, struct cordon_error *err)
{
    struct cordon_guest_handle *guest = stream->guest;
    struct cordon_frame frame;
    int r = 0;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    const char *front = stream->queue.data ? stream->queue.data + stream->queue_at : NULL;
    int64_t n = cordon_frame_parse(front, stream->queue.size - stream->queue_at, 1, &frame);
    if (n > 0) {
        stream->current.size = 0;
        r = cordon_buf_append(&stream->current, front, (size_t)n) < 0
                ? cordon_fail_errno(err, -ENOMEM, "take an event of the guest %s", guest->id)
                : 1;
        drop_taken(stream, (size_t)n);
        stream->owed += cordon_kept_cost(frame.type, frame.length);
        if (stream->owed >= GIVE_BACK && !stream->over) {
            *give_back = stream->owed;
            stream->window += stream->owed;
            stream->owed = 0;
        }
    } else if (guest->gone && !stream->over) {
        r = cordon_kept_say_gone(guest, err);
    }
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

int cordon_kept_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            struct cordon_error *err)
{
    return cordon_kept_stream_step(stream, timeout_ms, event, NULL, NULL, err);
}

int cordon_kept_stream_step(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            int (*take)(void *context, struct cordon_stream *stream), void *context,
                            struct cordon_error *err)
{
    uint64_t until_us = until(timeout_ms);
    while (!stream->given) {
        uint32_t give_back = 0;
        int r = pop(stream, &give_back, err);
        if (give_back) {
            char bytes[4];
            put32(bytes, give_back);
            /* A guest that is gone is told by the next pop. */
            (void)cordon_kept_send_frame(stream->guest, CORDON_FRAME_WINDOW, stream->id, bytes, 4, NULL, 0, NULL);
        }
        if (r == 1 && take)
            (void)take(context, stream); /* always 0 */
        if (r == 1) {
            r = cordon_kept_event(stream, event, err);
            stream->given =
                r < 0 || (r == 1 && (event->type == CORDON_STREAM_EXIT || event->type == CORDON_STREAM_END));
            if (r == 0)
                continue;
            return r;
        }
        if (r < 0) {
            stream->given = true;
            return r;
        }
        r = wait_for_event(stream, until_us);
        if (r == -ECANCELED)
            return cordon_fail(err, r, CORDON_ERROR_CANCELLED, "the client left");
        if (r == 0)
            return 0;
    }
    return 0;
}

/* --- writing --- */

/* A file's writer is told why it can't be written, which the guest has said. */
static int why_over(struct cordon_stream *stream, int r, struct cordon_error *err)
{
    struct cordon_stream_event event;
    struct cordon_error own = {0};
    if (r != -EPIPE || stream->kind != CORDON_OP_WRITE)
        return r;
    int told;
    while ((told = cordon_kept_stream_next(stream, 0, &event, &own)) == 1)
        continue;
    if (told == 0)
        return r;
    if (err)
        *err = own;
    return told;
}

int cordon_kept_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                             struct cordon_error *err)
{
    const char *at = data;
    uint64_t until_us = stream->cancel_fd < 0 ? until(WRITE_MS) : UINT64_MAX;
    while (size) {
        ssize_t n = cordon_kept_stream_offer(stream, to, at, size, err);
        if (n < 0)
            return why_over(stream, (int)n, err);
        at += n;
        size -= (size_t)n;
        if (n > 0)
            continue;
        int r = wait_for_event(stream, until_us);
        if (r < 0)
            return cordon_fail(err, r, CORDON_ERROR_CANCELLED, "the client left");
        if (r == 0)
            return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_CONFLICT,
                               "nobody in the guest has read what was written for %d s", WRITE_MS / 1000);
    }
    return 0;
}

int cordon_kept_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                               struct cordon_error *err)
{
    char bytes[8];
    put32(bytes, control);
    put32(bytes + 4, value);
    return cordon_kept_send_frame(stream->guest, CORDON_FRAME_CONTROL, stream->id, bytes, sizeof bytes, NULL, 0, err);
}
