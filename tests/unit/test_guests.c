/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests from end to end: the service, the gateway's end, a real warden, real agents. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/builtin.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/guests.h"
#include "core/registry.h"
#include "guest/guest.h"
#include "store/store.h"
#include "supervisor/roles.h"

static pid_t warden;
static int control;
static char state_dir[] = "/tmp/cordon-test-guests-XXXXXX";
static struct cordon_store *store;
static struct cordon_guest_registry registry;
static struct cordon_settings *settings;
static struct cordon_error err;

static void ok(int r)
{
    if (r < 0)
        fail_msg("%d: %s", r, err.message);
}

/* --- the warden --- */

static void warden_main(int control_end, int peer_end)
{
    static char texts[][64] = {"warden",
                               "CORDON_STATE=/nonexistent/cordon-test-guests",
                               "CORDON_POOL_PYTHON=0",
                               "CORDON_POOL_PYTHON_DATA=0",
                               "CORDON_POOL_JAVASCRIPT=0",
                               "CORDON_POOL_BASH=0",
                               "CORDON_POOL_GUEST=1",
                               "CORDON_GUEST_ORPHAN_S=30",
                               "CORDON_LOG_LEVEL=error"};
    char *argv[10] = {NULL};
    /* The state names the control groups: others may run this test beside us. */
    (void)snprintf(texts[1], sizeof texts[1], "CORDON_STATE=/nonexistent/cordon-test-guests-%d", (int)getppid());
    for (size_t i = 0; i < 9; i++)
        argv[i] = texts[i];
    int high_control = fcntl(control_end, F_DUPFD, 20), high_peer = fcntl(peer_end, F_DUPFD, 20);
    if (dup2(high_control, CORDON_ROLE_CONTROL) < 0 || dup2(high_peer, CORDON_ROLE_PEER) < 0)
        _exit(99);
    (void)close_range(CORDON_ROLE_PEER + 1, ~0u, 0);
    exit(cordon_warden_main(9, argv));
}

static int start_warden(void)
{
    int c[2], p[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
        return -1;
    warden = fork();
    if (warden == 0)
        warden_main(c[1], p[1]);
    (void)close(c[1]);
    (void)close(p[1]);
    control = c[0];
    return cordon_warden_set(p[0], &err);
}

static int start(void **state)
{
    struct cordon_settings_input input = {
        .environ = (const char *const[]){"CORDON_GUEST_STREAMS=8", "CORDON_KEY_GUESTS=3", NULL}};
    (void)state;
    if (start_warden() < 0 || !mkdtemp(state_dir) || cordon_settings_load(&input, &settings, &err) < 0 ||
        cordon_store_open(state_dir, &store, &err) < 0)
        return -1;
    cordon_registry_setup(cordon_backend_builtin);
    registry = cordon_store_guests(store);
    return cordon_guests_setup(settings, &registry, &err);
}

static int stop(void **state)
{
    static const char *const files[] = {"cordon.db", "cordon.db-wal", "cordon.db-shm"};
    int status = -1;
    char path[128];
    (void)state;
    cordon_guests_done();
    cordon_store_close(store);
    (void)close(control);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", state_dir, files[i]);
        (void)unlink(path);
    }
    if (rmdir(state_dir) != 0 || waitpid(warden, &status, 0) != warden)
        return -1;
    return status;
}

static bool unavailable(void)
{
    struct cordon_warden_hello hello;
    if (cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0)
        return false;
    print_message("# skipped: %s\n", hello.why);
    return true;
}

/* --- short forms --- */

static const char tenant[] = "alice";

static char *create_as(const char *who, const char *name, uint64_t ttl_ms, uint64_t idle_ms)
{
    const struct cordon_guest_create create = {.tenant = who,
                                               .name = name,
                                               .memory_bytes = 256u << 20,
                                               .disk_bytes = 64u << 20,
                                               .env = (const char *const[]){"GREETING=hi"},
                                               .env_count = 1,
                                               .ttl_ms = ttl_ms,
                                               .idle_pause_ms = idle_ms,
                                               .cancel_fd = -1};
    struct cordon_guest_info *info;
    ok(cordon_guests_create(&create, &info, &err));
    char *id = strdup(info->id);
    cordon_guest_info_free(info);
    return id;
}

