/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/envelope.h"

#include <errno.h>
#include <string.h>

#define HEAD 5u

int cordon_envelope_put(struct cordon_buf *to, unsigned flags, const char *data, size_t size)
{
    unsigned char head[HEAD] = {(unsigned char)flags, (unsigned char)(size >> 24), (unsigned char)(size >> 16),
                                (unsigned char)(size >> 8), (unsigned char)size};
    if (size > CORDON_ENVELOPE_MAX)
        return -EMSGSIZE;
    int r = cordon_buf_append(to, head, HEAD);
    return r < 0 ? r : cordon_buf_append(to, data, size);
}

int cordon_envelope_next(const struct cordon_buf *in, unsigned *flags, const char **data, size_t *size, size_t *used)
{
    const unsigned char *head = (const unsigned char *)in->data;
    if (in->size < HEAD)
        return 0;
    size_t length = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    if (length > CORDON_ENVELOPE_MAX)
        return -EMSGSIZE;
    if (in->size - HEAD < length)
        return 0;
    *flags = head[0];
    *data = in->data + HEAD;
    *size = length;
    *used = HEAD + length;
    return 1;
}

int cordon_line_next(const struct cordon_buf *in, const char **data, size_t *size, size_t *used)
{
    const char *end = in->size ? memchr(in->data, '\n', in->size) : NULL;
    if (!end)
        return in->size > CORDON_ENVELOPE_MAX ? -EMSGSIZE : 0;
    const char *start = in->data;
    size_t length = (size_t)(end - start);
    *used = length + 1;
    if (length && start[length - 1] == '\r')
        length--;
    if (length >= 5 && memcmp(start, "data:", 5) == 0)
        start += 5, length -= 5;
    while (length && *start == ' ')
        start++, length--;
    bool message = length && *start == '{';
    *data = start;
    *size = message ? length : 0; /* event:, id:, comments */
    return 1;
}
