/* SPDX-License-Identifier: Apache-2.0 */
#include "agent_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent_path.h"
#include "base/clock.h"
#include "base/fd.h"
#include "isolate/filter.h"

#define AGENT_UID 65533
#define CODE_UID 1000

/* A driver that runs the job's code with a way to write on the channel. */
static const char python_driver[] = "import os, struct, sys\n"
                                    "def read(n):\n"
                                    "    data = b''\n"
                                    "    while len(data) < n:\n"
                                    "        got = os.read(3, n - len(data))\n"
                                    "        if not got: os._exit(0)\n"
                                    "        data += got\n"
                                    "    return data\n"
                                    "def frame(kind, payload=b''):\n"
                                    "    os.write(3, struct.pack('<BBHI', kind, 0, 0, len(payload)) + payload)\n"
                                    "def leave(code):\n"
                                    "    sys.stdout.flush(); sys.stderr.flush()\n"
                                    "    frame(67, struct.pack('<i', code))\n"
                                    "    while True: os.read(3, 1) or os._exit(9)\n"
                                    "os.write(4, b'1')\n"
                                    "os.close(4)\n"
                                    "payload = read(struct.unpack('<BBHI', read(8))[3])\n"
                                    "at = 0\n"
                                    "while at < len(payload):\n"
                                    "    tag, n = struct.unpack_from('<BI', payload, at)\n"
                                    "    if tag == 2: code = payload[at + 5:at + 5 + n]\n"
                                    "    at += 5 + n\n"
                                    "exec(compile(code, 'main.py', 'exec'), globals())\n"
                                    "sys.stdout.flush(); sys.stderr.flush()\n";

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(cordon_write_full(fd, text, strlen(text)), 0);
    (void)close(fd);
}

static void drop_to_agent(void)
{
    static const int kept[] = {CAP_KILL, CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_SYS_ADMIN, CAP_CHOWN, CAP_FOWNER};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
        setresgid(AGENT_UID, AGENT_UID, AGENT_UID) < 0 || setresuid(AGENT_UID, AGENT_UID, AGENT_UID) < 0)
        _exit(120);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        data[kept[i] / 32].permitted |= 1u << (kept[i] % 32);
    for (size_t i = 0; i < 2; i++)
        data[i].effective = data[i].inheritable = data[i].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        _exit(121);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kept[i], 0, 0) < 0)
            _exit(122);
    }
}

static void exec_agent(const struct agent_options *options, const char *dir)
{
    char workdir[96], driver[128], code[2][32];
    bool bash = strcmp(options->language, "bash") == 0;
    (void)snprintf(workdir, sizeof workdir, "workdir=%s/home", dir);
    (void)snprintf(driver, sizeof driver, "driver=%s/driver.py", dir);
    (void)snprintf(code[0], sizeof code[0], "code_uid=%d", CODE_UID);
    (void)snprintf(code[1], sizeof code[1], "code_gid=%d", CODE_UID);
    (void)execle(CORDON_TEST_AGENT, "cordon-agent", "spawn", bash ? "language=bash" : "language=python", workdir,
                 driver, code[0], code[1], bash ? "interpreter=/bin/bash" : "interpreter=/usr/bin/python3",
                 options->isolated ? "isolated=1" : "isolated=0", "memory=268435456", "cpus=1", NULL, (char *[]){NULL});
    _exit(123);
}

static void place(const int fds[4])
{
    int high[4];
    for (int i = 0; i < 4; i++)
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < 4; i++) {
        static const int to[4] = {0, CORDON_AGENT_CHANNEL, CORDON_AGENT_READY, CORDON_AGENT_FILTER};
        if (dup2(high[i], to[i]) < 0)
            _exit(124);
    }
    (void)dup2(0, 1);
    (void)syscall(SYS_close_range, CORDON_AGENT_FILTER + 1, ~0u, 0);
}

/* A pid, mount and user namespace: as much of a guest as the agent needs. */
static void enter_namespaces(const struct agent_options *options, const char *dir, const int fds[4])
{
    int go[2], status;
    if (pipe(go) < 0)
        _exit(110);
    pid_t parent = getpid(), mapper = fork();
    if (mapper == 0) {
        char path[64], byte;
        (void)close(go[1]);
        (void)!read(go[0], &byte, 1);
        (void)snprintf(path, sizeof path, "/proc/%d/gid_map", (int)parent);
        int r = cordon_write_file(AT_FDCWD, path, "0 0 65536");
        (void)snprintf(path, sizeof path, "/proc/%d/uid_map", (int)parent);
        _exit(r < 0 || cordon_write_file(AT_FDCWD, path, "0 0 65536") < 0);
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) < 0)
        _exit(111);
    (void)close(go[1]);
    if (waitpid(mapper, &status, 0) < 0 || status != 0)
        _exit(112);
    pid_t one = fork();
    if (one == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
            _exit(113);
        place(fds);
        drop_to_agent();
        exec_agent(options, dir);
    }
    (void)syscall(SYS_close_range, 3, ~0u, 0); /* or the channel would stay open */
    while (waitpid(one, &status, 0) < 0 && errno == EINTR)
        continue;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 119);
}