static char *create(void)
{
    return create_as(tenant, NULL, 0, 0);
}

static void destroy(char *id)
{
    bool changed;
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    free(id);
}

struct result {
    char out[70000], error[4096], channel[4096];
    size_t out_size;
    uint32_t pid;
    struct cordon_exec_exit exit;
};

static int take(struct result *result, const struct cordon_stream_event *event)
{
    char *to = event->type == CORDON_STREAM_STDERR    ? result->error
               : event->type == CORDON_STREAM_CHANNEL ? result->channel
                                                      : result->out;
    size_t used = to == result->out ? result->out_size : strlen(to);
    if (event->type == CORDON_STREAM_STARTED)
        result->pid = event->pid;
    else if (event->type == CORDON_STREAM_EXIT)
        result->exit = *event->exit;
    else if (used + event->data.size < (to == result->out ? sizeof result->out : 4096)) {
        memcpy(to + used, event->data.data, event->data.size);
        if (to == result->out)
            result->out_size += event->data.size;
    }
    return event->type == CORDON_STREAM_EXIT;
}

static void drain(struct cordon_live_stream *stream, struct result *result)
{
    struct cordon_stream_event event;
    bool ended = false;
    int r;
    while ((r = cordon_guests_next(stream, 20000, &event, &ended, &err)) == 1 && !take(result, &event))
        continue;
    ok(r);
    assert_int_equal(r, 1);
}

static struct cordon_operation shell(const char *const argv[4], const char *command)
{
    const char **to = (const char **)(uintptr_t)argv;
    to[0] = "sh";
    to[1] = "-c";
    to[2] = command;
    return (struct cordon_operation){.struct_size = sizeof(struct cordon_operation),
                                     .kind = CORDON_OP_EXEC,
                                     .argv = argv,
                                     .argc = 3,
                                     .cancel_fd = -1};
}

static struct result run_operation(const char *id, const struct cordon_operation *operation)
{
    static struct result result;
    struct cordon_live_stream *stream;
    memset(&result, 0, sizeof result);
    ok(cordon_guests_open(tenant, id, operation, &stream, &err));
    drain(stream, &result);
    cordon_guests_close(stream);
    return result;
}

static struct result run(const char *id, const char *command)
{
    const char *argv[4];
    const struct cordon_operation operation = shell(argv, command);
    return run_operation(id, &operation);
}

static void put(const char *id, const char *path, const char *data, size_t size)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WRITE, .path = path, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    ok(cordon_guests_write(stream, CORDON_TO_FILE, data, size, &err));
    ok(cordon_guests_control(stream, CORDON_CONTROL_END, CORDON_TO_FILE, &err));
    int r;
    while ((r = cordon_guests_next(stream, 20000, &event, &ended, &err)) == 1)
        if (event.type == CORDON_STREAM_ENTRY)
            assert_int_equal(event.entry->size, size);
    ok(r);
    assert_true(ended);
    cordon_guests_close(stream);
}

static int get(const char *id, const char *path, struct cordon_buf *to)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_READ, .path = path, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(tenant, id, &operation, &stream, &err);
    if (r < 0)
        return r;
    while ((r = cordon_guests_next(stream, 20000, &event, &ended, &err)) == 1)
        if (event.type == CORDON_STREAM_DATA)
            assert_int_equal(cordon_buf_append(to, event.data.data, event.data.size), 0);
    cordon_guests_close(stream);
    return r;
}

/* --- programs --- */

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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), -ENOENT);
    assert_int_equal(err.kind, CORDON_ERROR_NOT_FOUND);
    cordon_guests_close(stream);
    argv[0] = "true";
    operation.cwd = "/no/such/folder";
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), -ENOENT);
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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
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
    result = run(id, "sleep 0.2; pgrep -x sleep | wc -l"); /* its own is over by then */
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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    assert_int_equal(event.type, CORDON_STREAM_STARTED);
    uint32_t pid = event.pid;
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
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

/* --- files --- */

static void count_entry(void *context, const struct cordon_file_entry *entry)
{
    struct cordon_file_entry *last = context;
    last->size = entry->size;
    last->type = entry->type;
    last->mode = entry->mode;
}

