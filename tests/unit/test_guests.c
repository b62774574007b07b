/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests from end to end: programs, and what they install. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guests_service.h"

static void runs_programs(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct result result = run(id, "echo $GREETING; id -un; pwd; echo bad >&2; exit 7");
    assert_string_equal(result.out, "hi\nuser\n/home/user\n");
    assert_string_equal(result.error, "bad\n");
    assert_int_equal(result.exit.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(result.exit.exit_code, 7);
    result = run(id, "echo x > kept; kill -TERM $$");
    assert_int_equal(result.exit.cause, CORDON_CAUSE_SIGNALLED);
    assert_int_equal(result.exit.signal, SIGTERM);
    result = run(id, "cat kept; ls -l /proc/self/fd | wc -l");
    assert_string_equal(result.out, "x\n5\n"); /* 0, 1, 2, the folder, and the line of the total */
    destroy(id);
}

static void is_root_where_asked(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation =
        shell(argv, "id -u; pwd; touch /home/user/by-root && chown 1000 /home/user/by-root && echo owned; "
                    "grep -c . /etc/shadow; mount -t tmpfs x /mnt; echo $?; cat /proc/self/status | grep CapEff");
    operation.user = "root";
    struct result result = run_operation(id, &operation);
    assert_memory_equal(result.out, "0\n/root\nowned\n", 14);
    assert_non_null(strstr(result.error, "mount"));
    operation.user = "nobody";
    struct cordon_live_stream *stream;
    assert_true(cordon_guests_open(tenant, id, &operation, &stream, &err) < 0);
    destroy(id);
}

static void what_cannot_start_is_told(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    const char *argv[] = {"/no/such/program"};
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_EXEC, .argv = argv, .argc = 1, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), -ENOENT);
    assert_int_equal(err.kind, CORDON_ERROR_NOT_FOUND);
    cordon_guests_close(stream);
    argv[0] = "true";
    operation.cwd = "/no/such/folder";
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), -ENOENT);
    assert_non_null(strstr(err.message, "working directory"));
    cordon_guests_close(stream);
    destroy(id);
}

static void stdin_and_channel(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation =
        shell(argv, "read a; read b <&3; echo \"got $a\"; echo \"done $b\" >&3; cat; echo end");
    operation.stdin_open = operation.channel = true;
    operation.tag = "talker";
    struct cordon_live_stream *stream;
    struct result result = {0};
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    ok(cordon_guests_write(stream, CORDON_TO_STDIN, "one\n", 4, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    assert_int_equal(event.type, CORDON_STREAM_STARTED);
    ok(cordon_guests_write(stream, CORDON_TO_CHANNEL, "two\n", 4, &err));
    ok(cordon_guests_exec_write(tenant, id, 0, "talker", CORDON_TO_STDIN, "three\n", 6, &err));
    ok(cordon_guests_control(stream, CORDON_CONTROL_END, CORDON_TO_STDIN, &err));
    drain(stream, &result);
    assert_string_equal(result.out, "got one\nthree\nend\n");
    assert_string_equal(result.channel, "done two\n");
    cordon_guests_close(stream);
    destroy(id);
}

static void terminals(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "tty; stty size; read x; stty size; echo \"<$x>\"");
    operation.cols = 80;
    operation.rows = 24;
    operation.stdin_open = true;
    struct cordon_live_stream *stream;
    struct result result = {0};
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    ok(cordon_guests_control(stream, CORDON_CONTROL_RESIZE, 100u << 16 | 30, &err));
    ok(cordon_guests_write(stream, CORDON_TO_STDIN, "abc\n", 4, &err));
    drain(stream, &result);
    assert_non_null(strstr(result.out, "/dev/pts/0"));
    assert_non_null(strstr(result.out, "30 100"));
    assert_non_null(strstr(result.out, "<abc>"));
    cordon_guests_close(stream);
    destroy(id);
}

static void ends_of_programs(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "sleep 100 & trap '' TERM; sleep 100");
    operation.timeout_ms = 200;
    struct result result = run_operation(id, &operation);
    assert_int_equal(result.exit.cause, CORDON_CAUSE_TIMEOUT);
    result =
        run(id, "for i in $(seq 600); do pgrep -x sleep >/dev/null || break; sleep 0.1; done; pgrep -x sleep | wc -l");
    assert_string_equal(result.out, "0\n");
    operation = shell(argv, "while :; do echo 0123456789012345678901234567890123456789; done");
    operation.output_kill_bytes = 100000;
    result = run_operation(id, &operation);
    assert_int_equal(result.exit.cause, CORDON_CAUSE_OUTPUT_LIMIT);
    result = run(id, "exec python3 -c 'x = b\"x\" * (600 << 20)'");
    assert_int_equal(result.exit.cause, CORDON_CAUSE_MEMORY);
    result = run(id, "echo lives");
    assert_string_equal(result.out, "lives\n");
    destroy(id);
}

static void signals_do_not_wait_for_output(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "yes | cat");
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    (void)poll(NULL, 0, 200); /* nobody reads: its window is full */
    ok(cordon_guests_control(stream, CORDON_CONTROL_SIGNAL, SIGINT, &err));
    struct result result = {0};
    drain(stream, &result);
    assert_int_equal(result.exit.cause, CORDON_CAUSE_SIGNALLED);
    assert_int_equal(result.exit.signal, SIGINT);
    cordon_guests_close(stream);
    destroy(id);
}

