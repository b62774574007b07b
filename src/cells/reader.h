/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an interpreter writes to its channel, read: pure, no I/O, fuzzed. The code can write there whatever it likes, in
 * any cut: what is no frame, or is larger than it may be, breaks the reader for good.
 */
#ifndef CORDON_CELLS_READER_H
#define CORDON_CELLS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CORDON_CELL_HEADER 8u
#define CORDON_CELL_FRAME_MAX 16384u       /* from an interpreter, its header included */
#define CORDON_CELL_OBJECT_MAX (16u << 20) /* JSON that came in parts */
#define CORDON_CELL_NONCE 16u

enum cordon_cell_frame {
    /* to the interpreter */
    CORDON_CELL_FRAME_CELL = 2,  /* fields */
    CORDON_CELL_FRAME_INTERRUPT, /* u32 number: JavaScript, which signals don't reach */
    CORDON_CELL_FRAME_SYNC,      /* nonce; answered between cells */
    CORDON_CELL_FRAME_SOURCE,    /* the driver; then its parts: name NUL text */
    /* from it */
    CORDON_CELL_FRAME_READY = 68, /* JSON: language, version, pid */
    CORDON_CELL_FRAME_OUT,        /* u8 stream (1, 2) · bytes */
    CORDON_CELL_FRAME_PART,       /* of the JSON that the next SHOW or DONE ends */
    CORDON_CELL_FRAME_SHOW,       /* JSON: a value in its forms */
    CORDON_CELL_FRAME_DONE,       /* JSON: number, error? */
    CORDON_CELL_FRAME_SYNCED      /* nonce · u32 number of the last cell */
};

enum cordon_cell_field { CORDON_CELL_FIELD_NUMBER = 1, CORDON_CELL_FIELD_CODE = 2, CORDON_CELL_FIELD_ENV = 4 };

struct cordon_cell_reader {
    struct cordon_buf in;    /* bytes that were not told yet */
    size_t at;               /* of in */
    struct cordon_buf parts; /* of JSON under way */
    struct cordon_buf out;   /* what the last event points to, where it is no slice of in */
    bool broken;
};

enum cordon_cell_reader_type {
    CORDON_CELL_READ_MORE = 0, /* feed it */
    CORDON_CELL_READ_READY,
    CORDON_CELL_READ_STDOUT, /* data: of as many frames as are there */
    CORDON_CELL_READ_STDERR,
    CORDON_CELL_READ_SHOWN, /* data: a JSON object in one line */
    CORDON_CELL_READ_DONE,  /* number; data: the error as a JSON object in one line, or empty */
    CORDON_CELL_READ_BROKEN
};

struct cordon_cell_reader_event {
    enum cordon_cell_reader_type type;
    const char *data; /* until the next call */
    size_t size;
    uint32_t number;
};

#define CORDON_CELL_READER_INIT                                                                                        \
    ((struct cordon_cell_reader){.in = CORDON_BUF_INIT(1u << 20),                                                      \
                                 .parts = CORDON_BUF_INIT(CORDON_CELL_OBJECT_MAX),                                     \
                                 .out = CORDON_BUF_INIT(CORDON_CELL_OBJECT_MAX + (64u << 10))})

int cordon_cell_reader_feed(struct cordon_cell_reader *reader, const char *data, size_t size); /* 0 or -ENOMEM */
struct cordon_cell_reader_event cordon_cell_reader_next(struct cordon_cell_reader *reader);
/* Throws away what came up to the answer to a SYNC with this nonce: 1 when it was there, with the number; else 0: feed.
 */
int cordon_cell_reader_sync(struct cordon_cell_reader *reader, const unsigned char nonce[CORDON_CELL_NONCE],
                            uint32_t *ret_number);
void cordon_cell_reader_done(struct cordon_cell_reader *reader);

#endif
