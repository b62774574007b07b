/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The role vmm: started by the warden as an unprivileged process 1 of its own pid namespace, with the descriptors of
 * wire.h. It starts its VM, then gives up what it had left to give up.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/filter.h"
#include "supervisor/roles.h"
#include "vmm/machine.h"

static int tell(const struct cordon_machine *machine, enum cordon_vmm_what what, struct cordon_vmm_report *report)
{
    report->version = CORDON_VMM_VERSION;
    report->what = what;
    report->status = machine->status;
    report->started_us = machine->started_us;
    report->ready_us = machine->ready_us;
    memcpy(report->why, machine->why, sizeof report->why);
    ssize_t n = cordon_send_fds(machine->control, report, sizeof *report, NULL, 0, 0);
    return n < 0 ? (int)n : 0;
}

static int serve(struct cordon_machine *machine)
{
    while (cordon_machine_idle(machine) > 0) {
        struct cordon_vmm_order order;
        struct cordon_vmm_report report = {0};
        int fd = -1;
        size_t nfds = 1;
        ssize_t n = cordon_recv_fds(machine->control, &order, sizeof order, &fd, &nfds, 0);
        if (n != (ssize_t)sizeof order || order.version != CORDON_VMM_VERSION)
            return cordon_machine_fail(machine, -EPROTO, "the warden is gone, or of another version");
        report.seq = order.seq;
        int r = cordon_machine_obey(machine, &order, fd, &report);
        cordon_close(&fd);
        if (r < 0 || tell(machine, CORDON_VMM_DONE, &report) < 0)
            return r;
    }
    return machine->status;
}

static int receive_start(struct cordon_machine *machine)
{
    ssize_t n = cordon_recv_fds(CORDON_VMM_CONTROL, &machine->start, sizeof machine->start, NULL, NULL, 0);
    struct cordon_vmm_start *start = &machine->start;
    if (n != (ssize_t)sizeof *start || start->version != CORDON_VMM_VERSION || start->make > CORDON_VMM_CLONE)
        return cordon_machine_fail(machine, -EPROTO, "the warden is gone, or of another version");
    start->language[sizeof start->language - 1] = start->qemu[sizeof start->qemu - 1] = '\0';
    return 0;
}

int cordon_vmm_main(int argc, char **argv)
{
    struct cordon_machine machine = {.control = CORDON_VMM_CONTROL,
                                     .channel = CORDON_VMM_CHANNEL,
                                     .qmp = -1,
                                     .pidfd = -1,
                                     .words = -1,
                                     .in = CORDON_BUF_INIT(CORDON_QMP_LINE_MAX + 32768)};
    struct cordon_vmm_report report = {0};
    struct cordon_error err;
    (void)argc;
    (void)argv;
    cordon_log_setup("vmm", CORDON_LOG_INFO, false);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_NAME, "cordon-vmm");
    for (int fd = CORDON_VMM_CONTROL; fd <= CORDON_VMM_CHANNEL; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* checked by its first use */
    int r = receive_start(&machine);
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0) /* QEMU, of the same uid, has no business in here */
        r = cordon_machine_fail(&machine, -errno, "hide from QEMU: %s", strerror(errno));
    if (r == 0)
        r = cordon_machine_start(&machine);
    if (r == 0 && cordon_filter_vmm(&err) < 0)
        r = cordon_machine_fail(&machine, err.code, "%.200s", err.message);
    if (r == 0)
        r = cordon_machine_prepare(&machine);
    if (r == 0)
        r = tell(&machine, machine.start.make == CORDON_VMM_TEMPLATE ? CORDON_VMM_DONE : CORDON_VMM_READY, &report);
    if (r == 0 && machine.start.make != CORDON_VMM_TEMPLATE)
        r = serve(&machine);
    if (machine.status < 0)
        (void)tell(&machine, machine.leased && machine.ended ? CORDON_VMM_ENDED : CORDON_VMM_FAILED, &report);
    cordon_machine_end(&machine);
    return r < 0;
}
