/* SPDX-License-Identifier: Apache-2.0 */
/* backend/remote/kept: its thread looks after what runs, whatever becomes of the host's time of day. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/remote/kept.h"

#define AHEAD_S 86400
#define WAIT_MS 60000

/* The program's own, in libc's place: the time of day as it was told before somebody set it a day back. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ret);
    if (r == 0 && clock == CLOCK_REALTIME)
        ret->tv_sec += AHEAD_S;
    return r;
}

static int looked = -1;

static unsigned every_second(void)
{
    return 1;
}

static void look(struct cordon_remote_kept *guest)
{
    (void)guest;
    assert_int_equal(eventfd_write(looked, 1), 0);
}

static struct cordon_remote_keeper keeper = CORDON_REMOTE_KEEPER(every_second, look);

static void a_clock_that_is_set_back_delays_no_look(void **unused)
{
    struct cordon_remote_kept guest = {0};
    struct pollfd event = {.events = POLLIN};
    looked = event.fd = eventfd(0, EFD_CLOEXEC);
    assert_true(looked >= 0);
    assert_int_equal(cordon_remote_kept_init(&guest, NULL), 0);
    assert_int_equal(cordon_remote_kept_enter(&keeper, &guest, NULL), 0);
    assert_int_equal(poll(&event, 1, WAIT_MS), 1);
    cordon_remote_kept_done(&guest);
    cordon_remote_keeper_stop(&keeper);
    close(looked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_that_is_set_back_delays_no_look)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
