/* SPDX-License-Identifier: Apache-2.0 */
/* Percent escapes, in paths and queries. */
#include <errno.h>
#include <microhttpd.h>
#include <string.h>

#include "http/request.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

ssize_t cordon_http_unescape(const char *text, size_t size, bool plus, char *to)
{
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '+' && plus) {
            c = ' ';
        } else if (c == '%') {
            int high = i + 2 < size ? hex_digit(text[i + 1]) : -1, low = high < 0 ? -1 : hex_digit(text[i + 2]);
            if (low < 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            i += 2;
        }
        to[used++] = c;
    }
    return (ssize_t)used;
}

static ssize_t decode(const char *text, size_t size, char *to, size_t room)
{
    *to = '\0';
    if (size >= room)
        return -EMSGSIZE;
    ssize_t n = cordon_http_unescape(text, size, false, to);
    if (n >= 0 && memchr(to, '\0', (size_t)n))
        n = -EINVAL;
    to[n < 0 ? 0 : n] = '\0';
    return n;
}

ssize_t cordon_http_query(const struct cordon_http_request *request, const char *name, char *to, size_t room)
{
    /* libmicrohttpd has made blanks of "+" already; escapes it left to us (server.c). */
    const char *value = MHD_lookup_connection_value(request->mhd, MHD_GET_ARGUMENT_KIND, name);
    *to = '\0';
    return value ? decode(value, strlen(value), to, room) : -ENOENT;
}

int cordon_http_param(const struct cordon_http_request *request, size_t i, char *to, size_t room)
{
    ssize_t n = decode(request->match.params[i].data, request->match.params[i].size, to, room);
    return n < 0 ? (int)n : 0;
}
