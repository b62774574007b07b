/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests: code that works against its host. */
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "guests_service.h"

static void floods_hold_up_nobody_else(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *other = create();
    struct cordon_operation operation =
        shell(argv, "yes & yes >&2 & exec python3 -c 'import os\nwhile True: os.write(3, bytes(65536))'");
    operation.channel = operation.kill_on_close = true;
    struct cordon_live_stream *streams[3];
    struct cordon_stream_event event;
    bool ended;
    for (size_t i = 0; i < 3; i++)
        ok(cordon_guests_open(tenant, id, &operation, &streams[i], &err));
    for (int i = 0; i < 2000; i++) /* one is read, the others are full */
        assert_int_equal(cordon_guests_next(streams[0], 60000, &event, &ended, &err), 1);
    assert_string_equal(run(other, "echo neighbour").out, "neighbour\n");
    assert_string_equal(run(id, "echo itself").out, "itself\n");
    for (size_t i = 0; i < 3; i++)
        cordon_guests_close(streams[i]);
    assert_string_equal(run(id, "sleep 0.3; pgrep -c python3 || true").out, "0\n");
    destroy(id);
    destroy(other);
}

static void a_file_that_becomes_a_link_shows_nothing_more(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(
        argv,
        "echo mine > real; while :; do ln -sf real f; ln -sf /proc/1/environ f; ln -sf /run/cordon-guest/meminfo f; "
        "rm -f f; mkdir f; rmdir f; done");
    operation.kill_on_close = true;
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    for (int i = 0; i < 40; i++) {
        struct cordon_buf got = CORDON_BUF_INIT(1 << 20);
        if (get(id, "f", &got) == 0 && got.size)
            assert_string_equal(got.data, "mine\n");
        cordon_buf_done(&got);
        (void)file(id, CORDON_OP_STAT, "f", NULL, NULL); /* whatever it is just then */
    }
    cordon_guests_close(stream);
    destroy(id);
}

static void processes_may_be_used_up(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "bomb() { bomb | bomb & }; bomb; sleep 100");
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended, changed;
    int r = 0;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    for (int i = 0; i < 50 && r >= 0; i++) {
        r = file(id, CORDON_OP_STAT, ".", NULL, NULL);
        (void)poll(NULL, 0, 20);
    }
    assert_true(r == 0 || err.kind == CORDON_ERROR_QUOTA || err.kind == CORDON_ERROR_INFRASTRUCTURE);
    cordon_guests_close(stream);
    uint64_t before = cordon_now_us();
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    assert_true(changed && cordon_now_us() - before < 60000000);
    free(id);
}

static void root_cannot_break_what_launches(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    /* What was killed may be on its way still when the next is asked for, so more than once. */
    for (int i = 0; i < 25; i++) {
        struct cordon_operation operation = shell(argv, "kill -9 1; pkill -9 cordon-launch; kill -9 -1");
        operation.user = "root";
        (void)run_operation(id, &operation);
        struct result result = run(id, "echo still here");
        assert_string_equal(result.out, "still here\n");
    }
    destroy(id);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floods_hold_up_nobody_else),
        cmocka_unit_test(a_file_that_becomes_a_link_shows_nothing_more),
        cmocka_unit_test(processes_may_be_used_up),
        cmocka_unit_test(root_cannot_break_what_launches),
    };
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
