/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes between an exec's ends, its ring and the streams that read it. A record of the ring goes to every stream,
 * at each one's own speed; the pipes are read as long as the slowest has room. Nobody attached: the ring forgets.
 *
 * What is read of a channel (descriptor 3) comes behind all that the program had written to stdout and stderr before,
 * so that a driver can say "done" there and be believed.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/kept.h"
#include "base/clock.h"
#include "base/fd.h"

#define UNSEEN_COST 2 /* of pace.c's things, for a read that no host pays for by its window */

static const uint8_t which_of[CORDON_KEPT_OUTS] = {CORDON_OUTPUT_STDOUT, CORDON_OUTPUT_STDERR, CORDON_OUTPUT_CHANNEL};

/* --- ends to ring --- */

/* How much may be read; readers: whether anybody would miss what is lost. */
static size_t room_of(const struct cordon_kept *kept, const struct cordon_kept_exec *exec, bool *readers)
{
    uint64_t keep = exec->ring.end;
    *readers = false;
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        const struct cordon_kept_stream *stream = &kept->streams[i];
        if (!stream->kind || stream->exec != exec || stream->closing)
            continue;
        *readers = true;
        if (stream->place.at < keep)
            keep = stream->place.at;
    }
    return cordon_ring_room(&exec->ring, keep);
}

static void count(struct cordon_kept_exec *exec, int which, size_t n)
{
    if (which == CORDON_KEPT_OUT_CHANNEL)
        return;
    exec->bytes[which] += n;
    if (exec->output_kill_bytes && exec->bytes[which] > exec->output_kill_bytes && !exec->how)
        cordon_kept_exec_kill(exec, CORDON_ENDED_OUTPUT);
}

/* How many bytes; 0: none now, or the end; negative: the readers have no room. */
static ssize_t pump(struct cordon_kept *kept, struct cordon_kept_exec *exec, int which)
{
    char data[CORDON_RING_CHUNK];
    bool readers;
    size_t room = room_of(kept, exec, &readers);
    bool over = !exec->running && !exec->starting; /* its end was told: what is left of it only must not block */
    if (exec->out[which] < 0)
        return 0;
    if (room == 0)
        return -EAGAIN;
    ssize_t n = read(exec->out[which], data, over ? sizeof data : room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) { /* a terminal whose last user is gone says EIO */
        cordon_close(&exec->out[which]);
        return 0;
    }
    exec->left[which] -= (int)n;
    if (!readers || over)
        cordon_pace_spend(&exec->pace, UNSEEN_COST);
    else if (n < CORDON_AGENT_SMALL)
        cordon_pace_spend(&exec->pace, 1);
    if (over)
        return n;
    count(exec, which, (size_t)n);
    if (cordon_ring_push(&exec->ring, which_of[which], data, (size_t)n) < 0)
        cordon_kept_quit("no memory for a program's output");
    return n;
}

static int waiting_in(int fd)
{
    int n = 0;
    return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? n : 0;
}

static bool pump_all_of(struct cordon_kept *kept, struct cordon_kept_exec *exec, int which)
{
    for (ssize_t left = waiting_in(exec->out[which]); left > 0;) {
        ssize_t n = pump(kept, exec, which);
        if (n < 0)
            return false;
        if (n == 0)
            break;
        left -= n;
    }
    return true;
}

static void on_output(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_exec *exec = object;
    (void)events;
    if (!exec->used)
        return;
    (void)pump(kept, exec, CORDON_KEPT_OUT_STDOUT); /* one chunk each: others get their turn */
    (void)pump(kept, exec, CORDON_KEPT_OUT_STDERR);
}

static void on_channel(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_exec *exec = object;
    (void)events;
    if (exec->used && pump_all_of(kept, exec, CORDON_KEPT_OUT_STDOUT) &&
        pump_all_of(kept, exec, CORDON_KEPT_OUT_STDERR))
        (void)pump(kept, exec, CORDON_KEPT_OUT_CHANNEL);
}

/* The program is gone: what it left in its pipes is read at once, as far as the readers let us. */
static void pump_rest(struct cordon_kept *kept, struct cordon_kept_exec *exec)
{
    for (int which = 0; which < CORDON_KEPT_OUTS; which++)
        while (exec->out[which] >= 0 && (exec->left[which] > 0 || exec->pty) && pump(kept, exec, which) > 0)
            continue;
}

bool cordon_kept_pump_is_dry(const struct cordon_kept_exec *exec)
{
    for (int which = 0; which < CORDON_KEPT_OUTS; which++) {
        bool terminal = exec->pty && which == CORDON_KEPT_OUT_STDOUT;
        if (exec->out[which] < 0)
            continue;
        if (terminal ? cordon_now_us() < exec->settle_by_us : exec->left[which] > 0)
            return false;
    }
    return true;
}

/* --- streams to ends --- */

static struct cordon_kept_stream *next_writer(struct cordon_kept *kept, struct cordon_kept_exec *exec, int in)
{
    struct cordon_kept_stream *now = exec->writer[in], *last = NULL;
    if (now && now->in[in].size)
        return now;
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        struct cordon_kept_stream *stream = &kept->streams[i];
        if (!stream->kind || stream->exec != exec)
            continue;
        if (stream->in[in].size)
            return stream;
        if (stream->in_end[in])
            last = stream; /* an end counts for all, so it comes behind what all have written */
    }
    return last;
}