static int file(const char *id, enum cordon_operation_kind kind, const char *path, const char *target,
                struct cordon_file_entry *entry)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = kind, .path = path, .target = target, .cancel_fd = -1};
    return cordon_guests_file(tenant, id, &operation, entry ? count_entry : NULL, entry, &err);
}

static void files(void **state)
{
    struct cordon_file_entry entry = {0};
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *big = malloc(9 << 20);
    for (size_t i = 0; i < 9 << 20; i++)
        big[i] = (char)(i * 7 + i / 256);
    put(id, "a/b/c.txt", "hello", 5);
    put(id, "/tmp/big", big, 9 << 20);
    struct cordon_buf got = CORDON_BUF_INIT(16 << 20);
    ok(get(id, "/tmp/big", &got));
    assert_int_equal(got.size, 9 << 20);
    assert_memory_equal(got.data, big, got.size);
    cordon_buf_done(&got);
    ok(get(id, "a/b/c.txt", &got));
    assert_string_equal(got.data, "hello");
    cordon_buf_done(&got);
    assert_int_equal(get(id, "a/none", &got), -ENOENT);
    assert_int_equal(get(id, "a", &got), -EISDIR);
    assert_int_equal(get(id, "/dev/zero", &got), -EINVAL);
    ok(file(id, CORDON_OP_STAT, "a/b/c.txt", NULL, &entry));
    assert_int_equal(entry.size, 5);
    assert_int_equal(entry.type, CORDON_FILE_REGULAR);
    assert_int_equal(entry.mode, 0644);
    ok(file(id, CORDON_OP_MKDIR, "/home/user/x/y", NULL, &entry));
    assert_int_equal(file(id, CORDON_OP_MKDIR, "/home/user/x/y", NULL, NULL), -EEXIST);
    assert_int_equal(err.kind, CORDON_ERROR_CONFLICT);
    ok(file(id, CORDON_OP_MOVE, "/tmp/big", "moved/over", &entry)); /* over a mount */
    assert_int_equal(entry.size, 9 << 20);
    assert_int_equal(file(id, CORDON_OP_STAT, "/tmp/big", NULL, NULL), -ENOENT);
    ok(file(id, CORDON_OP_REMOVE, "a", NULL, NULL));
    ok(file(id, CORDON_OP_REMOVE, "a", NULL, NULL));
    assert_int_equal(file(id, CORDON_OP_STAT, "a", NULL, NULL), -ENOENT);
    assert_int_equal(file(id, CORDON_OP_REMOVE, "/usr/bin/env", NULL, NULL), -EROFS);
    free(big);
    destroy(id);
}

