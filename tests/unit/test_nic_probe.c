/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/nic: the look whether a device can be made comes to its end, and tells at what it stood, whatever hangs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "isolate/nic.h"

/* The program's own, in libc's place: a kernel that gives no answer. */
int unshare(int flags)
{
    (void)flags;
    for (;;)
        (void)pause();
}

static void one_that_hangs_is_given_up_and_holds_nobody_up(void **unused)
{
    const char *stage = NULL;
    int ends[2];
    struct pollfd ours;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    /* The time that a busy host may need until the process hangs. */
    assert_int_equal(cordon_nic_probe(3000, &stage), -ETIME);
    assert_string_equal(stage, "make a network namespace");
    close(ends[1]);
    ours = (struct pollfd){.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&ours, 1, 20000), 1); /* its end: nobody else has the other one */
    assert_true(ours.revents & POLLHUP);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_that_hangs_is_given_up_and_holds_nobody_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
