/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of virtual machines, both directions: what is parsed is written back as it was, and its texts end. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "proto/vm.h"

static void check_same(struct cordon_buf *again, const struct cordon_frame *frame)
{
    size_t size = CORDON_FRAME_HEADER + (size_t)frame->length;
    if (again->failed || again->size != size ||
        memcmp(again->data + CORDON_FRAME_HEADER, frame->payload, frame->length) != 0)
        abort();
    cordon_buf_done(again);
}

static void check(const struct cordon_frame *frame)
{
    struct cordon_vm_ready ready;
    struct cordon_vm_lease lease;
    struct cordon_buf again = CORDON_BUF_INIT(4096);
    if (cordon_vm_ready_parse(frame, &ready) == 0) {
        cordon_vm_ready_put(&again, &ready);
        check_same(&again, frame);
    } else if (cordon_vm_lease_parse(frame, &lease) == 0) {
        if (strnlen(lease.guest, CORDON_VM_TEXT) == CORDON_VM_TEXT || strchr(lease.hostname, '/') ||
            strlen(lease.machine_id) != 32)
            abort();
        cordon_vm_lease_put(&again, &lease);
        check_same(&again, frame);
    } else if (cordon_vm_leased_parse(frame) == 0) {
        cordon_vm_leased_put(&again);
        check_same(&again, frame);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int from_guest = 0; from_guest < 2; from_guest++) {
        const char *at = (const char *)data;
        size_t left = size;
        struct cordon_frame frame;
        int64_t n;
        while ((n = cordon_frame_parse(at, left, from_guest, &frame)) > 0) {
            check(&frame);
            at += n;
            left -= (size_t)n;
        }
    }
    return 0;
}
