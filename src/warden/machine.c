/* SPDX-License-Identifier: Apache-2.0 */
/* One machine: its start, its vmm's reports, its lease and its end. */
#include "warden/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define BOOT_KVM_US 60000000u
#define BOOT_TCG_US 600000000u              /* 12 s of CPU time; a host that does much else gives QEMU 4 % of one CPU */
#define MAKING_US (BOOT_TCG_US + 10000000u) /* its vmm gives up before */
#define LEASE_US 40000000u
#define REHEARSALS 2u /* the second begins as a lease will: with a guest that has waited in this copy before */
#define PROCESSES 96u /* the vmm's, and QEMU's threads */

static void on_slow(struct cordon_timer *timer)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, timer, timer);
    if (guest->state < CORDON_GUEST_READY)
        cordon_guest_fail(guest, -ETIMEDOUT, "waited %u s for its vmm", MAKING_US / 1000000u);
    else if (guest->state == CORDON_GUEST_LEASING)
        cordon_guest_destroy(guest);
}

/* --- what a vmm says --- */

static void park_or_give(struct cordon_guest *guest)
{
    cordon_timer_cancel(&guest->warden->loop, &guest->timer);
    guest->state = CORDON_GUEST_READY;
    guest->pool->making--;
    if (!guest->vm.booted)
        cordon_machine_charge(guest, CORDON_MACHINE_PARKED);
    cordon_pool_on_ready(guest->pool, guest);
}

/* A copy for which nobody waits yet rehearses; until then it is still being made. */
static void park_or_rehearse(struct cordon_guest *guest)
{
    if (guest->vm.booted || guest->pool->waiting || guest->vm.rehearsals == REHEARSALS)
        park_or_give(guest);
    else if (cordon_machine_order(guest, CORDON_VMM_REHEARSE, 0, -1) < 0)
        cordon_guest_fail(guest, -EIO, "its vmm takes no order");
}

static void ready(struct cordon_guest *guest, const struct cordon_vmm_report *report)
{
    if (guest->state != CORDON_GUEST_INTERPRETER)
        return;
    cordon_log(CORDON_LOG_DEBUG, "machine ready", "guest", CORDON_NUM(guest->seq), "start",
               guest->vm.booted ? "booted" : "copied", "answers_us", CORDON_NUM((long long)report->started_us),
               "ready_us", CORDON_NUM((long long)report->ready_us), NULL);
    park_or_rehearse(guest);
}

static void rehearsed(struct cordon_guest *guest)
{
    if (guest->state != CORDON_GUEST_INTERPRETER)
        return; /* it is being destroyed */
    guest->vm.rehearsals++;
    park_or_rehearse(guest);
}

static void leased(struct cordon_guest *guest, const struct cordon_vmm_report *report)
{
    struct cordon_acquire *acquire = CORDON_TAKE(guest->vm.taker);
    struct cordon_error err;
    if (!acquire)
        return;
    bool there_before = !guest->vm.booted && guest->seq <= acquire->from_seq;
    cordon_log(CORDON_LOG_DEBUG, "machine leased", "guest", CORDON_NUM(guest->seq), "runs_us",
               CORDON_NUM((long long)report->cont_us), "leased_us", CORDON_NUM((long long)report->lease_us), NULL);
    guest->vm.lease_us = report->lease_us;
    guest->pool->machine->booted |= guest->vm.booted;
    guest->vm.start = guest->vm.booted ? CORDON_MACHINE_BOOTED
                      : there_before   ? CORDON_MACHINE_POOLED
                                       : CORDON_MACHINE_COPIED;
    if (guest->slot)
        guest->cpu_usage_base = cordon_cgroup_read_cpu_us(guest->slot->cgroup.cpu_usage);
    cordon_timer_cancel(&guest->warden->loop, &guest->timer);
    int r = cordon_guest_lease(guest, &acquire->request, acquire->lease.fd, there_before, &err);
    if (r < 0) {
        cordon_peer_refuse(acquire->lease.fd, r, err.message);
        cordon_guest_destroy(guest);
    }
    cordon_pool_end_acquire(acquire);
}

