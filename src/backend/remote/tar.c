/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 512u
#define FILE_MAX (1ull << 40)

/* Where the fields of a header are. */
enum {
    NAME = 0,
    MODE = 100,
    UID = 108,
    GID = 116,
    SIZE = 124,
    TIME = 136,
    SUM = 148,
    KIND = 156,
    MAGIC = 257,
    PREFIX = 345
};

static const char zeros[BLOCK];

/* --- writing --- */

static void pad(struct cordon_buf *to, size_t size)
{
    if (size % BLOCK)
        (void)cordon_buf_append(to, zeros, BLOCK - size % BLOCK); /* sticky */
}

static void put_header(struct cordon_buf *to, const char *name, char kind, size_t size, uint32_t mode)
{
    char block[BLOCK] = {0};
    unsigned sum = 0;
    memcpy(block + NAME, name, strnlen(name, 100));
    (void)snprintf(block + MODE, 8, "%07o", mode & 07777u); /* all of these fit */
    (void)snprintf(block + UID, 8, "%07o", 0u);
    (void)snprintf(block + GID, 8, "%07o", 0u);
    (void)snprintf(block + SIZE, 12, "%011" PRIo64, (uint64_t)size & 077777777777u);
    (void)snprintf(block + TIME, 12, "%011o", 1u);
    memset(block + SUM, ' ', 8);
    block[KIND] = kind;
    memcpy(block + MAGIC, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)block[i];
    (void)snprintf(block + SUM, 8, "%06o", sum & 0777777u);
    (void)cordon_buf_append(to, block, BLOCK); /* sticky */
}

static void put(struct cordon_buf *to, const char *name, char kind, const char *data, size_t size, uint32_t mode)
{
    size_t length = strlen(name);
    if (length > 100) { /* a header of its own for the name */
        put_header(to, "././@LongLink", 'L', length + 1, 0644);
        (void)cordon_buf_append(to, name, length + 1);
        pad(to, length + 1);
    }
    put_header(to, name, kind, size, mode);
    if (size)
        (void)cordon_buf_append(to, data, size);
    pad(to, size);
}

void cordon_tar_file(struct cordon_buf *to, const char *name, const char *data, size_t size, uint32_t mode)
{
    put(to, name, '0', data, size, mode);
}

void cordon_tar_folder(struct cordon_buf *to, const char *name, uint32_t mode)
{
    put(to, name, '5', NULL, 0, mode);
}

void cordon_tar_end(struct cordon_buf *to)
{
    (void)cordon_buf_append(to, zeros, BLOCK);
    (void)cordon_buf_append(to, zeros, BLOCK);
}

/* --- reading --- */

static bool read_octal(const char *field, size_t size, uint64_t *ret)
{
    uint64_t number = 0;
    size_t i = 0;
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        number = number << 3 | (uint64_t)(field[i] - '0');
    *ret = number;
    return (i == size || field[i] == ' ' || !field[i]) && number <= FILE_MAX;
}

static bool sum_is_right(const char *block)
{
    uint64_t told, sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= SUM && i < SUM + 8 ? ' ' : (unsigned char)block[i];
    return read_octal(block + SUM, 8, &told) && told == sum;
}

static enum cordon_tar_type broken(struct cordon_tar_reader *self)
{
    self->broken = true;
    return CORDON_TAR_BROKEN;
}

static void header_name(struct cordon_tar_reader *self)
{
    const char *block = self->block;
    size_t prefix = strnlen(block + PREFIX, 155);
    if (*self->long_name)
        (void)snprintf(self->name, sizeof self->name, "%s", self->long_name); /* same size */
    else if (memcmp(block + MAGIC, "ustar", 6) == 0 && prefix)                /* POSIX; GNU has other things there */
        (void)snprintf(self->name, sizeof self->name, "%.*s/%.*s", (int)prefix, block + PREFIX,
                       (int)strnlen(block, 100), block);
    else
        (void)snprintf(self->name, sizeof self->name, "%.*s", (int)strnlen(block, 100), block);
}

