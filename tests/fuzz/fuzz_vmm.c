/* SPDX-License-Identifier: Apache-2.0 */
/* What QEMU and a guest in it say to the vmm: lines of QMP, and the bytes of the first frames. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "vmm/machine.h"

static void lines(const char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct cordon_qmp_message message;
        size_t used;
        cordon_qmp_next(data + at, size - at, &used, &message);
        const char *const texts[] = {message.name, message.status, message.text};
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            for (const char *p = texts[i]; *p; p++)
                if (*p < ' ' || *p > '~')
                    abort();
        if (message.kind == CORDON_QMP_MORE || message.kind == CORDON_QMP_VIOLATION) {
            if (used)
                abort();
            return;
        }
        if (!used || used > size - at || data[at + used - 1] != '\n')
            abort();
        at += used;
    }
}

/* Nothing behind a frame is ever asked for. */
static void frames(const char *data, size_t size)
{
    size_t have = 0;
    ssize_t rest;
    while ((rest = cordon_machine_frame_rest(data, have)) > 0) {
        if (have + (size_t)rest > CORDON_MACHINE_FRAME_MAX)
            abort();
        if (have + (size_t)rest > size)
            return;
        have += (size_t)rest;
    }
    struct cordon_frame frame;
    if (rest == 0 && cordon_frame_parse(data, have, 1, &frame) > (int64_t)have)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lines((const char *)data, size);
    frames((const char *)data, size);
    return 0;
}
