/* SPDX-License-Identifier: Apache-2.0 */
/* Events out of frames. What they hold is the guest's claim: lengths are checked, texts are copied and cut. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "guest/kept.h"
#include "isolate/cgroup.h"

/* --- FAILED --- */

static enum cordon_error_kind kind_of(int code)
{
    switch (code) {
    case ENOENT:
    case ESRCH:
        return CORDON_ERROR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
    case ECONNREFUSED:
        return CORDON_ERROR_CONFLICT;
    case EACCES:
    case EPERM:
        return CORDON_ERROR_FORBIDDEN;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case E2BIG:
        return CORDON_ERROR_TOO_LARGE;
    case EAGAIN:
    case ENOMEM:
        return CORDON_ERROR_QUOTA;
    case EIO:
        return CORDON_ERROR_INFRASTRUCTURE;
    default:
        return CORDON_ERROR_INVALID;
    }
}

static int failed(const struct cordon_frame *frame, struct cordon_error *err)
{
    struct cordon_field field;
    uint32_t code = EIO;
    size_t at = 0;
    char reason[300] = "it failed in the guest";
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_CODE_NUMBER)
            (void)cordon_field_u32(&field, &code); /* else EIO stays */
        else if (field.tag == CORDON_FIELD_REASON)
            (void)snprintf(reason, sizeof reason, "%.*s", (int)(field.length < 299 ? field.length : 299), field.data);
    }
    if (code == 0 || code > 4095)
        code = EIO;
    return cordon_fail(err, -(int)code, kind_of((int)code), "%s", reason);
}

/* --- files --- */

static void take_text(const struct cordon_field *field, char *to, size_t size)
{
    size_t n = field->length < size - 1 ? field->length : size - 1;
    const char *nul = memchr(field->data, '\0', n);
    n = nul ? (size_t)(nul - field->data) : n;
    memcpy(to, field->data, n);
    to[n] = '\0';
}

static int take_entry(struct cordon_stream *stream, const struct cordon_frame *frame)
{
    enum { PATH, OWNER, GROUP, TARGET };
    struct cordon_file_entry entry = {0};
    struct cordon_field field;
    uint32_t type = 0;
    uint64_t time = 0;
    size_t at = 0;
    bool link = false;
    for (int i = 0; i < 4; i++)
        stream->texts[i][0] = '\0';
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        switch (field.tag) {
        case CORDON_FIELD_PATH:
            take_text(&field, stream->texts[PATH], sizeof stream->texts[PATH]);
            break;
        case CORDON_FIELD_OWNER:
            take_text(&field, stream->texts[OWNER], 64);
            break;
        case CORDON_FIELD_GROUP:
            take_text(&field, stream->texts[GROUP], 64);
            break;
        case CORDON_FIELD_TARGET:
            take_text(&field, stream->texts[TARGET], sizeof stream->texts[TARGET]);
            link = true;
            break;
        case CORDON_FIELD_TYPE:
            (void)cordon_field_u32(&field, &type); /* what is malformed stays 0, here and below */
            break;
        case CORDON_FIELD_SIZE:
            (void)cordon_field_u64(&field, &entry.size);
            break;
        case CORDON_FIELD_MODE:
            (void)cordon_field_u32(&field, &entry.mode);
            break;
        case CORDON_FIELD_TIME:
            (void)cordon_field_u64(&field, &time);
            break;
        default:
            break;
        }
    }
    if (stream->texts[PATH][0] != '/')
        return -EBADMSG;
    const char *slash = strrchr(stream->texts[PATH], '/');
    entry.path = stream->texts[PATH];
    entry.name = slash[1] ? slash + 1 : slash;
    entry.type = type <= CORDON_FILE_LINK ? (enum cordon_file_type)type : CORDON_FILE_OTHER;
    entry.mode &= 07777;
    entry.owner = stream->texts[OWNER];
    entry.group = stream->texts[GROUP];
    entry.modified_ns = (int64_t)time;
    entry.target = link ? stream->texts[TARGET] : NULL;
    stream->entry = entry;
    return 0;
}

static int change(struct cordon_stream *stream, const struct cordon_frame *frame, struct cordon_stream_event *event)
{
    struct cordon_field field;
    uint32_t what = 0;
    size_t at = 0;
    stream->name[0] = '\0';
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_CHANGE)
            (void)cordon_field_u32(&field, &what); /* checked below */
        else if (field.tag == CORDON_FIELD_REASON)
            take_text(&field, stream->name, sizeof stream->name);
    }
    if (what < CORDON_CHANGE_CREATE || what > CORDON_CHANGE_LOST)
        return 0;
    event->type = CORDON_STREAM_CHANGE;
    event->change = (enum cordon_change)what;
    event->name = stream->name;
    event->entry = take_entry(stream, frame) == 0 ? &stream->entry : NULL;
    return 1;
}

/* --- programs --- */

/* A SIGKILL that nobody of ours sent, while the guest's memory ran out: the kernel's. */
static bool by_memory(struct cordon_guest_handle *guest, const struct cordon_ended *ended)
{
    if (ended->how != CORDON_ENDED_SIGNALLED || ended->status != SIGKILL)
        return false;
    if (guest->machine) /* the host's counter is QEMU's; in there the agent has looked */
        return ended->oom_kills > 0;
    uint64_t kills = cordon_cgroup_read_oom_kills(guest->lease.memory_events);
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    bool more = kills > guest->oom_kills;
    guest->oom_kills = kills;
    (void)pthread_mutex_unlock(&guest->lock);
    return more;
}

