/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's end of a guest, with real agents (agent_guest.h) that a warden of the test's own grants. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_guest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "fake_warden.h"

/* With a real agent. files: peak, events, usage as the host would show them; NULL: not there. */
static void run_real(const struct cordon_request *request, const char *const stats[3], struct seen *seen)
{
    struct agent_options options = {.language = request->language};
    struct agent_guest guest;
    struct cordon_run *run;
    struct fake_warden fake;
    agent_guest_start(&guest, &options);
    fake_warden_start(&fake, guest.channel);
    for (int i = 0; stats && i < 3; i++)
        fake.files[i] = stats[i] ? text_file(stats[i]) : -1;
    fake_warden_serve(&fake);
    seen_init(seen);
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, request, &run, NULL), 0);
    run_all(run, seen);
    seen->took_us = cordon_now_us() - start;
    cordon_guest_run_close(run);
    fake_warden_stop(&fake);
    agent_guest_stop(&guest);
}

static void program_runs_and_is_told_of(void **state)
{
    struct cordon_request request = request_of("print('out'); print('err', file=sys.stderr); leave(3)");
    static const char *const stats[3] = {"12345\n", "oom_kill 0\n", NULL};
    struct seen seen;
    run_real(&request, stats, &seen);
    assert_int_equal(seen.started, 1);
    assert_string_equal(seen.out[0].data, "out\n");
    assert_string_equal(seen.out[1].data, "err\n");
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.outcome.exit_code, 3);
    assert_true(seen.outcome.memory_peak_bytes == 12345 && seen.outcome.warm && seen.outcome.run_us > 0);
    assert_string_equal(seen.outcome.backend, "local");
    assert_string_equal(seen.outcome.message, "");
    seen_done(&seen);
}

static void megabytes_of_output_flow(void **state)
{
    struct cordon_request request =
        request_of("for i in range(80): os.write(1, b'x' * 65536); os.write(2, b'y' * 1000)\nleave(0)");
    struct seen seen;
    request.limits.stdout_bytes = 8u << 20;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.out[0].size, 80 * 65536);
    assert_int_equal(seen.out[1].size, 80000);
    assert_true(seen.outcome.stdout_kept == 80 * 65536 && seen.outcome.stdout_bytes == 80 * 65536);
    seen_done(&seen);
}

static void output_is_cut_at_its_cap(void **state)
{
    struct cordon_request request = request_of("os.write(1, b'x' * 50000); leave(0)");
    struct seen seen;
    request.limits.stdout_bytes = 7;
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.out[0].data, "xxxxxxx");
    assert_true(seen.outcome.stdout_bytes == 50000 && seen.outcome.stdout_kept == 7);
    seen_done(&seen);
}

static void megabytes_of_stdin_flow(void **state)
{
    struct cordon_request request =
        request_of("data = sys.stdin.buffer.read(); print(len(data), sum(data[:10])); leave(0)");
    struct seen seen;
    char *data = malloc(5000000);
    assert_non_null(data);
    memset(data, 1, 5000000);
    request.stdin_data = (struct cordon_bytes){data, 5000000};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.out[0].data, "5000000 10\n");
    free(data);
    seen_done(&seen);
}

static void files_go_in_and_artifacts_come_out(void **state)
{
    struct cordon_request request = request_of("open('artifacts/up', 'w').write(open('in/x').read().upper())\n"
                                               "os.symlink('/etc/passwd', 'artifacts/link'); leave(0)");
    const struct cordon_file files[] = {{"in/x", {"hey", 3}, 0}, {"empty", {NULL, 0}, 0600}};
    struct seen seen;
    request.files = files;
    request.file_count = 2;
    request.artifacts = true;
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.files.data, "link!it is a symbolic link;up=HEY;");
    assert_int_equal(seen.outcome.artifacts_dropped, 1);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    seen_done(&seen);
}

static void file_that_cannot_be_put_is_told(void **state)
{
    struct cordon_request request = request_of("leave(0)");
    const struct cordon_file files[] = {{"../x", {"hey", 3}, 0}};
    struct seen seen;
    request.files = files;
    request.file_count = 1;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_REFUSED);
    assert_non_null(strstr(seen.outcome.message, "'../x'"));
    assert_int_equal(seen.started, 0);
    seen_done(&seen);
}

