/* SPDX-License-Identifier: Apache-2.0 */
#include "guests_service.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/fd.h"
#include "core/registry.h"
#include "guest/guest.h"
#include "store/store.h"
#include "supervisor/roles.h"

const char tenant[] = "alice";
struct cordon_error err;
pid_t warden;
static int control;
static char state_dir[] = "/tmp/cordon-test-guests-XXXXXX";
static struct cordon_store *store;
static struct cordon_guest_registry registry;
static struct cordon_settings *settings;

void ok(int r)
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

int start_warden(void)
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

void kill_warden(void)
{
    int status;
    (void)kill(warden, SIGKILL);
    assert_int_equal(waitpid(warden, &status, 0), warden);
    (void)close(control);
}

int start_service(void **state)
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

void restart_service(void)
{
    cordon_guests_done();
    ok(cordon_guests_setup(settings, &registry, &err));
    cordon_guests_adopt();
}

int stop_service(void **state)
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

bool unavailable(void)
{
    struct cordon_warden_hello hello;
    if (cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0)
        return false;
    print_message("# skipped: %s\n", hello.why);
    return true;
}

/* --- short forms --- */

char *create_as(const char *who, const char *name, uint64_t ttl_ms, uint64_t idle_ms)
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

char *create(void)
{
    return create_as(tenant, NULL, 0, 0);
}

void destroy(char *id)
{
    bool changed;
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    free(id);
}

enum cordon_guest_condition condition(const char *id, char cause[16])
{
    struct cordon_guest_info *info;
    ok(cordon_guests_info(tenant, id, &info, &err));
    enum cordon_guest_condition ret = info->condition;
    (void)snprintf(cause, 16, "%s", info->cause);
    cordon_guest_info_free(info);
    return ret;
}

bool is_within(const char *id, enum cordon_guest_condition wanted, char cause[16])
{
    for (int i = 0; i < 6000; i++) {
        if (condition(id, cause) == wanted)
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

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

void drain(struct cordon_live_stream *stream, struct result *result)
{
    struct cordon_stream_event event;
    bool ended = false;
    int r;
    while ((r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1 && !take(result, &event))
        continue;
    ok(r);
    assert_int_equal(r, 1);
}

struct cordon_operation shell(const char *const argv[4], const char *command)
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

struct result run_operation(const char *id, const struct cordon_operation *operation)
{
    static struct result result;
    struct cordon_live_stream *stream;
    memset(&result, 0, sizeof result);
    ok(cordon_guests_open(tenant, id, operation, &stream, &err));
    drain(stream, &result);
    cordon_guests_close(stream);
    return result;
}

struct result run(const char *id, const char *command)
{
    const char *argv[4];
    const struct cordon_operation operation = shell(argv, command);
    return run_operation(id, &operation);
}

void put(const char *id, const char *path, const char *data, size_t size)
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
    while ((r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1)
        if (event.type == CORDON_STREAM_ENTRY)
            assert_int_equal(event.entry->size, size);
    ok(r);
    assert_true(ended);
    cordon_guests_close(stream);
}

int get(const char *id, const char *path, struct cordon_buf *to)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_READ, .path = path, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(tenant, id, &operation, &stream, &err);
    if (r < 0)
        return r;
    while ((r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1)
        if (event.type == CORDON_STREAM_DATA)
            assert_int_equal(cordon_buf_append(to, event.data.data, event.data.size), 0);
    cordon_guests_close(stream);
    return r;
}

static void count_entry(void *context, const struct cordon_file_entry *entry)
{
    struct cordon_file_entry *last = context;
    last->size = entry->size;
    last->type = entry->type;
    last->mode = entry->mode;
}

int file(const char *id, enum cordon_operation_kind kind, const char *path, const char *target,
         struct cordon_file_entry *entry)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = kind, .path = path, .target = target, .cancel_fd = -1};
    return cordon_guests_file(tenant, id, &operation, entry ? count_entry : NULL, entry, &err);
}
