/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests, measured below the doors: the service in this process, a warden of its own.
 *
 *     bench_kept [-n SAMPLES] [-g GUESTS]
 *
 * Prints one JSON object: microseconds of create, exec of `true`, a first cell `1+1` (which starts Python), further
 * ones, file write and read, pause, resume, destroy, and of a plain posix_spawn of `true` between them; then, with
 * GUESTS idle guests at once, the memory of each (PSS of its processes and what its control group has), and the time to
 * make and to end them all.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cells/cells.h"
#include "core/guests.h"
#include "core/registry.h"
#include "guest/guest.h"
#include "sample.h"
#include "supervisor/roles.h"

extern char **environ;

static struct cordon_error err;
static pid_t warden;

static void need(int r, const char *what)
{
    if (r >= 0)
        return;
    (void)fprintf(stderr, "%s: %s\n", what, err.message);
    exit(1);
}

static void start_warden(void)
{
    int c[2], p[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
        bench_die("socketpair");
    warden = fork();
    if (warden == 0) {
        static char texts[][64] = {"warden",
                                   "CORDON_STATE=/nonexistent/cordon-bench-kept",
                                   "CORDON_POOL_PYTHON=0",
                                   "CORDON_POOL_PYTHON_DATA=0",
                                   "CORDON_POOL_JAVASCRIPT=0",
                                   "CORDON_POOL_BASH=0",
                                   "CORDON_POOL_GUEST=4",
                                   "CORDON_LOG_LEVEL=error"};
        char *argv[9] = {NULL};
        (void)snprintf(texts[1], sizeof texts[1], "CORDON_STATE=/nonexistent/cordon-bench-%d", (int)getppid());
        for (size_t i = 0; i < 8; i++)
            argv[i] = texts[i];
        int control = fcntl(c[1], F_DUPFD, 20), peer = fcntl(p[1], F_DUPFD, 20);
        if (dup2(control, CORDON_ROLE_CONTROL) < 0 || dup2(peer, CORDON_ROLE_PEER) < 0)
            _exit(99);
        (void)close_range(CORDON_ROLE_PEER + 1, ~0u, 0);
        exit(cordon_warden_main(8, argv));
    }
    (void)close(c[1]);
    (void)close(p[1]);
    need(cordon_warden_set(p[0], &err), "the warden");
}

static char *create(void)
{
    const struct cordon_guest_create wanted = {
        .tenant = "bench", .memory_bytes = 128u << 20, .disk_bytes = 64u << 20, .cancel_fd = -1};
    struct cordon_guest_info *info;
    need(cordon_guests_create(&wanted, &info, &err), "create");
    char *id = strdup(info->id);
    cordon_guest_info_free(info);
    return id;
}

static void operate(const char *id, const struct cordon_operation *operation, const void *data, size_t size)
{
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r;
    need(cordon_guests_open("bench", id, operation, &stream, &err), "open");
    if (data) {
        need(cordon_guests_write(stream, CORDON_TO_FILE, data, size, &err), "write");
        need(cordon_guests_control(stream, CORDON_CONTROL_END, CORDON_TO_FILE, &err), "end");
    }
    while ((r = cordon_guests_next(stream, 30000, &event, &ended, &err)) == 1)
        if (event.type == CORDON_STREAM_EXIT)
            break;
    need(r, "events");
    cordon_guests_close(stream);
}

static void plain(void)
{
    char name[] = "true", *argv[] = {name, NULL};
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, name, NULL, NULL, argv, environ) || waitpid(pid, &status, 0) != pid)
        bench_die("posix_spawn");
}

enum { CREATE, EXEC, WRITE, READ, PAUSE, RESUME, DESTROY, PLAIN, CONTEXT, CELL, ROWS };
static const char *const names[ROWS] = {"create", "exec",    "write", "read",    "pause",
                                        "resume", "destroy", "plain", "context", "cell"};
static struct bench_samples samples[ROWS];

static void cell(const char *id, const char *code)
{
    const struct cordon_cell_request request = {
        .tenant = "bench", .guest = id, .code = {code, strlen(code)}, .cancel_fd = -1};
    struct cordon_cell_event event;
    struct cordon_cell *cell;
    need(cordon_cell_open(&request, &cell, &err), "a cell");
    do
        (void)cordon_cell_next(cell, -1, &event); /* waits for ever: there is an event */
    while (event.type != CORDON_CELL_END);
    cordon_cell_close(cell);
}

#define MEASURE(row, what)                                                                                             \
    do {                                                                                                               \
        uint64_t from_ = cordon_now_us();                                                                              \
        what;                                                                                                          \
        bench_add(&samples[row], cordon_now_us() - from_);                                                             \
    } while (0)

