/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading multipart/form-data (RFC 7578) as it comes, holding no more of a part than a delimiter's length. Pure: no
 * I/O; fuzzed (tests/fuzz/fuzz_multipart.c).
 */
#ifndef CORDON_HTTP_MULTIPART_H
#define CORDON_HTTP_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define CORDON_MULTIPART_BOUNDARY 70u /* the longest that RFC 2046 allows */
#define CORDON_MULTIPART_PARTS 1024u

struct cordon_multipart_taker {
    /* Negative: breaks off, and is what feed returns. name and filename are never NULL in data or close order: one
     * open, any number of data, one close for each part. filename NULL: the part has none. */
    int (*open)(void *context, const char *name, const char *filename);
    int (*data)(void *context, const char *data, size_t size);
    int (*close)(void *context);
};

enum cordon_multipart_state {
    CORDON_MULTIPART_PREAMBLE = 0,
    CORDON_MULTIPART_DELIMITED, /* behind a delimiter: is it the last one? */
    CORDON_MULTIPART_HEADER,
    CORDON_MULTIPART_DATA,
    CORDON_MULTIPART_EPILOGUE
};

struct cordon_multipart {
    enum cordon_multipart_state state;
    char delimiter[4 + CORDON_MULTIPART_BOUNDARY + 1]; /* CR LF - - boundary */
    size_t delimiter_size;
    size_t matched;         /* of the delimiter, held back from data */
    struct cordon_buf line; /* header fields, or what stands behind a delimiter */
    size_t parts;
    const struct cordon_multipart_taker *taker;
    void *context;
};

/* From the Content-Type's value: 0, or -EINVAL when it is no multipart/form-data with a boundary. */
int cordon_multipart_init(struct cordon_multipart *reader, const char *content_type,
                          const struct cordon_multipart_taker *taker, void *context);
/* 0; -EBADMSG: it is none; -EMSGSIZE: a part's header, or their number, is too large; or what the taker returned. After
 * a failure, nothing more may be fed. */
int cordon_multipart_feed(struct cordon_multipart *reader, const char *data, size_t size);
/* The body ended: 0, or -EBADMSG when the last delimiter did not come. */
int cordon_multipart_end(const struct cordon_multipart *reader);
void cordon_multipart_done(struct cordon_multipart *reader);

/* A parameter of a header field's value, such as filename in Content-Disposition: 1 and its decoded text, 0 when it is
 * not there, -EINVAL when it can't be read. to has room for strlen(value) + 1 bytes. name*=utf-8''… goes before name=.
 */
int cordon_multipart_parameter(const char *value, const char *name, char *to);

#endif