static void programs_go_on_and_are_found_again(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation =
        shell(argv, "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; exit 3");
    struct cordon_live_stream *stream, *other;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    assert_int_equal(event.type, CORDON_STREAM_STARTED);
    uint32_t pid = event.pid;
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    cordon_guests_close(stream);
    struct cordon_operation again = {
        .struct_size = sizeof again, .kind = CORDON_OP_ATTACH, .pid = pid, .replay_bytes = 1000, .cancel_fd = -1};
    ok(cordon_guests_open(tenant, id, &again, &stream, &err));
    ok(cordon_guests_open(tenant, id, &again, &other, &err));
    put(id, "go", "", 0);
    struct result result = {0}, second = {0};
    drain(stream, &result);
    drain(other, &second);
    assert_string_equal(result.out, "first\nsecond\n");
    assert_string_equal(second.out, "first\nsecond\n");
    assert_int_equal(result.exit.exit_code, 3);
    cordon_guests_close(stream);
    cordon_guests_close(other);
    memset(&result, 0, sizeof result);
    ok(cordon_guests_open(tenant, id, &again, &stream, &err)); /* it has ended: its end is remembered */
    drain(stream, &result);
    assert_int_equal(result.exit.exit_code, 3);
    cordon_guests_close(stream);
    destroy(id);
}

static void ports(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), text[256] = "";
    int fd = -1;
    assert_int_equal(cordon_guests_port(tenant, id, 8000, -1, &fd, &err), -ECONNREFUSED);
    struct cordon_operation operation = shell(argv, "python3 -c 'import "
                                                    "socket\ns=socket.create_server((\"127.0.0.1\",8000))\nprint(1,"
                                                    "flush=True)\nc,_=s.accept()\nc.sendall(b\"from within\")'");
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    while (cordon_guests_next(stream, 60000, &event, &ended, &err) == 1 && event.type != CORDON_STREAM_STDOUT)
        continue;
    ok(cordon_guests_port(tenant, id, 8000, -1, &fd, &err));
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_int_equal(read(fd, text, sizeof text - 1), 11);
    assert_string_equal(text, "from within");
    (void)close(fd);
    cordon_guests_close(stream);
    destroy(id);
}

static void packages_are_installed_and_found(void **state)
{
    static const char make[] =
        "mkdir -p pkg/hello_cordon && cd pkg && echo 'def hi(): return 42' > hello_cordon/__init__.py && "
        "printf '[project]\nname = \"hello-cordon\"\nversion = \"1.0\"\n' > pyproject.toml && "
        "printf 'from setuptools import setup\nsetup(name=\"hello-cordon\", version=\"1.0\", "
        "packages=[\"hello_cordon\"])\n' > setup.py && "
        "python3 -m pip install --no-index --no-build-isolation --no-deps . > log 2>&1 || { cat log; exit 1; }";
    (void)state;
    if (unavailable())
        skip();
    if (access("/usr/bin/pip3", X_OK) < 0) {
        print_message("# skipped: this host has no pip\n");
        skip();
    }
    char *id = create();
    struct result result = run(id, make);
    if (result.exit.exit_code && strstr(result.out, "setuptools")) {
        print_message("# skipped: pip has nothing to build with here\n");
        destroy(id);
        skip();
    }
    if (result.exit.exit_code)
        fail_msg("%s", result.out);
    result = run(id, "cd /tmp && python3 -c 'import hello_cordon; print(hello_cordon.hi())'");
    assert_string_equal(result.out, "42\n");
    destroy(id);
}

static void node_packages_too(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    if (access("/usr/bin/npm", X_OK) < 0 || access("/usr/bin/node", X_OK) < 0) {
        print_message("# skipped: this host has no npm\n");
        skip();
    }
    char *id = create();
    struct result result =
        run(id, "mkdir -p dep app && echo '{\"name\":\"cordon-dep\",\"version\":\"1.0.0\",\"main\":\"i.js\"}' > "
                "dep/package.json && "
                "echo 'module.exports = 42' > dep/i.js && cd app && echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' > "
                "package.json && "
                "npm install --offline --no-audit --no-fund ../dep > log 2>&1 || { cat log; exit 1; }");
    if (result.exit.exit_code)
        fail_msg("%s", result.out);
    assert_string_equal(run(id, "cd app && node -e 'console.log(require(\"cordon-dep\"))'").out, "42\n");
    destroy(id);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_programs),
        cmocka_unit_test(is_root_where_asked),
        cmocka_unit_test(what_cannot_start_is_told),
        cmocka_unit_test(stdin_and_channel),
        cmocka_unit_test(terminals),
        cmocka_unit_test(ends_of_programs),
        cmocka_unit_test(signals_do_not_wait_for_output),
        cmocka_unit_test(programs_go_on_and_are_found_again),
        cmocka_unit_test(ports),
        cmocka_unit_test(packages_are_installed_and_found),
        cmocka_unit_test(node_packages_too),
    };
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
