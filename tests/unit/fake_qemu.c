/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A QEMU with a guest in it that lie, stall, flood or die at a step, for test_vmm and tests/api/test_machines.py. What
 * it is to do stands in the place of the guest's language on the command line; a real language is a sound guest, whose
 * programs print "fake" and end (or, where their code says so, sleep, wait for ever or take QEMU along). A guest that
 * is kept can be paused, which is seen by its ignoring SIGUSR1, and be given channels, on which it greets and no more.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/kept.h"
#include "proto/vm.h"
#include "vmm/wire.h"

static char scenario[32];
static bool slow; /* "fake.slow" on the kernel's command line: a boot takes a while */
static bool clone_of_one, stopped, leased;
static bool kept, deaf;   /* deaf: its channel is at its end */
static int given_fd = -1; /* came with the last command */
static unsigned mute;     /* "fake.mute=N": on so many new channels it does not greet */

static bool is(const char *name)
{
    return strcmp(scenario, name) == 0;
}

static void say(const char *text)
{
    if (send(CORDON_VMM_QMP, text, strlen(text), MSG_NOSIGNAL) < 0)
        _exit(9);
}

static void guest_sends(const void *data, size_t size)
{
    if (send(CORDON_VMM_GUEST, data, size, MSG_NOSIGNAL) < 0)
        _exit(9);
}

static void guest_ready(void)
{
    struct cordon_buf frame = CORDON_BUF_INIT(1024);
    const struct cordon_vm_ready ready = {.language = kept ? CORDON_VM_NONE : CORDON_VM_PYTHON, .kept = kept};
    if (is("guest-mute") || is("guest-halted"))
        return;
    if (is("guest-lies"))
        (void)cordon_frame_put(&frame, CORDON_FRAME_STDOUT, 1, "hello", 5);
    else if (is("guest-huge"))
        (void)cordon_buf_append(&frame, "\x78\0\0\0\xff\xff\xff\x7f", 8);
    else if (is("guest-error"))
        (void)cordon_frame_put(&frame, CORDON_FRAME_ERROR, 0, "\x0b\x01\0\0\0x", 6);
    else
        cordon_vm_ready_put(&frame, &ready);
    if (is("guest-old"))
        frame.data[CORDON_FRAME_HEADER]++;
    for (size_t i = 0; i < frame.size; i++) /* byte by byte: whoever reads has to put it together */
        guest_sends(frame.data + i, 1);
    cordon_buf_done(&frame);
}

static void guest_greets(struct cordon_buf *to)
{
    const char greeting[8] = {CORDON_KEPT_VERSION};
    (void)cordon_frame_put(to, CORDON_FRAME_READY, 0, greeting, sizeof greeting);
}

