/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/kept.h"

#include <errno.h>
#include <string.h>

uint32_t cordon_kept_cost(uint8_t type, uint32_t length)
{
    bool many = type == CORDON_FRAME_OUTPUT || type == CORDON_FRAME_ENTRY || type == CORDON_FRAME_CHANGE;
    return many ? CORDON_FRAME_HEADER + length : 0;
}

/* --- OPEN --- */

static void put_text(struct cordon_buf *to, uint8_t tag, const char *text)
{
    if (text)
        (void)cordon_field_put(to, tag, text, (uint32_t)strlen(text)); /* failures stick in to->failed */
}

static void put_u32(struct cordon_buf *to, uint8_t tag, uint32_t value)
{
    if (value)
        (void)cordon_field_put_u32(to, tag, value); /* failures stick in to->failed */
}

static void put_u64(struct cordon_buf *to, uint8_t tag, uint64_t value)
{
    if (value)
        (void)cordon_field_put_u64(to, tag, value); /* failures stick in to->failed */
}

void cordon_operation_put(struct cordon_buf *to, const struct cordon_operation *operation)
{
    uint32_t flags = (operation->stdin_open ? CORDON_OPEN_STDIN : 0) | (operation->channel ? CORDON_OPEN_CHANNEL : 0) |
                     (operation->kill_on_close ? CORDON_OPEN_KILL : 0) |
                     (operation->recursive ? CORDON_OPEN_RECURSIVE : 0);
    put_u32(to, CORDON_FIELD_OPERATION, operation->kind);
    put_text(to, CORDON_FIELD_USER, operation->user);
    for (size_t i = 0; i < operation->argc; i++)
        put_text(to, CORDON_FIELD_ARGUMENT, operation->argv[i]);
    for (size_t i = 0; i < operation->env_count; i++)
        put_text(to, CORDON_FIELD_ENV, operation->env[i]);
    put_text(to, CORDON_FIELD_CWD, operation->cwd);
    put_u64(to, CORDON_FIELD_TIMEOUT, operation->timeout_ms * 1000);
    put_u64(to, CORDON_FIELD_KILL, operation->output_kill_bytes);
    put_u32(to, CORDON_FIELD_FLAGS, flags);
    if (operation->cols && operation->rows)
        put_u32(to, CORDON_FIELD_TERMINAL, (uint32_t)operation->cols << 16 | operation->rows);
    put_text(to, CORDON_FIELD_TAG, operation->tag);
    put_u32(to, CORDON_FIELD_PID, operation->pid);
    put_u32(to, CORDON_FIELD_REPLAY, operation->replay_bytes);
    put_text(to, CORDON_FIELD_PATH, operation->path);
    put_text(to, CORDON_FIELD_TARGET, operation->target);
    put_u32(to, CORDON_FIELD_MODE, operation->mode);
    put_u64(to, CORDON_FIELD_OFFSET, operation->offset);
    put_u64(to, CORDON_FIELD_SIZE, operation->size);
    put_u32(to, CORDON_FIELD_DEPTH, operation->depth);
    put_u32(to, CORDON_FIELD_ENTRIES, operation->entries);
}

int cordon_open_parse(const char *payload, size_t size, struct cordon_open *ret)
{
    struct cordon_open open = {0};
    const struct {
        uint8_t tag;
        uint32_t *u32;
        uint64_t *u64;
        struct cordon_field *text;
        size_t *count;
    } rows[] = {
        {CORDON_FIELD_OPERATION, .u32 = &open.kind},
        {CORDON_FIELD_FLAGS, .u32 = &open.flags},
        {CORDON_FIELD_TERMINAL, .u32 = &open.terminal},
        {CORDON_FIELD_PID, .u32 = &open.pid},
        {CORDON_FIELD_REPLAY, .u32 = &open.replay},
        {CORDON_FIELD_MODE, .u32 = &open.mode},
        {CORDON_FIELD_DEPTH, .u32 = &open.depth},
        {CORDON_FIELD_ENTRIES, .u32 = &open.entries},
        {CORDON_FIELD_PORT, .u32 = &open.port},
        {CORDON_FIELD_TIMEOUT, .u64 = &open.timeout_us},
        {CORDON_FIELD_KILL, .u64 = &open.output_kill_bytes},
        {CORDON_FIELD_OFFSET, .u64 = &open.offset},
        {CORDON_FIELD_SIZE, .u64 = &open.size},
        {CORDON_FIELD_USER, .text = &open.user},
        {CORDON_FIELD_CWD, .text = &open.cwd},
        {CORDON_FIELD_TAG, .text = &open.tag},
        {CORDON_FIELD_PATH, .text = &open.path},
        {CORDON_FIELD_TARGET, .text = &open.target},
        {CORDON_FIELD_ARGUMENT, .count = &open.arguments},
        {CORDON_FIELD_ENV, .count = &open.environment},
    };
    struct cordon_field field;
    size_t at = 0;
    int r;
    while ((r = cordon_field_next(payload, size, &at, &field)) == 1) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows && r == 1; i++) {
            if (rows[i].tag != field.tag)
                continue;
            if (rows[i].u32 && cordon_field_u32(&field, rows[i].u32) < 0)
                return -EBADMSG;
            if (rows[i].u64 && cordon_field_u64(&field, rows[i].u64) < 0)
                return -EBADMSG;
            if (rows[i].text)
                *rows[i].text = field;
            if (rows[i].count)
                ++*rows[i].count;
        }
    }
    if (r < 0 || open.kind == 0)
        return -EBADMSG;
    *ret = open;
    return 0;
}

/* --- ENDED --- */

static void write32(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (8 * i));
}

static void write64(char *to, uint64_t value)
{
    write32(to, (uint32_t)value);
    write32(to + 4, (uint32_t)(value >> 32));
}

static uint64_t read_number(const char *from, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | (uint8_t)from[bytes];
    return value;
}

void cordon_ended_write(char to[CORDON_ENDED_SIZE], const struct cordon_ended *ended)
{
    write32(to, ended->how);
    write32(to + 4, (uint32_t)ended->status);
    write64(to + 8, ended->run_us);
    write64(to + 16, ended->stdout_bytes);
    write64(to + 24, ended->stderr_bytes);
    write32(to + 32, ended->oom_kills);
}

int cordon_ended_read(const char *data, size_t size, struct cordon_ended *ret)
{
    if (size != CORDON_ENDED_SIZE)
        return -EBADMSG;
    const struct cordon_ended ended = {.how = (uint32_t)read_number(data, 4),
                                       .status = (int32_t)read_number(data + 4, 4),
                                       .run_us = read_number(data + 8, 8),
                                       .stdout_bytes = read_number(data + 16, 8),
                                       .stderr_bytes = read_number(data + 24, 8),
                                       .oom_kills = (uint32_t)read_number(data + 32, 4)};
    if (ended.how > CORDON_ENDED_KILLED)
        return -EBADMSG;
    *ret = ended;
    return 0;
}
