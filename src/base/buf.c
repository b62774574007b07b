/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cordon_buf_done(struct cordon_buf *buf)
{
    free(buf->data);
    *buf = CORDON_BUF_INIT(buf->max);
}

void cordon_buf_wipe(struct cordon_buf *buf)
{
    if (buf->data)
        explicit_bzero(buf->data, buf->capacity);
    cordon_buf_done(buf);
}

char *cordon_buf_reserve(struct cordon_buf *buf, size_t size)
{
    if (size > buf->max || buf->size > buf->max - size) {
        buf->failed = true;
        errno = EMSGSIZE;
        return NULL;
    }
    size_t need = buf->size + size + 1;
    if (need > buf->capacity) {
        size_t capacity = buf->capacity < 128 ? 256 : buf->capacity * 2;
        if (capacity < need)
            capacity = need;
        char *data = realloc(buf->data, capacity);
        if (!data) {
            buf->failed = true;
            errno = ENOMEM;
            return NULL;
        }
        buf->data = data;
        buf->capacity = capacity;
    }
    return buf->data + buf->size;
}

int cordon_buf_append(struct cordon_buf *buf, const void *data, size_t size)
{
    char *to = cordon_buf_reserve(buf, size);
    if (!to)
        return -errno;
    if (size)
        memcpy(to, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
    return 0;
}

int cordon_buf_appends(struct cordon_buf *buf, const char *text)
{
    return cordon_buf_append(buf, text, strlen(text));
}

int cordon_buf_appendf(struct cordon_buf *buf, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int size = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (size < 0)
        return -EINVAL;
    char *to = cordon_buf_reserve(buf, (size_t)size);
    if (!to)
        return -errno;
    va_start(ap, fmt);
    (void)vsnprintf(to, (size_t)size + 1, fmt, ap); /* reserve leaves one byte for the NUL */
    va_end(ap);
    buf->size += (size_t)size;
    return 0;
}

void cordon_buf_consume(struct cordon_buf *buf, size_t size)
{
    if (size == 0)
        return;
    if (size >= buf->size) {
        buf->size = 0;
    } else {
        memmove(buf->data, buf->data + size, buf->size - size);
        buf->size -= size;
    }
    if (buf->data)
        buf->data[buf->size] = '\0';
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int cordon_buf_base64(struct cordon_buf *buf, const void *data, size_t size)
{
    const unsigned char *p = data;
    if (size > SIZE_MAX / 2)
        return -EMSGSIZE;
    char *to = cordon_buf_reserve(buf, (size + 2) / 3 * 4);
    if (!to)
        return -errno;
    for (; size >= 3; size -= 3, p += 3) {
        *to++ = base64_digits[p[0] >> 2];
        *to++ = base64_digits[(p[0] & 3) << 4 | p[1] >> 4];
        *to++ = base64_digits[(p[1] & 15) << 2 | p[2] >> 6];
        *to++ = base64_digits[p[2] & 63];
    }
    if (size) {
        unsigned second = size == 2 ? p[1] : 0;
        *to++ = base64_digits[p[0] >> 2];
        *to++ = base64_digits[(p[0] & 3) << 4 | second >> 4];
        *to++ = size == 2 ? base64_digits[(second & 15) << 2] : '=';
        *to++ = '=';
    }
    buf->size = (size_t)(to - buf->data);
    *to = '\0';
    return 0;
}

static int base64_value(char c)
{
    const char *at = c ? strchr(base64_digits, c) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

int cordon_buf_unbase64(struct cordon_buf *buf, const char *text, size_t size)
{
    if (size % 4)
        return -EINVAL;
    size_t padding = 0;
    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    char *start = cordon_buf_reserve(buf, size / 4 * 3);
    if (!start)
        return -errno;
    char *to = start;
    for (size_t i = 0; i < size; i += 4) {
        unsigned word = 0;
        for (size_t j = 0; j < 4; j++) {
            bool pad = i + j >= size - padding;
            int value = pad ? 0 : base64_value(text[i + j]);
            if (value < 0)
                return -EINVAL;
            word = word << 6 | (unsigned)value;
        }
        if (i + 4 == size && word & ((1u << 8 * padding) - 1))
            return -EINVAL; /* bits that stand for nothing: another spelling of the same */
        *to++ = (char)(word >> 16);
        *to++ = (char)(word >> 8);
        *to++ = (char)word;
    }
    buf->size += (size_t)(to - start) - padding;
    buf->data[buf->size] = '\0';
    return 0;
}
