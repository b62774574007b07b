/* SPDX-License-Identifier: Apache-2.0 */
/* A whole run collected from its events. What a backend sends beyond the request's limits is not kept, and told. */
#include "core/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/egress.h"
#include "core/value.h"

#define RESULT_MAX (16u << 20) /* as much as an agent passes on */
#define DROPPED_MAX 256        /* listed one by one; the outcome counts all */
#define NAME_MAX_SIZE 4096

struct item {
    char *name, *reason, *content;
    size_t size;        /* of content */
    uint64_t full_size; /* of the file */
};

struct cordon_answer {
    struct cordon_limits limits;
    struct cordon_buf out, err, result, egress;
    struct item *items;
    size_t item_count, kept, dropped;
    uint64_t kept_bytes;
    char result_error[256];
    struct cordon_outcome outcome;
    struct cordon_error error; /* kind NONE: there is none */
};

int cordon_answer_new(const struct cordon_limits *limits, struct cordon_answer **ret)
{
    struct cordon_answer *answer = calloc(1, sizeof *answer);
    if (!answer)
        return -ENOMEM;
    answer->limits = *limits;
    answer->out = CORDON_BUF_INIT(limits->stdout_bytes);
    answer->err = CORDON_BUF_INIT(limits->stderr_bytes);
    answer->result = CORDON_BUF_INIT(RESULT_MAX);
    answer->egress = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    answer->outcome = (struct cordon_outcome){.struct_size = sizeof answer->outcome,
                                              .cause = CORDON_CAUSE_INFRASTRUCTURE,
                                              .exit_code = -1,
                                              .message = "the run has no outcome"};
    *ret = answer;
    return 0;
}

void cordon_answer_free(struct cordon_answer *answer)
{
    if (!answer)
        return;
    cordon_buf_done(&answer->out);
    cordon_buf_done(&answer->err);
    cordon_buf_done(&answer->result);
    cordon_buf_done(&answer->egress);
    for (size_t i = 0; i < answer->item_count; i++) {
        free(answer->items[i].name);
        free(answer->items[i].reason);
        free(answer->items[i].content);
    }
    free(answer->items);
    free(answer);
}

/* As much of the data as there is room for. */
static int add_output(struct cordon_buf *to, const struct cordon_bytes *data)
{
    size_t room = to->max - to->size;
    return cordon_buf_append(to, data->data, data->size < room ? data->size : room);
}

static int add_result(struct cordon_answer *answer, const struct cordon_bytes *data)
{
    struct cordon_value value;
    struct cordon_error err = {0};
    const char *why = data->size > RESULT_MAX                                        ? "it has more than 16 MiB"
                      : answer->result.data                                          ? "it is a second one"
                      : cordon_value_parse(data->data, data->size, &value, &err) < 0 ? err.message
                                                                                     : NULL;
    if (!why)
        return cordon_buf_append(&answer->result, value.data, value.size);
    (void)snprintf(answer->result_error, sizeof answer->result_error, "the result can not be returned: %.200s", why);
    return 0;
}

static char *copy_name(const char *name)
{
    return strndup(name ? name : "", NAME_MAX_SIZE);
}

static int add_item(struct cordon_answer *answer, const struct cordon_event *event, const char *reason)
{
    struct item item = {.full_size = reason ? event->size : event->data.size};
    struct item *items = realloc(answer->items, (answer->item_count + 1) * sizeof *items);
    if (!items)
        return -ENOMEM;
    answer->items = items;
    item.name = copy_name(event->name);
    if (reason) {
        item.reason = copy_name(reason);
    } else {
        item.size = event->data.size;
        item.content = malloc(item.size + 1);
        if (item.content && item.size)
            memcpy(item.content, event->data.data, item.size);
    }
    if (!item.name || (reason ? !item.reason : !item.content)) {
        free(item.name);
        free(item.reason);
        free(item.content);
        return -ENOMEM;
    }
    items[answer->item_count++] = item;
    return 0;
}