static void trees(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation list = {
        .struct_size = sizeof list, .kind = CORDON_OP_LIST, .path = "t", .depth = 2, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    size_t count = 0;
    int r;
    struct cordon_operation make =
        shell(argv, "mkdir -p t/d/e/f && ln -s .. t/loop && touch t/1 t/d/2 t/d/e/3 && mkdir w && cd w && "
                    "python3 -c 'import os\nfor i in range(20000): open(str(i),\"w\").close()\nfor i in range(3000): "
                    "os.mkdir(\"d\"); os.chdir(\"d\")'");
    struct result result = run_operation(id, &make);
    assert_int_equal(result.exit.exit_code, 0);
    ok(cordon_guests_open(tenant, id, &list, &stream, &err));
    while ((r = cordon_guests_next(stream, 20000, &event, &ended, &err)) == 1)
        count += event.type == CORDON_STREAM_ENTRY;
    ok(r);
    assert_int_equal(count, 5); /* d, loop, 1, d/e, d/2 */
    cordon_guests_close(stream);
    list.path = "w";
    list.entries = 1000;
    ok(cordon_guests_open(tenant, id, &list, &stream, &err));
    for (count = 0; (r = cordon_guests_next(stream, 20000, &event, &ended, &err)) == 1;)
        count += event.type == CORDON_STREAM_ENTRY;
    assert_int_equal(r, -E2BIG);
    assert_int_equal(count, 1000);
    cordon_guests_close(stream);
    ok(file(id, CORDON_OP_REMOVE, "w", NULL, NULL)); /* 20,000 files, 3,000 folders in one another */
    ok(file(id, CORDON_OP_REMOVE, "t", NULL, NULL));
    destroy(id);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *chunk = calloc(1, 1 << 20);
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WRITE, .path = "big", .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = 0;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    for (int i = 0; i < 100 && r == 0; i++)
        r = cordon_guests_write(stream, CORDON_TO_FILE, chunk, 1 << 20, &err);
    if (r == 0)
        r = cordon_guests_next(stream, 20000, &event, &ended, &err);
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(err.kind, CORDON_ERROR_TOO_LARGE);
    cordon_guests_close(stream);
    assert_int_equal(file(id, CORDON_OP_STAT, "big", NULL, NULL), -ENOENT);
    free(chunk);
    destroy(id);
}

static void watches(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    ok(file(id, CORDON_OP_MKDIR, "seen/d", NULL, NULL));
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WATCH, .path = "seen", .recursive = true, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended, created = false, written = false, removed = false;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    assert_int_equal(event.type, CORDON_STREAM_WATCHING);
    (void)run(id, "echo x > seen/d/f; rm seen/d/f; mkdir seen/end");
    while (cordon_guests_next(stream, 10000, &event, &ended, &err) == 1) {
        created = created || (event.change == CORDON_CHANGE_CREATE && strcmp(event.name, "d/f") == 0);
        written = written || (event.change == CORDON_CHANGE_WRITE && strcmp(event.name, "d/f") == 0);
        removed = removed || (event.change == CORDON_CHANGE_REMOVE && strcmp(event.name, "d/f") == 0);
        if (event.change == CORDON_CHANGE_CREATE && strcmp(event.name, "end") == 0)
            break;
    }
    assert_true(created && written && removed);
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
    while (cordon_guests_next(stream, 10000, &event, &ended, &err) == 1 && event.type != CORDON_STREAM_STDOUT)
        continue;
    ok(cordon_guests_port(tenant, id, 8000, -1, &fd, &err));
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(read(fd, text, sizeof text - 1), 11);
    assert_string_equal(text, "from within");
    (void)close(fd);
    cordon_guests_close(stream);
    destroy(id);
}

/* --- life --- */

static void pauses(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    bool changed;
    struct cordon_operation operation = shell(argv, "i=0; while :; do i=$((i+1)); done");
    operation.timeout_ms = 1500;
    struct cordon_live_stream *stream, *refused;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    uint64_t before = cordon_now_us();
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    assert_true(changed);
    print_message("# paused in %llu us\n", (unsigned long long)(cordon_now_us() - before));
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    assert_false(changed);
    struct cordon_guest_metrics first, second;
    ok(cordon_guests_metrics(tenant, id, &first, &err));
    (void)poll(NULL, 0, 1600); /* its time does not run */
    ok(cordon_guests_metrics(tenant, id, &second, &err));
    assert_int_equal(first.usage.cpu_us / 1000, second.usage.cpu_us / 1000);
    assert_true(cordon_guests_open(tenant, id, &operation, &refused, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_PAUSED);
    ok(cordon_guests_resume(tenant, id, CORDON_KEEP, &changed, &err));
    assert_true(changed);
    struct result result = {0};
    drain(stream, &result);
    assert_int_equal(result.exit.cause, CORDON_CAUSE_TIMEOUT);
    cordon_guests_close(stream);
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    before = cordon_now_us();
    ok(cordon_guests_destroy(tenant, id, &changed, &err)); /* while it is frozen */
    assert_true(changed && cordon_now_us() - before < 2000000);
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    assert_false(changed);
    assert_true(cordon_guests_pause(tenant, id, &changed, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    free(id);
}

static enum cordon_guest_condition condition(const char *id, char cause[16])
{
    struct cordon_guest_info *info;
    ok(cordon_guests_info(tenant, id, &info, &err));
    enum cordon_guest_condition ret = info->condition;
    (void)snprintf(cause, 16, "%s", info->cause);
    cordon_guest_info_free(info);
    return ret;
}

static void lifetimes(void **state)
{
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, NULL, 300, 0), *idle = create_as(tenant, NULL, 0, 300);
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_RUNNING);
    (void)run(idle, "sleep 0.5");
    assert_int_equal(condition(idle, cause), CORDON_GUEST_IS_RUNNING); /* it was busy */
    (void)poll(NULL, 0, 500);
    assert_int_equal(condition(idle, cause), CORDON_GUEST_IS_PAUSED);
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_GONE);
    assert_string_equal(cause, "ttl");
    free(id);
    destroy(idle);
    const struct cordon_guest_create wanted = {.tenant = tenant,
                                               .memory_bytes = 64u << 20,
                                               .ttl_ms = 300,
                                               .at_end = CORDON_END_PAUSE,
                                               .auto_resume = true,
                                               .cancel_fd = -1};
    struct cordon_guest_info *info;
    ok(cordon_guests_create(&wanted, &info, &err));
    id = strdup(info->id);
    cordon_guest_info_free(info);
    (void)poll(NULL, 0, 700);
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_PAUSED);
    assert_string_equal(run(id, "echo awake").out, "awake\n"); /* which resumes it, with all of its time */
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_RUNNING);
    (void)poll(NULL, 0, 700);
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_PAUSED);
    destroy(id);
}

