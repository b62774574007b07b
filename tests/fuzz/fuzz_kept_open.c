/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of an operation, as the agent and its children read them. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "proto/kept.h"

static void check(const struct cordon_field *field, const char *from, size_t size)
{
    if (field->data && (field->data < from || field->data + field->length > from + size))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_open open;
    struct cordon_ended ended;
    const char *from = (const char *)data;
    if (cordon_open_parse(from, size, &open) == 0) {
        const struct cordon_field *const texts[] = {&open.user, &open.cwd, &open.tag, &open.path, &open.target};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            check(texts[i], from, size);
        if (open.kind == 0 || open.arguments > size || open.environment > size)
            abort();
    }
    if (cordon_ended_read(from, size, &ended) == 0) {
        char again[CORDON_ENDED_SIZE];
        cordon_ended_write(again, &ended);
        if (memcmp(again, from, sizeof again) != 0)
            abort();
    }
    return 0;
}
