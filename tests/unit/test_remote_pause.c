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

static bool done; /* as the service tells it behind an answer that was lost */

static bool is_paused(struct cordon_remote_kept *guest)
{
    assert_int_equal(cordon_remote_kept_condition(guest), CORDON_GUEST_IS_PAUSED);
    assert_true(answer < 0);
    return done;
}

static void what_is_not_found_while_it_is_paused_is_not_gone(void **state)
{
    static const struct {
        int answer, result;
        bool done;
        enum cordon_guest_condition after;
    } rows[] = {{0, 0, false, CORDON_GUEST_IS_PAUSED},
                {-EIO, -EIO, false, CORDON_GUEST_IS_RUNNING},
                {-EIO, 0, true, CORDON_GUEST_IS_PAUSED}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_remote_kept guest = {0};
        assert_int_equal(cordon_remote_kept_init(&guest, NULL), 0);
        answer = rows[i].answer;
        done = rows[i].done;
        assert_int_equal(cordon_remote_kept_pause(&guest, call, is_paused, NULL), rows[i].result);
        assert_int_equal(cordon_remote_kept_condition(&guest), rows[i].after);
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
