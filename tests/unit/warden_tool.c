/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays supervisor and gateway to a warden that it starts itself, for measuring and for looking:
 *     warden-tool [--oneshot] [--pause=MS] COMMAND [NAME=VALUE]...
 *     hello                      prints the hello
 *     cycles=KIND,N[,none]       N times acquire and release; figures and what is left afterwards
 *     runs=KIND,N,CODE           the same with CODE run in each guest
 *     hold=KIND,N,SECONDS        N guests at once
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "proto/frame.h"
#include "supervisor/roles.h"
#include "warden/wire.h"

static pid_t warden;
static unsigned pause_ms; /* between cycles: --pause=MS */
static int control, peer;

static void die(const char *what)
{
    (void)fprintf(stderr, "warden-tool: %s: %s\n", what, strerror(errno));
    if (warden > 0)
        (void)kill(warden, SIGTERM);
    exit(1);
}

static void start(int argc, char **argv, int first, int oneshot)
{
    int c[2], p[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
        die("socketpair");
    warden = fork();
    if (warden == 0) {
        char *args[64] = {argv[0]};
        int n = 1;
        static char flag[] = "--oneshot";
        if (oneshot)
            args[n++] = flag;
        for (int i = first; i < argc && n < 63; i++)
            args[n++] = argv[i];
        int high_c = dup(c[1]), high_p = dup(p[1]);
        high_c = fcntl(high_c, F_DUPFD, 20);
        high_p = fcntl(high_p, F_DUPFD, 20);
        (void)dup2(high_c, CORDON_ROLE_CONTROL);
        (void)dup2(high_p, CORDON_ROLE_PEER);
        (void)close_range(5, ~0u, 0);
        exit(cordon_warden_main(n, args));
    }
    (void)close(c[1]);
    (void)close(p[1]);
    control = c[0];
    peer = p[0];
}

static void hello(int print)
{
    struct cordon_warden_hello h;
    ssize_t n = recv(peer, &h, sizeof h, 0);
    if (n != (ssize_t)sizeof h)
        die("hello");
    if (print || h.status)
        (void)printf("version %u abilities %x languages %x status %d why \"%s\"\n", h.version, h.abilities, h.languages,
                     h.status, h.why);
}

/* The lease, or -1; *channel is the guest's. */
static int acquire(unsigned kind, int none, int *channel, int *warm)
{
    struct cordon_warden_acquire a = {.version = CORDON_WARDEN_VERSION,
                                      .kind = kind,
                                      .unisolated = (unsigned)none,
                                      .cpu_percent = 100,
                                      .pids = 128,
                                      .memory_bytes = 256u << 20,
                                      .template_name = "default"};
    struct cordon_warden_grant g;
    int pair[2], fds[4];
    size_t nfds = 4;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    if (cordon_send_fds(peer, &a, sizeof a, &pair[1], 1, 0) < 0)
        die("acquire");
    (void)close(pair[1]);
    ssize_t n = cordon_recv_fds(pair[0], &g, sizeof g, fds, &nfds, 0);
    if (n != (ssize_t)sizeof g || g.status) {
        (void)printf("refused: %zd status %d why \"%s\"\n", n, n == (ssize_t)sizeof g ? g.status : 0,
                     n == (ssize_t)sizeof g ? g.why : "");
        (void)close(pair[0]);
        return -1;
    }
    *channel = fds[0];
    *warm = (int)g.warm;
    for (size_t i = 1; i < nfds; i++)
        (void)close(fds[i]);
    return pair[0];
}

static const char *const languages[] = {"python", "python", "python", "javascript", "bash"};

static int run_code(int channel, unsigned kind, const char *code, int show)
{
    struct cordon_buf fields = CORDON_BUF_INIT(1 << 20), out = CORDON_BUF_INIT(1 << 20), in = CORDON_BUF_INIT(1 << 22);
    struct cordon_exec_limits limits = {.disk_bytes = 64 << 20,
                                        .disk_inodes = 16384,
                                        .memory_bytes = 256 << 20,
                                        .stdout_bytes = 1 << 20,
                                        .stderr_bytes = 1 << 20,
                                        .output_kill_bytes = 1 << 30,
                                        .artifact_bytes = 1 << 20,
                                        .artifacts_bytes = 1 << 20,
                                        .artifacts = 8,
                                        .open_files = 1024,
                                        .cpu_percent = 100};
    (void)cordon_field_put(&fields, CORDON_FIELD_LANGUAGE, languages[kind], (uint32_t)strlen(languages[kind]));
    (void)cordon_field_put(&fields, CORDON_FIELD_CODE, code, (uint32_t)strlen(code));
    (void)cordon_exec_limits_put(&fields, &limits);
    (void)cordon_frame_put(&out, CORDON_FRAME_EXEC, 1, fields.data, (uint32_t)fields.size);
    int status = -1;
    if (cordon_write_full(channel, out.data, out.size) < 0)
        goto end;
    for (;;) {
        struct cordon_frame frame;
        int64_t n = cordon_frame_parse(in.data ? in.data : "", in.size, 1, &frame);
        if (n < 0)
            break;
        if (n == 0) {
            char *to = cordon_buf_reserve(&in, 65536);
            ssize_t got = to ? read(channel, to, 65536) : -1;
            if (got <= 0)
                break;
            in.size += (size_t)got;
            continue;
        }
        if (show && (frame.type == CORDON_FRAME_STDOUT || frame.type == CORDON_FRAME_STDERR ||
                     frame.type == CORDON_FRAME_ERROR))
            (void)fwrite(frame.payload, 1, frame.length, stdout);
        struct cordon_exit ended;
        if (frame.type == CORDON_FRAME_EXIT && cordon_exit_parse(&frame, &ended) == 0) {
            status = ended.status;
            if (show)
                (void)printf("[exit how %u status %d denied %u %s left %u]\n", ended.how, ended.status,
                             ended.syscalls_denied, ended.blocked_syscall, ended.processes_left);
            break;
        }
        cordon_buf_consume(&in, (size_t)n);
    }
end:
    cordon_buf_done(&fields);
    cordon_buf_done(&out);
    cordon_buf_done(&in);
    return status;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static unsigned count_fds(void)
{
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)warden);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        (void)closedir(dir);
    return n;
}

