/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "core/value.h"
#include "door/e2b/code_interpreter.h"
#include "door/json_time.h"

static struct cordon_json begin(struct cordon_buf *to, const char *type)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "type");
    cordon_json_text(&json, type);
    return json;
}

static void end(struct cordon_json *json)
{
    cordon_json_object_end(json);
    (void)cordon_buf_append(json->buf, "\n", 1); /* sticky */
}

static void write_text(struct cordon_buf *to, int which, const char *data, size_t size)
{
    struct cordon_json json = begin(to, which ? "stderr" : "stdout");
    cordon_json_key(&json, "text");
    cordon_json_bytes(&json, data, size);
    cordon_json_key(&json, "timestamp");
    cordon_json_time(&json, cordon_time_now_us());
    end(&json);
}

/* What a piece cuts of a character waits for the next piece. */
static void write_output(struct cordon_e2b_cell_writer *writer, int which, struct cordon_bytes data,
                         struct cordon_buf *to)
{
    struct cordon_buf text = CORDON_BUF_INIT(data.size + 8);
    size_t *carried = &writer->carry[which].size;
    (void)cordon_buf_append(&text, writer->carry[which].bytes, *carried); /* sticky, seen below */
    (void)cordon_buf_append(&text, data.data, data.size);
    size_t whole = text.failed ? 0 : cordon_utf8_complete(text.data, text.size);
    *carried = text.failed ? 0 : text.size - whole;
    memcpy(writer->carry[which].bytes, text.data + whole, *carried);
    if (whole)
        write_text(to, which, text.data, whole);
    to->failed |= text.failed;
    cordon_buf_done(&text);
}

static void write_rest(struct cordon_e2b_cell_writer *writer, struct cordon_buf *to)
{
    for (int which = 0; which < 2; which++)
        if (writer->carry[which].size)
            write_text(to, which, writer->carry[which].bytes, writer->carry[which].size);
}

/* A text that is the repr of a string is shown without its quotes. */
static void write_shown_text(struct cordon_json *json, const struct cordon_value *text)
{
    const char *at = text->data + 1;
    size_t size = text->size - 2;
    if (size >= 2 && at[0] == '\'' && at[size - 1] == '\'')
        at++, size -= 2;
    else if (size >= 4 && memcmp(at, "\\\"", 2) == 0 && memcmp(at + size - 2, "\\\"", 2) == 0)
        at += 2, size -= 4;
    char quote = '"';
    cordon_json_raw(json, &quote, 1);
    (void)cordon_buf_append(json->buf, at, size); /* sticky, as the next */
    (void)cordon_buf_append(json->buf, &quote, 1);
}

/* Our keys are this protocol's, but for `main` and what says of itself that it is missing. */
static void write_shown(struct cordon_bytes data, struct cordon_buf *to)
{
    struct cordon_value object, key, value;
    if (cordon_value_parse(data.data, data.size, &object, NULL) < 0)
        return; /* was checked when it was read */
    struct cordon_json json = begin(to, "result");
    struct cordon_value_walk walk = cordon_value_walk(&object);
    while (cordon_value_next(&walk, &key, &value)) {
        if (cordon_value_equals(&key, "dropped") || cordon_value_equals(&key, "type") ||
            cordon_value_equals(&key, "is_main_result"))
            continue;
        if (cordon_value_equals(&key, "main")) {
            cordon_json_key(&json, "is_main_result");
            cordon_json_bool(&json, value.kind == CORDON_VALUE_BOOL && cordon_value_true(&value));
            continue;
        }
        (void)cordon_buf_appendf(to, ",%.*s:", (int)key.size, key.data); /* sticky */
        json.need_comma = false;
        if (cordon_value_equals(&key, "text") && value.kind == CORDON_VALUE_STRING)
            write_shown_text(&json, &value);
        else
            cordon_json_raw(&json, value.data, value.size);
        json.need_comma = true;
    }
    end(&json);
}

static void write_joined(struct cordon_json *json, const struct cordon_value *lines)
{
    struct cordon_value key, line;
    bool first = true;
    struct cordon_value_walk walk = cordon_value_walk(lines);
    cordon_json_raw(json, "\"", 1);
    while (cordon_value_next(&walk, &key, &line)) {
        if (line.kind != CORDON_VALUE_STRING)
            continue;
        if (!first)
            (void)cordon_buf_appends(json->buf, "\\n");                   /* sticky, as the next */
        (void)cordon_buf_append(json->buf, line.data + 1, line.size - 2); /* escaped already */
        first = false;
    }
    (void)cordon_buf_append(json->buf, "\"", 1);
}

static void write_error(struct cordon_bytes data, struct cordon_buf *to)
{
    static const char *const names[] = {"name", "value", "traceback"};
    struct cordon_value object, value;
    if (cordon_value_parse(data.data, data.size, &object, NULL) < 0)
        return; /* was checked when it was read */
    struct cordon_json json = begin(to, "error");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cordon_json_key(&json, names[i]);
        if (cordon_value_member(&object, names[i], &value) && value.kind == CORDON_VALUE_ARRAY)
            write_joined(&json, &value);
        else if (value.data && value.kind == CORDON_VALUE_STRING)
            cordon_json_raw(&json, value.data, value.size);
        else
            cordon_json_text(&json, "");
    }
    end(&json);
}

static void write_synthetic(struct cordon_buf *to, const char *name, const char *message)
{
    struct cordon_json json = begin(to, "error");
    cordon_json_key(&json, "name");
    cordon_json_text(&json, name);
    cordon_json_key(&json, "value");
    cordon_json_text(&json, message);
    cordon_json_key(&json, "traceback");
    cordon_json_text(&json, message);
    end(&json);
}

static void write_number(struct cordon_buf *to, uint32_t number)
{
    struct cordon_json json = begin(to, "number_of_executions");
    cordon_json_key(&json, "execution_count");
    cordon_json_uint(&json, number);
    end(&json);
}

static void write_end(struct cordon_e2b_cell_writer *writer, const struct cordon_cell_end *how, struct cordon_buf *to)
{
    write_rest(writer, to);
    if (how->context_ended)
        write_synthetic(to, how->cause == CORDON_CAUSE_CANCELLED ? "ContextRestarting" : "UnexpectedEndOfExecution",
                        how->message);
    struct cordon_json json = begin(to, "end_of_execution");
    end(&json);
}

void cordon_e2b_cell_write(struct cordon_e2b_cell_writer *writer, const struct cordon_cell_event *event,
                           struct cordon_buf *to)
{
    switch (event->type) {
    case CORDON_CELL_STARTED:
        write_number(to, event->number);
        break;
    case CORDON_CELL_STDOUT:
    case CORDON_CELL_STDERR:
        write_output(writer, event->type == CORDON_CELL_STDERR, event->data, to);
        break;
    case CORDON_CELL_SHOWN:
        write_shown(event->data, to);
        break;
    case CORDON_CELL_ERROR:
        write_error(event->data, to);
        break;
    case CORDON_CELL_END:
        write_end(writer, event->end, to);
        break;
    }
}