static int add_dropped(struct cordon_answer *answer, const struct cordon_event *event, const char *reason)
{
    answer->dropped++;
    return answer->dropped > DROPPED_MAX ? 0 : add_item(answer, event, reason ? reason : "no reason was given");
}

static int add_artifact(struct cordon_answer *answer, const struct cordon_event *event)
{
    const struct cordon_limits *limits = &answer->limits;
    struct cordon_event dropped = *event;
    dropped.size = event->data.size;
    if (answer->kept >= limits->artifacts)
        return add_dropped(answer, &dropped, "more artifacts than the run may return");
    if (event->data.size > limits->artifact_bytes)
        return add_dropped(answer, &dropped, "larger than a single artifact may be");
    if (event->data.size > limits->artifacts_bytes - answer->kept_bytes)
        return add_dropped(answer, &dropped, "the artifacts together are larger than they may be");
    int r = add_item(answer, event, NULL);
    if (r == 0) {
        answer->kept++;
        answer->kept_bytes += event->data.size;
    }
    return r;
}

/* Its bytes go out as they are, so they must be JSON, whoever sent them. */
static int add_egress(struct cordon_answer *answer, const struct cordon_bytes *data)
{
    struct cordon_value value;
    bool good = !answer->egress.size && cordon_value_parse(data->data, data->size, &value, NULL) == 0 &&
                value.kind == CORDON_VALUE_ARRAY;
    return good ? cordon_buf_append(&answer->egress, value.data, value.size) : 0;
}

static void add_outcome(struct cordon_answer *answer, const struct cordon_outcome *outcome)
{
    answer->outcome = *outcome;
    answer->outcome.stdout_kept = answer->out.size;
    answer->outcome.stderr_kept = answer->err.size;
    if (answer->outcome.artifacts_dropped < answer->dropped)
        answer->outcome.artifacts_dropped = (uint32_t)answer->dropped;
    if (*answer->result_error)
        memcpy(answer->outcome.result_error, answer->result_error, sizeof answer->result_error);
}

int cordon_answer_add(struct cordon_answer *answer, const struct cordon_event *event)
{
    switch (event->type) {
    case CORDON_EVENT_STARTED:
        return 0;
    case CORDON_EVENT_STDOUT:
        return add_output(&answer->out, &event->data);
    case CORDON_EVENT_STDERR:
        return add_output(&answer->err, &event->data);
    case CORDON_EVENT_RESULT:
        return add_result(answer, &event->data);
    case CORDON_EVENT_ARTIFACT:
        return add_artifact(answer, event);
    case CORDON_EVENT_DROPPED:
        return add_dropped(answer, event, event->reason);
    case CORDON_EVENT_EGRESS:
        return add_egress(answer, &event->data);
    case CORDON_EVENT_OUTCOME:
        add_outcome(answer, event->outcome);
        return 0;
    }
    return 0;
}

int cordon_answer_collect(struct cordon_answer *answer, struct cordon_live *live, struct cordon_error *err)
{
    struct cordon_event event;
    for (;;) {
        int got = cordon_live_next(live, &event, err);
        if (got <= 0)
            return got;
        if (cordon_answer_add(answer, &event) < 0)
            return cordon_fail_errno(err, -ENOMEM, "collecting the run's output");
        if (event.type == CORDON_EVENT_OUTCOME)
            return 0;
    }
}

static enum cordon_cause cause_of(enum cordon_error_kind kind)
{
    switch (kind) {
    case CORDON_ERROR_CANCELLED:
        return CORDON_CAUSE_CANCELLED;
    case CORDON_ERROR_QUOTA:
    case CORDON_ERROR_BUSY:
    case CORDON_ERROR_UNAVAILABLE:
        return CORDON_CAUSE_UNAVAILABLE;
    case CORDON_ERROR_INFRASTRUCTURE:
        return CORDON_CAUSE_INFRASTRUCTURE;
    default:
        return CORDON_CAUSE_REFUSED;
    }
}