static uint64_t busy_ticks(void)
{
    FILE *f = fopen("/proc/stat", "r");
    unsigned long long u = 0, n = 0, s = 0, i = 0, w = 0, irq = 0, soft = 0;
    if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &u, &n, &s, &i, &w, &irq, &soft) != 7)
        die("/proc/stat");
    (void)fclose(f);
    return u + n + s + irq + soft;
}

static unsigned rss_kb(void)
{
    char path[64], line[256];
    unsigned kb = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)warden);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        (void)sscanf(line, "VmRSS: %u", &kb);
    if (f)
        (void)fclose(f);
    return kb;
}

static void cycles(unsigned kind, unsigned count, int none, const char *code)
{
    uint64_t *took = calloc(count, sizeof *took), *whole = calloc(count, sizeof *whole);
    unsigned warm_count = 0, failed = 0, fds_first = 0;
    if (!took || !whole)
        die("calloc");
    uint64_t ticks = 0, begin = 0;
    for (unsigned i = 0; i < count; i++) {
        int channel, warm;
        if (i == count / 10) {
            ticks = busy_ticks();
            begin = cordon_now_us();
            fds_first = count_fds();
        }
        uint64_t t = cordon_now_us();
        int lease = acquire(kind, none, &channel, &warm);
        took[i] = cordon_now_us() - t;
        if (lease < 0) {
            failed++;
            continue;
        }
        warm_count += (unsigned)warm;
        if (code && run_code(channel, kind, code, count == 1) < 0)
            failed++;
        whole[i] = cordon_now_us() - t;
        (void)close(channel);
        (void)close(lease);
        if (pause_ms)
            (void)usleep(pause_ms * 1000);
    }
    uint64_t wall = cordon_now_us() - begin;
    double n = count - count / 10;
    qsort(took, count, sizeof *took, compare);
    qsort(whole, count, sizeof *whole, compare);
    (void)printf("%u cycles, %u warm, %u failed; acquire p50 %llu us p99 %llu us; whole p50 %llu p99 %llu; %.0f/s; "
                 "machine CPU %.2f ms a cycle\n",
                 count, warm_count, failed, (unsigned long long)took[count / 2],
                 (unsigned long long)took[count * 99 / 100], (unsigned long long)whole[count / 2],
                 (unsigned long long)whole[count * 99 / 100], n * 1e6 / (double)wall,
                 (double)(busy_ticks() - ticks) * 10 / n);
    (void)usleep(500000);
    (void)printf("warden fds at a tenth %u, now %u; rss %u kB\n", fds_first, count_fds(), rss_kb());
    free(took);
    free(whole);
}

static void hold(unsigned kind, unsigned count, unsigned seconds)
{
    for (unsigned i = 0; i < count; i++) {
        int channel, warm;
        if (acquire(kind, 0, &channel, &warm) < 0) /* kept open on purpose */
            break;
    }
    (void)printf("warden %d holds %u\n", (int)warden, count);
    (void)fflush(stdout);
    (void)sleep(seconds);
}

int main(int argc, char **argv)
{
    int at = 1, oneshot = 0;
    if (at < argc && strcmp(argv[at], "--oneshot") == 0) {
        oneshot = 1;
        at++;
    }
    if (at < argc && sscanf(argv[at], "--pause=%u", &pause_ms) == 1)
        at++;
    const char *command = at < argc ? argv[at++] : "hello";
    uint64_t t = cordon_now_us();
    start(argc, argv, at, oneshot);
    hello(strcmp(command, "hello") == 0);
    (void)printf("hello after %llu us\n", (unsigned long long)(cordon_now_us() - t));
    unsigned kind = 0, count = 1, seconds = 1;
    int offset = 0;
    if (sscanf(command, "cycles=%u,%u", &kind, &count) == 2)
        cycles(kind, count, strstr(command, ",none") != NULL, NULL);
    else if (sscanf(command, "runs=%u,%u,%n", &kind, &count, &offset) == 2 && offset)
        cycles(kind, count, 0, command + offset);
    else if (sscanf(command, "none=%u,%u,%n", &kind, &count, &offset) == 2 && offset)
        cycles(kind, count, 1, command + offset);
    else if (sscanf(command, "hold=%u,%u,%u", &kind, &count, &seconds) == 3)
        hold(kind, count, seconds);
    (void)fflush(stdout);
    (void)close(peer);
    (void)close(control);
    int status = 0;
    if (waitpid(warden, &status, 0) < 0 || status)
        (void)printf("warden ended with status %x\n", status);
    return status != 0;
}
