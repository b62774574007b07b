/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent of a kept guest may say, and when. Everything here is called with the guest's lock, does no I/O but
 * waking waiters, and trusts nothing: a frame that a sound agent would not have sent is told as a violation.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "guest/kept.h"
#include "isolate/cgroup.h"

#define INFOS_MAX 256

static bool is_last(const struct cordon_guest_handle *guest, uint8_t type)
{
    return type == CORDON_FRAME_DONE || type == CORDON_FRAME_FAILED || type == CORDON_FRAME_ENDED ||
           (type == CORDON_FRAME_PORT && !guest->machine);
}

/* What operations of a kind may say, as bits by type. */
#define BIT(name) (1u << (CORDON_FRAME_##name - CORDON_FRAME_READY))
static uint32_t allowed(const struct cordon_guest_handle *guest, uint32_t kind)
{
    switch (kind) {
    case CORDON_OP_EXEC:
    case CORDON_OP_ATTACH:
        return BIT(BEGAN) | BIT(OUTPUT) | BIT(ENDED) | BIT(FAILED) | BIT(TAKEN);
    case CORDON_OP_READ:
        return BIT(ENTRY) | BIT(OUTPUT) | BIT(DONE) | BIT(FAILED);
    case CORDON_OP_WRITE:
        return BIT(BEGAN) | BIT(ENTRY) | BIT(DONE) | BIT(FAILED) | BIT(TAKEN);
    case CORDON_OP_WATCH:
        return BIT(BEGAN) | BIT(CHANGE) | BIT(DONE) | BIT(FAILED);
    case CORDON_OP_DISK:
        return BIT(DISK) | BIT(DONE) | BIT(FAILED);
    case CORDON_KEPT_OP_EXECS:
        return BIT(INFO) | BIT(DONE) | BIT(FAILED);
    case CORDON_KEPT_OP_PORT:
        return BIT(PORT) | BIT(FAILED) | (guest->machine ? BIT(OUTPUT) | BIT(TAKEN) | BIT(HALF) | BIT(DONE) : 0);
    default:
        return BIT(ENTRY) | BIT(DONE) | BIT(FAILED);
    }
}

static void wake(struct cordon_stream *stream)
{
    (void)eventfd_write(stream->event_fd, 1); /* a full one is readable, too */
}

static const char *take_window(struct cordon_stream *stream, const struct cordon_frame *frame)
{
    unsigned to = (uint8_t)frame->payload[0];
    uint32_t bytes = cordon_frame_u32(frame, 1);
    if (to >= CORDON_KEPT_WRITES || bytes > CORDON_KEPT_WRITE_MAX ||
        stream->writable[to] + bytes > CORDON_KEPT_WRITE_MAX)
        return "a window that is too large";
    stream->writable[to] += bytes;
    wake(stream);
    return NULL;
}

static const char *count(struct cordon_stream *stream, const struct cordon_frame *frame)
{
    uint32_t cost = cordon_kept_cost(frame->type, frame->length);
    if (cost && stream->window <= 0)
        return "more than its window";
    stream->window -= cost;
    if ((frame->type == CORDON_FRAME_BEGAN || frame->type == CORDON_FRAME_DISK) && stream->began)
        return "a second start";
    stream->began = stream->began || frame->type == CORDON_FRAME_BEGAN || frame->type == CORDON_FRAME_DISK;
    if (frame->type == CORDON_FRAME_INFO && ++stream->infos > INFOS_MAX)
        return "too many programs";
    return NULL;
}

/* A connection to a port: with its socket, or, out of a virtual machine, relayed from here on. */
static const char *take_port(struct cordon_guest_handle *guest, struct cordon_stream *stream)
{
    if (guest->machine && stream->began)
        return "a second start";
    if (guest->machine == (guest->pending_fd >= 0))
        return guest->machine ? "a descriptor out of a virtual machine" : "a connection without its descriptor";
    stream->began = true;
    stream->port_fd = CORDON_TAKE_FD(guest->pending_fd);
    return NULL;
}

