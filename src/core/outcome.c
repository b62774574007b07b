/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes, errors and events as words and JSON. */
#include "core/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/egress.h"
#include "core/value.h"

static const char *const cause_names[] = {"exited",    "signalled", "timeout",     "memory",        "output_limit",
                                          "cancelled", "refused",   "unavailable", "infrastructure"};
_Static_assert(sizeof cause_names / sizeof *cause_names == CORDON_CAUSE__COUNT, "one name a cause");

static const char *const isolation_names[] = {"none", "namespace", "userspace-kernel", "software-emulated",
                                              "hardware-virtualized"};
_Static_assert(sizeof isolation_names / sizeof *isolation_names == CORDON_ISOLATION__COUNT, "one name an isolation");

const char *cordon_cause_name(enum cordon_cause cause)
{
    return (unsigned)cause < CORDON_CAUSE__COUNT ? cause_names[cause] : "unknown";
}

const char *cordon_isolation_name(enum cordon_isolation isolation)
{
    return (unsigned)isolation < CORDON_ISOLATION__COUNT ? isolation_names[isolation] : "unknown";
}

int cordon_isolation_parse(const char *name, enum cordon_isolation *ret)
{
    for (unsigned i = 0; i < CORDON_ISOLATION__COUNT; i++) {
        if (strcmp(isolation_names[i], name) == 0) {
            *ret = (enum cordon_isolation)i;
            return 0;
        }
    }
    return -EINVAL;
}

int cordon_outcome_exit_status(const struct cordon_outcome *outcome)
{
    switch (outcome->cause) {
    case CORDON_CAUSE_EXITED:
        return outcome->exit_code & 255;
    case CORDON_CAUSE_SIGNALLED:
        return (128 + outcome->signal) & 255;
    case CORDON_CAUSE_TIMEOUT:
    case CORDON_CAUSE_OUTPUT_LIMIT:
        return 124;
    case CORDON_CAUSE_MEMORY:
        return 137;
    case CORDON_CAUSE_REFUSED:
        return 126;
    default:
        return 125;
    }
}

/* 0 stands for what could not be known. */
static void pair_known(struct cordon_json *json, const char *key, uint64_t number)
{
    cordon_json_key(json, key);
    if (number)
        cordon_json_uint(json, number);
    else
        cordon_json_null(json);
}

static void write_stream(struct cordon_json *json, const char *key, uint64_t bytes, uint64_t kept)
{
    cordon_json_key(json, key);
    cordon_json_object_begin(json);
    cordon_json_pair_uint(json, "bytes", bytes);
    cordon_json_pair_uint(json, "kept", kept);
    cordon_json_key(json, "truncated");
    cordon_json_bool(json, bytes > kept);
    cordon_json_object_end(json);
}

void cordon_outcome_write(const struct cordon_outcome *outcome, struct cordon_json *json)
{
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "cause", cordon_cause_name(outcome->cause));
    cordon_json_key(json, "exit_code");
    cordon_json_int(json, outcome->exit_code);
    pair_known(json, "signal", (uint64_t)outcome->signal);
    cordon_json_pair_text(json, "limit_hit", *outcome->limit_hit ? outcome->limit_hit : NULL);
    cordon_json_pair_text(json, "message", outcome->message);
    cordon_json_pair_text(json, "backend", outcome->backend);
    cordon_json_pair_text(json, "isolation", cordon_isolation_name(outcome->isolation));
    cordon_json_key(json, "warm");
    cordon_json_bool(json, outcome->warm);
    cordon_json_pair_text(json, "accelerator", *outcome->accelerator ? outcome->accelerator : NULL);
    cordon_json_pair_text(json, "start", *outcome->start ? outcome->start : NULL);
    cordon_json_key(json, "cpu_ms");
    if (outcome->cpu_us)
        cordon_json_ms(json, outcome->cpu_us);
    else
        cordon_json_null(json);
    pair_known(json, "memory_peak_bytes", outcome->memory_peak_bytes);
    cordon_json_pair_uint(json, "oom_kills", outcome->oom_kills);
    cordon_json_pair_uint(json, "processes_left", outcome->processes_left);
    write_stream(json, "stdout", outcome->stdout_bytes, outcome->stdout_kept);
    write_stream(json, "stderr", outcome->stderr_bytes, outcome->stderr_kept);
    cordon_json_pair_uint(json, "artifacts_dropped", outcome->artifacts_dropped);
    cordon_json_pair_uint(json, "syscalls_denied", outcome->syscalls_denied);
    cordon_json_pair_text(json, "blocked_syscall", *outcome->blocked_syscall ? outcome->blocked_syscall : NULL);
    cordon_json_pair_text(json, "result_error", *outcome->result_error ? outcome->result_error : NULL);
    cordon_json_key(json, "network");
    if (outcome->network)
        cordon_egress_counts_write(&outcome->egress, json);
    else
        cordon_json_null(json);
    cordon_json_object_end(json);
}

void cordon_timing_write(const struct cordon_outcome *outcome, struct cordon_json *json)
{
    cordon_json_object_begin(json);
    cordon_json_pair_ms(json, "queue_ms", outcome->queue_us);
    cordon_json_pair_ms(json, "start_ms", outcome->start_us);
    cordon_json_pair_ms(json, "run_ms", outcome->run_us);
    cordon_json_pair_ms(json, "total_ms", outcome->total_us);
    cordon_json_object_end(json);
}