static void owners_names_and_quotas(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, "mine", 0, 0);
    struct cordon_guest_info *info;
    struct cordon_guest_create taken = {.tenant = tenant, .name = "mine", .memory_bytes = 64u << 20, .cancel_fd = -1};
    assert_int_equal(cordon_guests_create(&taken, &info, &err), -EEXIST);
    assert_int_equal(cordon_guests_info("mallory", id, &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_find("mallory", "mine", &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_destroy("mallory", id, NULL, &err), -ENOENT);
    ok(cordon_guests_find(tenant, "mine", &info, &err));
    assert_string_equal(info->id, id);
    cordon_guest_info_free(info);
    char *second = create(), *third = create();
    taken.name = NULL;
    assert_int_equal(cordon_guests_create(&taken, &info, &err), -EDQUOT);
    assert_int_equal(err.kind, CORDON_ERROR_QUOTA);
    struct cordon_guest_query query = {.tenant = tenant, .door = -1, .limit = 2};
    struct cordon_guest_page page;
    ok(cordon_guests_list(&query, &page, &err));
    assert_int_equal(page.total, 3);
    assert_int_equal(page.count, 2);
    char mark[64];
    (void)snprintf(mark, sizeof mark, "%s", page.next);
    cordon_guest_page_done(&page);
    query.after = mark;
    ok(cordon_guests_list(&query, &page, &err));
    assert_int_equal(page.count, 1);
    assert_string_equal(page.guests[0]->id, id);
    assert_string_equal(page.next, "");
    cordon_guest_page_done(&page);
    destroy(id);
    destroy(second);
    destroy(third);
}

/* --- a gateway that comes anew; a guest whose process 1 is killed --- */

static void is_adopted(void **state)
{
    const char *argv[4];
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, "stays", 0, 0);
    struct cordon_operation operation = shell(argv, "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after");
    operation.tag = "t";
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    uint32_t pid = event.pid;
    cordon_guests_close(stream);
    cordon_guests_done();
    ok(cordon_guests_setup(settings, &registry, &err));
    cordon_guests_adopt();
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_RUNNING);
    struct cordon_operation again = {
        .struct_size = sizeof again, .kind = CORDON_OP_ATTACH, .pid = pid, .replay_bytes = 100, .cancel_fd = -1};
    ok(cordon_guests_open(tenant, id, &again, &stream, &err));
    put(id, "go", "", 0);
    struct result result = {0};
    drain(stream, &result);
    assert_string_equal(result.out, "before\nafter\n");
    cordon_guests_close(stream);
    destroy(id);
}

/* --- what is killed from outside, and by root within --- */