void cordon_answer_fail(struct cordon_answer *answer, const struct cordon_error *err)
{
    struct cordon_outcome *outcome = &answer->outcome;
    answer->error = *err;
    *outcome = (struct cordon_outcome){.struct_size = sizeof *outcome, .cause = cause_of(err->kind), .exit_code = -1};
    (void)snprintf(outcome->message, sizeof outcome->message, "%.255s", err->message); /* cut: "error" has it whole */
    outcome->stdout_bytes = outcome->stdout_kept = answer->out.size;
    outcome->stderr_bytes = outcome->stderr_kept = answer->err.size;
}

static void write_stream(const struct cordon_buf *buf, const char *key, const char *key_b64, struct cordon_json *json)
{
    const char *data = buf->data ? buf->data : "";
    cordon_json_key(json, key);
    cordon_json_bytes(json, data, buf->size);
    if (cordon_utf8_valid(data, buf->size))
        return;
    cordon_json_key(json, key_b64);
    cordon_json_base64(json, data, buf->size);
}

static void write_item(const struct item *item, struct cordon_json *json)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "name");
    cordon_json_text(json, item->name);
    cordon_json_key(json, "size");
    cordon_json_uint(json, item->full_size);
    if (item->content) {
        cordon_json_key(json, "content_b64");
        cordon_json_base64(json, item->content, item->size);
    } else {
        cordon_json_key(json, "dropped");
        cordon_json_text(json, item->reason);
    }
    cordon_json_object_end(json);
}

void cordon_answer_write(const struct cordon_answer *answer, struct cordon_json *json)
{
    const struct cordon_outcome *outcome = &answer->outcome;
    cordon_json_object_begin(json);
    write_stream(&answer->out, "stdout", "stdout_b64", json);
    write_stream(&answer->err, "stderr", "stderr_b64", json);
    cordon_json_key(json, "exit_code");
    cordon_json_int(json, outcome->exit_code);
    cordon_json_key(json, "outcome");
    cordon_outcome_write(outcome, json);
    cordon_json_key(json, "result");
    if (answer->result.data)
        cordon_json_raw(json, answer->result.data, answer->result.size);
    else
        cordon_json_null(json);
    cordon_json_key(json, "artifacts");
    cordon_json_array_begin(json);
    for (size_t i = 0; i < answer->item_count; i++)
        write_item(&answer->items[i], json);
    cordon_json_array_end(json);
    if (answer->egress.size) {
        cordon_json_key(json, "egress");
        cordon_json_raw(json, answer->egress.data, answer->egress.size);
    }
    cordon_json_key(json, "backend");
    cordon_json_text(json, outcome->backend);
    cordon_json_key(json, "timing");
    cordon_timing_write(outcome, json);
    if (answer->error.kind != CORDON_ERROR_NONE)
        cordon_json_error(json, &answer->error);
    cordon_json_object_end(json);
}

const struct cordon_outcome *cordon_answer_outcome(const struct cordon_answer *answer)
{
    return &answer->outcome;
}

static struct cordon_bytes bytes_of(const struct cordon_buf *buf)
{
    return (struct cordon_bytes){buf->data, buf->size};
}

struct cordon_bytes cordon_answer_stdout(const struct cordon_answer *answer)
{
    return bytes_of(&answer->out);
}

struct cordon_bytes cordon_answer_stderr(const struct cordon_answer *answer)
{
    return bytes_of(&answer->err);
}

struct cordon_bytes cordon_answer_result(const struct cordon_answer *answer)
{
    return bytes_of(&answer->result);
}

bool cordon_answer_artifact(const struct cordon_answer *answer, size_t i, struct cordon_artifact *ret)
{
    if (i >= answer->item_count)
        return false;
    const struct item *item = &answer->items[i];
    *ret = (struct cordon_artifact){item->name, item->reason, {item->content, item->size}, item->full_size};
    return true;
}