static void guest_lease(void)
{
    struct cordon_buf frame = CORDON_BUF_INIT(1024);
    char lease[CORDON_FRAME_HEADER + CORDON_VM_LEASE_SIZE];
    struct cordon_frame parsed;
    struct cordon_vm_lease read;
    if (recv(CORDON_VMM_GUEST, lease, sizeof lease, MSG_WAITALL) != (ssize_t)sizeof lease ||
        cordon_frame_parse(lease, sizeof lease, 0, &parsed) <= 0 || cordon_vm_lease_parse(&parsed, &read) < 0)
        _exit(8);
    if (read.flags & CORDON_VM_REHEARSAL && is("rehearsal-dies"))
        (void)raise(SIGKILL);
    if (read.flags & CORDON_VM_REHEARSAL && !is("rehearsal-lies")) {
        guest_ready();
        if (is("rehearsal-twice"))
            guest_ready();
        return;
    }
    if (is("lease-mute"))
        return;
    if (is("lease-dies"))
        (void)raise(SIGKILL);
    if (is("lease-lies"))
        guest_ready();
    cordon_vm_leased_put(&frame);
    if (kept)
        guest_greets(&frame);
    else
        (void)cordon_frame_put(&frame, CORDON_FRAME_HELLO, 0, "\1\0\0\0", 4); /* the gateway's: is not to be taken */
    leased = true;
    guest_sends(frame.data, frame.size);
    cordon_buf_done(&frame);
    if (is("panics")) {
        say("{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-panic\"}}\n");
        _exit(0);
    }
    if (is("dies-later"))
        _exit(5);
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What a program prints. sleep(): from when to when it held its lease, by the host's clock. */
static const char *output_of(const struct cordon_frame *frame)
{
    static char span[64];
    if (!memmem(frame->payload, frame->length, "sleep()", 7))
        return "fake\n";
    double from = now_s();
    (void)usleep(700000);
    (void)snprintf(span, sizeof span, "%.6f %.6f\n", from, now_s());
    return span;
}

static void put_run(struct cordon_buf *out, const struct cordon_frame *frame)
{
    const char *text = output_of(frame);
    const struct cordon_exit exit = {.how = CORDON_EXIT_EXITED, .stdout_bytes = strlen(text)};
    (void)cordon_frame_put(out, CORDON_FRAME_STARTED, frame->exec, NULL, 0);
    (void)cordon_frame_put(out, CORDON_FRAME_STDOUT, frame->exec, text, (uint32_t)exit.stdout_bytes);
    (void)cordon_exit_put(out, frame->exec, &exit);
}

/* Every frame fits into what is read at once. */
static void guest_runs(void)
{
    static char data[65536 + CORDON_FRAME_HEADER];
    static size_t have;
    struct cordon_buf out = CORDON_BUF_INIT(4096);
    struct cordon_frame frame;
    ssize_t n = recv(CORDON_VMM_GUEST, data + have, sizeof data - have, 0);
    deaf = n <= 0;
    if (deaf && !kept)
        _exit(0);
    have = deaf ? 0 : have + (size_t)n;
    for (int64_t used; (used = cordon_frame_parse(data, have, 0, &frame)) > 0; have -= (size_t)used) {
        if (frame.type == CORDON_FRAME_SETUP) {
            (void)cordon_frame_put(&out, CORDON_FRAME_DONE, 0, NULL, 0);
            guest_sends(out.data, out.size);
        }
        if (frame.type == CORDON_FRAME_EXEC && memmem(frame.payload, frame.length, "die()", 5))
            (void)raise(SIGKILL);
        if (frame.type == CORDON_FRAME_EXEC && memmem(frame.payload, frame.length, "wait()", 6))
            (void)pause();
        if (frame.type == CORDON_FRAME_EXEC) {
            put_run(&out, &frame);
            guest_sends(out.data, out.size);
        }
        memmove(data, data + used, have - (size_t)used);
    }
    cordon_buf_done(&out);
}

static void change_channel(void)
{
    struct cordon_buf frame = CORDON_BUF_INIT(64);
    if (given_fd < 0 || dup2(given_fd, CORDON_VMM_GUEST) < 0)
        _exit(7);
    cordon_close(&given_fd);
    deaf = false;
    guest_greets(&frame);
    if (mute)
        mute--;
    else
        guest_sends(frame.data, frame.size);
    cordon_buf_done(&frame);
}

static void answer(const char *line)
{
    char text[128];
    const char *id = strstr(line, "\"id\":");
    int number = id ? atoi(id + 5) : 0;
    bool incoming = strstr(line, "migrate-incoming"), out = strstr(line, "\"migrate\"");
    if (is("refuses") && incoming) {
        (void)snprintf(text, sizeof text, "{\"error\":{\"class\":\"G\",\"desc\":\"no \\u0007 way\"},\"id\":%d}\n",
                       number);
        say(text);
        return;
    }
    if (is("load-dies") && incoming)
        _exit(3);
    if (is("stale-id"))
        number += 7;
    if (strstr(line, "info registers")) {
        (void)snprintf(text, sizeof text, "{\"return\":\"RIP=1 [Z] CPL=0 HLT=%d\\r\\nES =0\",\"id\":%d}\n",
                       is("guest-halted"), number);
        say(text);
        return;
    }
    /* Before the answer, which may be followed by a stop of the process. */
    stopped = stopped ? !strstr(line, "\"cont\"") : strstr(line, "\"stop\"") != NULL;
    (void)signal(SIGUSR1, stopped ? SIG_IGN : SIG_DFL);
    (void)snprintf(text, sizeof text, "{\"return\":{},\"id\":%d}\n", number);
    say(text);
    if (incoming || out)
        say(is("load-fails") ? "{\"event\":\"MIGRATION\",\"data\":{\"status\":\"failed\"}}\n"
                             : "{\"event\":\"MIGRATION\",\"data\":{\"status\":\"active\"}}\n{\"event\":\"MIGRATION\","
                               "\"data\":{\"status\":\"completed\"}}\n");
    if (strstr(line, "\"chardev-change\""))
        change_channel();
    if (strstr(line, "\"quit\"")) {
        (void)shutdown(CORDON_VMM_QMP, SHUT_RDWR); /* as QEMU does, before it ends */
        (void)usleep(20000);
        _exit(is("quit-badly") ? 7 : 0);
    }
}

static void flood(void)
{
    static char piece[4096];
    memset(piece, is("flood-line") ? 'x' : ' ', sizeof piece);
    if (is("flood-events"))
        for (size_t i = 0; i + 32 < sizeof piece; i += 32)
            memcpy(piece + i, "{\"event\":\"X\",\"data\":{\"a\":[1,2]}}\n", 32 + 1);
    for (;;)
        if (is("flood-events"))
            say("{\"event\":\"X\",\"data\":{\"a\":[1,2]}}\n");
        else if (send(CORDON_VMM_QMP, piece, sizeof piece, MSG_NOSIGNAL) < 0)
            _exit(9);
}

static void begin(void)
{
    if (is("dies-start")) {
        (void)fprintf(stderr, "qemu: \033[31mno such machine\n");
        _exit(1);
    }
    if (is("mute"))
        (void)pause();
    if (strncmp(scenario, "flood", 5) == 0)
        flood();
    if (is("garbage"))
        say("SSH-2.0-qemu\n");
    say("{\"QMP\":{\"version\":{\"qemu\":{\"micro\":22,\"minor\":2,\"major\":7}},\"capabilities\":[]}}\n");
    if (is("dies-greeting")) {
        (void)signal(SIGSEGV, SIG_DFL); /* the sanitizers have a handler */
        (void)raise(SIGSEGV);
    }
    if (!clone_of_one && slow)
        (void)usleep(1500000);
    if (!clone_of_one)
        guest_ready();
}

int main(int argc, char **argv)
{
    char line[8192];
    size_t have = 0;
    for (int i = 1; i < argc; i++) {
        const char *at = strstr(argv[i], "cordon.language=");
        if (at)
            (void)sscanf(at, "cordon.language=%31[a-z-]", scenario);
        slow = slow || strstr(argv[i], "fake.slow");
        kept = kept || strstr(argv[i], "cordon.mode=kept");
        at = strstr(argv[i], "fake.mute=");
        if (at)
            (void)sscanf(at, "fake.mute=%u", &mute);
        clone_of_one = clone_of_one || strcmp(argv[i], "-incoming") == 0;
    }
    const char *arenas = getenv("MALLOC_ARENA_MAX");
    if (*scenario && (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1 || !arenas || strcmp(arenas, "1") != 0)) {
        static const char words[] = "more memory than a machine that waits is to take";
        (void)!write(STDERR_FILENO, words, sizeof words - 1); /* the exit status says it, too */
        return 8;
    }
    stopped = clone_of_one;
    begin();
    for (;;) {
        struct pollfd fds[] = {{.fd = CORDON_VMM_QMP, .events = POLLIN},
                               {.fd = stopped || deaf ? -1 : CORDON_VMM_GUEST, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0)
            return 9;
        if (fds[1].revents && leased)
            guest_runs();
        else if (fds[1].revents)
            guest_lease();
        if (!fds[0].revents)
            continue;
        size_t given = 1;
        int fd = -1;
        ssize_t n = cordon_recv_fds(CORDON_VMM_QMP, line + have, sizeof line - 1 - have, &fd, &given, 0);
        given_fd = fd >= 0 ? fd : given_fd;
        if (n <= 0)
            break;
        have += (size_t)n;
        line[have] = '\0';
        for (char *end; (end = strchr(line, '\n'));) {
            *end = '\0';
            answer(line);
            have -= (size_t)(end + 1 - line);
            memmove(line, end + 1, have + 1);
        }
    }
    return 0;
}
