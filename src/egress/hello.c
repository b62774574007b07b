/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/hello.h"

#include <stdbool.h>
#include <string.h>

#define RECORD_HEADER 5u
#define RECORD_HANDSHAKE 22
#define RECORD_MAX (1u << 14)
#define HANDSHAKE_HEADER 4u
#define CLIENT_HELLO 1
#define EXT_SERVER_NAME 0
#define EXT_ECH 0xfe0d
#define EXT_ESNI 0xffce /* its older form */

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static const uint8_t *take(struct reader *from, size_t size)
{
    if (from->bad || size > from->left) {
        from->bad = true;
        return NULL;
    }
    const uint8_t *at = from->at;
    from->at += size;
    from->left -= size;
    return at;
}

/* A big-endian number of 1 to 3 bytes. */
static size_t number(struct reader *from, size_t bytes)
{
    const uint8_t *at = take(from, bytes);
    size_t value = 0;
    for (size_t i = 0; at && i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static struct reader part(struct reader *from, size_t length_bytes)
{
    size_t size = number(from, length_bytes);
    const uint8_t *at = take(from, size);
    return (struct reader){.at = at, .left = at ? size : 0, .bad = from->bad};
}

/* The handshake message out of its records: its size so far. */
static enum cordon_hello join_records(const uint8_t *data, size_t size, uint8_t *to, size_t *joined)
{
    size_t at = 0, used = 0, wanted = HANDSHAKE_HEADER;
    while (used < wanted) {
        if (at && at >= CORDON_HELLO_MAX)
            return CORDON_HELLO_BAD;
        if (size > at && data[at] != RECORD_HANDSHAKE)
            return CORDON_HELLO_BAD;
        if (size > at + 1 && data[at + 1] != 3)
            return CORDON_HELLO_BAD;
        if (size < at + RECORD_HEADER)
            return CORDON_HELLO_MORE;
        size_t length = (size_t)data[at + 3] << 8 | data[at + 4];
        if (!length || length > RECORD_MAX)
            return CORDON_HELLO_BAD;
        size_t have = size - at - RECORD_HEADER < length ? size - at - RECORD_HEADER : length;
        if (used + have > CORDON_HELLO_MAX)
            return CORDON_HELLO_BAD;
        memcpy(to + used, data + at + RECORD_HEADER, have);
        used += have;
        if (used && to[0] != CLIENT_HELLO)
            return CORDON_HELLO_BAD;
        if (used >= HANDSHAKE_HEADER)
            wanted = HANDSHAKE_HEADER + ((size_t)to[1] << 16 | (size_t)to[2] << 8 | to[3]);
        if (wanted > CORDON_HELLO_MAX)
            return CORDON_HELLO_BAD;
        if (used < wanted && have < length)
            return CORDON_HELLO_MORE;
        at += RECORD_HEADER + length;
    }
    *joined = wanted;
    return used == wanted ? CORDON_HELLO_NAMED : CORDON_HELLO_BAD; /* nothing may follow it: its answer comes first */
}

/* One name of type host_name, and nothing else. */
static bool read_server_name(struct reader extension, char name[CORDON_EGRESS_NAME_SIZE])
{
    struct reader list = part(&extension, 2);
    size_t type = number(&list, 1);
    struct reader host = part(&list, 2);
    if (list.bad || host.bad || extension.left || list.left || type != 0)
        return false;
    if (host.left && host.at[host.left - 1] == '.') /* not allowed there, and read differently by servers */
        return false;
    return cordon_egress_name_read((const char *)host.at, host.left, name) == 0;
}

static enum cordon_hello read_extensions(struct reader extensions, char name[CORDON_EGRESS_NAME_SIZE])
{
    bool named = false, encrypted = false;
    while (extensions.left && !extensions.bad) {
        size_t type = number(&extensions, 2);
        struct reader extension = part(&extensions, 2);
        if (extension.bad)
            break;
        encrypted = encrypted || type == EXT_ECH || type == EXT_ESNI;
        if (type != EXT_SERVER_NAME)
            continue;
        if (named || !read_server_name(extension, name))
            return CORDON_HELLO_BAD;
        named = true;
    }
    if (extensions.bad)
        return CORDON_HELLO_BAD;
#ifndef CORDON_WEAKEN_ECH
    if (encrypted)
        return CORDON_HELLO_ENCRYPTED;
#endif
    return named ? CORDON_HELLO_NAMED : CORDON_HELLO_NAMELESS;
}

enum cordon_hello cordon_hello_read(const uint8_t *data, size_t size, char name[CORDON_EGRESS_NAME_SIZE])
{
    uint8_t message[CORDON_HELLO_MAX];
    size_t joined = 0;
    *name = '\0';
    enum cordon_hello r = join_records(data, size, message, &joined);
    if (r == CORDON_HELLO_MORE && size >= CORDON_HELLO_MAX)
        return CORDON_HELLO_BAD;
    if (r != CORDON_HELLO_NAMED)
        return r;
    struct reader hello = {.at = message + HANDSHAKE_HEADER, .left = joined - HANDSHAKE_HEADER};
    (void)take(&hello, 2 + 32); /* version, random: a failure is kept in the reader, here and below */
    struct reader session = part(&hello, 1);
    struct reader ciphers = part(&hello, 2);
    struct reader compression = part(&hello, 1);
    if (hello.bad || session.left > 32 || !ciphers.left || ciphers.left % 2 || !compression.left)
        return CORDON_HELLO_BAD;
    if (!hello.left)
        return CORDON_HELLO_NAMELESS; /* of before there were extensions */
    struct reader extensions = part(&hello, 2);
    if (hello.bad || hello.left)
        return CORDON_HELLO_BAD;
    return read_extensions(extensions, name);
}
