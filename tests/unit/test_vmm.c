/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vmm with a QEMU that misbehaves at every step (fake_qemu.c): what the warden is told, in which words, and that
 * nothing is left running. And its parsers.
 */
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "proto/vm.h"
#include "supervisor/roles.h"
#include "vmm/command.h"
#include "vmm/machine.h"
#include "vmm/qmp.h"
#include "vmm/wire.h"

#define LONG_US 20000000u
#define SHORT_US 300000u

struct trial {
    pid_t pid;
    int control, channel;
};

/* In a child with one thread: descriptors to their places, then the role. */
static void become_vmm(int control, int channel, int guest)
{
    int sources[CORDON_VMM__END];
    for (int fd = CORDON_VMM_CONTROL; fd < CORDON_VMM__END; fd++) {
        int from = fd == CORDON_VMM_CONTROL ? control : fd == CORDON_VMM_CHANNEL ? channel : guest;
        sources[fd] = fcntl(fd > CORDON_VMM_GUEST ? 2 : from, F_DUPFD, 100);
    }
    for (int fd = CORDON_VMM_CONTROL; fd < CORDON_VMM__END; fd++)
        if (dup2(sources[fd], fd) < 0)
            _exit(99);
    (void)close_range(CORDON_VMM__END, ~0u, 0);
    char name[] = "vmm", *argv[] = {name, NULL};
    _exit(cordon_vmm_main(1, argv));
}

static struct trial start(const char *scenario, enum cordon_vmm_make make, uint64_t boot_us)
{
    int control[2], channel[2];
    struct cordon_vmm_start order = {.version = CORDON_VMM_VERSION,
                                     .make = make,
                                     .accel = CORDON_VMM_TCG,
                                     .memory_mb = 128,
                                     .boot_us = boot_us,
                                     .disk_mb = 64,
                                     .disk_inodes = 1024};
    (void)snprintf(order.language, sizeof order.language, "%s", scenario);
    (void)snprintf(order.qemu, sizeof order.qemu, "%s", FAKE_QEMU);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    struct trial trial = {.pid = fork(), .control = control[0], .channel = channel[0]};
    if (trial.pid == 0)
        become_vmm(control[1], channel[0], channel[1]);
    assert_true(trial.pid > 0);
    (void)close(control[1]);
    (void)close(channel[1]);
    assert_int_equal(cordon_send_fds(trial.control, &order, sizeof order, NULL, 0, 0), sizeof order);
    return trial;
}

static struct cordon_vmm_report next(const struct trial *trial)
{
    struct cordon_vmm_report report;
    assert_int_equal(cordon_recv_fds(trial->control, &report, sizeof report, NULL, NULL, 0), sizeof report);
    assert_int_equal(report.version, CORDON_VMM_VERSION);
    assert_non_null(memchr(report.why, 0, sizeof report.why));
    for (const char *p = report.why; *p; p++)
        assert_in_range(*p, ' ', '~');
    return report;
}

/* Nothing of it is left: its children held the other ends. */
static void end(struct trial *trial)
{
    char byte;
    cordon_close(&trial->control);
    assert_int_equal(waitpid(trial->pid, NULL, 0), trial->pid);
    while (recv(trial->channel, &byte, 1, 0) > 0) /* the guest's end closes with QEMU */
        ;
    cordon_close(&trial->channel);
}

static struct cordon_vmm_report order(const struct trial *trial, enum cordon_vmm_verb verb)
{
    const struct cordon_vmm_order order = {.version = CORDON_VMM_VERSION,
                                           .verb = verb,
                                           .seq = 7,
                                           .memory_bytes = 1 << 27,
                                           .guest = "abcdefghij0123456789"};
    assert_int_equal(cordon_send_fds(trial->control, &order, sizeof order, NULL, 0, 0), sizeof order);
    return next(trial);
}

/* --- what goes well --- */

