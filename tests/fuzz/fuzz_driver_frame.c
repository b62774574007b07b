/* SPDX-License-Identifier: Apache-2.0 */
/* The driver channel, whose other end the code can write to: any cut of the bytes gives the same events. */
#include <stdlib.h>
#include <string.h>

#include "agent/driver.h"
#include "fuzz.h"

struct seen {
    uint64_t result_bytes, result_sum, texts, text_sum, descriptors, codes, rehearsals;
    int64_t code_sum;
    int64_t broken; /* as wide as the others: no padding, since they are compared as bytes */
};

static void note(struct seen *seen, const struct cordon_driver_event *event)
{
    for (size_t i = 0; event->type == CORDON_DRIVER_PIECE && i < event->size; i++)
        seen->result_sum = seen->result_sum * 31 + (unsigned char)event->data[i];
    for (size_t i = 0; event->type == CORDON_DRIVER_TEXT && i < event->size; i++)
        seen->text_sum = seen->text_sum * 31 + (unsigned char)event->data[i];
    if (event->type == CORDON_DRIVER_PIECE)
        seen->result_bytes += event->size;
    if (event->type == CORDON_DRIVER_TEXT && event->size > CORDON_DRIVER_TEXT_MAX)
        abort();
    seen->texts += event->type == CORDON_DRIVER_TEXT;
    seen->descriptors += event->type == CORDON_DRIVER_FD;
    seen->codes += event->type == CORDON_DRIVER_CODE;
    seen->rehearsals += event->type == CORDON_DRIVER_WARM;
    seen->code_sum += event->type == CORDON_DRIVER_CODE ? event->code : 0;
    seen->broken |= event->type == CORDON_DRIVER_BROKEN;
}

static struct seen read_all(const char *data, size_t size, size_t step)
{
    struct cordon_driver_reader reader = {.header_used = 0};
    struct seen seen = {.broken = 0};
    while (size && !seen.broken) {
        size_t part = size < step ? size : step;
        const char *at = data;
        struct cordon_driver_event event;
        data += part;
        size -= part;
        do {
            event = cordon_driver_read(&reader, &at, &part);
            note(&seen, &event);
        } while (event.type != CORDON_DRIVER_MORE && event.type != CORDON_DRIVER_BROKEN);
    }
    if (seen.result_bytes > CORDON_DRIVER_RESULT_MAX)
        abort();
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