void agent_guest_start(struct agent_guest *guest, const struct agent_options *options)
{
    char path[96];
    int channel[2], ready[2];
    *guest = (struct agent_guest){.in = CORDON_BUF_INIT(64u << 20)};
    (void)snprintf(guest->dir, sizeof guest->dir, "/tmp/cordon-agent-XXXXXX");
    assert_non_null(mkdtemp(guest->dir));
    assert_int_equal(chmod(guest->dir, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/driver.py", guest->dir);
    write_text(path, options->driver ? options->driver : python_driver);
    (void)snprintf(path, sizeof path, "%s/home", guest->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(options->isolated ? chown(path, CODE_UID, CODE_UID) : 0, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int filter = options->isolated ? cordon_filter_code(NULL) : memfd_create("none", MFD_CLOEXEC);
    assert_true(null >= 0 && filter >= 0);
    const int fds[4] = {null, channel[1], ready[1], filter};
    guest->pid = fork();
    assert_true(guest->pid >= 0);
    if (guest->pid == 0) {
        if (options->isolated)
            enter_namespaces(options, guest->dir, fds);
        place(fds);
        exec_agent(options, guest->dir);
    }
    guest->channel = channel[0];
    (void)close(channel[1]);
    (void)close(ready[1]);
    (void)close(null);
    (void)close(filter);
    struct pollfd parked = {.fd = ready[0], .events = POLLIN};
    char byte[2];
    assert_int_equal(poll(&parked, 1, 60000), 1); /* one byte when the interpreter waits, then its end */
    assert_int_equal(read(ready[0], byte, sizeof byte), 1);
    assert_int_equal(poll(&parked, 1, 60000), 1);
    assert_int_equal(read(ready[0], byte, sizeof byte), 0);
    (void)close(ready[0]);
}

static void remove_tree(const char *dir)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/rm", "rm", "-rf", dir, NULL);
        _exit(1);
    }
    (void)waitpid(pid, NULL, 0);
}

void agent_guest_stop(struct agent_guest *guest)
{
    int status;
    (void)close(guest->channel); /* which ends the guest */
    for (int i = 0; i < 60000; i++) {
        pid_t pid = waitpid(guest->pid, &status, WNOHANG);
        if (pid == guest->pid) {
            remove_tree(guest->dir);
            cordon_buf_done(&guest->in);
            return;
        }
        (void)usleep(1000);
    }
    (void)kill(guest->pid, SIGKILL);
    fail_msg("the agent did not end with its channel");
}

void agent_guest_send(struct agent_guest *guest, uint8_t type, const void *payload, uint32_t length)
{
    struct cordon_buf buf = CORDON_BUF_INIT(32u << 20);
    assert_int_equal(cordon_frame_put(&buf, type, 1, payload, length), 0);
    for (size_t at = 0; at < buf.size;) {
        ssize_t n = send(guest->channel, buf.data + at, buf.size - at, MSG_NOSIGNAL);
        assert_true(n > 0);
        at += (size_t)n;
    }
    cordon_buf_done(&buf);
}

void agent_guest_kill(struct agent_guest *guest, uint32_t signal)
{
    char bytes[4] = {(char)signal};
    agent_guest_send(guest, CORDON_FRAME_KILL, bytes, 4);
}

void agent_guest_put(struct agent_guest *guest, const char *path, const char *data, size_t size, uint32_t mode)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1u << 16);
    (void)cordon_field_put(&buf, CORDON_FIELD_PATH, path, (uint32_t)strlen(path));
    assert_int_equal(cordon_field_put_u32(&buf, CORDON_FIELD_MODE, mode), 0);
    agent_guest_send(guest, CORDON_FRAME_FILE_OPEN, buf.data, (uint32_t)buf.size);
    for (size_t at = 0; at < size; at += CORDON_FRAME_DATA_MAX) {
        size_t n = size - at < CORDON_FRAME_DATA_MAX ? size - at : CORDON_FRAME_DATA_MAX;
        agent_guest_send(guest, CORDON_FRAME_FILE_DATA, data + at, (uint32_t)n);
    }
    agent_guest_send(guest, CORDON_FRAME_FILE_CLOSE, NULL, 0);
    cordon_buf_done(&buf);
}