static void sample_one(void)
{
    const char *argv[] = {"true"};
    const struct cordon_operation run = {
        .struct_size = sizeof run, .kind = CORDON_OP_EXEC, .argv = argv, .argc = 1, .cancel_fd = -1};
    const struct cordon_operation put = {
        .struct_size = sizeof put, .kind = CORDON_OP_WRITE, .path = "f", .cancel_fd = -1};
    const struct cordon_operation get = {
        .struct_size = sizeof get, .kind = CORDON_OP_READ, .path = "f", .cancel_fd = -1};
    char *id = NULL;
    MEASURE(CREATE, id = create());
    bench_sleep_ms(20);
    for (int i = 0; i < 3; i++) {
        MEASURE(EXEC, operate(id, &run, NULL, 0));
        bench_sleep_ms(5);
        MEASURE(PLAIN, plain());
        bench_sleep_ms(5);
    }
    MEASURE(CONTEXT, cell(id, "1+1"));
    for (int i = 0; i < 5; i++) {
        bench_sleep_ms(5);
        MEASURE(CELL, cell(id, "1+1"));
    }
    MEASURE(WRITE, operate(id, &put, "hello", 5));
    MEASURE(READ, operate(id, &get, NULL, 0));
    MEASURE(PAUSE, need(cordon_guests_pause("bench", id, NULL, &err), "pause"));
    bench_sleep_ms(5);
    MEASURE(RESUME, need(cordon_guests_resume("bench", id, CORDON_KEEP, NULL, &err), "resume"));
    MEASURE(DESTROY, need(cordon_guests_destroy("bench", id, NULL, &err), "destroy"));
    free(id);
    bench_sleep_ms(20);
}

/* Of all processes below the warden that are guests': their PSS, in KiB. */
static uint64_t pss_of(const char *pid)
{
    char path[64], text[4096];
    (void)snprintf(path, sizeof path, "/proc/%.20s/smaps_rollup", pid);
    if (cordon_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return 0;
    const char *line = strstr(text, "\nPss:");
    return line ? strtoull(line + 5, NULL, 10) : 0;
}

static uint64_t all_pss(void)
{
    uint64_t sum = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[64], name[32];
        if (*entry->d_name < '0' || *entry->d_name > '9')
            continue;
        (void)snprintf(path, sizeof path, "/proc/%.20s/comm", entry->d_name);
        if (cordon_read_file(AT_FDCWD, path, name, sizeof name) > 0 &&
            (strcmp(name, "cordon-agent\n") == 0 || strcmp(name, "cordon-launch\n") == 0))
            sum += pss_of(entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    return sum;
}

static void crowd(unsigned long count)
{
    char **ids = calloc(count, sizeof *ids);
    uint64_t before = all_pss(), groups = 0, from = cordon_now_us();
    for (unsigned long i = 0; ids && i < count; i++)
        ids[i] = create();
    uint64_t made = cordon_now_us() - from;
    uint64_t pss = all_pss() - before;
    for (unsigned long i = 0; ids && i < count; i++) {
        struct cordon_guest_metrics metrics;
        need(cordon_guests_metrics("bench", ids[i], &metrics, &err), "metrics");
        groups += metrics.usage.memory_bytes;
    }
    from = cordon_now_us();
    for (unsigned long i = 0; ids && i < count; i++) {
        need(cordon_guests_destroy("bench", ids[i], NULL, &err), "destroy");
        free(ids[i]);
    }
    free(ids);
    (void)printf("\"crowd\":{\"guests\":%lu,\"pss_kib_each\":%" PRIu64 ",\"cgroup_kib_each\":%" PRIu64
                 ",\"made_ms\":%" PRIu64 ",\"ended_ms\":%" PRIu64 "}",
                 count, pss / count, groups / count / 1024, made / 1000, (cordon_now_us() - from) / 1000);
}

int main(int argc, char **argv)
{
    unsigned long count = 30, guests = 0;
    const struct cordon_settings_input input = {.environ = (const char *const[]){"CORDON_MAX_GUESTS=4096", NULL}};
    struct cordon_settings *settings;
    struct rlimit files;
    for (int option; (option = getopt(argc, argv, "n:g:")) != -1;) {
        if (option != 'n' && option != 'g')
            return 2;
        *(option == 'n' ? &count : &guests) = bench_number(optarg);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* the old limit then means fewer guests */
    }
    start_warden();
    need(cordon_settings_load(&input, &settings, &err), "settings");
    cordon_registry_setup(cordon_backend_builtin);
    need(cordon_guests_setup(settings, NULL, &err), "the service");
    for (unsigned long i = 0; i < count; i++)
        sample_one();
    (void)printf("{");
    for (int i = 0; i < ROWS; i++) {
        bench_print(names[i], &samples[i]);
        (void)printf(",");
    }
    if (guests)
        crowd(guests);
    else
        (void)printf("\"crowd\":null");
    (void)printf("}\n");
    cordon_guests_done();
    (void)kill(warden, SIGTERM);
    (void)waitpid(warden, NULL, 0); /* its end is all */
    return 0;
}
