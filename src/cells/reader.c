/* SPDX-License-Identifier: Apache-2.0 */
#include "cells/reader.h"

#include <errno.h>
#include <string.h>

#include "core/value.h"

#define MERGE_MAX (64u << 10) /* output of several frames told as one */

static const struct cordon_cell_reader_event more = {.type = CORDON_CELL_READ_MORE};

static uint32_t number_at(const char *data)
{
    const unsigned char *u = (const unsigned char *)data;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static struct cordon_cell_reader_event broken(struct cordon_cell_reader *reader)
{
    reader->broken = true;
    cordon_buf_done(&reader->in);
    cordon_buf_done(&reader->parts);
    return (struct cordon_cell_reader_event){.type = CORDON_CELL_READ_BROKEN};
}

int cordon_cell_reader_feed(struct cordon_cell_reader *reader, const char *data, size_t size)
{
    if (reader->broken)
        return 0;
    if (reader->at) {
        cordon_buf_consume(&reader->in, reader->at);
        reader->at = 0;
    }
    return cordon_buf_append(&reader->in, data, size) < 0 ? -ENOMEM : 0;
}

/* The frame at `at`: its whole size with payload and length, 0 when it is not whole, -1 when it can't be one. */
static int64_t frame_at(const struct cordon_cell_reader *reader, size_t at, int *type, const char **payload,
                        size_t *length)
{
    size_t left = reader->in.size - at;
    if (left < CORDON_CELL_HEADER)
        return 0;
    const char *head = reader->in.data + at;
    *type = (unsigned char)head[0];
    *length = number_at(head + 4);
    if (head[1] || head[2] || head[3] || *type < CORDON_CELL_FRAME_READY || *type > CORDON_CELL_FRAME_SYNCED ||
        *length > CORDON_CELL_FRAME_MAX - CORDON_CELL_HEADER)
        return -1;
    if (left < CORDON_CELL_HEADER + *length)
        return 0;
    *payload = head + CORDON_CELL_HEADER;
    return (int64_t)(CORDON_CELL_HEADER + *length);
}

/* Output: what of the same stream follows at once is told with it. */
static struct cordon_cell_reader_event take_output(struct cordon_cell_reader *reader, int stream)
{
    const char *payload;
    size_t length;
    int type;
    reader->out.size = 0;
    for (;;) {
        int64_t size = frame_at(reader, reader->at, &type, &payload, &length);
        if (size <= 0 || type != CORDON_CELL_FRAME_OUT || length < 1 || payload[0] != stream ||
            (reader->out.size && reader->out.size + length > MERGE_MAX))
            break;
        if (cordon_buf_append(&reader->out, payload + 1, length - 1) < 0)
            return broken(reader);
        reader->at += (size_t)size;
    }
    if (!reader->out.size)
        return more;
    return (struct cordon_cell_reader_event){.type = stream == 1 ? CORDON_CELL_READ_STDOUT : CORDON_CELL_READ_STDERR,
                                             .data = reader->out.data,
                                             .size = reader->out.size};
}

/* Copies JSON so that it is one line: a newline can only be white space there. */
static int one_line(struct cordon_buf *to, const char *data, size_t size)
{
    to->size = 0;
    if (cordon_buf_append(to, data, size) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < size; i++)
        if (to->data[i] == '\n' || to->data[i] == '\r')
            to->data[i] = ' ';
    return 0;
}

static struct cordon_cell_reader_event take_done(struct cordon_cell_reader *reader, const struct cordon_value *object)
{
    struct cordon_cell_reader_event event = {.type = CORDON_CELL_READ_DONE, .data = "", .size = 0};
    struct cordon_value value;
    int64_t number;
    if (!cordon_value_member(object, "number", &value) || value.kind != CORDON_VALUE_NUMBER ||
        !cordon_value_integer(&value, &number) || number < 0 || number > UINT32_MAX)
        return broken(reader);
    event.number = (uint32_t)number;
    if (cordon_value_member(object, "error", &value)) {
        if (value.kind != CORDON_VALUE_OBJECT || one_line(&reader->out, value.data, value.size) < 0)
            return broken(reader);
        event.data = reader->out.data;
        event.size = reader->out.size;
    }
    return event;
}

/* JSON that is whole with this frame. */
static struct cordon_cell_reader_event take_object(struct cordon_cell_reader *reader, int type)
{
    struct cordon_cell_reader_event event = {.type = CORDON_CELL_READ_SHOWN};
    struct cordon_value object;
    if (cordon_value_parse(reader->parts.data ? reader->parts.data : "", reader->parts.size, &object, NULL) < 0 ||
        object.kind != CORDON_VALUE_OBJECT)
        return broken(reader);
    if (type == CORDON_CELL_FRAME_READY)
        event.type = CORDON_CELL_READ_READY;
    else if (type == CORDON_CELL_FRAME_DONE)
        event = take_done(reader, &object);
    else if (one_line(&reader->out, object.data, object.size) < 0)
        return broken(reader);
    if (event.type == CORDON_CELL_READ_SHOWN) {
        event.data = reader->out.data;
        event.size = reader->out.size;
    }
    cordon_buf_done(&reader->parts);
    return event;
}

/* One frame, or output of several. MORE: there is none, or (with `at` moved on) it was nothing to tell. */
static struct cordon_cell_reader_event take_frame(struct cordon_cell_reader *reader)
{
    const char *payload;
    size_t length;
    int type;
    int64_t size = frame_at(reader, reader->at, &type, &payload, &length);
    if (size < 0)
        return broken(reader);
    if (size == 0)
        return more;
    if (type == CORDON_CELL_FRAME_OUT) {
        if (length < 1 || payload[0] < 1 || payload[0] > 2)
            return broken(reader);
        return take_output(reader, payload[0]);
    }
    reader->at += (size_t)size;
    if (type == CORDON_CELL_FRAME_SYNCED)
        return more; /* of an earlier holder of the channel */
    if (cordon_buf_append(&reader->parts, payload, length) < 0)
        return broken(reader);
    return type == CORDON_CELL_FRAME_PART ? more : take_object(reader, type);
}

struct cordon_cell_reader_event cordon_cell_reader_next(struct cordon_cell_reader *reader)
{
    struct cordon_cell_reader_event event = {.type = CORDON_CELL_READ_BROKEN};
    size_t before;
    if (reader->broken)
        return event;
    do {
        before = reader->at;
        event = take_frame(reader);
    } while (event.type == CORDON_CELL_READ_MORE && reader->at != before);
    return event;
}

int cordon_cell_reader_sync(struct cordon_cell_reader *reader, const unsigned char nonce[CORDON_CELL_NONCE],
                            uint32_t *ret_number)
{
    char wanted[CORDON_CELL_HEADER + CORDON_CELL_NONCE] = {(char)CORDON_CELL_FRAME_SYNCED, 0, 0, 0,
                                                           CORDON_CELL_NONCE + 4};
    memcpy(wanted + CORDON_CELL_HEADER, nonce, CORDON_CELL_NONCE);
    struct cordon_buf *in = &reader->in;
    const char *found = in->data ? memmem(in->data, in->size, wanted, sizeof wanted) : NULL;
    if (found && (size_t)(in->data + in->size - found) >= sizeof wanted + 4) {
        *ret_number = number_at(found + sizeof wanted);
        cordon_buf_consume(in, (size_t)(found - in->data) + sizeof wanted + 4);
        reader->at = 0;
        return 1;
    }
    if (!found && in->size > sizeof wanted)
        cordon_buf_consume(in, in->size - sizeof wanted);
    reader->at = 0;
    return 0;
}

void cordon_cell_reader_done(struct cordon_cell_reader *reader)
{
    cordon_buf_done(&reader->in);
    cordon_buf_done(&reader->parts);
    cordon_buf_done(&reader->out);
}
