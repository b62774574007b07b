/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/kept.h"
#include "proto/vm.h"

/* What each type may carry. A header that does not fit is refused before a byte of its payload is read. */
struct type_row {
    bool known;
    uint32_t least, most;
};

#define DATA                                                                                                           \
    {                                                                                                                  \
        true, 1, CORDON_FRAME_DATA_MAX                                                                                 \
    }
#define FIELDS                                                                                                         \
    {                                                                                                                  \
        true, 5, CORDON_FRAME_DATA_MAX                                                                                 \
    }
#define EMPTY                                                                                                          \
    {                                                                                                                  \
        true, 0, 0                                                                                                     \
    }
#define FIXED(size)                                                                                                    \
    {                                                                                                                  \
        true, (size), (size)                                                                                           \
    }

#define EXIT_SIZE 88u
#define LIMITS_SIZE 76u
#define FIELD_HEADER 5u

static const struct type_row to_guest[] = {
    [CORDON_FRAME_EXEC] = {true, 5, CORDON_FRAME_MAX},
    [CORDON_FRAME_STDIN] = DATA,
    [CORDON_FRAME_STDIN_EOF] = EMPTY,
    [CORDON_FRAME_CREDIT] = FIXED(5),
    [CORDON_FRAME_KILL] = FIXED(4),
    [CORDON_FRAME_FILE_OPEN] = FIELDS,
    [CORDON_FRAME_FILE_DATA] = DATA,
    [CORDON_FRAME_FILE_CLOSE] = EMPTY,
    [CORDON_FRAME_COLLECT] = FIELDS,
    [CORDON_FRAME_SETUP] = {true, 0, CORDON_FRAME_MAX},
    [CORDON_FRAME_OPEN] = {true, 5, CORDON_FRAME_MAX},
    [CORDON_FRAME_WRITE] = {true, 2, CORDON_FRAME_DATA_MAX},
    [CORDON_FRAME_WINDOW] = FIXED(4),
    [CORDON_FRAME_CONTROL] = FIXED(8),
    [CORDON_FRAME_CLOSE] = EMPTY,
    [CORDON_FRAME_VM_LEASE] = FIXED(CORDON_VM_LEASE_SIZE),
};

#define GUEST_FIRST CORDON_FRAME_HELLO
static const struct type_row to_host[] = {
    [CORDON_FRAME_HELLO - GUEST_FIRST] = FIXED(4),
    [CORDON_FRAME_STARTED - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_STDOUT - GUEST_FIRST] = DATA,
    [CORDON_FRAME_STDERR - GUEST_FIRST] = DATA,
    [CORDON_FRAME_RESULT - GUEST_FIRST] = DATA,
    [CORDON_FRAME_RESULT_ERROR - GUEST_FIRST] = {true, 0, CORDON_FRAME_DATA_MAX},
    [CORDON_FRAME_EXIT - GUEST_FIRST] = FIXED(EXIT_SIZE),
    [CORDON_FRAME_ARTIFACT_OPEN - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_ARTIFACT_DATA - GUEST_FIRST] = DATA,
    [CORDON_FRAME_ARTIFACT_CLOSE - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_ARTIFACT_DROPPED - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_COLLECTED - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_ERROR - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_STDIN_CREDIT - GUEST_FIRST] = FIXED(4),
    [CORDON_FRAME_READY - GUEST_FIRST] = FIXED(8),
    [CORDON_FRAME_RUNNING - GUEST_FIRST] = FIXED(4),
    [CORDON_FRAME_BEGAN - GUEST_FIRST] = FIXED(4),
    [CORDON_FRAME_OUTPUT - GUEST_FIRST] = {true, 2, CORDON_FRAME_DATA_MAX},
    [CORDON_FRAME_ENDED - GUEST_FIRST] = FIXED(CORDON_ENDED_SIZE),
    [CORDON_FRAME_ENTRY - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_CHANGE - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_INFO - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_DISK - GUEST_FIRST] = FIXED(16),
    [CORDON_FRAME_DONE - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_FAILED - GUEST_FIRST] = FIELDS,
    [CORDON_FRAME_CLOSED - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_TAKEN - GUEST_FIRST] = FIXED(5),
    [CORDON_FRAME_PORT - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_HALF - GUEST_FIRST] = EMPTY,
    [CORDON_FRAME_VM_READY - GUEST_FIRST] = FIXED(CORDON_VM_READY_SIZE),
    [CORDON_FRAME_VM_LEASED - GUEST_FIRST] = FIXED(4),
};