static void obeyed(struct cordon_guest *guest, const struct cordon_vmm_report *report)
{
    uint32_t verb = guest->vm.verb;
    if (report->seq != guest->vm.seq || !verb)
        return;
    guest->vm.verb = 0;
    if (verb == CORDON_VMM_LEASE)
        leased(guest, report);
    else if (verb == CORDON_VMM_REHEARSE)
        rehearsed(guest);
    else if (verb == CORDON_VMM_CHANNEL_NEW)
        cordon_keep_adopted(guest, 0);
    else {
        guest->paused = verb == CORDON_VMM_PAUSE;
        guest->woken = guest->woken && !guest->paused;
        cordon_keep_answer(guest, guest->vm.asked_seq, 0);
    }
}

/* Its process ends now, which is the event; but one that is being made is answered at once, with the reason. */
static void ended(struct cordon_guest *guest, const struct cordon_vmm_report *report)
{
    (void)snprintf(guest->vm.ended, sizeof guest->vm.ended, "%s", report->why);
    int status = report->status < 0 ? report->status : -ECHILD;
    if (guest->vm.builds && guest->state < CORDON_GUEST_READY)
        cordon_machine_built(guest, status, report->why);
    else if (guest->state < CORDON_GUEST_READY)
        cordon_guest_fail(guest, status, "%.250s", report->why);
}

static void on_control(struct cordon_source *source, uint32_t events)
{
    struct cordon_vm *vm = CORDON_OWNER(struct cordon_vm, control, source);
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, vm, vm);
    struct cordon_vmm_report report;
    (void)events;
    ssize_t n = cordon_recv_fds(source->fd, &report, sizeof report, NULL, NULL, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n != (ssize_t)sizeof report || report.version != CORDON_VMM_VERSION) {
        cordon_source_close(&guest->warden->loop, source); /* its end, which its process's end follows */
        cordon_child_kill(&guest->bare);
        return;
    }
    report.why[sizeof report.why - 1] = '\0';
    if (report.what == CORDON_VMM_READY)
        ready(guest, &report);
    else if (report.what == CORDON_VMM_DONE && guest->vm.builds)
        cordon_machine_built(guest, 0, "");
    else if (report.what == CORDON_VMM_DONE)
        obeyed(guest, &report);
    else
        ended(guest, &report);
}

/* --- being made --- */

static void on_exit_event(struct cordon_child *child, int status)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, bare, child);
    (void)status;
    cordon_source_close(&guest->warden->loop, &child->source);
    /* Its last words may still be there. */
    for (int i = 0; i < 4 && guest->vm.control.watched && guest->state != CORDON_GUEST_DYING; i++)
        on_control(&guest->vm.control, EPOLLIN);
    cordon_guest_gone(guest);
}

static struct cordon_vmm_start describe(const struct cordon_guest *guest)
{
    static const char *const languages[CORDON_GUEST_KIND__COUNT] = {[CORDON_GUEST_PYTHON] = "python",
                                                                    [CORDON_GUEST_JAVASCRIPT] = "javascript",
                                                                    [CORDON_GUEST_BASH] = "bash",
                                                                    [CORDON_GUEST_KEPT] = ""};
    const struct cordon_warden_config *config = &guest->warden->config;
    const struct cordon_machines *machines = guest->warden->machines;
    const struct cordon_machine_template *template = guest->pool->machine;
    struct cordon_vmm_start start = {.version = CORDON_VMM_VERSION,
                                     .make = guest->vm.builds   ? CORDON_VMM_TEMPLATE
                                             : guest->vm.booted ? CORDON_VMM_COLD
                                                                : CORDON_VMM_CLONE,
                                     .accel = cordon_machines_accel(machines) == CORDON_MACHINE_KVM ? CORDON_VMM_KVM
                                                                                                    : CORDON_VMM_TCG,
                                     .memory_mb = template->memory_mb,
                                     .kept = guest->pool->kind == CORDON_GUEST_KEPT,
                                     .network = guest->pool->network,
                                     .acpi = machines->found.acpi,
                                     .disk_mb = (uint32_t)(config->disk_bytes >> 20),
                                     .disk_inodes = (uint32_t)config->disk_inodes,
                                     .boot_us = machines->found.hardware ? BOOT_KVM_US : BOOT_TCG_US};
    (void)snprintf(start.language, sizeof start.language, "%s", languages[guest->pool->kind]); /* these fit */
    (void)snprintf(start.append, sizeof start.append, "%s", machines->found.append);
    (void)snprintf(start.qemu, sizeof start.qemu, "%s", config->qemu);
    return start;
}

