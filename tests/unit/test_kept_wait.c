/* SPDX-License-Identifier: Apache-2.0 */
/* How a kept guest's agent is waited for. */
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

#include "guest/kept.c"

static void late(bool machine, const char *words)
{
    struct cordon_error err = {0};
    struct cordon_guest_handle *guest = new_handle("abcd0123456789abcdef");
    assert_non_null(guest);
    guest->machine = machine;
    assert_int_equal(say_late(guest, -ETIMEDOUT, &err), -ETIMEDOUT);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_late_is_told_with_the_time_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
