/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of HTTP/1.1, for the command line that speaks to its own daemon and for what is passed on from a
 * guest's own server: reads one answer out of bytes as they come. Pure: no I/O; fuzzed (tests/fuzz/fuzz_http_reader.c).
 */
#ifndef CORDON_HTTP_READER_H
#define CORDON_HTTP_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum cordon_http_reader_state {
    CORDON_READER_HEADER = 0,
    CORDON_READER_LENGTH, /* a body of known length */
    CORDON_READER_SIZE,   /* chunked: a size line */
    CORDON_READER_CHUNK,
    CORDON_READER_CHUNK_END,
    CORDON_READER_TRAILER,
    CORDON_READER_UNTIL_END, /* the body ends with the connection */
    CORDON_READER_DONE
};

struct cordon_http_reader {
    enum cordon_http_reader_state state;
    struct cordon_buf line; /* what of a line or of the header came so far; max bounds it */
    struct cordon_buf body; /* decoded; the caller consumes it as it likes; max bounds it */
    int status;
    uint64_t left; /* of the body or the chunk */
    bool ndjson;
    bool no_body;             /* set before: the request was HEAD */
    bool upgrade;             /* set before: a 101 is the answer, and all behind it is body; else it is -EBADMSG */
    struct cordon_buf fields; /* max set before: the header's fields, each a name and a value with their NULs */
};

#define CORDON_HTTP_READER_INIT(body_max)                                                                              \
    ((struct cordon_http_reader){.line = CORDON_BUF_INIT(65536), .body = CORDON_BUF_INIT(body_max)})

/* Takes size bytes: 0; -EBADMSG for what is not HTTP; -EMSGSIZE, -ENOMEM. Bytes behind the answer are -EBADMSG. */
int cordon_http_reader_feed(struct cordon_http_reader *reader, const char *data, size_t size);
/* The connection ended: 0 when the answer was whole, else -EPIPE. */
int cordon_http_reader_end(struct cordon_http_reader *reader);
void cordon_http_reader_done(struct cordon_http_reader *reader);

#endif
