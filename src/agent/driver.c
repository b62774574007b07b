/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/driver.h"

#include <string.h>

static const struct cordon_driver_event more = {.type = CORDON_DRIVER_MORE};

static struct cordon_driver_event broken(struct cordon_driver_reader *reader)
{
    reader->broken = true;
    return (struct cordon_driver_event){.type = CORDON_DRIVER_BROKEN};
}

static bool take_header(struct cordon_driver_reader *reader, const char **data, size_t *size)
{
    size_t n = CORDON_FRAME_HEADER - reader->header_used;
    if (n > *size)
        n = *size;
    memcpy(reader->header + reader->header_used, *data, n);
    reader->header_used += n;
    *data += n;
    *size -= n;
    return reader->header_used == CORDON_FRAME_HEADER;
}

/* A frame whose payload was gathered in text is whole. */
static struct cordon_driver_event frame_done(struct cordon_driver_reader *reader)
{
    struct cordon_driver_event event = {.type = CORDON_DRIVER_FD, .data = reader->text, .size = reader->text_used};
    reader->header_used = 0;
    if (reader->frame.type == CORDON_DRIVER_RESULT_ERROR)
        event.type = CORDON_DRIVER_TEXT;
    if (reader->frame.type == CORDON_DRIVER_REHEARSED)
        event.type = CORDON_DRIVER_WARM;
    if (reader->frame.type == CORDON_DRIVER_EXIT) {
        struct cordon_frame frame = {.length = (uint32_t)reader->text_used, .payload = reader->text};
        event.type = CORDON_DRIVER_CODE;
        event.code = (int32_t)cordon_frame_u32(&frame, 0);
    }
    return event;
}

static struct cordon_driver_event take_payload(struct cordon_driver_reader *reader, const char **data, size_t *size)
{
    size_t n = reader->left < *size ? reader->left : *size;
    const char *from = *data;
    *data += n;
    *size -= n;
    reader->left -= (uint32_t)n;
    if (reader->frame.type == CORDON_DRIVER_RESULT) {
        if (!reader->left)
            reader->header_used = 0;
        reader->result_bytes += n;
        if (reader->result_bytes > CORDON_DRIVER_RESULT_MAX)
            return broken(reader);
        return n ? (struct cordon_driver_event){.type = CORDON_DRIVER_PIECE, .data = from, .size = n} : more;
    }
    size_t room = sizeof reader->text - reader->text_used, keep = n < room ? n : room;
    memcpy(reader->text + reader->text_used, from, keep);
    reader->text_used += keep;
    return reader->left ? more : frame_done(reader);
}

struct cordon_driver_event cordon_driver_read(struct cordon_driver_reader *reader, const char **data, size_t *size)
{
    struct cordon_driver_event event = more;
    while (*size && event.type == CORDON_DRIVER_MORE) {
        if (reader->broken)
            return broken(reader);
        if (reader->header_used < CORDON_FRAME_HEADER) {
            if (!take_header(reader, data, size))
                return more;
            if (cordon_driver_header_parse(reader->header, &reader->frame) < 0)
                return broken(reader);
            reader->left = reader->frame.length;
            reader->text_used = 0;
            if (reader->left)
                continue;
        }
        event = take_payload(reader, data, size);
    }
    return event;
}
