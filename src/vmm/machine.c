/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a VM's life, each from top to bottom.
 *
 * A template is booted with its memory in a file, stopped when its guest says that it waits, and only its devices'
 * state is written: the memory is in its file already (x-ignore-shared). A clone maps that file privately and loads the
 * state; it stands still until its lease, so that all it costs is memory. The lease lets it run and gives the guest
 * what clones must not share: randomness, the time, a name. Before that it may rehearse: it runs until its guest has
 * done what a lease makes it do. Then QEMU has translated that code, which is most of a first lease's time, and the
 * guest's pages are its own. Nothing of it lasts; what counts is given with the lease.
 */
#include "vmm/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "isolate/filter.h"
#include "proto/vm.h"
#include "vmm/command.h"

#define ANSWER_US 30000000u               /* to a command that does nothing large */
#define FROM_STATE "{\"uri\":\"fd:10\"}"  /* CORDON_VMM_STATE, which QEMU inherits */
#define TO_STATE "{\"uri\":\"fd:state\"}" /* where it writes it wants a name */
#define REGISTERS "{\"command-line\":\"info registers\"}"
#define LOOKS 120u       /* at the CPU of a guest that boots; of these */
#define SETTLE_US 50000u /* from a guest's answer until it waits again, where the host lets it */
#define HALTS 12u        /* one after the other, found halted, mean that it never goes on */
#define CAPABILITIES                                                                                                   \
    "{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true},"                                          \
    "{\"capability\":\"events\",\"state\":true}]}"

/* --- starting --- */

static void limit(int what, rlim_t most)
{
    const struct rlimit both = {most, most};
    if (setrlimit(what, &both) < 0)
        _exit(124);
}

/* In the child, which has one thread: everything is allowed. */
static _Noreturn void become_qemu(const struct cordon_vmm_command *command, int null, int words, int qmp)
{
    static char arenas[] = "MALLOC_ARENA_MAX=1"; /* what its other threads keep fills what its start left free */
    char *environment[] = {arenas, NULL};
    struct cordon_error err;
    /* Of its larger areas little is used: what it translated, tables of ACPI. A page of 2 MiB is mostly empty there. */
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || dup2(null, 0) < 0 ||
        dup2(null, 1) < 0 || dup2(words, 2) < 0 || dup2(qmp, CORDON_VMM_QMP) < 0)
        _exit(124);
    (void)close(CORDON_VMM_CONTROL); /* not QEMU's */
    (void)close(CORDON_VMM_CHANNEL);
    (void)close_range(CORDON_VMM_QMP + 1, ~0u, 0); /* can't fail for such a range */
    for (int fd = CORDON_VMM_GUEST; fd <= CORDON_VMM_QMP; fd++)
        (void)fcntl(fd, F_SETFD, 0); /* one that is missing is missed by QEMU, in its own words */
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, 64);
    if (cordon_filter_qemu(&err) < 0) {
        (void)dprintf(2, "%s", err.message); /* the pipe is empty: it takes that */
        _exit(124);
    }
    (void)execve(command->argv[0], command->argv, environment);
    (void)dprintf(2, "execute %s: %s", command->argv[0], strerror(errno));
    _exit(126);
}

static int start_qemu(struct cordon_machine *machine, const struct cordon_vmm_command *command)
{
    int words[2], qmp[2];
    cordon_autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(words, O_CLOEXEC) < 0)
        return cordon_machine_fail(machine, -errno, "open what QEMU needs: %s", strerror(errno));
    machine->words = words[0];
    cordon_autoclose int words_end = words[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, qmp) < 0)
        return cordon_machine_fail(machine, -errno, "make QEMU's control connection: %s", strerror(errno));
    machine->qmp = qmp[0];
    cordon_autoclose int qmp_end = qmp[1];
    machine->born_us = cordon_now_us();
    pid_t pid = fork();
    if (pid == 0)
        become_qemu(command, null, words_end, qmp_end);
    if (pid < 0)
        return cordon_machine_fail(machine, -errno, "start QEMU: %s", strerror(errno));
    machine->pid = pid;
    machine->pidfd = cordon_pidfd_open(pid);
    if (machine->pidfd < 0)
        return cordon_machine_fail(machine, machine->pidfd, "watch QEMU: %s", strerror(-machine->pidfd));
    for (int fd = CORDON_VMM_GUEST; fd < CORDON_VMM__END; fd++)
        if (fd != CORDON_VMM_STATE)
            (void)close(fd); /* QEMU's now; its end is then the guest's end */
    return 0;
}

