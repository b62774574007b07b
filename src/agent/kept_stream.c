/* SPDX-License-Identifier: Apache-2.0 */
/* The host's operations: opened, written to, closed; and the agent's side of those that a worker does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/kept.h"
#include "base/fd.h"

#define FROM_MAX (CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER)

struct cordon_kept_stream *cordon_kept_stream_find(struct cordon_kept *kept, uint16_t id)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++)
        if (kept->streams[i].kind && kept->streams[i].id == id)
            return &kept->streams[i];
    return NULL;
}

static struct cordon_kept_stream *find_free(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++)
        if (!kept->streams[i].kind)
            return &kept->streams[i];
    return NULL;
}

/* --- opening --- */

static int start_worker(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_frame *frame)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    const int ends[4] = {-1, -1, -1, pair[1]};
    int r = cordon_kept_launch(kept, &stream->launch, CORDON_LAUNCH_WORKER, frame->payload, frame->length, ends, false);
    (void)close(pair[1]); /* the worker's */
    if (r < 0) {
        (void)close(pair[0]);
        return r;
    }
    stream->kind = CORDON_KEPT_OF_WORKER;
    stream->fd = pair[0];
    stream->from = CORDON_BUF_INIT(FROM_MAX);
    return 0;
}

static int attach(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_open *open)
{
    struct cordon_kept_exec *exec = cordon_kept_exec_find(kept, open->pid);
    if (!exec)
        return -ESRCH;
    uint32_t replay = open->replay < CORDON_KEPT_REPLAY_MAX ? open->replay : CORDON_KEPT_REPLAY_MAX;
    stream->exec = exec;
    stream->place = cordon_ring_last(&exec->ring, replay);
    return 0;
}

static int begin(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_open *open,
                 const struct cordon_frame *frame)
{
    stream->kill_on_close = open->flags & CORDON_OPEN_KILL;
    stream->operation = open->kind;
    switch (open->kind) {
    case CORDON_OP_EXEC:
        return cordon_kept_exec_start(kept, stream, open, frame);
    case CORDON_OP_ATTACH:
        return attach(kept, stream, open);
    case CORDON_KEPT_OP_EXECS:
        cordon_kept_execs_tell(kept, stream);
        return 0;
    case CORDON_KEPT_OP_PORT:
        cordon_kept_port_open(kept, stream, open->port);
        return 0;
    default:
        return open->kind < CORDON_OP__COUNT ? start_worker(kept, stream, frame) : -EINVAL;
    }
}

void cordon_kept_stream_open(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_kept_stream *stream = find_free(kept), none = {.id = frame->exec};
    struct cordon_open open;
    if (!stream || frame->exec == 0 || cordon_kept_stream_find(kept, frame->exec)) {
        cordon_kept_fail(kept, &none, stream ? EINVAL : EAGAIN, "too many operations at once");
        return;
    }
    *stream = (struct cordon_kept_stream){.kind = CORDON_KEPT_OF_EXEC,
                                          .id = frame->exec,
                                          .fd = -1,
                                          .launch = CORDON_LAUNCH_INIT,
                                          .window = CORDON_KEPT_WINDOW};
    for (int i = 0; i < CORDON_KEPT_INS; i++)
        stream->in[i].max = 8 * CORDON_KEPT_WRITE_MAX; /* with a worker's lengths between single bytes */
    int r = cordon_open_parse(frame->payload, frame->length, &open);
    if (r == 0)
        r = begin(kept, stream, &open, frame);
    if (r == -ESRCH)
        cordon_kept_fail(kept, stream, ESRCH, "no program %u of this guest is known", open.pid);
    else if (r < 0)
        cordon_kept_fail(kept, stream, -r, "starting it in the guest: %s", strerror(-r));
}

/* --- from the host --- */

static int in_of(const struct cordon_kept_stream *stream, uint32_t to)
{
    if (stream->kind == CORDON_KEPT_OF_WORKER)
        return to == CORDON_TO_FILE ? 0 : -1;
    if (stream->kind == CORDON_KEPT_OF_PORT) /* one that is relayed */
        return to == CORDON_TO_STDIN && stream->told ? 0 : -1;
    if (stream->kind != CORDON_KEPT_OF_EXEC)
        return -1;
    return to == CORDON_TO_STDIN ? CORDON_KEPT_IN_STDIN : to == CORDON_TO_CHANNEL ? CORDON_KEPT_IN_CHANNEL : -1;
}

static void tell_taken(struct cordon_kept *kept, struct cordon_kept_stream *stream, int in)
{
    const uint32_t n = stream->taken[in];
    const uint8_t to = stream->kind == CORDON_KEPT_OF_WORKER ? CORDON_TO_FILE
                       : in == CORDON_KEPT_IN_STDIN          ? CORDON_TO_STDIN
                                                             : CORDON_TO_CHANNEL;
    const char payload[5] = {(char)to, (char)n, (char)(n >> 8), (char)(n >> 16), (char)(n >> 24)};
    stream->taken[in] = 0;
    cordon_kept_send(kept, CORDON_FRAME_TAKEN, stream->id, payload, sizeof payload);
}

