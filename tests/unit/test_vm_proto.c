/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of virtual machines (proto/vm.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/vm.h"

static struct cordon_vm_lease example(void)
{
    struct cordon_vm_lease lease = {.flags = CORDON_VM_FRESH,
                                    .realtime_ns = 1700000000123456789u,
                                    .guest = "g_0123",
                                    .hostname = "cordon-1.x",
                                    .machine_id = "0123456789abcdef0123456789abcdef",
                                    .memory_bytes = 1ull << 40,
                                    .disk_bytes = 2,
                                    .disk_inodes = 3,
                                    .pids = 4,
                                    .open_files = 5,
                                    .cpu_percent = 6};
    for (size_t i = 0; i < sizeof lease.entropy; i++)
        lease.entropy[i] = (char)(255 - i);
    return lease;
}

/* As it comes from the wire; what the frame points to stays buf's. */
static struct cordon_frame parsed(const struct cordon_buf *buf, int from_guest)
{
    struct cordon_frame frame = {0};
    assert_false(buf->failed);
    assert_int_equal(cordon_frame_parse(buf->data, buf->size, from_guest, &frame), (int64_t)buf->size);
    return frame;
}

static void lease_goes_there_and_back(void **state)
{
    struct cordon_vm_lease lease = example(), found;
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    cordon_vm_lease_put(&buf, &lease);
    struct cordon_frame frame = parsed(&buf, 0);
    assert_int_equal(frame.exec, 0);
    assert_int_equal(cordon_vm_lease_parse(&frame, &found), 0);
    assert_memory_equal(found.entropy, lease.entropy, sizeof lease.entropy);
    assert_string_equal(found.guest, "g_0123");
    assert_string_equal(found.hostname, "cordon-1.x");
    assert_string_equal(found.machine_id, lease.machine_id);
    assert_true(found.realtime_ns == lease.realtime_ns && found.memory_bytes == 1ull << 40);
    assert_true(found.flags == CORDON_VM_FRESH && found.disk_bytes == 2 && found.disk_inodes == 3);
    assert_true(found.pids == 4 && found.open_files == 5 && found.cpu_percent == 6);
    cordon_buf_done(&buf);

    lease.flags = CORDON_VM_REHEARSAL;
    cordon_vm_lease_put(&buf, &lease);
    frame = parsed(&buf, 0);
    assert_int_equal(cordon_vm_lease_parse(&frame, &found), 0);
    assert_true(found.flags == CORDON_VM_REHEARSAL);
    cordon_buf_done(&buf);
}

static void check_refused(const struct cordon_vm_lease *lease)
{
    struct cordon_vm_lease found;
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    cordon_vm_lease_put(&buf, lease);
    struct cordon_frame frame = parsed(&buf, 0);
    assert_int_equal(cordon_vm_lease_parse(&frame, &found), -EBADMSG);
    cordon_buf_done(&buf);
}

static void leases_that_can_not_be_are_refused(void **state)
{
    struct cordon_vm_lease lease = example();
    lease.flags = CORDON_VM_FRESH | CORDON_VM_REHEARSAL;
    check_refused(&lease);
    lease.flags = 4;
    check_refused(&lease);
    lease = example();
    memset(lease.guest, 'a', sizeof lease.guest); /* not terminated */
    check_refused(&lease);
    lease = example();
    lease.hostname[0] = '/';
    check_refused(&lease);
    lease = example();
    lease.hostname[0] = '\0';
    check_refused(&lease);
    lease = example();
    lease.machine_id[31] = '\0'; /* too short */
    check_refused(&lease);
    lease = example();
    lease.machine_id[32] = 'a'; /* too long */
    check_refused(&lease);
    lease = example();
    lease.guest[60] = 'x'; /* behind its end */
    check_refused(&lease);
}

static void ready_and_leased_go_there_and_back(void **state)
{
    const struct cordon_vm_ready ready = {
        .language = CORDON_VM_BASH, .kept = 1, .memory_available_bytes = 1ull << 33, .boot_ms = 1234};
    struct cordon_vm_ready found;
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    cordon_vm_ready_put(&buf, &ready);
    struct cordon_frame frame = parsed(&buf, 1);
    assert_int_equal(cordon_vm_ready_parse(&frame, &found), 0);
    assert_true(found.language == CORDON_VM_BASH && found.kept == 1 && found.boot_ms == 1234);
    assert_true(found.memory_available_bytes == 1ull << 33);
    buf.data[CORDON_FRAME_HEADER + 4] = CORDON_VM_BASH + 1;
    assert_int_equal(cordon_vm_ready_parse(&frame, &found), -EBADMSG);
    buf.data[CORDON_FRAME_HEADER + 4] = 0;
    buf.data[CORDON_FRAME_HEADER]++; /* another version */
    assert_int_equal(cordon_vm_ready_parse(&frame, &found), -EBADMSG);
    assert_int_equal(cordon_vm_leased_parse(&frame), -EBADMSG);
    cordon_buf_done(&buf);

    struct cordon_buf leased = CORDON_BUF_INIT(64);
    cordon_vm_leased_put(&leased);
    frame = parsed(&leased, 1);
    assert_int_equal(cordon_vm_leased_parse(&frame), 0);
    frame.exec = 1;
    assert_int_equal(cordon_vm_leased_parse(&frame), -EBADMSG);
    cordon_buf_done(&leased);
}

/* Each frame is one of its own direction only. */
static void directions_are_kept_apart(void **state)
{
    struct cordon_vm_lease lease = example();
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    struct cordon_frame frame;
    cordon_vm_lease_put(&buf, &lease);
    assert_int_equal(cordon_frame_parse(buf.data, buf.size, 1, &frame), -EBADMSG);
    cordon_buf_wipe(&buf);
    cordon_vm_leased_put(&buf);
    assert_int_equal(cordon_frame_parse(buf.data, buf.size, 0, &frame), -EBADMSG);
    cordon_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_goes_there_and_back),
        cmocka_unit_test(leases_that_can_not_be_are_refused),
        cmocka_unit_test(ready_and_leased_go_there_and_back),
        cmocka_unit_test(directions_are_kept_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
