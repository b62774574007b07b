/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent, launched by hand without a warden: plainly (as for backend `none`), and as process 1 of namespaces with
 * the code's filter. The latter needs root and is skipped without.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent_guest.h"
#include "base/clock.h"

#define OUT(run, which) ((run).out[which].data ? (run).out[which].data : "")

static const struct agent_options plain = {.language = "python"};
static const struct agent_options bash = {.language = "bash"};

static void run_and_stop(const struct agent_options *options, const char *code, struct agent_run *run)
{
    struct agent_guest guest;
    if (options->isolated && geteuid() != 0)
        skip();
    agent_guest_run(&guest, options, code, run);
    agent_guest_stop(&guest);
}

static void expect_exit(const struct agent_run *run, enum cordon_exit_how how, int status)
{
    assert_true(run->exited);
    assert_int_equal(run->exit.how, how);
    assert_int_equal(run->exit.status, status);
}

static void streams_come_apart_and_unharmed(void **state)
{
    struct agent_run run;
    run_and_stop(&plain,
                 "import os; os.write(1, b'a\\0b\\xff'); os.write(2, b'err'); os.write(1, b'\\n\\nend'); leave(0)",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_true(run.started);
    assert_int_equal(run.out[0].size, 9);
    assert_memory_equal(run.out[0].data, "a\0b\xff\n\nend", 9);
    assert_string_equal(OUT(run, 1), "err");
    assert_true(run.exit.stdout_bytes == 9 && run.exit.stderr_bytes == 3);
    agent_run_done(&run);
}

static void exit_codes_and_signals_are_told(void **state)
{
    static const struct {
        const char *code;
        enum cordon_exit_how how;
        int status;
    } rows[] = {
        {"leave(7)", CORDON_EXIT_EXITED, 7},
        {"os._exit(3)", CORDON_EXIT_EXITED, 3},
        {"os.kill(os.getpid(), 9)", CORDON_EXIT_SIGNALLED, 9},
        {"os.kill(os.getpid(), 11)", CORDON_EXIT_SIGNALLED, 11},
        {"os.close(3); os._exit(4)", CORDON_EXIT_EXITED, 4},
        {"leave(255)", CORDON_EXIT_EXITED, 255},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct agent_run run;
        run_and_stop(&plain, rows[i].code, &run);
        expect_exit(&run, rows[i].how, rows[i].status);
        agent_run_done(&run);
    }
}

static void result_is_apart_from_output(void **state)
{
    struct agent_run run;
    run_and_stop(&plain, "print('{\"fake\":1}'); frame(64, b'{\"a\"'); frame(64, b':1}'); leave(0)", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(run.result.data, "{\"a\":1}");
    assert_string_equal(OUT(run, 0), "{\"fake\":1}\n");
    agent_run_done(&run);
}

static void large_result_arrives_whole(void **state)
{
    struct agent_run run;
    run_and_stop(&plain,
                 "data = b'[' + b'1,' * 1000000 + b'1]'\n"
                 "head = struct.pack('<BBHI', 64, 0, 0, len(data)) + data\n"
                 "while head: head = head[os.write(3, head):]\n"
                 "leave(0)",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_int_equal(run.result.size, 2000003);
    agent_run_done(&run);
}

static void driver_garbage_closes_the_channel_only(void **state)
{
    static const char *const codes[] = {
        "os.write(3, b'\\xff' * 100000)",
        "os.write(3, struct.pack('<BBHI', 64, 0, 0, 0xffffffff))",
        "os.write(3, struct.pack('<BBHI', 1, 0, 0, 4) + b'abcd')",
        "os.write(3, struct.pack('<BBHI', 67, 0, 0, 5) + b'abcde')",
        "os.write(3, b'\\x40')",
        "[frame(65, b'x' * 60000) for i in range(50)]",
        "[frame(64, b'') for i in range(20000)]",
        "import socket, array; s = socket.socket(fileno=os.dup(3))\n"
        "try: s.sendmsg([struct.pack('<BBHI', 66, 0, 0, 0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', "
        "[0]))])\n"
        "except OSError: pass",
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct agent_run run;
        char code[1024];
        (void)snprintf(code, sizeof code,
                       "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_IGN)\ntry:\n    exec(%s%s%s)\n"
                       "except OSError: pass\nprint('still here'); sys.stdout.flush(); os._exit(5)",
                       "r'''", codes[i], "'''");
        run_and_stop(&plain, code, &run);
        assert_string_equal(OUT(run, 0), "still here\n");
        expect_exit(&run, CORDON_EXIT_EXITED, 5);
        agent_run_done(&run);
    }
}

static void too_large_result_is_cut_off(void **state)
{
    struct agent_run run;
    run_and_stop(&plain, "try:\n    for i in range(400): frame(64, b'x' * 50000)\nexcept OSError: pass\nos._exit(6)",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 6);
    assert_true(run.result.size <= CORDON_DRIVER_RESULT_MAX);
    agent_run_done(&run);
}

static void cap_counts_and_drains(void **state)
{
    struct agent_run run;
    struct agent_options options = plain;
    options.stdout_bytes = 1000;
    run_and_stop(&options, "os.write(1, b'x'); print('y' * 3000000); os.write(2, b'done'); leave(0)", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_int_equal(run.out[0].size, 1000);
    assert_true(run.exit.stdout_bytes == 3000002);
    assert_string_equal(OUT(run, 1), "done");
    agent_run_done(&run);
}

static void too_loud_stream_ends_the_run(void **state)
{
    struct agent_run run;
    struct agent_options options = plain;
    options.stdout_bytes = 1000;
    options.output_kill_bytes = 1000000;
    run_and_stop(&options, "while True: os.write(1, b'x' * 65536)", &run);
    assert_true(run.exited);
    assert_int_equal(run.exit.how, CORDON_EXIT_OUTPUT_LIMIT);
    assert_int_equal(run.out[0].size, 1000);
    assert_true(run.exit.stdout_bytes > 1000000 && run.exit.stdout_bytes < 4000000);
    agent_run_done(&run);
}

static void output_waits_for_credit_and_control_does_not(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct agent_options options = plain;
    struct cordon_frame frame;
    uint64_t size = 0;
    options.withhold_credit = 1;
    agent_guest_start(&guest, &options);
    agent_guest_exec(&guest, &options, "import threading\nos.write(2, b'e')\nwhile True: os.write(1, b'x' * 65536)");
    while (agent_guest_next(&guest, &frame, size < CORDON_CREDIT_INITIAL ? 60000 : 300) == 1)
        size += frame.type == CORDON_FRAME_STDOUT ? frame.length : 0;
    assert_int_equal(size, CORDON_CREDIT_INITIAL); /* and not a byte more */
    uint64_t start = cordon_now_us();
    agent_guest_kill(&guest, SIGKILL);
    agent_guest_finish(&guest, &options, &run);
    expect_exit(&run, CORDON_EXIT_SIGNALLED, SIGKILL);
    assert_true(cordon_now_us() - start < 20000000);
    assert_int_equal(run.out[0].size + size, run.exit.stdout_bytes); /* what was in the pipe came too */
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void stdin_arrives_in_its_window(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct agent_options options = plain;
    static char data[65536];
    struct cordon_frame frame;
    options.flags = CORDON_EXEC_STDIN;
    memset(data, 's', sizeof data);
    agent_guest_start(&guest, &options);
    agent_guest_exec(&guest, &options,
                     "import time; time.sleep(0.1); data = sys.stdin.buffer.read(); print(len(data)); leave(0)");
    uint64_t window = CORDON_STDIN_WINDOW;
    for (int i = 0; i < 16; i++) {
        while (window < sizeof data) {
            assert_int_equal(agent_guest_next(&guest, &frame, 60000), 1);
            if (frame.type == CORDON_FRAME_STDIN_CREDIT)
                window += cordon_frame_u32(&frame, 0);
        }
        agent_guest_send(&guest, CORDON_FRAME_STDIN, data, sizeof data);
        window -= sizeof data;
    }
    agent_guest_send(&guest, CORDON_FRAME_STDIN_EOF, NULL, 0);
    agent_guest_finish(&guest, &options, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "1048576\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void stdin_is_at_its_end_by_default(void **state)
{
    struct agent_run run;
    run_and_stop(&plain, "print(repr(sys.stdin.read())); leave(0)", &run);
    assert_string_equal(OUT(run, 0), "''\n");
    agent_run_done(&run);
}

static void closed_stdin_is_no_error(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct agent_options options = plain;
    static char data[65536];
    options.flags = CORDON_EXEC_STDIN;
    agent_guest_start(&guest, &options);
    agent_guest_exec(&guest, &options, "os.close(0); import time; time.sleep(0.2); print('ok'); leave(0)");
    for (int i = 0; i < 4; i++)
        agent_guest_send(&guest, CORDON_FRAME_STDIN, data, sizeof data);
    agent_guest_finish(&guest, &options, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "ok\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

/* The marker is a file that an orphan would go on touching. */
static const char orphans[] = "import time\n"
                              "there, here = os.pipe()\n"
                              "for i in range(3):\n"
                              "    if os.fork() == 0:\n"
                              "        os.setsid()\n"
                              "        import signal\n"
                              "        for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\n"
                              "        if os.fork() == 0:\n"
                              "            open('marker', 'w').write('0'); os.write(here, b'x')\n"
                              "            while True: time.sleep(0.005); open('marker', 'w').write(str(time.time()))\n"
                              "        os.write(here, b'x')\n"
                              "        while True: time.sleep(1)\n"
                              "for i in range(6): os.read(there, 1)\n"
                              "print('parent done'); leave(0)";

static void check_orphans(const struct agent_options *options)
{
    struct agent_guest guest;
    struct agent_run run;
    struct stat before, after;
    char path[128];
    agent_guest_run(&guest, options, orphans, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "parent done\n");
    assert_int_equal(run.exit.processes_left, 6);
    (void)snprintf(path, sizeof path, "%s/home/marker", guest.dir);
    assert_int_equal(stat(path, &before), 0);
    (void)usleep(100000);
    assert_int_equal(stat(path, &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void orphans_are_killed_and_counted(void **state)
{
    check_orphans(&plain);
}

static void orphans_are_killed_and_counted_in_a_guest(void **state)
{
    struct agent_options options = plain;
    options.isolated = 1;
    if (geteuid() != 0)
        skip();
    check_orphans(&options);
}

static void orphan_with_the_pipes_delays_nothing(void **state)
{
    struct agent_run run;
    run_and_stop(&plain,
                 "import time\nif os.fork() == 0: time.sleep(200)\nelse: print('x'); sys.stdout.flush(); os._exit(0)",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "x\n");
    assert_true(run.took_us < 20000000);
    agent_run_done(&run);
}

static void announced_and_yet_writing_is_ended(void **state)
{
    struct agent_run run;
    struct agent_options options = plain;
    options.isolated = 1;
    options.stdout_bytes = 100;
    run_and_stop(&options, "frame(67, struct.pack('<i', 1))\nwhile True: os.write(1, b'y' * 60000)", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 1);
    assert_true(run.out[0].size <= 100); /* what it wrote after it had announced its end may come or not */
    agent_run_done(&run);
}

static void signal_reaches_the_program(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    agent_guest_start(&guest, &plain);
    agent_guest_exec(&guest, &plain,
                     "import signal, time\n"
                     "signal.signal(signal.SIGINT, lambda *a: (print('interrupted'), leave(130)))\n"
                     "os.write(1, b'r')\ntime.sleep(600)");
    agent_guest_hear(&guest, "r");
    agent_guest_kill(&guest, SIGINT);
    agent_guest_finish(&guest, &plain, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 130);
    assert_string_equal(OUT(run, 0), "interrupted\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void denied_calls_are_named(void **state)
{
    struct agent_run run;
    struct agent_options options = plain;
    options.isolated = 1;
    run_and_stop(&options,
                 "import ctypes\n"
                 "libc = ctypes.CDLL(None, use_errno=True)\n"
                 "for i in range(100): r = libc.mount(b'x', b'/', b'tmpfs', 0, None)\n"
                 "print(r, ctypes.get_errno()); print(os.getpid() > 1, os.getuid()); leave(0)",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "-1 1\nTrue 1000\n");
    assert_string_equal(run.exit.blocked_syscall, "mount");
    assert_true(run.exit.syscalls_denied >= 100);
    agent_run_done(&run);
}

static void agent_is_out_of_the_codes_reach(void **state)
{
    struct agent_run run;
    struct agent_options options = plain;
    options.isolated = 1;
    run_and_stop(
        &options,
        "import resource\n"
        "def refused(what):\n"
        "    try: what()\n"
        "    except (PermissionError, ProcessLookupError): return True\n"
        "    return False\n"
        "print(refused(lambda: os.kill(1, 9)), refused(lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))),\n"
        "      refused(lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))),\n"
        "      sorted(os.listdir('/proc/self/fd')) <= ['0', '1', '2', '3', '4', '5'])\n"
        "leave(0)",
        &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "True True True True\n");
    agent_run_done(&run);
}

static void fork_bomb_ends_with_the_kill(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct agent_options options = plain;
    options.isolated = 1;
    if (geteuid() != 0)
        skip();
    agent_guest_start(&guest, &options);
    agent_guest_exec(&guest, &options,
                     "import time\nthere, here = os.pipe(); first = os.getpid()\nfor i in range(8): os.fork()\n"
                     "os.write(here, b'x')\nif os.getpid() == first:\n"
                     "    for i in range(256): os.read(there, 1)\n"
                     "    os.write(1, b'r')\ntime.sleep(600)");
    agent_guest_hear(&guest, "r");
    agent_guest_kill(&guest, SIGKILL);
    agent_guest_finish(&guest, &options, &run);
    expect_exit(&run, CORDON_EXIT_SIGNALLED, SIGKILL);
    assert_int_equal(run.exit.processes_left, 255);
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void second_exec_is_refused(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    agent_guest_run(&guest, &plain, "leave(0)", &run);
    agent_run_done(&run);
    agent_guest_exec(&guest, &plain, "leave(0)");
    agent_guest_finish(&guest, &plain, &run);
    assert_false(run.exited);
    assert_non_null(strstr(run.error.data, "no interpreter that waits"));
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void large_job_arrives_whole(void **state)
{
    struct agent_run run;
    size_t size = 12u << 20;
    char *code = malloc(size + 64);
    assert_non_null(code);
    memset(code, '#', size);
    (void)snprintf(code + size, 64, "\nprint(len(code)); leave(0)");
    run_and_stop(&plain, code, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "12582939\n");
    free(code);
    agent_run_done(&run);
}

static void bash_runs_a_script(void **state)
{
    struct agent_run run;
    struct agent_options options = bash;
    run_and_stop(&options, "echo $GREETING; echo oops >&2; read x; echo \"[$x]\"; basename $0; ls; exit 3", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 3);
    assert_string_equal(OUT(run, 0), "hello\n[]\n.main.sh\nartifacts\n");
    assert_string_equal(OUT(run, 1), "oops\n");
    agent_run_done(&run);
}

static void bash_reads_its_stdin(void **state)
{
    struct agent_guest guest;
    struct agent_run run;
    struct agent_options options = bash;
    options.flags = CORDON_EXEC_STDIN;
    agent_guest_start(&guest, &options);
    agent_guest_exec(&guest, &options, "while read x; do echo \"got $x\"; done");
    agent_guest_send(&guest, CORDON_FRAME_STDIN, "a\nb\n", 4);
    agent_guest_send(&guest, CORDON_FRAME_STDIN_EOF, NULL, 0);
    agent_guest_finish(&guest, &options, &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "got a\ngot b\n");
    agent_run_done(&run);
    agent_guest_stop(&guest);
}

static void bash_main_has_a_result(void **state)
{
    struct agent_run run;
    struct agent_options options = bash;
    options.arguments = "{\"n\": 2}";
    run_and_stop(&options, "main() { echo \"args $1 $CORDON_ARGUMENTS\"; echo '{\"x\":1}' >&$CORDON_RESULT_FD; }",
                 &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "args {\"n\": 2} {\"n\": 2}\n");
    assert_string_equal(run.result.data, "{\"x\":1}\n");
    agent_run_done(&run);
}

static void bash_runs_in_a_guest(void **state)
{
    struct agent_run run;
    struct agent_options options = bash;
    options.isolated = 1;
    run_and_stop(&options, "id -u; echo $(( 1 + 1 )) | cat; sleep 100 & echo end", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 0);
    assert_string_equal(OUT(run, 0), "1000\n2\nend\n");
    assert_int_equal(run.exit.processes_left, 1);
    agent_run_done(&run);
}

static void too_long_arguments_of_bash_are_told(void **state)
{
    struct agent_run run;
    struct agent_options options = bash;
    char *arguments = malloc(200001);
    assert_non_null(arguments);
    memset(arguments, '1', 200000);
    arguments[200000] = '\0';
    options.arguments = arguments;
    run_and_stop(&options, "main() { :; }", &run);
    expect_exit(&run, CORDON_EXIT_EXITED, 126);
    assert_non_null(strstr(run.error.data, "longer than 128 KiB"));
    free(arguments);
    agent_run_done(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_come_apart_and_unharmed),
        cmocka_unit_test(exit_codes_and_signals_are_told),
        cmocka_unit_test(result_is_apart_from_output),
        cmocka_unit_test(large_result_arrives_whole),
        cmocka_unit_test(driver_garbage_closes_the_channel_only),
        cmocka_unit_test(too_large_result_is_cut_off),
        cmocka_unit_test(cap_counts_and_drains),
        cmocka_unit_test(too_loud_stream_ends_the_run),
        cmocka_unit_test(output_waits_for_credit_and_control_does_not),
        cmocka_unit_test(stdin_arrives_in_its_window),
        cmocka_unit_test(stdin_is_at_its_end_by_default),
        cmocka_unit_test(closed_stdin_is_no_error),
        cmocka_unit_test(orphans_are_killed_and_counted),
        cmocka_unit_test(orphans_are_killed_and_counted_in_a_guest),
        cmocka_unit_test(orphan_with_the_pipes_delays_nothing),
        cmocka_unit_test(announced_and_yet_writing_is_ended),
        cmocka_unit_test(signal_reaches_the_program),
        cmocka_unit_test(denied_calls_are_named),
        cmocka_unit_test(agent_is_out_of_the_codes_reach),
        cmocka_unit_test(fork_bomb_ends_with_the_kill),
        cmocka_unit_test(second_exec_is_refused),
        cmocka_unit_test(large_job_arrives_whole),
        cmocka_unit_test(bash_runs_a_script),
        cmocka_unit_test(bash_reads_its_stdin),
        cmocka_unit_test(bash_main_has_a_result),
        cmocka_unit_test(bash_runs_in_a_guest),
        cmocka_unit_test(too_long_arguments_of_bash_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
