/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/reader.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define DROPPED_MAX 256 /* an agent tells of 64, and of the rest at once */

typedef struct cordon_guest_event on_frame(struct cordon_guest_reader *reader, const struct cordon_frame *frame);

static struct cordon_guest_event event_of(enum cordon_guest_event_type type)
{
    return (struct cordon_guest_event){.type = type};
}

static struct cordon_guest_event violation(struct cordon_guest_reader *reader, const char *what)
{
    reader->violation = what;
    return event_of(CORDON_GUEST_VIOLATION);
}

static struct cordon_guest_event on_hello(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (cordon_frame_u32(frame, 0) != CORDON_PROTO_VERSION)
        return violation(reader, "its agent speaks another version");
    reader->state = CORDON_GUEST_RUNNING;
    return event_of(CORDON_GUEST_QUIET);
}

static struct cordon_guest_event on_started(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (reader->started)
        return violation(reader, "a program was started twice");
    reader->started = true;
    return event_of(CORDON_GUEST_STARTED);
}

static struct cordon_guest_event on_output(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    int stream = frame->type == CORDON_FRAME_STDERR;
    uint64_t cap = stream ? reader->caps.stderr_bytes : reader->caps.stdout_bytes;
    if (frame->length > cap - reader->kept[stream])
        return violation(reader, "more output came than its limit");
    reader->kept[stream] += frame->length;
    return (struct cordon_guest_event){CORDON_GUEST_OUTPUT, stream, frame->payload, frame->length};
}

static struct cordon_guest_event on_result(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (cordon_buf_append(&reader->result, frame->payload, frame->length) < 0)
        return violation(reader, "a result came that is larger than its limit");
    return event_of(CORDON_GUEST_QUIET);
}

/* Text of the guest, for people: cut at the room, what is not UTF-8 or can't be shown is replaced. */
static void copy_text(char *to, size_t room, const char *data, size_t size)
{
    if (size >= room)
        size = room - 1;
    memcpy(to, data, size);
    size_t whole = cordon_utf8_complete(to, size);
    bool valid = cordon_utf8_valid(to, whole);
    to[whole] = '\0';
    for (size_t i = 0; i < whole; i++) {
        unsigned char c = (unsigned char)to[i];
        if (c < 0x20 || c == 0x7f || (c >= 0x80 && !valid))
            to[i] = c == '\n' || c == '\t' ? ' ' : '?';
    }
}

static struct cordon_guest_event on_result_error(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    copy_text(reader->result_error, sizeof reader->result_error, frame->payload, frame->length);
    return event_of(CORDON_GUEST_QUIET);
}

static struct cordon_guest_event on_exit_frame(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (cordon_exit_parse(frame, &reader->exit) < 0)
        return violation(reader, "a malformed end came");
    if (reader->exit.how == CORDON_EXIT_SIGNALLED && (reader->exit.status < 1 || reader->exit.status > 64))
        return violation(reader, "an end came by a signal that there is not");
    copy_text(reader->exit.blocked_syscall, sizeof reader->exit.blocked_syscall, reader->exit.blocked_syscall,
              strlen(reader->exit.blocked_syscall));
    reader->state = CORDON_GUEST_EXITED;
    return event_of(CORDON_GUEST_EXIT);
}

static struct cordon_guest_event on_window(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    uint32_t bytes = cordon_frame_u32(frame, 0);
    if (bytes > CORDON_STDIN_WINDOW)
        return violation(reader, "more stdin was asked for than its window holds");
    return (struct cordon_guest_event){.type = CORDON_GUEST_WINDOW, .size = bytes};
}