#define DRIVER_FIRST CORDON_DRIVER_RESULT
static const struct type_row from_driver[] = {
    [CORDON_DRIVER_RESULT - DRIVER_FIRST] = {true, 0, CORDON_DRIVER_RESULT_MAX},
    [CORDON_DRIVER_RESULT_ERROR - DRIVER_FIRST] = {true, 0, CORDON_FRAME_DATA_MAX},
    [CORDON_DRIVER_LISTENER - DRIVER_FIRST] = EMPTY,
    [CORDON_DRIVER_EXIT - DRIVER_FIRST] = FIXED(4),
    [CORDON_DRIVER_REHEARSED - DRIVER_FIRST] = EMPTY,
};

static void put32(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (8 * i));
}

static void put64(char *to, uint64_t value)
{
    put32(to, (uint32_t)value);
    put32(to + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const char *from)
{
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--)
        value = value << 8 | (uint8_t)from[i];
    return value;
}

static uint64_t get64(const char *from)
{
    return get32(from) | (uint64_t)get32(from + 4) << 32;
}

static int header_read(const char *data, const struct type_row *rows, size_t count, unsigned first,
                       struct cordon_frame *frame)
{
    unsigned type = (uint8_t)data[0];
    if (type < first || type - first >= count || !rows[type - first].known || data[1] != 0)
        return -EBADMSG;
    uint32_t length = get32(data + 4);
    if (length < rows[type - first].least || length > rows[type - first].most)
        return -EBADMSG;
    frame->type = (uint8_t)type;
    frame->exec = (uint16_t)((uint8_t)data[2] | (unsigned)(uint8_t)data[3] << 8);
    frame->length = length;
    frame->payload = NULL;
    return 0;
}

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

int64_t cordon_frame_parse(const char *data, size_t size, int from_guest, struct cordon_frame *frame)
{
    struct cordon_frame found;
    if (size < CORDON_FRAME_HEADER)
        return 0;
    int r = from_guest ? header_read(data, ROWS(to_host), GUEST_FIRST, &found)
                       : header_read(data, ROWS(to_guest), 0, &found);
    if (r < 0)
        return r;
    if (size - CORDON_FRAME_HEADER < found.length)
        return 0;
    found.payload = data + CORDON_FRAME_HEADER;
    *frame = found;
    return (int64_t)CORDON_FRAME_HEADER + found.length;
}

int cordon_driver_header_parse(const char header[CORDON_FRAME_HEADER], struct cordon_frame *frame)
{
    return header_read(header, ROWS(from_driver), DRIVER_FIRST, frame);
}

void cordon_frame_header(char header[CORDON_FRAME_HEADER], uint8_t type, uint16_t exec, uint32_t length)
{
    header[0] = (char)type;
    header[1] = 0;
    header[2] = (char)exec;
    header[3] = (char)(exec >> 8);
    put32(header + 4, length);
}

int cordon_frame_put(struct cordon_buf *to, uint8_t type, uint16_t exec, const void *payload, uint32_t length)
{
    char *at = cordon_buf_reserve(to, (size_t)CORDON_FRAME_HEADER + length);
    if (!at)
        return -errno;
    cordon_frame_header(at, type, exec, length);
    if (length)
        memcpy(at + CORDON_FRAME_HEADER, payload, length);
    to->size += (size_t)CORDON_FRAME_HEADER + length;
    to->data[to->size] = '\0';
    return 0;
}

int cordon_field_next(const char *data, size_t size, size_t *at, struct cordon_field *field)
{
    if (*at == size)
        return 0;
    if (*at > size || size - *at < FIELD_HEADER)
        return -EBADMSG;
    uint32_t length = get32(data + *at + 1);
    if (size - *at - FIELD_HEADER < length)
        return -EBADMSG;
    field->tag = (uint8_t)data[*at];
    field->length = length;
    field->data = data + *at + FIELD_HEADER;
    *at += FIELD_HEADER + (size_t)length;
    return 1;
}

int cordon_field_put(struct cordon_buf *to, uint8_t tag, const void *data, uint32_t length)
{
    char *at = cordon_buf_reserve(to, (size_t)FIELD_HEADER + length);
    if (!at)
        return -errno;
    at[0] = (char)tag;
    put32(at + 1, length);
    if (length)
        memcpy(at + FIELD_HEADER, data, length);
    to->size += (size_t)FIELD_HEADER + length;
    to->data[to->size] = '\0';
    return 0;
}

