/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VM, as its vmm sees it: QEMU, its control connection, and the first frames of the guest. Blocking and straight:
 * each step has a deadline, and waits for QEMU, the guest and the warden at once. Everything but the warden is hostile.
 */
#ifndef CORDON_VMM_MACHINE_H
#define CORDON_VMM_MACHINE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "proto/frame.h"
#include "vmm/qmp.h"
#include "vmm/wire.h"

#define CORDON_MACHINE_FRAME_MAX 1024u

struct cordon_machine {
    struct cordon_vmm_start start;
    int control, channel, qmp, pidfd, words; /* words: QEMU's stderr */
    pid_t pid;
    struct cordon_buf in; /* of QMP */
    uint32_t last_id;
    struct cordon_qmp_message reply; /* to last_id, once it came */
    bool replied, stopped, leased, ending, ended, ended_well;
    char migration[48]; /* the newest state that QEMU told */
    char reason[48];    /* why it shut down, by its own account */
    char version[48];   /* of its greeting */
    char tail[200];     /* its last words */
    char frame[CORDON_MACHINE_FRAME_MAX];
    uint64_t born_us, started_us, ready_us;
    int status; /* negative errno, and why, once it failed */
    char why[256];
};

/* Starts QEMU with the descriptors of wire.h at their places. 0, or negative with why, as all that follow. */
int cordon_machine_start(struct cordon_machine *machine);
/* To READY (of a template: until it is written). */
int cordon_machine_prepare(struct cordon_machine *machine);
/* Carries out one order; what it took is in *report. */
int cordon_machine_obey(struct cordon_machine *machine, const struct cordon_vmm_order *order, int fd,
                        struct cordon_vmm_report *report);
/* Waits until the warden says something (1), or the VM ended (negative, with ended and why). */
int cordon_machine_idle(struct cordon_machine *machine);
void cordon_machine_end(struct cordon_machine *machine); /* kills what is left */

/* run.c: the steps above are made of these */
int cordon_machine_fail(struct cordon_machine *machine, int status, const char *fmt, ...) CORDON_PRINTF(3, 4);
enum cordon_machine_want { CORDON_WANT_QMP = 0, CORDON_WANT_CHANNEL, CORDON_WANT_CONTROL };
/* One wait, until until_us (0: for ever): 1 when what is wanted can be read, 0 when something else was taken in. step:
 * what it is late with then; NULL: it need not come by then, which is 0, too. */
int cordon_machine_wait(struct cordon_machine *machine, enum cordon_machine_want want, uint64_t until_us,
                        const char *step);
/* Sends a command, with a descriptor where fd is one; the others wait for its return, too. */
int cordon_machine_send(struct cordon_machine *machine, const char *command, const char *arguments, int fd);
int cordon_machine_call_fd(struct cordon_machine *machine, const char *command, const char *arguments, int fd,
                           uint64_t until_us);
int cordon_machine_call(struct cordon_machine *machine, const char *command, const char *arguments, uint64_t until_us);
/* Reads the guest's next frame of proto/vm.h, or an ERROR; its payload is borrowed until the next. */
int cordon_machine_frame(struct cordon_machine *machine, struct cordon_frame *frame, uint64_t until_us);

/*
 * What must still be read of a frame of which size bytes are at data: 0 when it is whole, -EBADMSG when it is none that
 * a VM begins with. Never more than the frame, since what follows is not the vmm's. Pure, fuzzed.
 */
ssize_t cordon_machine_frame_rest(const char *data, size_t size);

#endif