/* A worker that writes gets `u32 length · bytes` each, and a length of 0 at the end, so that it can tell that from our
 * leaving. */
static int put_for_worker(struct cordon_kept_stream *stream, const char *data, uint32_t size)
{
    const char length[4] = {(char)size, (char)(size >> 8), (char)(size >> 16), (char)(size >> 24)};
    int r = cordon_buf_append(&stream->in[0], length, sizeof length);
    if (r == 0 && size)
        r = cordon_buf_append(&stream->in[0], data, size);
    stream->owed += size;
    return r;
}

void cordon_kept_stream_write(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_kept_stream *stream = cordon_kept_stream_find(kept, frame->exec);
    int in = stream ? in_of(stream, (uint8_t)frame->payload[0]) : -1;
    uint32_t size = frame->length - 1;
    if (in < 0)
        return;
    bool gone = stream->ended || stream->deaf || stream->in_end[in] ||
                (stream->exec && stream->exec->in[in] < 0 && !stream->exec->starting);
    int r = gone                                    ? 0
            : stream->kind == CORDON_KEPT_OF_WORKER ? put_for_worker(stream, frame->payload + 1, size)
                                                    : cordon_buf_append(&stream->in[in], frame->payload + 1, size);
    if (r < 0)
        cordon_kept_fail(kept, stream, ENOBUFS, "more was written than the window allows");
    stream->taken[in] += gone ? size : 0;
}

static void end_input(struct cordon_kept *kept, struct cordon_kept_stream *stream, uint32_t to)
{
    int in = in_of(stream, to);
    (void)kept;
    if (in < 0 || stream->in_end[in])
        return;
    if (stream->kind == CORDON_KEPT_OF_WORKER)
        (void)put_for_worker(stream, "", 0); /* a full buffer: the worker sees the end without it, and fails */
    stream->in_end[in] = true;
}

void cordon_kept_stream_control(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_kept_stream *stream = cordon_kept_stream_find(kept, frame->exec);
    uint32_t control = cordon_frame_u32(frame, 0), value = cordon_frame_u32(frame, 4);
    if (!stream)
        return;
    if (control == CORDON_CONTROL_END)
        end_input(kept, stream, value);
    else if (control == CORDON_CONTROL_SIGNAL && stream->exec && value > 0 && value < NSIG)
        cordon_kept_exec_signal(kept, stream->exec, (int)value);
    else if (control == CORDON_CONTROL_RESIZE && stream->exec)
        cordon_kept_exec_resize(stream->exec, value);
}

/* --- the end --- */

static void free_stream(struct cordon_kept_stream *stream)
{
    for (int i = 0; i < CORDON_KEPT_INS; i++) {
        cordon_buf_done(&stream->in[i]);
        if (stream->exec && stream->exec->writer[i] == stream)
            stream->exec->writer[i] = NULL;
    }
    cordon_buf_done(&stream->from);
    cordon_close(&stream->fd); /* a worker ends by itself then: what it half wrote it removes */
    cordon_kept_launch_done(&stream->launch);
    *stream = (struct cordon_kept_stream){.fd = -1, .launch = CORDON_LAUNCH_INIT};
}

/* A program alone: for a server the host itself waits, as long as it sees fit. */
static bool still_writes(const struct cordon_kept_stream *stream)
{
    if (!stream->exec || stream->ended || !(stream->exec->running || stream->exec->starting))
        return false;
    for (int i = 0; i < CORDON_KEPT_INS; i++)
        if ((stream->in[i].size || stream->in_end[i]) && (stream->exec->in[i] >= 0 || stream->exec->starting))
            return true;
    return false;
}

static void finish_close(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    if (stream->exec && stream->kill_on_close)
        cordon_kept_exec_kill(stream->exec, CORDON_ENDED_KILLED);
    cordon_kept_send(kept, CORDON_FRAME_CLOSED, stream->id, NULL, 0);
    free_stream(stream);
}

void cordon_kept_stream_close(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    stream->closing = true;
    if (stream->kill_on_close || !still_writes(stream))
        finish_close(kept, stream);
}

void cordon_kept_streams_drop(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        struct cordon_kept_stream *stream = &kept->streams[i];
        if (!stream->kind)
            continue;
        if (stream->exec && stream->kill_on_close)
            cordon_kept_exec_kill(stream->exec, CORDON_ENDED_KILLED);
        free_stream(stream);
    }
}

/* --- workers --- */

/* What a worker may say. It is a process of the code's uid, so it may be the code that speaks. */
static bool may_say(uint8_t type)
{
    return type == CORDON_FRAME_OUTPUT || type == CORDON_FRAME_ENTRY || type == CORDON_FRAME_CHANGE ||
           type == CORDON_FRAME_DISK || type == CORDON_FRAME_DONE || type == CORDON_FRAME_FAILED ||
           type == CORDON_FRAME_BEGAN;
}