int cordon_machine_start(struct cordon_machine *machine)
{
    struct cordon_vmm_command command;
    int r = cordon_vmm_command(&machine->start, &command);
    r = r < 0 ? cordon_machine_fail(machine, r, "make QEMU's command line: %s", strerror(-r))
              : start_qemu(machine, &command);
    cordon_vmm_command_done(&command);
    return r;
}

/* --- until it is ready --- */

static int greet(struct cordon_machine *machine, uint64_t until_us)
{
    while (!machine->version[0]) {
        int r = cordon_machine_wait(machine, CORDON_WANT_QMP, until_us, "greet");
        if (r < 0)
            return r;
    }
    int r = cordon_machine_call(machine, "qmp_capabilities", NULL, until_us);
    machine->started_us = cordon_now_us() - machine->born_us;
    return r;
}

/* The guest's own words, for people: printable, whatever it put there. */
static void read_reason(const struct cordon_frame *frame, char *to, size_t size)
{
    struct cordon_field field;
    size_t at = 0;
    *to = '\0';
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1)
        if (field.tag == CORDON_FIELD_REASON)
            (void)snprintf(to, size, "%.*s", (int)(field.length < size ? field.length : size - 1), field.data);
    for (char *p = to; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static int wait_channel(struct cordon_machine *machine, uint64_t until_us)
{
    int r = 0;
    while (r == 0 && cordon_now_us() < until_us)
        r = cordon_machine_wait(machine, CORDON_WANT_CHANNEL, until_us, NULL);
    return r;
}

/*
 * A kernel under emulation can lose its clock while it starts: it measures its timer for 100 ms, and where the host
 * lets QEMU wait for as long just then, it finds the timer too slow and does without. It has no other here, and halts
 * for ever at its first wait. So its CPU is looked at; a boot that goes on, however slowly, is not found halted each
 * time. (Hardware keeps a clock, and there QEMU tells of a CPU that waits for its disk that it is halted.)
 */
static int wait_first_word(struct cordon_machine *machine, uint64_t until_us)
{
    const uint64_t pause_us = machine->start.boot_us / LOOKS;
    if (machine->start.accel != CORDON_VMM_TCG)
        return wait_channel(machine, until_us);
    unsigned halts = 0;
    int r = 0;
    for (uint64_t now; r == 0 && (now = cordon_now_us()) < until_us;) {
        r = wait_channel(machine, now + pause_us < until_us ? now + pause_us : until_us);
        if (r == 0 && cordon_now_us() < until_us)
            r = cordon_machine_call(machine, "human-monitor-command", REGISTERS, until_us);
        halts = r == 0 && machine->reply.halted ? halts + 1 : 0;
        if (halts == HALTS)
            return cordon_machine_fail(machine, -ETIMEDOUT, "the guest's kernel stands still: it has lost its clock");
    }
    return r < 0 ? r : 0;
}

static int wait_ready(struct cordon_machine *machine, uint64_t until_us)
{
    struct cordon_frame frame;
    struct cordon_vm_ready ready;
    char reason[160];
    int r = wait_first_word(machine, until_us);
    if (r == 0)
        r = cordon_machine_frame(machine, &frame, until_us);
    if (r < 0)
        return r;
    if (cordon_vm_ready_parse(&frame, &ready) == 0 && ready.kept == machine->start.kept)
        return 0;
    if (frame.type != CORDON_FRAME_ERROR)
        return cordon_machine_fail(machine, -EBADMSG,
                                   "the guest's agent is of another version than this vmm: make the image anew (cordon "
                                   "image build)");
    read_reason(&frame, reason, sizeof reason);
    return cordon_machine_fail(machine, -EBADMSG, "the guest booted, and can not start what is to wait in it: %s",
                               reason);
}

static int wait_migrated(struct cordon_machine *machine, const char *step, uint64_t until_us)
{
    while (strcmp(machine->migration, "completed") != 0) {
        if (strcmp(machine->migration, "failed") == 0 || strcmp(machine->migration, "cancelled") == 0)
            return cordon_machine_fail(machine, -EIO, "QEMU could not %s%s%s", step, machine->tail[0] ? ": " : "",
                                       machine->tail);
        int r = cordon_machine_wait(machine, CORDON_WANT_QMP, until_us, step);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Its process is stopped, too: QEMU's main loop would go on waking for timers of the guest that are not due while the
 * guest stands, hundreds of times a second (seen where it was stopped just when it had run). */
static int stand_still(struct cordon_machine *machine)
{
    machine->stopped = true;
    if (kill(machine->pid, SIGSTOP) < 0)
        return cordon_machine_fail(machine, -errno, "stop QEMU's process: %s", strerror(errno));
    return 0;
}

static int load(struct cordon_machine *machine, uint64_t until_us)
{
    int r = cordon_machine_call(machine, "migrate-set-capabilities", CAPABILITIES, until_us);
    if (r == 0)
        r = cordon_machine_call(machine, "migrate-incoming", FROM_STATE, until_us);
    if (r == 0)
        r = wait_migrated(machine, "load its template", until_us);
    return r < 0 ? r : stand_still(machine);
}

static int end_in_order(struct cordon_machine *machine, uint64_t until_us)
{
    machine->ending = true;
    int r = cordon_machine_send(machine, "quit", NULL, -1);
    while (r >= 0)
        r = cordon_machine_wait(machine, CORDON_WANT_QMP, until_us, "end");
    if (!machine->ended_well)
        return r;
    machine->status = 0; /* it was to end */
    machine->why[0] = '\0';
    return 0;
}

static int store(struct cordon_machine *machine, uint64_t until_us)
{
    int r = cordon_machine_call(machine, "stop", NULL, until_us);
    if (r == 0)
        r = cordon_machine_call(machine, "migrate-set-capabilities", CAPABILITIES, until_us);
    if (r == 0)
        r = cordon_machine_call_fd(machine, "getfd", "{\"fdname\":\"state\"}", CORDON_VMM_STATE, until_us);
    if (r == 0)
        r = cordon_machine_call(machine, "migrate", TO_STATE, until_us);
    if (r == 0)
        r = wait_migrated(machine, "write its template", until_us);
    return r < 0 ? r : end_in_order(machine, until_us);
}

int cordon_machine_prepare(struct cordon_machine *machine)
{
    uint64_t until_us = machine->born_us + machine->start.boot_us;
    int r = greet(machine, until_us);
    if (r == 0)
        r = machine->start.make == CORDON_VMM_CLONE ? load(machine, until_us) : wait_ready(machine, until_us);
    if (r == 0)
        machine->ready_us = cordon_now_us() - machine->born_us;
    if (r == 0 && machine->start.make == CORDON_VMM_TEMPLATE)
        r = store(machine, until_us);
    return r;
}

/* --- orders --- */

static int send_lease(struct cordon_machine *machine, const struct cordon_vmm_order *order)
{
    struct cordon_buf frame = CORDON_BUF_INIT(CORDON_FRAME_HEADER + CORDON_VM_LEASE_SIZE);
    bool rehearsal = order->verb == CORDON_VMM_REHEARSE;
    struct cordon_vm_lease lease = {.flags = rehearsal      ? CORDON_VM_REHEARSAL
                                             : order->fresh ? CORDON_VM_FRESH
                                                            : 0,
                                    .memory_bytes = order->memory_bytes,
                                    .disk_bytes = order->disk_bytes,
                                    .disk_inodes = order->disk_inodes,
                                    .pids = order->pids,
                                    .open_files = order->open_files,
                                    .cpu_percent = order->cpu_percent};
    unsigned char id[16];
    struct timespec now;
    if (getrandom(lease.entropy, sizeof lease.entropy, 0) != (ssize_t)sizeof lease.entropy ||
        getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return cordon_machine_fail(machine, -EIO, "get randomness for the guest");
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail */
    if (rehearsal)
        now = (struct timespec){.tv_sec = CORDON_VM_PAST_S};
    lease.realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    for (size_t i = 0; i < sizeof id; i++)
        (void)snprintf(lease.machine_id + 2 * i, 3, "%02x", id[i]);
    (void)snprintf(lease.guest, sizeof lease.guest, "%.39s", rehearsal ? "rehearsal" : order->guest);
    (void)snprintf(lease.hostname, sizeof lease.hostname, CORDON_GUEST_HOSTNAME);
    cordon_vm_lease_put(&frame, &lease);
    ssize_t n = frame.failed ? -1 : send(machine->channel, frame.data, frame.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    bool sent = n >= 0 && n == (ssize_t)frame.size; /* what was sent before was answered: the socket holds it */
    cordon_buf_wipe(&frame);
    explicit_bzero(&lease, sizeof lease);
    return sent ? 0 : cordon_machine_fail(machine, -EIO, "the guest's channel does not take its lease");
}

static int resume(struct cordon_machine *machine, uint64_t until_us)
{
    if (!machine->stopped)
        return 0;
    if (kill(machine->pid, SIGCONT) < 0)
        return cordon_machine_fail(machine, -errno, "continue QEMU's process: %s", strerror(errno));
    int r = cordon_machine_call(machine, "cont", NULL, until_us);
    machine->stopped = r < 0;
    return r;
}

static int pause_machine(struct cordon_machine *machine, uint64_t until_us)
{
    if (machine->stopped)
        return 0;
    int r = cordon_machine_call(machine, "stop", NULL, until_us);
    return r < 0 ? r : stand_still(machine);
}

static int lease(struct cordon_machine *machine, const struct cordon_vmm_order *order, struct cordon_vmm_report *report,
                 uint64_t until_us)
{
    struct cordon_frame frame;
    uint64_t from_us = cordon_now_us();
    if (machine->leased)
        return cordon_machine_fail(machine, -EALREADY, "a VM is leased once");
    int r = send_lease(machine, order);
    if (r == 0)
        r = resume(machine, until_us);
    report->cont_us = cordon_now_us() - from_us;
    if (r < 0)
        return r;
    r = cordon_machine_frame(machine, &frame, until_us);
    if (r < 0)
        return r;
    if (cordon_vm_leased_parse(&frame) < 0)
        return cordon_machine_fail(machine, -EBADMSG, "the guest did not take its lease (frame %u)", frame.type);
    machine->leased = true;
    report->lease_us = cordon_now_us() - from_us;
    (void)close(machine->channel); /* the gateway's from now on */
    machine->channel = -1;
    return 0;
}

/* What the guest does after its answer until it waits is what comes first with the lease. */
static int settle(struct cordon_machine *machine, uint64_t for_us)
{
    int r = 0;
    for (uint64_t until_us = cordon_now_us() + for_us; r == 0 && cordon_now_us() < until_us;)
        r = cordon_machine_wait(machine, CORDON_WANT_QMP, until_us, NULL);
    return r;
}

/* Nothing but its answer was its to say: more would be taken for the next one. */
static int check_silence(struct cordon_machine *machine)
{
    char byte;
    return recv(machine->channel, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0
               ? cordon_machine_fail(machine, -EBADMSG, "the guest said more than that it is ready again")
               : 0;
}

static int rehearse(struct cordon_machine *machine, const struct cordon_vmm_order *order, uint64_t until_us)
{
    if (machine->leased || !machine->stopped)
        return cordon_machine_fail(machine, -EALREADY, "a VM rehearses while it waits for its lease");
    int r = send_lease(machine, order);
    if (r == 0)
        r = resume(machine, until_us);
    if (r == 0)
        r = wait_ready(machine, until_us);
    if (r == 0)
        r = settle(machine, SETTLE_US);
    if (r == 0)
        r = pause_machine(machine, until_us);
    return r < 0 ? r : check_silence(machine);
}

/* The guest sees its port closed, and open again. QEMU changes nothing at a machine that stands still (it refuses):
 * such a one runs again, and whoever has the new channel lets it stand still again (guest/kept.c). */
static int change_channel(struct cordon_machine *machine, int fd, uint64_t until_us)
{
    if (fd < 0)
        return cordon_machine_fail(machine, -EBADF, "the warden brought no channel");
    int r = resume(machine, until_us);
    if (r == 0)
        r = cordon_machine_call_fd(machine, "getfd", "{\"fdname\":\"agent\"}", fd, until_us);
    if (r == 0)
        r = cordon_machine_call(
            machine, "chardev-change",
            "{\"id\":\"agent\",\"backend\":{\"type\":\"socket\",\"data\":{\"addr\":{\"type\":\"fd\","
            "\"data\":{\"str\":\"agent\"}},\"server\":false}}}",
            until_us);
    return r;
}

int cordon_machine_obey(struct cordon_machine *machine, const struct cordon_vmm_order *order, int fd,
                        struct cordon_vmm_report *report)
{
    uint64_t until_us = cordon_now_us() + ANSWER_US;
    switch (order->verb) {
    case CORDON_VMM_LEASE:
        return lease(machine, order, report, until_us);
    case CORDON_VMM_REHEARSE:
        return rehearse(machine, order, until_us);
    case CORDON_VMM_PAUSE:
        return pause_machine(machine, until_us);
    case CORDON_VMM_RESUME:
        return resume(machine, until_us);
    case CORDON_VMM_CHANNEL_NEW:
        return change_channel(machine, fd, until_us);
    default:
        return cordon_machine_fail(machine, -EINVAL, "the warden gave an unknown order (%u)", order->verb);
    }
}

int cordon_machine_idle(struct cordon_machine *machine)
{
    int r = 0;
    while (r == 0)
        r = cordon_machine_wait(machine, CORDON_WANT_CONTROL, 0, "run");
    return r;
}

void cordon_machine_end(struct cordon_machine *machine)
{
    if (machine->pid > 0 && kill(machine->pid, SIGKILL) == 0)
        (void)waitpid(machine->pid, NULL, 0); /* it was killed: no long wait */
    machine->pid = 0;
    cordon_close(&machine->qmp);
    cordon_close(&machine->pidfd);
    cordon_close(&machine->words);
    cordon_buf_done(&machine->in);
}