static void drop_input(struct cordon_kept_stream *stream, int in)
{
    stream->taken[in] += (uint32_t)stream->in[in].size;
    cordon_buf_done(&stream->in[in]);
    stream->in_end[in] = false;
}

static void end_input(struct cordon_kept_exec *exec, int in)
{
    static const char end_of_transmission = 4;
    if (exec->pty && in == CORDON_KEPT_IN_STDIN) {
        (void)!write(exec->in[in], &end_of_transmission, 1); /* a full terminal takes no more anyway */
        return;
    }
    if (in == CORDON_KEPT_IN_CHANNEL)
        (void)shutdown(exec->in[in], SHUT_WR); /* the other end may be gone */
    cordon_close(&exec->in[in]);
}

static void write_some(struct cordon_kept_exec *exec, struct cordon_kept_stream *stream, int in)
{
    while (stream->in[in].size) {
        ssize_t n = write(exec->in[in], stream->in[in].data, stream->in[in].size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) { /* EPIPE, EIO: the program reads no more, which is its right */
            cordon_close(&exec->in[in]);
            drop_input(stream, in);
            return;
        }
        stream->taken[in] += (uint32_t)n;
        cordon_buf_consume(&stream->in[in], (size_t)n);
    }
    if (!stream->in_end[in])
        return;
    end_input(exec, in);
    stream->in_end[in] = false;
}

static void on_input(struct cordon_kept *kept, struct cordon_kept_exec *exec, int in)
{
    struct cordon_kept_stream *stream = exec->used && exec->in[in] >= 0 ? next_writer(kept, exec, in) : NULL;
    exec->writer[in] = stream;
    if (stream)
        write_some(exec, stream, in);
}

static void on_stdin(struct cordon_kept *kept, void *object, short events)
{
    (void)events;
    on_input(kept, object, CORDON_KEPT_IN_STDIN);
}

static void on_channel_in(struct cordon_kept *kept, void *object, short events)
{
    (void)events;
    on_input(kept, object, CORDON_KEPT_IN_CHANNEL);
}

static void watch_inputs(struct cordon_kept *kept, struct cordon_kept_exec *exec)
{
    for (int in = 0; in < CORDON_KEPT_INS; in++) {
        struct cordon_kept_stream *stream = exec->starting ? NULL : next_writer(kept, exec, in);
        if (stream && exec->in[in] >= 0)
            cordon_kept_watch(kept, exec->in[in], POLLOUT, in == CORDON_KEPT_IN_STDIN ? on_stdin : on_channel_in, exec);
        else if (stream)
            drop_input(stream, in);
    }
}

void cordon_kept_pump_watch(struct cordon_kept *kept, struct cordon_kept_exec *exec)
{
    bool readers;
    watch_inputs(kept, exec);
    if (cordon_pace_rests(&exec->pace) || room_of(kept, exec, &readers) == 0)
        return;
    for (int which = 0; which < CORDON_KEPT_OUTS; which++)
        if (exec->out[which] >= 0)
            cordon_kept_watch(kept, exec->out[which], POLLIN, which == CORDON_KEPT_OUT_CHANNEL ? on_channel : on_output,
                              exec);
}

/* --- ring to streams --- */

static bool send_chunk(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    char payload[1 + CORDON_RING_CHUNK];
    uint8_t which = 0;
    if (stream->window <= 0 || !cordon_kept_has_room(kept))
        return false;
    size_t n = cordon_ring_take(&stream->exec->ring, &stream->place, &which, payload + 1, CORDON_RING_CHUNK);
    if (n == 0)
        return false;
    payload[0] = (char)which;
    cordon_kept_send(kept, CORDON_FRAME_OUTPUT, stream->id, payload, (uint32_t)(1 + n));
    stream->window -= cordon_kept_cost(CORDON_FRAME_OUTPUT, (uint32_t)(1 + n));
    return true;
}

static void tell_end(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    char payload[CORDON_ENDED_SIZE];
    cordon_ended_write(payload, &stream->exec->ended);
    cordon_kept_send(kept, CORDON_FRAME_ENDED, stream->id, payload, sizeof payload);
    stream->ended = true;
}

static void pump_stream(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    struct cordon_kept_exec *exec = stream->exec;
    if (exec->starting || stream->ended || stream->closing)
        return;
    if (!stream->told)
        cordon_kept_send_number(kept, CORDON_FRAME_BEGAN, stream->id, (uint32_t)exec->pid);
    stream->told = true;
    while (send_chunk(kept, stream))
        continue;
    if (!exec->running && stream->place.at >= exec->ring.end)
        tell_end(kept, stream);
}

void cordon_kept_pump_streams(struct cordon_kept *kept, struct cordon_kept_exec *exec)
{
    if (exec->reaped && exec->running)
        pump_rest(kept, exec);
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++)
        if (kept->streams[i].kind && kept->streams[i].exec == exec)
            pump_stream(kept, &kept->streams[i]);
}