int cordon_field_put_u32(struct cordon_buf *to, uint8_t tag, uint32_t value)
{
    char bytes[4];
    put32(bytes, value);
    return cordon_field_put(to, tag, bytes, sizeof bytes);
}

int cordon_field_put_u64(struct cordon_buf *to, uint8_t tag, uint64_t value)
{
    char bytes[8];
    put64(bytes, value);
    return cordon_field_put(to, tag, bytes, sizeof bytes);
}

int cordon_field_u32(const struct cordon_field *field, uint32_t *ret)
{
    if (field->length != 4)
        return -EBADMSG;
    *ret = get32(field->data);
    return 0;
}

int cordon_field_u64(const struct cordon_field *field, uint64_t *ret)
{
    if (field->length != 8)
        return -EBADMSG;
    *ret = get64(field->data);
    return 0;
}

uint32_t cordon_frame_u32(const struct cordon_frame *frame, size_t at)
{
    return at + 4 <= frame->length ? get32(frame->payload + at) : 0;
}

int cordon_exec_limits_put(struct cordon_buf *to, const struct cordon_exec_limits *limits)
{
    const uint64_t wide[] = {limits->disk_bytes,     limits->disk_inodes,    limits->memory_bytes,
                             limits->stdout_bytes,   limits->stderr_bytes,   limits->output_kill_bytes,
                             limits->artifact_bytes, limits->artifacts_bytes};
    char bytes[LIMITS_SIZE], *at = bytes;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++, at += 8)
        put64(at, wide[i]);
    put32(at, limits->artifacts);
    put32(at + 4, limits->open_files);
    put32(at + 8, limits->cpu_percent);
    return cordon_field_put(to, CORDON_FIELD_LIMITS, bytes, sizeof bytes);
}

int cordon_exec_limits_parse(const struct cordon_field *field, struct cordon_exec_limits *ret)
{
    if (field->tag != CORDON_FIELD_LIMITS || field->length != LIMITS_SIZE)
        return -EBADMSG;
    uint64_t *const wide[] = {&ret->disk_bytes,   &ret->disk_inodes,       &ret->memory_bytes,   &ret->stdout_bytes,
                              &ret->stderr_bytes, &ret->output_kill_bytes, &ret->artifact_bytes, &ret->artifacts_bytes};
    const char *at = field->data;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++, at += 8)
        *wide[i] = get64(at);
    ret->artifacts = get32(at);
    ret->open_files = get32(at + 4);
    ret->cpu_percent = get32(at + 8);
    return 0;
}

int cordon_exit_put(struct cordon_buf *to, uint16_t exec, const struct cordon_exit *exit)
{
    char bytes[EXIT_SIZE];
    put32(bytes, exit->how);
    put32(bytes + 4, (uint32_t)exit->status);
    put64(bytes + 8, exit->stdout_bytes);
    put64(bytes + 16, exit->stderr_bytes);
    put32(bytes + 24, exit->processes_left);
    put32(bytes + 28, exit->syscalls_denied);
    memcpy(bytes + 32, exit->blocked_syscall, sizeof exit->blocked_syscall);
    bytes[63] = '\0';
    put32(bytes + 64, exit->may_have_artifacts);
    put32(bytes + 68, exit->oom_kills);
    put64(bytes + 72, exit->cpu_us);
    put64(bytes + 80, exit->memory_peak_bytes);
    return cordon_frame_put(to, CORDON_FRAME_EXIT, exec, bytes, sizeof bytes);
}

int cordon_exit_parse(const struct cordon_frame *frame, struct cordon_exit *ret)
{
    if (frame->type != CORDON_FRAME_EXIT || frame->length != EXIT_SIZE)
        return -EBADMSG;
    const char *at = frame->payload;
    struct cordon_exit found = {
        .how = get32(at),
        .status = (int32_t)get32(at + 4),
        .stdout_bytes = get64(at + 8),
        .stderr_bytes = get64(at + 16),
        .processes_left = get32(at + 24),
        .syscalls_denied = get32(at + 28),
        .may_have_artifacts = get32(at + 64),
        .oom_kills = get32(at + 68),
        .cpu_us = get64(at + 72),
        .memory_peak_bytes = get64(at + 80),
    };
    memcpy(found.blocked_syscall, at + 32, sizeof found.blocked_syscall);
    if (found.how > CORDON_EXIT_TIMEOUT || memchr(found.blocked_syscall, 0, sizeof found.blocked_syscall) == NULL)
        return -EBADMSG;
    *ret = found;
    return 0;
}