void cordon_kept_judge(struct cordon_guest_handle *guest, const struct cordon_ended *ended,
                       struct cordon_exec_exit *ret)
{
    static const enum cordon_cause causes[] = {
        [CORDON_ENDED_EXITED] = CORDON_CAUSE_EXITED,       [CORDON_ENDED_SIGNALLED] = CORDON_CAUSE_SIGNALLED,
        [CORDON_ENDED_OUTPUT] = CORDON_CAUSE_OUTPUT_LIMIT, [CORDON_ENDED_TIMEOUT] = CORDON_CAUSE_TIMEOUT,
        [CORDON_ENDED_KILLED] = CORDON_CAUSE_CANCELLED,
    };
    *ret = (struct cordon_exec_exit){.cause = causes[ended->how],
                                     .exit_code = -1,
                                     .run_us = ended->run_us,
                                     .stdout_bytes = ended->stdout_bytes,
                                     .stderr_bytes = ended->stderr_bytes};
    if (by_memory(guest, ended))
        ret->cause = CORDON_CAUSE_MEMORY;
    if (ret->cause == CORDON_CAUSE_EXITED)
        ret->exit_code = ended->status & 255;
    else if (ended->status > 0 && ended->status < NSIG)
        ret->signal = ended->status;
    switch (ret->cause) {
    case CORDON_CAUSE_SIGNALLED:
        (void)snprintf(ret->message, sizeof ret->message, "ended by signal %d", ret->signal);
        break;
    case CORDON_CAUSE_MEMORY:
        (void)snprintf(ret->message, sizeof ret->message, "killed: the guest's memory was used up");
        break;
    case CORDON_CAUSE_TIMEOUT:
        (void)snprintf(ret->message, sizeof ret->message, "killed with all that it started: its time was over");
        break;
    case CORDON_CAUSE_OUTPUT_LIMIT:
        (void)snprintf(ret->message, sizeof ret->message, "killed: it wrote more than it may");
        break;
    case CORDON_CAUSE_CANCELLED:
        (void)snprintf(ret->message, sizeof ret->message, "killed on request");
        break;
    default:
        break;
    }
}

static int output(const struct cordon_frame *frame, struct cordon_stream_event *event)
{
    static const enum cordon_stream_event_type types[] = {
        [CORDON_OUTPUT_STDOUT] = CORDON_STREAM_STDOUT,
        [CORDON_OUTPUT_STDERR] = CORDON_STREAM_STDERR,
        [CORDON_OUTPUT_CHANNEL] = CORDON_STREAM_CHANNEL,
        [CORDON_OUTPUT_FILE] = CORDON_STREAM_DATA,
    };
    unsigned which = (uint8_t)frame->payload[0];
    if (which < CORDON_OUTPUT_STDOUT || which > CORDON_OUTPUT_FILE)
        return 0;
    event->type = types[which];
    event->data = (struct cordon_bytes){frame->payload + 1, frame->length - 1};
    return 1;
}

static int began(struct cordon_stream *stream, const struct cordon_frame *frame, struct cordon_stream_event *event)
{
    if (stream->kind == CORDON_OP_WRITE)
        return 0;
    event->type = stream->kind == CORDON_OP_WATCH ? CORDON_STREAM_WATCHING : CORDON_STREAM_STARTED;
    event->pid = cordon_frame_u32(frame, 0);
    return 1;
}

static uint64_t u64_at(const struct cordon_frame *frame, size_t at)
{
    return cordon_frame_u32(frame, at) | (uint64_t)cordon_frame_u32(frame, at + 4) << 32;
}

int cordon_kept_event(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err)
{
    struct cordon_frame frame;
    struct cordon_ended ended;
    memset(event, 0, sizeof *event);
    if (cordon_frame_parse(stream->current.data, stream->current.size, 1, &frame) <= 0)
        return 0; /* it was parsed before */
    switch (frame.type) {
    case CORDON_FRAME_BEGAN:
        return began(stream, &frame, event);
    case CORDON_FRAME_OUTPUT:
        return output(&frame, event);
    case CORDON_FRAME_ENDED:
        if (cordon_ended_read(frame.payload, frame.length, &ended) < 0)
            ended = (struct cordon_ended){.how = CORDON_ENDED_SIGNALLED};
        cordon_kept_judge(stream->guest, &ended, &stream->exit);
        event->type = CORDON_STREAM_EXIT;
        event->exit = &stream->exit;
        return 1;
    case CORDON_FRAME_ENTRY:
        event->type = CORDON_STREAM_ENTRY;
        event->entry = &stream->entry;
        return take_entry(stream, &frame) == 0;
    case CORDON_FRAME_CHANGE:
        return change(stream, &frame, event);
    case CORDON_FRAME_DISK:
        event->type = CORDON_STREAM_DISK;
        event->disk_used = u64_at(&frame, 0);
        event->disk_total = u64_at(&frame, 8);
        return 1;
    case CORDON_FRAME_PORT:
        event->type = stream->guest->machine ? CORDON_STREAM_STARTED : CORDON_STREAM_END;
        return 1;
    case CORDON_FRAME_HALF:
        event->type = CORDON_STREAM_STDOUT; /* without bytes: there will be none */
        return 1;
    case CORDON_FRAME_DONE:
        event->type = CORDON_STREAM_END;
        return 1;
    case CORDON_FRAME_FAILED:
        return failed(&frame, err);
    default:
        return 0;
    }
}
