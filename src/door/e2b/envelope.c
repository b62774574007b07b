/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/envelope.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define HEADER 5u
#define FLAG_COMPRESSED 1u
#define FLAG_LAST 2u

static uint32_t read_length(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

int cordon_e2b_envelope_read(const char *body, size_t size, struct cordon_bytes *ret, struct cordon_error *err)
{
    const unsigned char *at = (const unsigned char *)body;
    if (size < HEADER)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the request's body is no envelope: it has %zu bytes",
                           size);
    if (at[0] == FLAG_COMPRESSED)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNSUPPORTED, "compressed messages are not read here");
    if (at[0])
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the envelope has the flags %u, where 0 is needed",
                           at[0]);
    uint32_t length = read_length(at + 1);
    if (length != size - HEADER)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the envelope announces %u bytes and %zu follow; exactly one message is needed", length,
                           size - HEADER);
    *ret = (struct cordon_bytes){body + HEADER, length};
    return 0;
}

size_t cordon_e2b_envelope_begin(struct cordon_buf *buf, bool last)
{
    size_t start = buf->size;
    const char header[HEADER] = {last ? FLAG_LAST : 0};
    (void)cordon_buf_append(buf, header, HEADER); /* sticky */
    return start;
}

void cordon_e2b_envelope_end(struct cordon_buf *buf, size_t start)
{
    if (buf->failed)
        return;
    uint32_t length = (uint32_t)(buf->size - start - HEADER);
    for (size_t i = 0; i < 4; i++)
        buf->data[start + 1 + i] = (char)(length >> (24 - 8 * i));
}

void cordon_e2b_connect_error(struct cordon_json *json, const struct cordon_error *err)
{
    cordon_json_key(json, "code");
    cordon_json_text(json, cordon_error_connect(err->kind));
    cordon_json_key(json, "message");
    cordon_json_text(json, err->message);
}

void cordon_e2b_envelope_last(struct cordon_buf *buf, const struct cordon_error *err)
{
    struct cordon_json json = {.buf = buf};
    size_t start = cordon_e2b_envelope_begin(buf, true);
    cordon_json_object_begin(&json);
    if (err) {
        cordon_json_key(&json, "error");
        cordon_json_object_begin(&json);
        cordon_e2b_connect_error(&json, err);
        cordon_json_object_end(&json);
    }
    cordon_json_object_end(&json);
    cordon_e2b_envelope_end(buf, start);
}
