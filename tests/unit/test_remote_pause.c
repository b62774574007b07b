/* SPDX-License-Identifier: Apache-2.0 */
/* What a look at a kept guest elsewhere may conclude while the guest is being paused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/remote/kept.h"

static int answer; /* of the service, to the pause */

/* Meanwhile somebody looks at it, and finds nothing. */
static int call(struct cordon_remote_kept *guest, struct cordon_error *err)
{
    (void)err;
    assert_int_equal(cordon_remote_kept_condition(guest), CORDON_GUEST_IS_PAUSED);
    cordon_remote_kept_lost(guest);
    return answer;
}

static void what_is_not_found_while_it_is_paused_is_not_gone(void **state)
{
    static const enum cordon_guest_condition after[] = {CORDON_GUEST_IS_PAUSED, CORDON_GUEST_IS_RUNNING};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cordon_remote_kept guest = {0};
        assert_int_equal(cordon_remote_kept_init(&guest, NULL), 0);
        answer = i ? -EIO : 0;
        assert_int_equal(cordon_remote_kept_pause(&guest, call, NULL), answer);
        assert_int_equal(cordon_remote_kept_condition(&guest), after[i]);
        cordon_remote_kept_done(&guest);
    }
}

static void what_is_not_found_while_it_runs_is_gone(void **state)
{
    uint64_t count = 0;
    struct cordon_remote_kept guest = {0};
    (void)state;
    assert_int_equal(cordon_remote_kept_init(&guest, NULL), 0);
    cordon_remote_kept_lost(&guest);
    assert_int_equal(cordon_remote_kept_condition(&guest), CORDON_GUEST_IS_GONE);
    assert_int_equal(read(guest.gone_fd, &count, sizeof count), sizeof count);
    answer = 0;
    cordon_remote_kept_set(&guest, CORDON_GUEST_IS_PAUSED); /* what is gone stays so */
    assert_int_equal(cordon_remote_kept_condition(&guest), CORDON_GUEST_IS_GONE);
    cordon_remote_kept_done(&guest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_found_while_it_is_paused_is_not_gone),
        cmocka_unit_test(what_is_not_found_while_it_runs_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
