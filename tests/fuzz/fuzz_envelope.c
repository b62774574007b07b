/* SPDX-License-Identifier: Apache-2.0 */
/* What a service elsewhere streams: Connect's frames, and lines. */
#include <assert.h>
#include <string.h>

#include "backend/remote/envelope.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_buf in = CORDON_BUF_INIT(size + 1), lines = CORDON_BUF_INIT(size + 1);
    unsigned flags;
    const char *message;
    size_t length, used;
    (void)cordon_buf_append(&in, data, size);
    (void)cordon_buf_append(&lines, data, size);
    while (cordon_envelope_next(&in, &flags, &message, &length, &used) > 0) {
        assert(used <= in.size && message >= in.data && message + length <= in.data + in.size);
        cordon_buf_consume(&in, used);
    }
    while (cordon_line_next(&lines, &message, &length, &used) > 0) {
        assert(used <= lines.size && message >= lines.data && message + length <= lines.data + used);
        cordon_buf_consume(&lines, used);
    }
    cordon_buf_done(&in);
    cordon_buf_done(&lines);
    return 0;
}
