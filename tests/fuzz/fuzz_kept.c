/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a taken-over agent of a kept guest may send to the gateway: frames against one stream of each kind, and the
 * events that are made of what was let through. The first byte is what of it was closed before, and whether it is a
 * virtual machine.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fuzz.h"
#include "guest/kept.h"

static const uint32_t kinds[] = {CORDON_OP_EXEC,  CORDON_OP_ATTACH, CORDON_OP_READ,       CORDON_OP_WRITE,
                                 CORDON_OP_STAT,  CORDON_OP_LIST,   CORDON_OP_WATCH,      CORDON_OP_DISK,
                                 CORDON_OP_MKDIR, CORDON_OP_MOVE,   CORDON_KEPT_OP_EXECS, CORDON_KEPT_OP_PORT};
#define KINDS (sizeof kinds / sizeof *kinds)

static void take_events(struct cordon_stream *stream)
{
    struct cordon_stream_event event;
    struct cordon_error err = {0};
    struct cordon_frame frame;
    int64_t n;
    while ((n = cordon_frame_parse(stream->queue.data, stream->queue.size, 1, &frame)) > 0) {
        stream->current.size = 0;
        if (cordon_buf_append(&stream->current, stream->queue.data, (size_t)n) < 0)
            abort();
        cordon_buf_consume(&stream->queue, (size_t)n);
        int r = cordon_kept_event(stream, &event, &err);
        if (r == 1 && (event.type < CORDON_STREAM_STARTED || event.type > CORDON_STREAM_END))
            abort();
        if (r == 1 && event.entry && (event.entry->path[0] != '/' || strlen(event.entry->path) > CORDON_KEPT_PATH_MAX))
            abort();
        if (r < 0 && (err.kind == CORDON_ERROR_NONE || err.code >= 0))
            abort();
    }
    if (n < 0)
        abort(); /* what is queued was parsed before */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cordon_guest_handle guest;
    static struct cordon_stream streams[KINDS];
    struct cordon_frame frame;
    const char *at = (const char *)data + 1, *wrong = NULL;
    int64_t n;
    if (!size)
        return 0;
    memset(&guest, 0, sizeof guest);
    guest.lease = CORDON_LEASE_NONE;
    guest.pending_fd = -1;
    (void)pthread_mutex_init(&guest.lock, NULL);
    (void)pthread_cond_init(&guest.changed, NULL);
    for (size_t i = 0; i < KINDS; i++) {
        streams[i] = (struct cordon_stream){.guest = &guest, .id = (uint16_t)(i + 1), .kind = kinds[i], .port_fd = -1};
        streams[i].window = CORDON_KEPT_WINDOW;
        streams[i].queue.max = CORDON_KEPT_WINDOW + 4u * CORDON_FRAME_DATA_MAX;
        streams[i].current.max = CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER;
        streams[i].event_fd = eventfd(0, EFD_NONBLOCK);
        guest.streams[i + 1] = &streams[i];
    }
    guest.closing[KINDS + 1] = true;
    guest.closing[1] = *data & 1;
    guest.machine = *data & 2;
    for (size_t left = size - 1; !wrong && (n = cordon_frame_parse(at, left, 1, &frame)) > 0;
         at += n, left -= (size_t)n)
        wrong = cordon_kept_take_frame(&guest, &frame);
    for (size_t i = 0; i < KINDS; i++) {
        for (int to = 0; to < CORDON_KEPT_WRITES; to++)
            if (streams[i].writable[to] > CORDON_KEPT_WRITE_MAX)
                abort();
        take_events(&streams[i]);
        cordon_buf_done(&streams[i].queue);
        cordon_buf_done(&streams[i].current);
        (void)close(streams[i].event_fd);
    }
    (void)pthread_mutex_destroy(&guest.lock);
    (void)pthread_cond_destroy(&guest.changed);
    return 0;
}