void agent_guest_exec(struct agent_guest *guest, const struct agent_options *options, const char *code)
{
    struct cordon_buf buf = CORDON_BUF_INIT(CORDON_FRAME_MAX);
    const struct cordon_exec_limits limits = {
        .stdout_bytes = options->stdout_bytes ? options->stdout_bytes : 1u << 30,
        .stderr_bytes = 1u << 30,
        .output_kill_bytes = options->output_kill_bytes,
        .open_files = 256,
        .cpu_percent = 100,
    };
    (void)cordon_field_put(&buf, CORDON_FIELD_LANGUAGE, options->language, (uint32_t)strlen(options->language));
    (void)cordon_field_put(&buf, CORDON_FIELD_CODE, code, (uint32_t)strlen(code));
    if (options->arguments)
        (void)cordon_field_put(&buf, CORDON_FIELD_ARGUMENTS, options->arguments, (uint32_t)strlen(options->arguments));
    (void)cordon_field_put(&buf, CORDON_FIELD_ENV, "GREETING=hello", 14);
    if (options->suffixes)
        (void)cordon_field_put(&buf, CORDON_FIELD_SUFFIXES, options->suffixes, (uint32_t)strlen(options->suffixes));
    (void)cordon_exec_limits_put(&buf, &limits);
    assert_int_equal(cordon_field_put_u32(&buf, CORDON_FIELD_FLAGS, options->flags), 0);
    agent_guest_send(guest, CORDON_FRAME_EXEC, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
}

int agent_guest_next(struct agent_guest *guest, struct cordon_frame *frame, int timeout_ms)
{
    for (;;) {
        int64_t n = cordon_frame_parse(guest->in.data + guest->at, guest->in.size - guest->at, 1, frame);
        assert_true(n >= 0);
        if (n > 0) {
            guest->at += (size_t)n;
            return 1;
        }
        cordon_buf_consume(&guest->in, guest->at);
        guest->at = 0;
        struct pollfd fd = {.fd = guest->channel, .events = POLLIN};
        if (poll(&fd, 1, timeout_ms) == 0)
            return 0;
        char *to = cordon_buf_reserve(&guest->in, 1u << 17);
        assert_non_null(to);
        ssize_t got = read(guest->channel, to, 1u << 17);
        if (got <= 0)
            return -1;
        guest->in.size += (size_t)got;
    }
}

static void grant(struct agent_guest *guest, int stream, uint32_t bytes)
{
    char payload[5] = {(char)stream};
    for (int i = 0; i < 4; i++)
        payload[i + 1] = (char)(bytes >> (8 * i));
    agent_guest_send(guest, CORDON_FRAME_CREDIT, payload, sizeof payload);
}

static void add_reason(struct agent_run *run, const struct cordon_frame *frame)
{
    struct cordon_field field;
    size_t at = 0;
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_REASON || field.tag == CORDON_FIELD_PATH)
            (void)cordon_buf_append(&run->error, field.data, field.length);
    }
}

void agent_guest_finish(struct agent_guest *guest, const struct agent_options *options, struct agent_run *run)
{
    uint64_t start = cordon_now_us();
    struct cordon_frame frame;
    memset(run, 0, sizeof *run);
    run->out[0].max = run->out[1].max = run->result.max = run->error.max = 64u << 20;
    while (!run->exited && agent_guest_next(guest, &frame, 60000) == 1) {
        if (frame.type == CORDON_FRAME_STARTED)
            run->started = 1;
        if (frame.type == CORDON_FRAME_STDOUT || frame.type == CORDON_FRAME_STDERR) {
            int which = frame.type == CORDON_FRAME_STDERR;
            (void)cordon_buf_append(&run->out[which], frame.payload, frame.length);
            if (!options->withhold_credit)
                grant(guest, which + 1, frame.length);
        }
        if (frame.type == CORDON_FRAME_RESULT)
            (void)cordon_buf_append(&run->result, frame.payload, frame.length);
        if (frame.type == CORDON_FRAME_RESULT_ERROR)
            (void)cordon_buf_append(&run->error, frame.payload, frame.length);
        if (frame.type == CORDON_FRAME_ERROR) {
            add_reason(run, &frame);
            break;
        }
        if (frame.type == CORDON_FRAME_EXIT) {
            assert_int_equal(cordon_exit_parse(&frame, &run->exit), 0);
            run->exited = 1;
        }
    }
    run->took_us = cordon_now_us() - start;
}

void agent_guest_hear(struct agent_guest *guest, const char *text)
{
    struct cordon_frame frame;
    size_t heard = 0, length = strlen(text);
    while (heard < length) {
        assert_int_equal(agent_guest_next(guest, &frame, 60000), 1);
        if (frame.type != CORDON_FRAME_STDOUT)
            continue;
        assert_true(frame.length <= length - heard);
        assert_memory_equal(frame.payload, text + heard, frame.length);
        heard += frame.length;
        grant(guest, 1, frame.length);
    }
}

void agent_guest_run(struct agent_guest *guest, const struct agent_options *options, const char *code,
                     struct agent_run *run)
{
    agent_guest_start(guest, options);
    agent_guest_exec(guest, options, code);
    agent_guest_finish(guest, options, run);
}

void agent_run_done(struct agent_run *run)
{
    cordon_buf_done(&run->out[0]);
    cordon_buf_done(&run->out[1]);
    cordon_buf_done(&run->result);
    cordon_buf_done(&run->error);
}
