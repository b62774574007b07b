/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's reader of event lines: what it reads can be written, and is then read as the same. */
#include <stdlib.h>
#include <string.h>

#include "cli/run_events.h"
#include "fuzz.h"

static void check_again(const struct cordon_event *event)
{
    struct cordon_event_writer writer = {.carried = {0}};
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_buf text = CORDON_BUF_INIT(1u << 22);
    struct cordon_event again;
    cordon_event_write(&writer, event, &text);
    bool cut = writer.carried[0] || writer.carried[1]; /* ends within a character: the rest comes with the next */
    if (!text.failed && !cut && text.size) {
        if (cordon_event_read(&reader, text.data, text.size - 1, &again, NULL) != 1 || again.type != event->type)
            abort();
        if (again.data.size != event->data.size ||
            (again.data.size && memcmp(again.data.data, event->data.data, again.data.size)))
            abort();
    }
    cordon_event_reader_done(&reader);
    cordon_buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_event event;
    struct cordon_error err = {0};
    int got = cordon_event_read(&reader, (const char *)data, size, &event, &err);
    if (got < 0 && err.kind == CORDON_ERROR_NONE)
        abort();
    if (got > 0 && event.type != CORDON_EVENT_RESULT && event.type != CORDON_EVENT_OUTCOME)
        check_again(&event);
    cordon_event_reader_done(&reader);
    return 0;
}