/* Reads PATH, REASON and SIZE; false when a field is cut or odd, or the name can't be one. */
static bool read_fields(struct cordon_guest_reader *reader, const struct cordon_frame *frame, const char **path,
                        size_t *path_size)
{
    struct cordon_field field;
    uint32_t code;
    size_t at = 0;
    int r;
    *reader->name = *reader->reason = '\0';
    *path = NULL;
    reader->size = 0;
    reader->count = 1;
    while ((r = cordon_field_next(frame->payload, frame->length, &at, &field)) == 1) {
        if (field.tag == CORDON_FIELD_REASON)
            copy_text(reader->reason, sizeof reader->reason, field.data, field.length);
        if (field.tag == CORDON_FIELD_SIZE && cordon_field_u64(&field, &reader->size) < 0)
            return false;
        if (field.tag == CORDON_FIELD_CODE_NUMBER && cordon_field_u32(&field, &code) == 0)
            reader->error_code = code && code < 4096 ? (int)code : 0;
        if (field.tag == CORDON_FIELD_COUNT && cordon_field_u32(&field, &reader->count) < 0)
            return false;
        if (field.tag != CORDON_FIELD_PATH)
            continue;
        *path = field.data;
        *path_size = field.length;
        copy_text(reader->name, sizeof reader->name, field.data, field.length);
    }
    return r == 0;
}

/* A relative path of plain components, which can be joined to a directory without leading out of it. */
static bool is_safe_name(const char *path, size_t size)
{
    if (!path || size == 0 || size > 255 || !cordon_utf8_valid(path, size))
        return false;
    size_t start = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && ((unsigned char)path[i] < 0x20 || path[i] == 0x7f))
            return false;
        if (i < size && path[i] != '/')
            continue;
        size_t length = i - start;
        if (length == 0 || (length <= 2 && memcmp(path + start, "..", length) == 0))
            return false;
        start = i + 1;
    }
    return true;
}

static struct cordon_guest_event on_artifact_open(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    const struct cordon_guest_caps *caps = &reader->caps;
    const char *path;
    size_t path_size = 0;
    if (reader->artifact_open || !read_fields(reader, frame, &path, &path_size) || !is_safe_name(path, path_size))
        return violation(reader, "a malformed artifact came");
    if (reader->artifacts >= caps->artifacts || reader->size > caps->artifact_bytes ||
        reader->size > caps->artifacts_bytes - reader->artifacts_bytes)
        return violation(reader, "more or larger artifacts came than their limits");
    reader->artifact_open = true;
    reader->artifact_size = reader->size;
    cordon_buf_done(&reader->artifact);
    reader->artifact.max = (size_t)reader->size;
    return event_of(CORDON_GUEST_QUIET);
}

static struct cordon_guest_event on_artifact_data(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (!reader->artifact_open || cordon_buf_append(&reader->artifact, frame->payload, frame->length) < 0)
        return violation(reader, "an artifact came that is larger than was said");
    return event_of(CORDON_GUEST_QUIET);
}

static struct cordon_guest_event on_artifact_close(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (!reader->artifact_open)
        return violation(reader, "an artifact ended that had not begun");
    reader->artifact_open = false;
    reader->artifacts++;
    reader->artifacts_bytes += reader->artifact.size;
    return event_of(CORDON_GUEST_ARTIFACT);
}

/* Also takes back the artifact under way. */
static struct cordon_guest_event on_artifact_dropped(struct cordon_guest_reader *reader,
                                                     const struct cordon_frame *frame)
{
    const char *path;
    size_t path_size = 0;
    if (reader->dropped_frames++ >= DROPPED_MAX || !read_fields(reader, frame, &path, &path_size) || !path)
        return violation(reader, "a malformed word of a dropped artifact came, or too many");
    reader->artifact_open = false;
    reader->dropped = reader->count < UINT32_MAX - reader->dropped ? reader->dropped + reader->count : UINT32_MAX;
    cordon_buf_done(&reader->artifact);
    return event_of(CORDON_GUEST_DROPPED);
}

static struct cordon_guest_event on_collected(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    if (reader->artifact_open)
        return violation(reader, "an artifact was not finished");
    reader->state = CORDON_GUEST_COLLECTED;
    return event_of(CORDON_GUEST_END);
}

