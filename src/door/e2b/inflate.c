/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/inflate.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

#define GZIP_ONLY (16 + MAX_WBITS)
#define OUT (64u << 10)

struct cordon_e2b_inflate {
    z_stream stream;
    bool whole;
    int (*take)(void *context, const char *data, size_t size);
    void *context;
    char out[OUT];
};

struct cordon_e2b_inflate *cordon_e2b_inflate_new(int (*take)(void *context, const char *data, size_t size),
                                                  void *context)
{
    struct cordon_e2b_inflate *inflate = calloc(1, sizeof *inflate);
    if (!inflate)
        return NULL;
    inflate->take = take;
    inflate->context = context;
    if (inflateInit2(&inflate->stream, GZIP_ONLY) != Z_OK) {
        free(inflate);
        return NULL;
    }
    return inflate;
}

/* A member is over. Another one may follow, and counts as its continuation. */
static int next_member(struct cordon_e2b_inflate *inflate)
{
    inflate->whole = true;
    return inflateReset2(&inflate->stream, GZIP_ONLY) == Z_OK ? 0 : -EBADMSG;
}

int cordon_e2b_inflate_feed(struct cordon_e2b_inflate *self, const char *data, size_t size)
{
    z_stream *stream = &self->stream;
    stream->next_in = (Bytef *)(uintptr_t)data;
    stream->avail_in = (uInt)size; /* pieces are small */
    bool full = false;
    while (stream->avail_in || full) {
        if (stream->avail_in)
            self->whole = false;
        stream->next_out = (Bytef *)self->out;
        stream->avail_out = OUT;
        int state = inflate(stream, Z_NO_FLUSH);
        if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
            return -EBADMSG;
        size_t made = OUT - stream->avail_out;
        int r = made ? self->take(self->context, self->out, made) : 0;
        if (r < 0)
            return r;
        full = !stream->avail_out && state == Z_OK;
        if (state == Z_STREAM_END && (r = next_member(self)) < 0)
            return r;
        if (state == Z_BUF_ERROR)
            break;
    }
    return 0;
}

bool cordon_e2b_inflate_whole(const struct cordon_e2b_inflate *inflate)
{
    return inflate->whole;
}

void cordon_e2b_inflate_free(struct cordon_e2b_inflate *inflate)
{
    if (!inflate)
        return;
    (void)inflateEnd(&inflate->stream); /* says only whether the stream was whole */
    free(inflate);
}