/* The two memfds of a template: to be written, or (for a clone) read. The devices' state is read through a description
 * of its own, since its offset moves. */
static int open_template(struct cordon_guest *guest, int *ram, int *devices, struct cordon_error *err)
{
    struct cordon_machine_template *template = guest->pool->machine;
    if (guest->vm.builds) {
        template->coming_ram = memfd_create("cordon-vm-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        template->coming_devices = memfd_create("cordon-vm-devices", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (template->coming_ram < 0 || template->coming_devices < 0 ||
            ftruncate(template->coming_ram, (off_t) template->memory_mb << 20) < 0)
            return cordon_fail_errno(err, -errno, "make the memory of a template of machines");
        *ram = dup(template->coming_ram);
        *devices = dup(template->coming_devices);
    } else if (!guest->vm.booted) {
        char path[40];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", template->devices); /* fits */
        *ram = dup(template->ram);
        *devices = open(path, O_RDONLY | O_CLOEXEC);
    } else {
        *ram = dup(guest->warden->null);
        *devices = dup(guest->warden->null);
    }
    return *ram < 0 || *devices < 0 ? cordon_fail_errno(err, -errno, "open the template of a machine") : 0;
}

static int start_vmm(struct cordon_guest *guest, int control, int guest_end, struct cordon_error *err)
{
    struct cordon_warden *warden = guest->warden;
    const struct cordon_machines *machines = warden->machines;
    struct clone_args args = {.exit_signal = SIGCHLD,
                              .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS};
    cordon_autoclose int ram = -1;
    cordon_autoclose int devices = -1;
    int r = open_template(guest, &ram, &devices, err);
    if (r < 0)
        return r;
    struct cordon_slotns *ns = &guest->slot->ns;
    bool trusts = guest->pool->network && machines->trusting >= 0;
    const int fds[CORDON_VMM__END - 3] = {control,
                                          guest->channel,
                                          guest_end,
                                          machines->kernel,
                                          trusts ? machines->trusting : machines->initrd,
                                          machines->root,
                                          ram,
                                          devices,
                                          guest->pool->network ? ns->nic : warden->null};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        cordon_machine_child(guest, fds);
    if (pid < 0)
        return cordon_fail_errno(err, -errno, "start the vmm of a machine");
    cordon_close(&ns->nic); /* the device ends with its QEMU */
    guest->bare.on_exit = on_exit_event;
    r = cordon_child_watch(&warden->loop, &guest->bare, pid);
    if (r < 0)
        return cordon_fail_errno(err, r, "watch the vmm of a machine");
    guest->alive = true;
    return 0;
}

static int set_limits(struct cordon_guest *guest, uint32_t cpu_percent, struct cordon_error *err)
{
    uint64_t memory_mb = guest->pool->machine->memory_mb + cordon_machine_overhead_mb(guest->warden->machines);
    return cordon_cgroup_slot_limit(&guest->slot->cgroup, memory_mb << 20, PROCESSES, cpu_percent, err);
}

void cordon_machine_reserve(struct cordon_guest *guest)
{
    guest->vm.booted = !guest->vm.builds && guest->pool->machine->ram < 0;
    cordon_machine_charge(guest, guest->vm.builds || guest->vm.booted ? CORDON_MACHINE_RUNNING : CORDON_MACHINE_PARKED);
}