static enum cordon_tar_type take_header(struct cordon_tar_reader *self)
{
    char kind = self->block[KIND];
    uint64_t size;
    self->block_size = 0;
    if (memcmp(self->block, zeros, BLOCK) == 0) {
        self->ended = true;
        return CORDON_TAR_END;
    }
    if (!sum_is_right(self->block) || !read_octal(self->block + SIZE, 12, &size))
        return broken(self);
    if (self->has_long_size && kind != 'x' && kind != 'L')
        size = self->long_size;
    self->left = size;
    self->padding = (BLOCK - size % BLOCK) % BLOCK;
    if (kind == 'L' || kind == 'x' || kind == 'g' || kind == 'K') {
        if (size >= sizeof self->extra)
            return broken(self);
        self->extra_kind = kind;
        self->extra_size = 0;
        return CORDON_TAR_MORE;
    }
    header_name(self);
    self->kind = kind ? kind : '0';
    if (self->kind >= '1' && self->kind <= '6') /* links, devices, directories have no data, whatever they say */
        self->left = self->padding = 0;
    self->file_size = self->left;
    *self->long_name = '\0';
    self->has_long_size = false;
    return CORDON_TAR_ENTRY;
}

/* "LENGTH key=value\n", of which path and size matter. */
static bool take_pax(struct cordon_tar_reader *self)
{
    const char *at = self->extra, *end = self->extra + self->extra_size;
    while (at < end) {
        size_t length = 0;
        const char *p = at;
        for (; p < end && *p >= '0' && *p <= '9' && length < sizeof self->extra; p++)
            length = length * 10 + (size_t)(*p - '0');
        if (p == end || *p != ' ' || length < (size_t)(p - at) + 2 || length > (size_t)(end - at) ||
            at[length - 1] != '\n')
            return false;
        const char *value = memchr(p, '=', length - (size_t)(p - at));
        size_t size = value ? (size_t)(at + length - 1 - (value + 1)) : 0;
        if (value && value - p == 5 && memcmp(p + 1, "path", 4) == 0)
            (void)snprintf(self->long_name, sizeof self->long_name, "%.*s", (int)size,
                           value + 1); /* bounded by extra */
        if (value && value - p == 5 && memcmp(p + 1, "size", 4) == 0) {
            self->long_size = 0;
            for (const char *digit = value + 1; digit < value + 1 + size && self->long_size <= FILE_MAX; digit++)
                self->long_size = self->long_size * 10 + (uint64_t)(*digit - '0') % 10;
            self->has_long_size = true;
            if (self->long_size > FILE_MAX)
                return false;
        }
        at += length;
    }
    return true;
}

static bool take_extra(struct cordon_tar_reader *self)
{
    char kind = self->extra_kind;
    self->extra_kind = 0;
    self->extra[self->extra_size] = '\0';
    if (kind == 'L')
        (void)snprintf(self->long_name, sizeof self->long_name, "%.4095s",
                       self->extra); /* cut: then it is no good name */
    return kind != 'x' || take_pax(self);
}

enum cordon_tar_type cordon_tar_next(struct cordon_tar_reader *self, const char *data, size_t size, size_t *used)
{
    *used = 0;
    if (self->broken || self->ended)
        return self->broken ? CORDON_TAR_BROKEN : CORDON_TAR_END;
    while (*used < size) {
        size_t here = size - *used;
        if (self->left) {
            size_t part = here < self->left ? here : (size_t)self->left;
            self->left -= part;
            self->data = data + *used;
            self->size = part;
            *used += part;
            if (!self->extra_kind)
                return CORDON_TAR_DATA;
            memcpy(self->extra + self->extra_size, self->data, part); /* take_header saw that it fits */
            self->extra_size += part;
        } else if (self->padding) {
            size_t part = here < self->padding ? here : (size_t)self->padding;
            self->padding -= part;
            *used += part;
        } else if (self->extra_kind) {
            if (!take_extra(self))
                return broken(self);
        } else {
            size_t part = here < BLOCK - self->block_size ? here : BLOCK - self->block_size;
            memcpy(self->block + self->block_size, data + *used, part);
            self->block_size += part;
            *used += part;
            enum cordon_tar_type type = self->block_size == BLOCK ? take_header(self) : CORDON_TAR_MORE;
            if (type != CORDON_TAR_MORE)
                return type;
        }
    }
    return CORDON_TAR_MORE;
}