static void test_clone(void **state)
{
    char hello[CORDON_FRAME_HEADER + 4];
    struct trial trial = start("ok", CORDON_VMM_CLONE, LONG_US);
    struct cordon_vmm_report report = next(&trial);
    assert_string_equal(report.why, "");
    assert_int_equal(report.what, CORDON_VMM_READY);
    assert_true(report.started_us && report.ready_us >= report.started_us);
    report = order(&trial, CORDON_VMM_LEASE);
    assert_int_equal(report.what, CORDON_VMM_DONE);
    assert_int_equal(report.seq, 7);
    assert_true(report.lease_us >= report.cont_us);
    /* What follows VM_LEASED is ours. */
    assert_int_equal(recv(trial.channel, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    assert_int_equal(hello[0], CORDON_FRAME_HELLO);
    assert_int_equal(order(&trial, CORDON_VMM_PAUSE).what, CORDON_VMM_DONE);
    end(&trial);
}

/* As often as is wanted, and the lease is as before. */
static void test_rehearsal(void **state)
{
    char hello[CORDON_FRAME_HEADER + 4];
    struct trial trial = start("ok", CORDON_VMM_CLONE, LONG_US);
    assert_int_equal(next(&trial).what, CORDON_VMM_READY);
    for (int i = 0; i < 2; i++) {
        struct cordon_vmm_report report = order(&trial, CORDON_VMM_REHEARSE);
        assert_string_equal(report.why, "");
        assert_int_equal(report.what, CORDON_VMM_DONE);
    }
    assert_int_equal(order(&trial, CORDON_VMM_LEASE).what, CORDON_VMM_DONE);
    assert_int_equal(recv(trial.channel, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    assert_int_equal(hello[0], CORDON_FRAME_HELLO);
    struct cordon_vmm_report report = order(&trial, CORDON_VMM_REHEARSE); /* its user would be disturbed */
    assert_int_equal(report.what, CORDON_VMM_FAILED);
    assert_int_equal(report.status, -EALREADY);
    end(&trial);
}

static void test_bad_rehearsal(void **state)
{
    static const struct {
        const char *scenario, *words;
    } rows[] = {
        {"rehearsal-dies", "killed by signal 9 (SIGKILL)"},
        {"rehearsal-lies", "of another version"}, /* it says that it has its lease */
        {"rehearsal-twice", "said more than"},    /* its second answer would be the lease's */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial trial = start(rows[i].scenario, CORDON_VMM_CLONE, LONG_US);
        assert_int_equal(next(&trial).what, CORDON_VMM_READY);
        struct cordon_vmm_report report = order(&trial, CORDON_VMM_REHEARSE);
        assert_int_equal(report.what, CORDON_VMM_FAILED);
        if (!strstr(report.why, rows[i].words))
            fail_msg("%s: \"%s\" has no \"%s\"", rows[i].scenario, report.why, rows[i].words);
        end(&trial);
    }
}

static void test_second_lease(void **state)
{
    struct trial trial = start("ok", CORDON_VMM_CLONE, LONG_US);
    assert_int_equal(next(&trial).what, CORDON_VMM_READY);
    assert_int_equal(order(&trial, CORDON_VMM_LEASE).what, CORDON_VMM_DONE);
    struct cordon_vmm_report report = order(&trial, CORDON_VMM_LEASE);
    assert_int_equal(report.what, CORDON_VMM_FAILED);
    assert_int_equal(report.status, -EALREADY);
    end(&trial);
}

static void test_template(void **state)
{
    struct trial trial = start("ok", CORDON_VMM_TEMPLATE, LONG_US);
    struct cordon_vmm_report report = next(&trial);
    assert_string_equal(report.why, "");
    assert_int_equal(report.what, CORDON_VMM_DONE);
    end(&trial);
}

static void test_cold(void **state)
{
    struct trial trial = start("cold-lease", CORDON_VMM_COLD, LONG_US);
    assert_int_equal(next(&trial).what, CORDON_VMM_READY);
    assert_int_equal(order(&trial, CORDON_VMM_LEASE).what, CORDON_VMM_DONE);
    end(&trial);
}

/* --- what does not: before it is ready --- */

/* One that ran out of time before it had come so far as it should is tried again with twice the time: on a busy host
 * even a first word takes a while. */
static struct cordon_vmm_report never_ready(const char *scenario, enum cordon_vmm_make make, uint64_t boot_us,
                                            const char *words)
{
    for (;; boot_us *= 2) {
        struct trial trial = start(scenario, make, boot_us);
        struct cordon_vmm_report report = next(&trial);
        end(&trial);
        if (strstr(report.why, words) || report.status != -ETIMEDOUT || boot_us >= LONG_US)
            return report;
    }
}

static void test_never_ready(void **state)
{
    static const struct {
        const char *scenario;
        enum cordon_vmm_make make;
        uint64_t boot_us;
        int status;
        const char *words;
    } rows[] = {
        {"dies-start", CORDON_VMM_COLD, LONG_US, -ECHILD, "ended with status 1, its last words: qemu:  [31mno such"},
        {"dies-greeting", CORDON_VMM_COLD, LONG_US, -ECHILD, "killed by signal 11 (SIGSEGV)"},
        {"mute", CORDON_VMM_COLD, SHORT_US, -ETIMEDOUT, "did not greet in time (it has had "},
        {"flood-events", CORDON_VMM_COLD, SHORT_US, -ETIMEDOUT, "did not greet in time"},
        {"flood-line", CORDON_VMM_COLD, LONG_US, -EBADMSG, "a line is longer than 64 KiB"},
        {"garbage", CORDON_VMM_COLD, LONG_US, -EBADMSG, "a line is no JSON object"},
        {"stale-id", CORDON_VMM_COLD, SHORT_US, -ETIMEDOUT, "did not qmp_capabilities in time"},
        {"guest-mute", CORDON_VMM_COLD, SHORT_US, -ETIMEDOUT, "did not bring its guest to an answer in time"},
        {"guest-halted", CORDON_VMM_COLD, LONG_US, -ETIMEDOUT, "stands still: it has lost its clock"},
        {"guest-lies", CORDON_VMM_COLD, LONG_US, -EBADMSG, "not its turn"},
        {"guest-huge", CORDON_VMM_COLD, LONG_US, -EBADMSG, "not its turn"},
        {"guest-old", CORDON_VMM_COLD, LONG_US, -EBADMSG, "of another version"},
        {"guest-error", CORDON_VMM_COLD, LONG_US, -EBADMSG, "can not start what is to wait"},
        {"refuses", CORDON_VMM_CLONE, LONG_US, -EIO, "QEMU refused migrate-incoming: no ? way"},
        {"load-fails", CORDON_VMM_CLONE, LONG_US, -EIO, "could not load its template"},
        {"load-dies", CORDON_VMM_CLONE, LONG_US, -ECHILD, "QEMU ended with status 3"},
        {"load-fails", CORDON_VMM_TEMPLATE, LONG_US, -EIO, "could not write its template"},
        {"quit-badly", CORDON_VMM_TEMPLATE, LONG_US, -ECHILD, "QEMU ended with status 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_vmm_report report = never_ready(rows[i].scenario, rows[i].make, rows[i].boot_us, rows[i].words);
        if (!strstr(report.why, rows[i].words))
            fail_msg("%s: \"%s\" (%d) has no \"%s\"", rows[i].scenario, report.why, report.status, rows[i].words);
        assert_int_equal(report.what, CORDON_VMM_FAILED);
        assert_int_equal(report.status, rows[i].status);
    }
}

/* --- later --- */

static void test_bad_lease(void **state)
{
    static const struct {
        const char *scenario, *words;
    } rows[] = {
        {"lease-dies", "killed by signal 9 (SIGKILL)"},
        {"lease-lies", "the guest did not take its lease"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial trial = start(rows[i].scenario, CORDON_VMM_CLONE, LONG_US);
        assert_int_equal(next(&trial).what, CORDON_VMM_READY);
        struct cordon_vmm_report report = order(&trial, CORDON_VMM_LEASE);
        assert_int_equal(report.what, CORDON_VMM_FAILED);
        if (!strstr(report.why, rows[i].words))
            fail_msg("%s: \"%s\" has no \"%s\"", rows[i].scenario, report.why, rows[i].words);
        end(&trial);
    }
}

static void test_ends_by_itself(void **state)
{
    static const struct {
        const char *scenario, *words;
    } rows[] = {{"panics", "the guest's kernel ended (guest-panic)"}, {"dies-later", "QEMU ended with status 5"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trial trial = start(rows[i].scenario, CORDON_VMM_CLONE, LONG_US);
        assert_int_equal(next(&trial).what, CORDON_VMM_READY);
        const struct cordon_vmm_order lease = {
            .version = CORDON_VMM_VERSION, .verb = CORDON_VMM_LEASE, .guest = "a", .seq = 1};
        assert_int_equal(cordon_send_fds(trial.control, &lease, sizeof lease, NULL, 0, 0), sizeof lease);
        struct cordon_vmm_report report = next(&trial);
        while (report.what == CORDON_VMM_DONE) /* unless it ended before its lease was answered */
            report = next(&trial);
        if (!strstr(report.why, rows[i].words))
            fail_msg("%s: \"%s\" has no \"%s\"", rows[i].scenario, report.why, rows[i].words);
        end(&trial);
    }
}

static void test_killed(void **state)
{
    struct trial trial = start("ok", CORDON_VMM_CLONE, LONG_US);
    assert_int_equal(next(&trial).what, CORDON_VMM_READY);
    assert_int_equal(kill(trial.pid, SIGKILL), 0);
    end(&trial); /* QEMU with it */
}

static void test_other_version(void **state)
{
    int control[2], channel[2];
    const struct cordon_vmm_start order = {.version = CORDON_VMM_VERSION + 1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel), 0);
    struct trial trial = {.pid = fork(), .control = control[0], .channel = channel[0]};
    if (trial.pid == 0)
        become_vmm(control[1], channel[0], channel[1]);
    (void)close(control[1]);
    (void)close(channel[1]);
    assert_int_equal(cordon_send_fds(trial.control, &order, sizeof order, NULL, 0, 0), sizeof order);
    struct cordon_vmm_report report = next(&trial);
    assert_int_equal(report.what, CORDON_VMM_FAILED);
    assert_int_equal(report.status, -EPROTO);
    end(&trial);
}

/* --- parsers, and the command line --- */

static struct cordon_qmp_message parse(const char *text)
{
    struct cordon_qmp_message message;
    size_t used;
    cordon_qmp_next(text, strlen(text), &used, &message);
    return message;
}

static void test_qmp(void **state)
{
    struct cordon_qmp_message message = parse("{\"return\":{\"status\":\"paused\"},\"id\":12}\r\n");
    assert_int_equal(message.kind, CORDON_QMP_RETURN);
    assert_int_equal(message.id, 12);
    assert_string_equal(message.status, "paused");
    assert_int_equal(parse("{\"return\":{},\"id\":\"12\"}\n").id, -1);
    assert_int_equal(parse("{\"return\":{},\"id\":-12}\n").id, -1);
    assert_int_equal(parse("{\"return\":{}").kind, CORDON_QMP_MORE);
    assert_int_equal(parse("").kind, CORDON_QMP_MORE);
    assert_int_equal(parse("[]\n").kind, CORDON_QMP_VIOLATION);
    assert_int_equal(parse("\n").kind, CORDON_QMP_VIOLATION);
    assert_int_equal(parse("{}\n").kind, CORDON_QMP_OTHER);
    message = parse("{\"QMP\":{\"version\":{\"qemu\":{\"micro\":1,\"minor\":\"x\",\"major\":9}}}}\n");
    assert_int_equal(message.kind, CORDON_QMP_GREETING);
    assert_string_equal(message.text, "9.0.1");
    message = parse("{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"guest\\u0000-reset\"}}\n");
    assert_int_equal(message.kind, CORDON_QMP_EVENT);
    assert_string_equal(message.name, "SHUTDOWN");
    assert_string_equal(message.status, "guest"); /* cut at the NUL */
}

static const char *after(const struct cordon_vmm_command *command, const char *option, size_t nth)
{
    for (size_t i = 0; command->argv[i]; i++)
        if (strcmp(command->argv[i], option) == 0 && nth-- == 0)
            return command->argv[i + 1];
    return NULL;
}

static void test_command(void **state)
{
    struct cordon_vmm_start start = {.make = CORDON_VMM_CLONE,
                                     .accel = CORDON_VMM_TCG,
                                     .memory_mb = 192,
                                     .acpi = 1,
                                     .language = "python",
                                     .append = "tsc=reliable",
                                     .qemu = "/usr/bin/qemu"};
    struct cordon_vmm_command command;
    assert_int_equal(cordon_vmm_command(&start, &command), 0);
    assert_string_equal(command.argv[0], "/usr/bin/qemu");
    assert_string_equal(after(&command, "-m", 0), "192M");
    assert_string_equal(after(&command, "-incoming", 0), "defer");
    assert_non_null(strstr(after(&command, "-M", 0), "acpi=on"));
    assert_non_null(strstr(after(&command, "-object", 0), "share=off"));
    assert_non_null(strstr(after(&command, "-append", 0), "cordon.mode=run cordon.language=python"));
    assert_non_null(strstr(after(&command, "-append", 0), "tsc=reliable"));
    assert_non_null(strstr(after(&command, "-sandbox", 0), "spawn=deny"));
    assert_null(after(&command, "-netdev", 0));
    assert_non_null(strstr(after(&command, "-append", 0), "cordon.network=0 cordon.once=0"));
    cordon_vmm_command_done(&command);
    start.network = 1;
    assert_int_equal(cordon_vmm_command(&start, &command), 0);
    assert_string_equal(after(&command, "-netdev", 0), "tap,id=network,fd=11");
    assert_non_null(strstr(after(&command, "-append", 0), "cordon.network=1"));
    cordon_vmm_command_done(&command);
    start.make = CORDON_VMM_COLD; /* of which nothing is made */
    assert_int_equal(cordon_vmm_command(&start, &command), 0);
    assert_non_null(strstr(after(&command, "-append", 0), "cordon.once=1"));
    cordon_vmm_command_done(&command);
    start.make = CORDON_VMM_TEMPLATE;
    start.kept = 1;
    start.accel = CORDON_VMM_KVM;
    assert_int_equal(cordon_vmm_command(&start, &command), 0);
    assert_null(after(&command, "-incoming", 0));
    assert_string_equal(after(&command, "-accel", 0), "kvm");
    assert_null(after(&command, "-accel", 1));
    assert_non_null(strstr(after(&command, "-object", 0), "share=on"));
    assert_non_null(strstr(after(&command, "-append", 0), "cordon.mode=kept cordon.language=none"));
    cordon_vmm_command_done(&command);
}

static void test_frame_rest(void **state)
{
    struct cordon_buf frame = CORDON_BUF_INIT(1024);
    const struct cordon_vm_ready ready = {0};
    assert_int_equal(cordon_machine_frame_rest("", 0), CORDON_FRAME_HEADER);
    cordon_vm_ready_put(&frame, &ready);
    for (size_t i = 0; i < frame.size; i++) {
        ssize_t rest = cordon_machine_frame_rest(frame.data, i);
        assert_true(rest > 0 && i + (size_t)rest <= frame.size);
    }
    assert_int_equal(cordon_machine_frame_rest(frame.data, frame.size), 0);
    assert_int_equal(cordon_machine_frame_rest("\x42", 1), -EBADMSG);
    assert_int_equal(cordon_machine_frame_rest("\x78\0\0\0\0\4\0\0", 8), -EBADMSG);
    cordon_buf_done(&frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clone),          cmocka_unit_test(test_rehearsal),
        cmocka_unit_test(test_bad_rehearsal),  cmocka_unit_test(test_second_lease),
        cmocka_unit_test(test_template),       cmocka_unit_test(test_cold),
        cmocka_unit_test(test_never_ready),    cmocka_unit_test(test_bad_lease),
        cmocka_unit_test(test_ends_by_itself), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_other_version),  cmocka_unit_test(test_qmp),
        cmocka_unit_test(test_command),        cmocka_unit_test(test_frame_rest),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
