/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_events.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/value.h"

/* A string, NUL-terminated, for free(); NULL when it is none or there is no memory. */
static char *copy_string(const struct cordon_value *value, size_t *ret_size)
{
    if (value->kind != CORDON_VALUE_STRING)
        return NULL;
    char *text = malloc(value->size + 1);
    ssize_t size = text ? cordon_value_string(value, text) : -1;
    if (size < 0) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    *ret_size = (size_t)size;
    return text;
}

static void copy_text(const struct cordon_value *value, char *to, size_t room)
{
    size_t size;
    cordon_autofree char *text = copy_string(value, &size);
    if (text)
        (void)snprintf(to, room, "%s", text); /* cut on purpose */
}

enum form { FORM_TEXT, FORM_INT, FORM_U32, FORM_U64, FORM_US, FORM_BOOL };

/* Where the members of an outcome's JSON go. */
static const struct field {
    const char *name;
    enum form form;
    size_t offset, room;
} fields[] =
    {
#define FIELD(name, form, member)                                                                                      \
    {                                                                                                                  \
        name, form, offsetof(struct cordon_outcome, member), sizeof((struct cordon_outcome *)0)->member                \
    }
        FIELD("exit_code", FORM_INT, exit_code),
        FIELD("signal", FORM_INT, signal),
        FIELD("limit_hit", FORM_TEXT, limit_hit),
        FIELD("message", FORM_TEXT, message),
        FIELD("backend", FORM_TEXT, backend),
        FIELD("warm", FORM_BOOL, warm),
        FIELD("accelerator", FORM_TEXT, accelerator),
        FIELD("start", FORM_TEXT, start),
        FIELD("cpu_ms", FORM_US, cpu_us),
        FIELD("memory_peak_bytes", FORM_U64, memory_peak_bytes),
        FIELD("oom_kills", FORM_U32, oom_kills),
        FIELD("processes_left", FORM_U32, processes_left),
        FIELD("artifacts_dropped", FORM_U32, artifacts_dropped),
        FIELD("syscalls_denied", FORM_U32, syscalls_denied),
        FIELD("blocked_syscall", FORM_TEXT, blocked_syscall),
        FIELD("result_error", FORM_TEXT, result_error),
},
  timings[] = {
      FIELD("queue_ms", FORM_US, queue_us),
      FIELD("start_ms", FORM_US, start_us),
      FIELD("run_ms", FORM_US, run_us),
      FIELD("total_ms", FORM_US, total_us),
};

static uint64_t whole(const struct cordon_value *value)
{
    int64_t number;
    return cordon_value_integer(value, &number) && number > 0 ? (uint64_t)number : 0;
}

static uint64_t microseconds(const struct cordon_value *value)
{
    double ms;
    return cordon_value_number(value, &ms) && ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000 + 0.5) : 0;
}

static void store(struct cordon_outcome *outcome, const struct field *field, const struct cordon_value *value)
{
    char *to = (char *)outcome + field->offset;
    uint64_t number = field->form == FORM_US ? microseconds(value) : whole(value);
    uint32_t number32 = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
    int64_t signed_number = 0;
    int integer;
    switch (field->form) {
    case FORM_TEXT:
        copy_text(value, to, field->room);
        break;
    case FORM_INT:
        (void)cordon_value_integer(value, &signed_number); /* null stands for 0 */
        integer = signed_number >= -1 && signed_number <= 255 ? (int)signed_number : -1;
        memcpy(to, &integer, sizeof integer);
        break;
    case FORM_U32:
        memcpy(to, &number32, sizeof number32);
        break;
    case FORM_U64:
    case FORM_US:
        memcpy(to, &number, sizeof number);
        break;
    case FORM_BOOL:
        *(bool *)to = value->kind == CORDON_VALUE_BOOL && cordon_value_true(value);
        break;
    }
}

static void read_fields(const struct cordon_value *object, const struct field *table, size_t count,
                        struct cordon_outcome *to)
{
    struct cordon_value value;
    for (size_t i = 0; i < count; i++)
        if (cordon_value_member(object, table[i].name, &value))
            store(to, &table[i], &value);
}