static void end_worker(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    cordon_close(&stream->fd);
    if (!stream->ended)
        cordon_kept_fail(kept, stream, EIO,
                         "the process that did it ended early: the guest's memory or processes may be used up");
}

/* False: no more is to be read now. */
static bool pass_on(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    struct cordon_frame frame;
    if (stream->window <= 0 || !cordon_kept_has_room(kept) || stream->ended)
        return false;
    int64_t n = cordon_frame_parse(stream->from.data, stream->from.size, 1, &frame);
    if (n == 0)
        return false;
    if (n < 0 || !may_say(frame.type)) {
        end_worker(kept, stream);
        return false;
    }
    cordon_kept_send(kept, frame.type, stream->id, frame.payload, frame.length);
    stream->window -= cordon_kept_cost(frame.type, frame.length);
    stream->ended = frame.type == CORDON_FRAME_DONE || frame.type == CORDON_FRAME_FAILED;
    cordon_buf_consume(&stream->from, (size_t)n);
    return true;
}

static void feed_worker(struct cordon_kept_stream *stream)
{
    ssize_t n = send(stream->fd, stream->in[0].data, stream->in[0].size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        cordon_buf_consume(&stream->in[0], (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        cordon_buf_done(&stream->in[0]); /* it ended; what it told is still to be read */
    if (stream->in[0].size > CORDON_KEPT_WRITE_MAX / 2)
        return;
    stream->taken[0] += stream->owed;
    stream->owed = 0;
}

static void on_worker(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_stream *stream = object;
    if (stream->kind != CORDON_KEPT_OF_WORKER || stream->fd < 0)
        return;
    if (events & POLLOUT && stream->in[0].size)
        feed_worker(stream);
    if (!(events & (POLLIN | POLLHUP | POLLERR)))
        return;
    size_t room = FROM_MAX - stream->from.size;
    char *to = room ? cordon_buf_reserve(&stream->from, room) : NULL;
    if (!to)
        return;
    ssize_t n = recv(stream->fd, to, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        stream->from.size += (size_t)n;
    while (pass_on(kept, stream))
        continue;
    if (n <= 0)
        cordon_close(&stream->fd); /* frames that are here still go out */
}

/* Why a worker could not begin is said over its status. */
static void on_status(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_stream *stream = object;
    struct cordon_launched launched;
    int listener;
    (void)events;
    if (stream->launch.status < 0)
        return;
    int r = cordon_kept_launched(kept, &stream->launch, &launched, &listener);
    if (r == 0)
        return;
    cordon_close(&listener);
    cordon_kept_launch_done(&stream->launch);
    if (r == 1 && launched.error < 0 && !stream->ended)
        cordon_kept_fail(kept, stream, -launched.error, "starting the file worker: %s: %s", launched.stage,
                         strerror(-launched.error));
}

static bool has_whole_frame(const struct cordon_kept_stream *stream)
{
    struct cordon_frame frame;
    return cordon_frame_parse(stream->from.data, stream->from.size, 1, &frame) != 0;
}

/* A worker that ended without a last word. */
static void check_worker(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    if (stream->fd >= 0 || stream->ended || has_whole_frame(stream))
        return;
    on_status(kept, stream, 0);
    if (!stream->ended)
        end_worker(kept, stream);
}

static void watch_worker(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    bool reads = stream->window > 0 && cordon_kept_has_room(kept) && !stream->ended && !has_whole_frame(stream);
    short events = (short)((reads ? POLLIN : 0) | (stream->in[0].size ? POLLOUT : 0));
    if (stream->launch.status >= 0)
        cordon_kept_watch(kept, stream->launch.status, POLLIN, on_status, stream);
    if (stream->fd >= 0 && events)
        cordon_kept_watch(kept, stream->fd, events, on_worker, stream);
}

void cordon_kept_streams_watch(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        struct cordon_kept_stream *stream = &kept->streams[i];
        if (stream->kind == CORDON_KEPT_OF_WORKER)
            watch_worker(kept, stream);
        else if (stream->kind == CORDON_KEPT_OF_PORT)
            cordon_kept_port_watch(kept, stream);
    }
}

void cordon_kept_streams_step(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        struct cordon_kept_stream *stream = &kept->streams[i];
        if (stream->kind == CORDON_KEPT_OF_WORKER) {
            while (pass_on(kept, stream)) /* the window may have been opened */
                continue;
            check_worker(kept, stream);
        }
        for (int in = 0; stream->kind && in < CORDON_KEPT_INS; in++)
            if (stream->taken[in] && kept->channel >= 0)
                tell_taken(kept, stream, in);
        if (stream->kind && stream->closing && !still_writes(stream))
            finish_close(kept, stream);
    }
}
