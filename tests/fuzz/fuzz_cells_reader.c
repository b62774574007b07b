/* SPDX-License-Identifier: Apache-2.0 */
/* A context's channel, whose other end the code can write to: any cut of the bytes tells the same. */
#include <stdlib.h>
#include <string.h>

#include "cells/reader.h"
#include "fuzz.h"

/* Output may be told in other pieces; its bytes count, and all else as it is. */
struct seen {
    uint64_t out[2], shown, done, ready, broken, sum;
};

static void note(struct seen *seen, const struct cordon_cell_reader_event *event)
{
    bool output = event->type == CORDON_CELL_READ_STDOUT || event->type == CORDON_CELL_READ_STDERR;
    for (size_t i = 0; i < event->size; i++) {
        if (!output && event->data[i] == '\n')
            abort(); /* what is to be one line is one */
        seen->sum = seen->sum * 31 + (unsigned char)event->data[i];
    }
    if (output)
        seen->out[event->type == CORDON_CELL_READ_STDERR] += event->size;
    seen->shown += event->type == CORDON_CELL_READ_SHOWN;
    seen->done += event->type == CORDON_CELL_READ_DONE ? 1 + (uint64_t)event->number : 0;
    seen->ready += event->type == CORDON_CELL_READ_READY;
    seen->broken |= event->type == CORDON_CELL_READ_BROKEN;
}

static struct seen read_all(const char *data, size_t size, size_t step)
{
    struct cordon_cell_reader reader = CORDON_CELL_READER_INIT;
    struct cordon_cell_reader_event event;
    struct seen seen = {0};
    for (size_t at = 0; at < size && !seen.broken; at += step) {
        if (cordon_cell_reader_feed(&reader, data + at, size - at < step ? size - at : step) < 0)
            break;
        do {
            event = cordon_cell_reader_next(&reader);
            note(&seen, &event);
        } while (event.type != CORDON_CELL_READ_MORE && event.type != CORDON_CELL_READ_BROKEN);
    }
    cordon_cell_reader_done(&reader);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = read_all((const char *)data, size, size ? size : 1);
    struct seen bytes = read_all((const char *)data, size, 1);
    struct seen sevens = read_all((const char *)data, size, 7);
    if (memcmp(&whole, &bytes, sizeof whole) != 0 || memcmp(&whole, &sevens, sizeof whole) != 0)
        abort();
    return 0;
}