int cordon_machine_begin(struct cordon_guest *guest, struct cordon_error *err)
{
    struct cordon_loop *loop = &guest->warden->loop;
    int control[2], channel[2];
    guest->state = CORDON_GUEST_INTERPRETER;
    cordon_machine_reserve(guest); /* there may be a template by now */
    guest->pool->machine->clones += !guest->vm.builds && !guest->vm.booted;
    guest->timer.on_due = on_slow;
    cordon_timer_arm(loop, &guest->timer, MAKING_US);
    int r = set_limits(guest, 100, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
        return cordon_fail_errno(err, -errno, "make a machine's channel");
    guest->channel = channel[0];
    cordon_autoclose int guest_end = channel[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        return cordon_fail_errno(err, -errno, "make a machine's control socket");
    cordon_autoclose int control_end = control[1];
    guest->vm.control.on_event = on_control;
    r = cordon_source_watch(loop, &guest->vm.control, control[0], EPOLLIN);
    if (r < 0)
        return cordon_fail_errno(err, r, "watch a machine's control socket");
    const struct cordon_vmm_start start = describe(guest);
    ssize_t n = cordon_send_fds(guest->vm.control.fd, &start, sizeof start, NULL, 0, MSG_DONTWAIT);
    if (n < 0)
        return cordon_fail_errno(err, (int)n, "tell a vmm what to start");
    guest->started_us = cordon_now_us();
    return start_vmm(guest, control_end, guest_end, err);
}

/* --- orders --- */

static int send_order(struct cordon_guest *guest, struct cordon_vmm_order *order, int fd)
{
    order->version = CORDON_VMM_VERSION;
    order->seq = ++guest->vm.seq;
    guest->vm.verb = order->verb;
    ssize_t n = cordon_send_fds(guest->vm.control.fd, order, sizeof *order, &fd, fd >= 0, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

int cordon_machine_order(struct cordon_guest *guest, enum cordon_vmm_verb verb, uint32_t asked_seq, int fd)
{
    struct cordon_vmm_order order = {.verb = verb};
    if (guest->vm.verb)
        return -EBUSY;
    guest->vm.asked_seq = asked_seq;
    return send_order(guest, &order, fd);
}

void cordon_machine_lease(struct cordon_guest *guest, struct cordon_acquire *acquire)
{
    const struct cordon_warden_acquire *request = &acquire->request;
    const struct cordon_warden_config *config = &guest->warden->config;
    struct cordon_error err;
    struct cordon_vmm_order order = {.verb = CORDON_VMM_LEASE,
                                     .fresh = request->kind == CORDON_GUEST_PYTHON_FRESH,
                                     .cpu_percent = request->cpu_percent,
                                     .pids = request->pids,
                                     .open_files = config->open_files,
                                     .memory_bytes = request->memory_bytes};
    if (request->kind == CORDON_GUEST_KEPT)
        memcpy(order.guest, request->id, sizeof request->id);
    else
        (void)snprintf(order.guest, sizeof order.guest, "run-%llu", (unsigned long long)guest->seq); /* fits */
    guest->state = CORDON_GUEST_LEASING;
    guest->vm.taker = acquire;
    acquire->guest = guest;
    cordon_machine_charge(guest, CORDON_MACHINE_RUNNING);
    guest->timer.on_due = on_slow;
    cordon_timer_arm(&guest->warden->loop, &guest->timer, LEASE_US);
    int r = set_limits(guest, request->cpu_percent, &err);
    if (r == 0 && (r = send_order(guest, &order, -1)) < 0)
        (void)cordon_fail_errno(&err, r, "order a machine to run");
    if (r < 0) {
        (void)snprintf(guest->vm.ended, sizeof guest->vm.ended, "%.250s", err.message);
        cordon_guest_destroy(guest);
    }
}

/* --- the end --- */

void cordon_machine_gone(struct cordon_guest *guest)
{
    struct cordon_lease_end end = {.version = CORDON_WARDEN_VERSION, .ended = CORDON_LEASE_ENDED};
    if (guest->state != CORDON_GUEST_LEASED)
        return;
    (void)snprintf(end.why, sizeof end.why, "%s", guest->vm.ended[0] ? guest->vm.ended : "its vmm was killed");
    cordon_log(CORDON_LOG_WARN, "machine ended by itself", "guest", CORDON_NUM(guest->seq), "why", end.why, NULL);
    if (!guest->lease.watched)
        return;                                                                      /* its gateway is gone, too */
    (void)cordon_send_fds(guest->lease.fd, &end, sizeof end, NULL, 0, MSG_DONTWAIT); /* gone: nobody to tell */
}

void cordon_machine_dying(struct cordon_guest *guest)
{
    struct cordon_acquire *acquire = CORDON_TAKE(guest->vm.taker);
    cordon_source_close(&guest->warden->loop, &guest->vm.control);
    cordon_machine_charge(guest, CORDON_MACHINE_FREE);
    cordon_close(&guest->vm.adopter);
    if (acquire) {
        acquire->guest = NULL;
        cordon_pool_take_back(acquire, guest->vm.ended[0] ? guest->vm.ended : "a machine did not take its lease");
    }
}