static void result_is_given_once(void **state)
{
    struct cordon_request request = request_of("frame(64, b'[1,'); frame(64, b'2]'); leave(0)");
    struct seen seen;
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.result.data, "[1,2]");
    assert_string_equal(seen.outcome.result_error, "");
    seen_done(&seen);
}

static void missing_result_is_explained(void **state)
{
    struct cordon_request request = request_of("leave(0)");
    struct seen seen;
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.outcome.result_error, "the program ended before main returned");
    seen_done(&seen);
    request = request_of("frame(65, b'main returned a set'); leave(0)");
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.outcome.result_error, "main returned a set");
    seen_done(&seen);
}

static void deadline_is_kept(void **state)
{
    struct cordon_request request = request_of("import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
                                               "os.write(1, b'before')\nwhile True: pass");
    struct seen seen;
    request.limits.timeout_ms = 3250;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.outcome.limit_hit, "timeout_s");
    assert_int_equal(seen.outcome.exit_code, -1);
    assert_non_null(strstr(seen.outcome.message, "3.250 s"));
    assert_string_equal(seen.out[0].data, "before");
    assert_true(seen.outcome.run_us >= 3250000 && seen.outcome.run_us < 20000000);
    seen_done(&seen);
}

static void artifacts_come_after_a_deadline_too(void **state)
{
    struct cordon_request request =
        request_of("open('artifacts/half', 'w').write('so far'); import time; time.sleep(60)");
    struct seen seen;
    request.limits.timeout_ms = 3250;
    request.artifacts = true;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.files.data, "half=so far;");
    seen_done(&seen);
}

static void cpu_limit_is_kept(void **state)
{
    struct cordon_request request = request_of("import time; time.sleep(60)");
    static const char *const stats[3] = {NULL, NULL, "5000000000\n"}; /* nanoseconds, as v1 shows them: all used up */
    struct seen seen;
    request.limits.cpu_ms = 2000;
    run_real(&request, stats, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.outcome.limit_hit, "cpu_s");
    assert_true(seen.took_us < 20000000);
    seen_done(&seen);
}