static const char *queue(struct cordon_guest_handle *guest, struct cordon_stream *stream,
                         const struct cordon_frame *frame)
{
    const char *wrong = count(stream, frame);
    if (wrong)
        return wrong;
    if (frame->type == CORDON_FRAME_PORT && (wrong = take_port(guest, stream)))
        return wrong;
    if (stream->kind == CORDON_KEPT_OP_PORT && !stream->began && frame->type != CORDON_FRAME_FAILED)
        return "bytes of a connection that does not stand";
    if (stream->half && (frame->type == CORDON_FRAME_OUTPUT || frame->type == CORDON_FRAME_HALF))
        return "bytes behind their end";
    stream->half = stream->half || frame->type == CORDON_FRAME_HALF;
    stream->over = is_last(guest, frame->type);
    if (cordon_frame_put(&stream->queue, frame->type, frame->exec, frame->payload, frame->length) < 0)
        return "more than can be kept";
    wake(stream);
    return NULL;
}

static const char *take_for_stream(struct cordon_guest_handle *guest, const struct cordon_frame *frame)
{
    bool known = frame->exec < CORDON_KEPT_STREAM_IDS;
    struct cordon_stream *stream = known ? guest->streams[frame->exec] : NULL;
    if (frame->type == CORDON_FRAME_CLOSED) {
        if (!known || !guest->closing[frame->exec])
            return "an end of what was not closed";
        guest->closing[frame->exec] = false;
        return NULL;
    }
    if (known && guest->closing[frame->exec]) { /* it was under way: nobody wants it any more */
        cordon_close(&guest->pending_fd);
        return NULL;
    }
    if (!stream)
        return "a frame for no operation";
    if (!(allowed(guest, stream->kind) & 1u << (frame->type - CORDON_FRAME_READY)))
        return "a frame that this operation does not have";
    if (frame->type == CORDON_FRAME_TAKEN)
        return take_window(stream, frame);
    if (stream->over)
        return "a frame behind the last one";
    return queue(guest, stream, frame);
}

static const char *take_setup(struct cordon_guest_handle *guest, const struct cordon_frame *frame)
{
    if (guest->set_up)
        return "a second answer to its setting up";
    if (frame->type == CORDON_FRAME_FAILED)
        (void)cordon_fail(&guest->failed, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the guest could not be set up in itself");
    guest->set_up = true;
    (void)pthread_cond_broadcast(&guest->changed); /* can't fail */
    return NULL;
}

static const char *take_ready(struct cordon_guest_handle *guest, const struct cordon_frame *frame)
{
    if (guest->ready)
        return "a second greeting";
    if (cordon_frame_u32(frame, 0) != CORDON_KEPT_VERSION)
        return "another version of the protocol";
    guest->ready = true;
    (void)pthread_cond_broadcast(&guest->changed); /* can't fail */
    return NULL;
}

static void take_running(struct cordon_guest_handle *guest, const struct cordon_frame *frame)
{
    guest->running = cordon_frame_u32(frame, 0);
    guest->running_changed_us = cordon_now_us();
}

const char *cordon_kept_take_frame(struct cordon_guest_handle *guest, const struct cordon_frame *frame)
{
    if (frame->type < CORDON_FRAME_READY)
        return "a frame of a guest that is not kept";
    if (frame->type == CORDON_FRAME_READY)
        return take_ready(guest, frame);
    if (!guest->ready)
        return "no greeting";
    if (frame->exec != 0)
        return take_for_stream(guest, frame);
    if (frame->type == CORDON_FRAME_RUNNING) {
        take_running(guest, frame);
        return NULL;
    }
    if (frame->type == CORDON_FRAME_DONE || frame->type == CORDON_FRAME_FAILED)
        return take_setup(guest, frame);
    return "a frame of the guest itself that it does not have";
}