static struct cordon_guest_event on_error(struct cordon_guest_reader *reader, const struct cordon_frame *frame)
{
    const char *path;
    size_t path_size = 0;
    if (!read_fields(reader, frame, &path, &path_size))
        return violation(reader, "a malformed error came");
    reader->error_of_files = frame->exec == 0;
    return event_of(CORDON_GUEST_REFUSED);
}

/* Each type's handler, and the states in which it may come. */
#define IN(state) (1u << (state))
static const struct {
    on_frame *handle;
    unsigned states;
} rows[] = {
    [CORDON_FRAME_HELLO - CORDON_FRAME_HELLO] = {on_hello, IN(CORDON_GUEST_GREETING)},
    [CORDON_FRAME_STARTED - CORDON_FRAME_HELLO] = {on_started, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_STDOUT - CORDON_FRAME_HELLO] = {on_output, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_STDERR - CORDON_FRAME_HELLO] = {on_output, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_RESULT - CORDON_FRAME_HELLO] = {on_result, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_RESULT_ERROR - CORDON_FRAME_HELLO] = {on_result_error, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_EXIT - CORDON_FRAME_HELLO] = {on_exit_frame, IN(CORDON_GUEST_RUNNING)},
    [CORDON_FRAME_ARTIFACT_OPEN - CORDON_FRAME_HELLO] = {on_artifact_open, IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_ARTIFACT_DATA - CORDON_FRAME_HELLO] = {on_artifact_data, IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_ARTIFACT_CLOSE - CORDON_FRAME_HELLO] = {on_artifact_close, IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_ARTIFACT_DROPPED - CORDON_FRAME_HELLO] = {on_artifact_dropped, IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_COLLECTED - CORDON_FRAME_HELLO] = {on_collected, IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_ERROR - CORDON_FRAME_HELLO] = {on_error, IN(CORDON_GUEST_RUNNING) | IN(CORDON_GUEST_EXITED)},
    [CORDON_FRAME_STDIN_CREDIT - CORDON_FRAME_HELLO] = {on_window, IN(CORDON_GUEST_RUNNING) | IN(CORDON_GUEST_EXITED)},
};

static bool is_artifact(uint8_t type)
{
    return type >= CORDON_FRAME_ARTIFACT_OPEN && type <= CORDON_FRAME_COLLECTED;
}

void cordon_guest_reader_init(struct cordon_guest_reader *reader, uint16_t exec, const struct cordon_guest_caps *caps)
{
    *reader = (struct cordon_guest_reader){.exec = exec, .caps = *caps};
    reader->result.max = CORDON_DRIVER_RESULT_MAX;
}

void cordon_guest_reader_done(struct cordon_guest_reader *reader)
{
    cordon_buf_done(&reader->result);
    cordon_buf_done(&reader->artifact);
}

struct cordon_guest_event cordon_guest_reader_next(struct cordon_guest_reader *reader, const char *data, size_t size,
                                                   size_t *used)
{
    struct cordon_frame frame;
    *used = 0;
    if (reader->violation)
        return event_of(CORDON_GUEST_VIOLATION);
    int64_t n = cordon_frame_parse(data, size, 1, &frame);
    if (n < 0)
        return violation(reader, "what came is no frame");
    if (n == 0)
        return event_of(CORDON_GUEST_MORE);
    *used = (size_t)n;
    unsigned row = (unsigned)frame.type - CORDON_FRAME_HELLO; /* parse let only known types pass */
    if (row >= sizeof rows / sizeof *rows || !(rows[row].states & IN(reader->state)) ||
        (is_artifact(frame.type) && !reader->collecting))
        return violation(reader, "a frame came out of order");
    if (frame.exec != reader->exec && frame.type != CORDON_FRAME_HELLO && frame.type != CORDON_FRAME_ERROR)
        return violation(reader, "a frame came for another program");
    /* The event points to the data that the frame was found in, never to the frame. */
    // cppcheck-suppress returnDanglingLifetime
    return rows[row].handle(reader, &frame);
}
