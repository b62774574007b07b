/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the driver channel: pure, no I/O, fuzzed. The code can write anything there, in any cut, so this is a state
 * machine over bytes. Payloads of RESULT are passed on in pieces; all else is small and handed over whole.
 */
#ifndef CORDON_AGENT_DRIVER_H
#define CORDON_AGENT_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

#define CORDON_DRIVER_TEXT_MAX 1024u /* of RESULT_ERROR's text; the rest is cut */

struct cordon_driver_reader {
    char header[CORDON_FRAME_HEADER];
    size_t header_used;
    struct cordon_frame frame; /* the one under way, once its header is whole */
    uint32_t left;             /* payload bytes of it that are still to come */
    char text[CORDON_DRIVER_TEXT_MAX];
    size_t text_used;
    uint64_t result_bytes; /* of all RESULT frames so far */
    bool broken;           /* nothing more is read */
};

enum cordon_driver_event_type {
    CORDON_DRIVER_MORE = 0, /* all bytes were taken; nothing to tell */
    CORDON_DRIVER_PIECE,    /* data: a part of the result */
    CORDON_DRIVER_TEXT,     /* data: why there is no result */
    CORDON_DRIVER_FD,       /* the descriptor that came along is the listener */
    CORDON_DRIVER_CODE,     /* code: the exit code */
    CORDON_DRIVER_WARM,     /* it has rehearsed */
    CORDON_DRIVER_BROKEN    /* these are no frames, or the result is too large: close the channel */
};

struct cordon_driver_event {
    enum cordon_driver_event_type type;
    const char *data;
    size_t size;
    int32_t code;
};

/* Takes bytes from *data (moving *data and *size on) up to the next event. Call it until it says MORE or BROKEN. */
struct cordon_driver_event cordon_driver_read(struct cordon_driver_reader *reader, const char **data, size_t *size);

#endif