static void read_stream(const struct cordon_value *outcome, const char *name, uint64_t *bytes, uint64_t *kept)
{
    struct cordon_value stream, value;
    if (!cordon_value_member(outcome, name, &stream))
        return;
    if (cordon_value_member(&stream, "bytes", &value))
        *bytes = whole(&value);
    if (cordon_value_member(&stream, "kept", &value))
        *kept = whole(&value);
}

static enum cordon_cause read_cause(const struct cordon_value *outcome)
{
    struct cordon_value value;
    for (int cause = 0; cordon_value_member(outcome, "cause", &value) && cause < CORDON_CAUSE__COUNT; cause++)
        if (value.kind == CORDON_VALUE_STRING &&
            cordon_value_equals(&value, cordon_cause_name((enum cordon_cause)cause)))
            return (enum cordon_cause)cause;
    return CORDON_CAUSE_INFRASTRUCTURE; /* what we can't read we don't take for a success */
}

static void read_isolation(const struct cordon_value *outcome, enum cordon_isolation *ret)
{
    char name[32] = "";
    struct cordon_value value;
    if (cordon_value_member(outcome, "isolation", &value))
        copy_text(&value, name, sizeof name);
    if (cordon_isolation_parse(name, ret) < 0)
        *ret = CORDON_ISOLATION_NONE;
}

static void read_network(const struct cordon_value *outcome, struct cordon_outcome *to)
{
    static const struct field counts[] = {
        FIELD("connections", FORM_U64, egress.connections),
        FIELD("refused", FORM_U64, egress.refused),
        FIELD("names", FORM_U64, egress.names),
        FIELD("names_refused", FORM_U64, egress.names_refused),
        FIELD("bytes_sent", FORM_U64, egress.sent),
        FIELD("bytes_received", FORM_U64, egress.received),
        FIELD("first_refused", FORM_TEXT, egress.first_refused),
    };
    struct cordon_value network;
    to->network = cordon_value_member(outcome, "network", &network) && network.kind == CORDON_VALUE_OBJECT;
    if (to->network)
        read_fields(&network, counts, sizeof counts / sizeof *counts, to);
}

static int read_outcome(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    struct cordon_outcome *to = &reader->outcome;
    struct cordon_value outcome, timing;
    *to = (struct cordon_outcome){.struct_size = sizeof *to, .exit_code = -1};
    if (!cordon_value_member(root, "outcome", &outcome) || outcome.kind != CORDON_VALUE_OBJECT)
        return -EBADMSG;
    to->cause = read_cause(&outcome);
    read_isolation(&outcome, &to->isolation);
    read_fields(&outcome, fields, sizeof fields / sizeof *fields, to);
    read_stream(&outcome, "stdout", &to->stdout_bytes, &to->stdout_kept);
    read_stream(&outcome, "stderr", &to->stderr_bytes, &to->stderr_kept);
    read_network(&outcome, to);
    if (cordon_value_member(root, "timing", &timing))
        read_fields(&timing, timings, sizeof timings / sizeof *timings, to);
    event->outcome = to;
    return 0;
}

static int read_data(struct cordon_event_reader *reader, const struct cordon_value *root, const char *plain,
                     const char *base64, struct cordon_event *event)
{
    struct cordon_value value;
    size_t size;
    bool encoded = !plain || !cordon_value_member(root, plain, &value);
    if (encoded && !cordon_value_member(root, base64, &value))
        return -EBADMSG;
    cordon_autofree char *text = copy_string(&value, &size);
    if (!text)
        return -EBADMSG;
    reader->data.size = 0;
    int r = encoded ? cordon_buf_unbase64(&reader->data, text, size) : cordon_buf_append(&reader->data, text, size);
    event->data = (struct cordon_bytes){reader->data.data ? reader->data.data : "", reader->data.size};
    return r;
}

static int read_name(const struct cordon_value *root, const char *key, char **to)
{
    struct cordon_value value;
    size_t size;
    free(*to);
    *to = cordon_value_member(root, key, &value) ? copy_string(&value, &size) : NULL;
    return *to && strlen(*to) == size ? 0 : -EBADMSG;
}

