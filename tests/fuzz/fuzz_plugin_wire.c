/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin's host says to the gateway, and the gateway to it. */
#include <assert.h>
#include <string.h>

#include "fuzz.h"
#include "plugin/wire.h"

static void take(const struct cordon_wire_frame *frame)
{
    static struct cordon_wire_event event;
    struct cordon_wire_hello hello;
    struct cordon_wire_request request;
    struct cordon_error err;
    if (cordon_wire_get_event(frame, &event) == 0 && event.event.outcome)
        assert(event.outcome.cause < CORDON_CAUSE__COUNT &&
               strlen(event.outcome.message) < sizeof event.outcome.message);
    if (cordon_wire_get_hello(frame, &hello) == 0)
        assert(hello.capabilities.isolation < CORDON_ISOLATION__COUNT);
    if (cordon_wire_get_error(frame, &err) == 0)
        assert(err.kind && err.kind < CORDON_ERROR__COUNT && err.code < 0);
    if (cordon_wire_get_request(frame, &request) == 0) {
        assert(request.request.language);
        cordon_wire_request_done(&request);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_buf in = CORDON_BUF_INIT(size + 1);
    struct cordon_wire_frame frame;
    size_t used;
    (void)cordon_buf_append(&in, data, size);
    while (cordon_wire_next(&in, 1u << 20, &frame, &used) > 0) {
        take(&frame);
        cordon_buf_consume(&in, used);
    }
    cordon_buf_done(&in);
    return 0;
}
