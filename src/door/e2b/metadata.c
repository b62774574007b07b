/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/metadata.h"

#include <errno.h>
#include <string.h>

#include "http/request.h"

static int bad(struct cordon_error *err)
{
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "metadata: it must be key=value&key=value, escaped; an escape in it is broken");
}

/* A key or value: the form's escapes, then its own. Older clients have none of these, so what is no escape stays. */
static int unescape(char *text, size_t size, const char **ret, struct cordon_error *err)
{
    ssize_t n = cordon_http_unescape(text, size, true, text);
    if (n < 0 || memchr(text, '\0', (size_t)n))
        return bad(err);
    text[n] = '\0';
    char *copy = text;
    for (char *at = text; *at; at++) {
        ssize_t one = *at == '%' && at[1] && at[2] ? cordon_http_unescape(at, 3, false, copy) : -1;
        if (one < 0)
            *copy = *at;
        else if (!*copy)
            return bad(err);
        else
            at += 2;
        copy++;
    }
    *copy = '\0';
    *ret = text;
    return 0;
}

static int read_pair(char *text, size_t size, struct cordon_pair *pair, struct cordon_error *err)
{
    char *equals = memchr(text, '=', size);
    if (!equals || equals == text)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "metadata: \"%.*s\" is not key=value",
                           (int)(size < 64 ? size : 64), text);
    int r = unescape(equals + 1, size - (size_t)(equals + 1 - text), &pair->value, err);
    return r < 0 ? r : unescape(text, (size_t)(equals - text), &pair->key, err);
}

int cordon_e2b_metadata_read(const char *text, struct cordon_door_memory *memory, struct cordon_pairs *ret,
                             struct cordon_error *err)
{
    size_t size = strlen(text), room = 1;
    char *plain = cordon_door_take(memory, size + 1);
    if (!plain)
        return cordon_fail_errno(err, -ENOMEM, "reading metadata");
    ssize_t n = cordon_http_unescape(text, size, false, plain);
    if (n < 0 || memchr(plain, '\0', (size_t)n))
        return bad(err);
    plain[n] = '\0';
    for (const char *p = plain; *p; p++)
        room += *p == '&';
    *ret = (struct cordon_pairs){cordon_door_take(memory, room * sizeof *ret->items), 0};
    if (!ret->items)
        return cordon_fail_errno(err, -ENOMEM, "reading metadata");
    for (char *at = plain; *at;) {
        size_t length = strcspn(at, "&");
        bool more = at[length];
        at[length] = '\0';
        int r = length ? read_pair(at, length, &ret->items[ret->count++], err) : 0;
        if (r < 0)
            return r;
        at += length + more;
    }
    return 0;
}
