/* SPDX-License-Identifier: Apache-2.0 */
/* A growable byte buffer with a hard maximum. May hold any bytes; data is NUL-terminated behind size for C readers. */
#ifndef CORDON_BASE_BUF_H
#define CORDON_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cordon_buf {
    char *data;
    size_t size;
    size_t capacity;
    size_t max;  /* appending beyond fails with -EMSGSIZE */
    bool failed; /* sticky: an append failed (too large or no memory); checked once at the end */
};

#define CORDON_BUF_INIT(maximum) ((struct cordon_buf){.max = (maximum)})

void cordon_buf_done(struct cordon_buf *buf); /* frees; the buf can be used again */
void cordon_buf_wipe(struct cordon_buf *buf); /* as done, overwriting the content first: for secrets */
int cordon_buf_append(struct cordon_buf *buf, const void *data, size_t size); /* 0, -EMSGSIZE, -ENOMEM */
int cordon_buf_appends(struct cordon_buf *buf, const char *text);
int cordon_buf_appendf(struct cordon_buf *buf, const char *fmt, ...) CORDON_PRINTF(2, 3);
/* Makes room for size more bytes and returns where they go (then add what was written to buf->size); NULL on failure.
 */
char *cordon_buf_reserve(struct cordon_buf *buf, size_t size);
void cordon_buf_consume(struct cordon_buf *buf, size_t size);                 /* drops bytes from the front */
int cordon_buf_base64(struct cordon_buf *buf, const void *data, size_t size); /* appends standard base64 */
/* Decodes strict standard base64 (padding needed, no white space) and appends it: 0, -EINVAL, or an append's error. */
int cordon_buf_unbase64(struct cordon_buf *buf, const char *text, size_t size);

#endif