static struct cordon_json line_begin(struct cordon_buf *to, const char *type)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_pair_text(&json, "type", type);
    return json;
}

static void line_end(struct cordon_json *json)
{
    cordon_json_object_end(json);
    (void)cordon_buf_append(json->buf, "\n", 1); /* a failure is sticky in the buf */
}

void cordon_event_write_error(const struct cordon_error *err, struct cordon_buf *to)
{
    struct cordon_json json = line_begin(to, "error");
    cordon_json_error(&json, err);
    line_end(&json);
}

static void write_data(struct cordon_buf *to, const char *type, const char *data, size_t size)
{
    if (!size)
        return;
    bool text = cordon_utf8_valid(data, size);
    struct cordon_json json = line_begin(to, type);
    cordon_json_key(&json, text ? "data" : "data_b64");
    if (text)
        cordon_json_bytes(&json, data, size);
    else
        cordon_json_base64(&json, data, size);
    line_end(&json);
}

/* Keeps back the start of a character that the next chunk may end. */
static void write_chunk(struct cordon_event_writer *writer, size_t stream, const char *type, const char *data,
                        size_t size, struct cordon_buf *to)
{
    cordon_autofree char *joined = NULL;
    size_t carried = writer->carried[stream];
    if (carried) {
        joined = malloc(carried + size);
        if (!joined) {
            to->failed = true;
            return;
        }
        memcpy(joined, writer->carry[stream], carried);
        if (size)
            memcpy(joined + carried, data, size);
        data = joined;
        size += carried;
    }
    size_t whole = cordon_utf8_complete(data, size);
    write_data(to, type, data, whole);
    writer->carried[stream] = (unsigned char)(size - whole);
    if (size > whole)
        memcpy(writer->carry[stream], data + whole, size - whole);
}

static void write_result(const struct cordon_bytes *data, struct cordon_buf *to)
{
    struct cordon_value value;
    struct cordon_error err = {0};
    struct cordon_json json = line_begin(to, "result");
    cordon_json_key(&json, "result");
    if (cordon_value_parse(data->data, data->size, &value, &err) < 0) {
        cordon_error_context(&err, "the result can not be returned");
        cordon_json_null(&json);
        cordon_json_pair_text(&json, "result_error", err.message);
    } else {
        size_t start = to->size;
        cordon_json_raw(&json, value.data, value.size);
        for (size_t i = start; i < to->size; i++) /* line ends can only stand between its parts */
            if (to->data[i] == '\n' || to->data[i] == '\r')
                to->data[i] = ' ';
    }
    line_end(&json);
}

static void write_artifact(const struct cordon_event *event, struct cordon_buf *to)
{
    struct cordon_json json = line_begin(to, "artifact");
    cordon_json_pair_text(&json, "name", event->name);
    cordon_json_pair_uint(&json, "size", event->data.size);
    cordon_json_key(&json, "content_b64");
    cordon_json_base64(&json, event->data.data, event->data.size);
    line_end(&json);
}

static void write_dropped(const struct cordon_event *event, struct cordon_buf *to)
{
    struct cordon_json json = line_begin(to, "dropped");
    cordon_json_pair_text(&json, "name", event->name);
    cordon_json_pair_text(&json, "reason", event->reason);
    pair_known(&json, "size", event->size);
    line_end(&json);
}

static void write_egress(const struct cordon_bytes *log, struct cordon_buf *to)
{
    struct cordon_json json = line_begin(to, "egress");
    cordon_json_key(&json, "log");
    cordon_json_raw(&json, log->data, log->size);
    line_end(&json);
}

static void write_end(struct cordon_event_writer *writer, const struct cordon_outcome *outcome, struct cordon_buf *to)
{
    write_data(to, "stdout", (const char *)writer->carry[0], writer->carried[0]);
    write_data(to, "stderr", (const char *)writer->carry[1], writer->carried[1]);
    writer->carried[0] = writer->carried[1] = 0;
    struct cordon_json json = line_begin(to, "outcome");
    cordon_json_key(&json, "exit_code");
    cordon_json_int(&json, outcome->exit_code);
    cordon_json_key(&json, "outcome");
    cordon_outcome_write(outcome, &json);
    cordon_json_pair_text(&json, "backend", outcome->backend);
    cordon_json_key(&json, "timing");
    cordon_timing_write(outcome, &json);
    line_end(&json);
}

void cordon_event_write(struct cordon_event_writer *writer, const struct cordon_event *event, struct cordon_buf *to)
{
    switch (event->type) {
    case CORDON_EVENT_STARTED: {
        struct cordon_json json = line_begin(to, "started");
        line_end(&json);
        break;
    }
    case CORDON_EVENT_STDOUT:
        write_chunk(writer, 0, "stdout", event->data.data, event->data.size, to);
        break;
    case CORDON_EVENT_STDERR:
        write_chunk(writer, 1, "stderr", event->data.data, event->data.size, to);
        break;
    case CORDON_EVENT_RESULT:
        write_result(&event->data, to);
        break;
    case CORDON_EVENT_ARTIFACT:
        write_artifact(event, to);
        break;
    case CORDON_EVENT_DROPPED:
        write_dropped(event, to);
        break;
    case CORDON_EVENT_EGRESS:
        write_egress(&event->data, to);
        break;
    case CORDON_EVENT_OUTCOME:
        write_end(writer, event->outcome, to);
        break;
    }
}