static void slow_reader_does_not_stretch_the_deadline(void **state)
{
    struct cordon_request request =
        request_of("import time\nfor i in range(600): os.write(1, b'z' * 4096); time.sleep(0.005)\n"
                   "open('late', 'w'); leave(0)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake_warden fake;
    struct seen seen;
    char path[96];
    request.limits.timeout_ms = 2000; /* it takes 3 s, more on a busy host */
    request.limits.stdout_bytes = 100u << 20;
    agent_guest_start(&guest, &options);
    fake_warden_start(&fake, guest.channel);
    fake_warden_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    do
        assert_int_equal(cordon_guest_run_next(run, &event), 1);
    while (event.type != CORDON_EVENT_STDOUT);
    (void)usleep(3000000); /* a client that does not read */
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    (void)snprintf(path, sizeof path, "%s/home/late", guest.dir);
    assert_int_equal(access(path, F_OK), -1);
    cordon_guest_run_close(run);
    fake_warden_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

static void ended_in_time_stays_so_for_a_slow_reader(void **state)
{
    struct cordon_request request = request_of("print('x' * 100000); leave(4)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake_warden fake;
    struct seen seen;
    request.limits.timeout_ms = 4000;
    agent_guest_start(&guest, &options);
    fake_warden_start(&fake, guest.channel);
    fake_warden_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    assert_int_equal(cordon_guest_run_next(run, &event), 1);
    (void)usleep(4500000);
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.outcome.exit_code, 4);
    cordon_guest_run_close(run);
    fake_warden_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

static void killed_for_memory_needs_the_kernels_word(void **state)
{
    static const char *const some[3] = {NULL, "oom_kill 2\n", NULL}, *const none[3] = {NULL, "oom_kill 0\n", NULL};
    struct cordon_request request = request_of("os.kill(os.getpid(), 9)");
    struct seen seen;
    run_real(&request, some, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_MEMORY);
    assert_int_equal(seen.outcome.exit_code, 137);
    assert_int_equal(seen.outcome.oom_kills, 2);
    seen_done(&seen);
    run_real(&request, none, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_SIGNALLED);
    assert_int_equal(seen.outcome.exit_code, 137);
    assert_int_equal(seen.outcome.signal, 9);
    assert_non_null(strstr(seen.outcome.message, "SIGKILL"));
    seen_done(&seen);
    request = request_of("leave(137)");
    run_real(&request, some, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED); /* a child was killed; the program itself was not */
    seen_done(&seen);
}

static void too_loud_program_is_ended(void **state)
{
    struct cordon_request request = request_of("while True: os.write(2, b'x' * 65536)");
    struct seen seen;
    request.limits.output_kill_bytes = 3000000;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_OUTPUT_LIMIT);
    assert_string_equal(seen.outcome.limit_hit, "output_kill_mb");
    assert_non_null(strstr(seen.outcome.message, "stderr"));
    assert_int_equal(seen.out[1].size, 1u << 20);
    seen_done(&seen);
}

static void client_that_leaves_cancels(void **state)
{
    struct cordon_request request = request_of("import time; print('r'); sys.stdout.flush(); time.sleep(60)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake_warden fake;
    struct seen seen;
    int client[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    request.cancel_fd = client[0];
    agent_guest_start(&guest, &options);
    fake_warden_start(&fake, guest.channel);
    fake_warden_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    do
        assert_int_equal(cordon_guest_run_next(run, &event), 1);
    while (event.type != CORDON_EVENT_STDOUT);
    (void)close(client[1]);
    uint64_t start = cordon_now_us();
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_CANCELLED);
    assert_true(cordon_now_us() - start < 20000000);
    (void)close(client[0]);
    struct pollfd lease = {.fd = fake.lease, .events = POLLRDHUP};
    assert_int_equal(poll(&lease, 1, 20000), 1); /* it was closed with the outcome: the warden ends the guest */
    cordon_guest_run_close(run);
    fake_warden_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

static void imports_are_found(void **state)
{
    static const struct {
        const char *code;
        bool data;
    } rows[] = {
        {"import numpy", true},
        {"import numpy as np", true},
        {"from pandas import DataFrame", true},
        {"import os, numpy", true},
        {"  import matplotlib.pyplot as plt", true},
        {"x = 1; import scipy", true},
        {"try: import numpy\nexcept: pass", true},
        {"import importlib\nimportlib.import_module('pandas.io')", true},
        {"__import__(\"numpy\")", true},
        {"\r\n\timport\tnumpy\r\n", true},
        {"if 1:\n    from numpy.linalg import inv", true},
        {"import numpyish", false},
        {"important numpy", false},
        {"print('numpy')", false},
        {"# numpy", false},
        {"from os import path", false},
        {"import", false},
        {"from", false},
        {"", false},
        {"import os as numpy2", false},
        {"fromnumpy", false},
        {"import_module(", false},
        {"import ,", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (cordon_imports_data(rows[i].code, strlen(rows[i].code)) != rows[i].data)
            fail_msg("wrong about: %s", rows[i].code);
    }
    assert_false(cordon_imports_data("\0import", 7));
}

static void too_much_to_send_is_said_at_once(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    request.code.size = CORDON_FRAME_MAX; /* not read: only its size is looked at */
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_TOO_LARGE);
    request = request_of("x");
    request.language = "cobol";
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_runs_and_is_told_of),
        cmocka_unit_test(megabytes_of_output_flow),
        cmocka_unit_test(output_is_cut_at_its_cap),
        cmocka_unit_test(megabytes_of_stdin_flow),
        cmocka_unit_test(files_go_in_and_artifacts_come_out),
        cmocka_unit_test(file_that_cannot_be_put_is_told),
        cmocka_unit_test(result_is_given_once),
        cmocka_unit_test(missing_result_is_explained),
        cmocka_unit_test(deadline_is_kept),
        cmocka_unit_test(artifacts_come_after_a_deadline_too),
        cmocka_unit_test(cpu_limit_is_kept),
        cmocka_unit_test(slow_reader_does_not_stretch_the_deadline),
        cmocka_unit_test(ended_in_time_stays_so_for_a_slow_reader),
        cmocka_unit_test(killed_for_memory_needs_the_kernels_word),
        cmocka_unit_test(too_loud_program_is_ended),
        cmocka_unit_test(client_that_leaves_cancels),
        cmocka_unit_test(imports_are_found),
        cmocka_unit_test(too_much_to_send_is_said_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
