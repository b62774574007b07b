/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trying what may hang, or be killed for: in a child, whose time is limited. It holds nothing of its caller's open (the
 * pipe behind stdout, say, whose reader waits for its end), so that even one that is stuck in the kernel, and can not
 * be killed, holds up nobody.
 */
#ifndef CORDON_BASE_ATTEMPT_H
#define CORDON_BASE_ATTEMPT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cordon_attempt_end {
    CORDON_ATTEMPT_ENDED,  /* by itself, with an exit status */
    CORDON_ATTEMPT_KILLED, /* by a signal of others: a filter around it, say */
    CORDON_ATTEMPT_LATE,   /* its time was over; it is dead */
    CORDON_ATTEMPT_STUCK   /* its time was over; it lives, since the kernel doesn't let it die, and is left to it */
};

struct cordon_attempt {
    enum cordon_attempt_end end;
    int value; /* the exit status, or the signal */
};

/* Calls body in a child, which ends with what it returns: 0, or an errno, for its negative. `size` bytes at data are
 * shared with it: what it wrote there is there, however it ended. Its only open descriptor is `kept`, if that is >= 0;
 * 0 to 2 are /dev/null. It dies with the calling thread, unless it changes its credentials. 0, or negative errno: it
 * was not tried, or not to its end. */
int cordon_attempt(int (*body)(void *data), void *data, size_t size, int kept, unsigned limit_ms,
                   struct cordon_attempt *ret);

/* As one number: the negative of its exit status; -EINTR: killed by others; -ETIME: its time was over. */
int cordon_attempt_result(const struct cordon_attempt *attempt);

/* Waits for a child, kills it at the deadline (base/clock.h), and takes its exit status. Negative errno: it could not
 * be waited for, and was killed; *ret is not written. */
int cordon_attempt_finish(pid_t pid, uint64_t deadline_us, struct cordon_attempt *ret);

#endif
