/* SPDX-License-Identifier: Apache-2.0 */
/* How a kept guest's agent is waited for, by a clock that the test moves. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

static uint64_t test_now, test_step; /* of long ago, so that no wait of the system's lasts */

static uint64_t test_now_us(void)
{
    return test_now += test_step;
}

#define cordon_now_us test_now_us
#include "guest/kept.c"
#undef cordon_now_us

static void late(bool machine, const char *words)
{
    struct cordon_error err = {0};
    struct cordon_guest_handle *guest = new_handle("abcd0123456789abcdef");
    assert_non_null(guest);
    guest->machine = machine;
    test_step = 1000000;
    assert_int_equal(wait_for_agent(guest, &guest->ready, -1, &err), -ETIMEDOUT);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    if (!strstr(err.message, words))
        fail_msg("%s", err.message);
    cordon_kept_unref(guest);
}

static void who_is_late_is_told_with_the_time_it_had(void **state)
{
    (void)state;
    late(false, "did not answer within 10 s");
    late(true, "did not answer within 30 s");
}

static void a_wait_ends_with_who_waits(void **state)
{
    int pair[2];
    struct cordon_error err = {0};
    struct cordon_guest_handle *guest = new_handle("abcd0123456789abcdef");
    (void)state;
    assert_non_null(guest);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    test_step = 0; /* its time is never over */
    assert_int_equal(close(pair[1]), 0);
    assert_int_equal(wait_for_agent(guest, &guest->ready, pair[0], &err), -ECANCELED);
    assert_int_equal(err.kind, CORDON_ERROR_CANCELLED);
    guest->ready = true; /* what is there is taken */
    assert_int_equal(wait_for_agent(guest, &guest->ready, pair[0], &err), 0);
    assert_int_equal(close(pair[0]), 0);
    cordon_kept_unref(guest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_late_is_told_with_the_time_it_had),
        cmocka_unit_test(a_wait_ends_with_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