static int read_started(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    return 0;
}

static int read_output(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    return read_data(reader, root, "data", "data_b64", event);
}

static int read_result(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    struct cordon_value value;
    if (!cordon_value_member(root, "result", &value))
        return -EBADMSG;
    event->data = (struct cordon_bytes){value.data, value.size};
    return 0;
}

static int read_egress(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    struct cordon_value value;
    if (!cordon_value_member(root, "log", &value))
        return -EBADMSG;
    event->data = (struct cordon_bytes){value.data, value.size};
    return 0;
}

static int read_artifact(struct cordon_event_reader *reader, const struct cordon_value *root,
                         struct cordon_event *event)
{
    int r = read_name(root, "name", &reader->name);
    event->name = reader->name;
    return r < 0 ? r : read_data(reader, root, NULL, "content_b64", event);
}

static int read_dropped(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event)
{
    struct cordon_value value;
    int r = read_name(root, "name", &reader->name);
    if (r == 0)
        r = read_name(root, "reason", &reader->reason);
    event->name = reader->name;
    event->reason = reader->reason;
    event->size = cordon_value_member(root, "size", &value) ? whole(&value) : 0;
    return r;
}

static const struct {
    const char *name;
    enum cordon_event_type type;
    int (*read)(struct cordon_event_reader *reader, const struct cordon_value *root, struct cordon_event *event);
} types[] = {
    {"started", CORDON_EVENT_STARTED, read_started},    {"stdout", CORDON_EVENT_STDOUT, read_output},
    {"stderr", CORDON_EVENT_STDERR, read_output},       {"result", CORDON_EVENT_RESULT, read_result},
    {"artifact", CORDON_EVENT_ARTIFACT, read_artifact}, {"dropped", CORDON_EVENT_DROPPED, read_dropped},
    {"egress", CORDON_EVENT_EGRESS, read_egress},       {"outcome", CORDON_EVENT_OUTCOME, read_outcome},
};

static int error_of(const struct cordon_value *root, struct cordon_error *err)
{
    struct cordon_value error, value;
    char kind[40] = "", message[512] = "the daemon told of an error that says nothing";
    enum cordon_error_kind known = CORDON_ERROR_INFRASTRUCTURE;
    if (cordon_value_member(root, "error", &error)) {
        if (cordon_value_member(&error, "kind", &value))
            copy_text(&value, kind, sizeof kind);
        if (cordon_value_member(&error, "message", &value))
            copy_text(&value, message, sizeof message);
    }
    for (int i = CORDON_ERROR_NONE + 1; i < CORDON_ERROR__COUNT; i++)
        if (strcmp(cordon_error_name((enum cordon_error_kind)i), kind) == 0)
            known = (enum cordon_error_kind)i;
    return cordon_fail(err, -EREMOTEIO, known, "%s", message);
}

int cordon_error_read(const char *text, size_t size, struct cordon_error *err)
{
    struct cordon_value root;
    if (cordon_value_parse(text, size, &root, NULL) == 0)
        return error_of(&root, err);
    return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "the daemon's answer can not be read");
}

int cordon_event_read(struct cordon_event_reader *reader, const char *line, size_t size, struct cordon_event *event,
                      struct cordon_error *err)
{
    struct cordon_value root, type;
    *event = (struct cordon_event){0};
    reader->data.max = SIZE_MAX / 2;
    if (cordon_value_parse(line, size, &root, NULL) < 0 || !cordon_value_member(&root, "type", &type) ||
        type.kind != CORDON_VALUE_STRING)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "the daemon's stream can not be read");
    if (cordon_value_equals(&type, "error"))
        return error_of(&root, err);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!cordon_value_equals(&type, types[i].name))
            continue;
        event->type = types[i].type;
        if (types[i].read(reader, &root, event) < 0)
            return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "the daemon's \"%s\" event can not be read",
                               types[i].name);
        return 1;
    }
    return 0;
}

void cordon_event_reader_done(struct cordon_event_reader *reader)
{
    cordon_buf_done(&reader->data);
    free(reader->name);
    free(reader->reason);
    reader->name = reader->reason = NULL;
}