static bool read_parent(const char *pid, pid_t *parent, char name[32])
{
    char path[64], text[512];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (cordon_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    const char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    char state;
    if (!open_at || !close_at || sscanf(close_at + 1, " %c %d", &state, parent) != 2)
        return false;
    (void)snprintf(name, 32, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return state != 'Z';
}

/* Our warden's agents: grandchildren of it, by its nurseries. */
static size_t kill_agents(void)
{
    size_t killed = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t parent, grandparent;
        char name[32], other[32], text[16];
        if (*entry->d_name < '0' || *entry->d_name > '9' || !read_parent(entry->d_name, &parent, name) ||
            strcmp(name, "cordon-agent") != 0)
            continue;
        (void)snprintf(text, sizeof text, "%d", (int)parent);
        if (read_parent(text, &grandparent, other) && grandparent == warden && strcmp(other, "cordon-nursery") == 0)
            killed += kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return killed;
}

static bool is_gone_within(const char *id, int ms, char cause[16])
{
    for (int i = 0; i < ms / 10; i++) {
        if (condition(id, cause) == CORDON_GUEST_IS_GONE)
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

/* The parked ones died as well, and who asks before the warden knows may get one of them. */
static void wait_for_new_ones(void)
{
    const struct cordon_guest_create wanted = {
        .tenant = tenant, .memory_bytes = 256u << 20, .disk_bytes = 64u << 20, .cancel_fd = -1};
    struct cordon_warden_hello hello;
    for (int i = 0; i < 400; i++) {
        struct cordon_guest_info *info = NULL;
        bool made = cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0 &&
                    cordon_guests_create(&wanted, &info, &err) == 0;
        bool lives = made && info->condition == CORDON_GUEST_IS_RUNNING;
        char *id = made ? strdup(info->id) : NULL;
        cordon_guest_info_free(info);
        if (id)
            destroy(id);
        if (lives)
            return;
        (void)poll(NULL, 0, 50);
    }
    fail_msg("no guest lives after all agents were killed: %s", err.message);
}

static void a_killed_agent_is_told(void **state)
{
    const char *argv[4];
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "sleep 60");
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    int r;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    assert_true(kill_agents() >= 1);
    while ((r = cordon_guests_next(stream, 10000, &event, &ended, &err)) == 1)
        continue;
    assert_int_equal(r, -ESRCH);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    cordon_guests_close(stream);
    assert_true(is_gone_within(id, 5000, cause));
    assert_string_equal(cause, "died");
    assert_true(cordon_guests_open(tenant, id, &operation, &stream, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    destroy(id); /* which is fine, too */
    wait_for_new_ones();
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

static void a_lost_warden_is_told(void **state)
{
    char cause[16];
    int status;
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *fresh;
    (void)kill(warden, SIGKILL);
    assert_int_equal(waitpid(warden, &status, 0), warden);
    assert_true(is_gone_within(id, 5000, cause));
    assert_string_equal(cause, "died");
    free(id);
    (void)close(control);
    assert_int_equal(start_warden(), 0);
    fresh = create();
    assert_string_equal(run(fresh, "echo new").out, "new\n");
    destroy(fresh);
}

/* --- what installers need --- */

/* --- code that works against its host --- */

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
        assert_int_equal(cordon_guests_next(streams[0], 10000, &event, &ended, &err), 1);
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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
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
    assert_int_equal(cordon_guests_next(stream, 10000, &event, &ended, &err), 1);
    for (int i = 0; i < 50 && r >= 0; i++) {
        r = file(id, CORDON_OP_STAT, ".", NULL, NULL);
        (void)poll(NULL, 0, 20);
    }
    assert_true(r == 0 || err.kind == CORDON_ERROR_QUOTA || err.kind == CORDON_ERROR_INFRASTRUCTURE);
    cordon_guests_close(stream);
    uint64_t before = cordon_now_us();
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    assert_true(changed && cordon_now_us() - before < 5000000);
    free(id);
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
        cmocka_unit_test(files),
        cmocka_unit_test(trees),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(watches),
        cmocka_unit_test(ports),
        cmocka_unit_test(pauses),
        cmocka_unit_test(lifetimes),
        cmocka_unit_test(owners_names_and_quotas),
        cmocka_unit_test(is_adopted),
        cmocka_unit_test(packages_are_installed_and_found),
        cmocka_unit_test(node_packages_too),
        cmocka_unit_test(floods_hold_up_nobody_else),
        cmocka_unit_test(a_file_that_becomes_a_link_shows_nothing_more),
        cmocka_unit_test(processes_may_be_used_up),
        cmocka_unit_test(root_cannot_break_what_launches),
        cmocka_unit_test(a_killed_agent_is_told),
        cmocka_unit_test(a_lost_warden_is_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
