/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and fields of both directions: what is parsed lies in the input, and is written back as it was. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "proto/frame.h"

static void check_fields(const struct cordon_frame *frame)
{
    struct cordon_buf again = CORDON_BUF_INIT(1u << 26);
    struct cordon_field field;
    struct cordon_exec_limits limits;
    size_t at = 0, before = 0;
    uint32_t u32;
    uint64_t u64;
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.data < frame->payload || field.data + field.length > frame->payload + frame->length || at <= before)
            abort();
        before = at;
        (void)cordon_field_put(&again, field.tag, field.data, field.length);
        (void)cordon_field_u32(&field, &u32);
        (void)cordon_field_u64(&field, &u64);
        (void)cordon_exec_limits_parse(&field, &limits);
    }
    if (!again.failed && (again.size != before || (before && memcmp(again.data, frame->payload, before) != 0)))
        abort();
    cordon_buf_done(&again);
}

static void check_exit(const struct cordon_frame *frame)
{
    struct cordon_exit exit;
    if (cordon_exit_parse(frame, &exit) == 0 && strnlen(exit.blocked_syscall, 32) == 32)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int from_guest = 0; from_guest < 2; from_guest++) {
        const char *at = (const char *)data;
        size_t left = size;
        struct cordon_frame frame;
        int64_t n;
        while ((n = cordon_frame_parse(at, left, from_guest, &frame)) > 0) {
            struct cordon_buf again = CORDON_BUF_INIT(1u << 26);
            if ((size_t)n > left || cordon_frame_put(&again, frame.type, frame.exec, frame.payload, frame.length) < 0 ||
                again.size != (size_t)n || memcmp(again.data, at, again.size) != 0)
                abort();
            cordon_buf_done(&again);
            check_fields(&frame);
            check_exit(&frame);
            at += n;
            left -= (size_t)n;
        }
    }
    return 0;
}
