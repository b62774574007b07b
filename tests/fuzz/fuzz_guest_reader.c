/* SPDX-License-Identifier: Apache-2.0 */
/* What a taken-over agent may send to the gateway. The first byte chooses whether COLLECT is sent. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"
#include "guest/reader.h"

static const struct cordon_guest_caps caps = {
    .stdout_bytes = 1000, .stderr_bytes = 10, .artifact_bytes = 100, .artifacts_bytes = 300, .artifacts = 3};

static void check(const struct cordon_guest_reader *reader, const struct cordon_guest_event *event, const char *from,
                  size_t size)
{
    if (event->type == CORDON_GUEST_OUTPUT &&
        (event->data < from || event->data + event->size > from + size || event->stream < 0 || event->stream > 1))
        abort();
    if (reader->kept[0] > caps.stdout_bytes || reader->kept[1] > caps.stderr_bytes ||
        reader->artifacts > caps.artifacts || reader->artifacts_bytes > caps.artifacts_bytes ||
        reader->artifact.size > caps.artifact_bytes)
        abort();
    if (event->type == CORDON_GUEST_ARTIFACT && (!*reader->name || *reader->name == '/' || strstr(reader->name, "../")))
        abort();
    if (!cordon_utf8_valid(reader->name, strlen(reader->name)) ||
        !cordon_utf8_valid(reader->reason, strlen(reader->reason)) ||
        !cordon_utf8_valid(reader->result_error, strlen(reader->result_error)))
        abort();
    if ((event->type == CORDON_GUEST_VIOLATION) != (reader->violation != NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_guest_reader reader;
    const char *at = (const char *)data + 1;
    if (!size)
        return 0;
    size_t left = size - 1, used;
    cordon_guest_reader_init(&reader, 1, &caps);
    for (;;) {
        struct cordon_guest_event event = cordon_guest_reader_next(&reader, at, left, &used);
        check(&reader, &event, at, left);
        if (event.type == CORDON_GUEST_EXIT)
            reader.collecting = *data & 1;
        if (event.type == CORDON_GUEST_MORE || event.type == CORDON_GUEST_VIOLATION)
            break;
        at += used;
        left -= used;
    }
    cordon_guest_reader_done(&reader);
    return 0;
}
