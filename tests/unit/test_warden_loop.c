/* SPDX-License-Identifier: Apache-2.0 */
/* warden/loop: timers in order, sources that end each other within a turn, children. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"

static struct cordon_loop loop;
static char order[16];
static size_t ordered;

struct named_timer {
    struct cordon_timer timer;
    char name;
};

static void on_due(struct cordon_timer *timer)
{
    order[ordered++] = CORDON_OWNER(struct named_timer, timer, timer)->name;
}

static int set_up(void **state)
{
    (void)state;
    ordered = 0;
    return cordon_loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    cordon_loop_done(&loop);
    return 0;
}

static void timers_come_in_order(void **state)
{
    struct named_timer a = {.timer.on_due = on_due, .name = 'a'}, b = {.timer.on_due = on_due, .name = 'b'},
                       c = {.timer.on_due = on_due, .name = 'c'}, d = {.timer.on_due = on_due, .name = 'd'};
    (void)state;
    cordon_timer_arm(&loop, &b.timer, 4000);
    cordon_timer_arm(&loop, &c.timer, 8000);
    cordon_timer_arm(&loop, &a.timer, 0);
    cordon_timer_arm(&loop, &d.timer, 6000);
    cordon_timer_cancel(&loop, &d.timer);
    cordon_timer_cancel(&loop, &d.timer); /* again does nothing */
    cordon_timer_arm(&loop, &b.timer, 5000);
    while (loop.first)
        assert_int_equal(cordon_loop_turn(&loop, 100), 0);
    assert_int_equal(ordered, 3);
    assert_memory_equal(order, "abc", 3);
    assert_null(loop.last);
}

static void a_timer_ends_a_wait(void **state)
{
    struct named_timer a = {.timer.on_due = on_due, .name = 'a'};
    (void)state;
    uint64_t begin = cordon_now_us();
    cordon_timer_arm(&loop, &a.timer, 3000);
    assert_int_equal(cordon_loop_turn(&loop, -1), 0);
    assert_true(cordon_now_us() - begin < 20000000);
}

static struct cordon_source pair[2];

/* Whoever comes first closes both: the other's event of the same turn must not come. */
static void on_either(struct cordon_source *source, uint32_t events)
{
    (void)events;
    order[ordered++] = source == &pair[0] ? '0' : '1';
    cordon_source_close(&loop, &pair[0]);
    cordon_source_close(&loop, &pair[1]);
}

static void a_closed_source_is_not_called(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pair[i].on_event = on_either;
        assert_int_equal(cordon_source_watch(&loop, &pair[i], ends[0], EPOLLIN), 0);
        (void)close(ends[1]);
    }
    assert_int_equal(cordon_loop_turn(&loop, 100), 0);
    assert_int_equal(cordon_loop_turn(&loop, 0), 0);
    assert_int_equal(ordered, 1);
    assert_false(pair[0].watched || pair[1].watched);
    cordon_source_close(&loop, &pair[0]); /* again does nothing */
}

static int child_status;

static void on_exit_of(struct cordon_child *child, int status)
{
    child_status = status;
    order[ordered++] = 'x';
    cordon_source_close(&loop, &child->source);
}

static void a_child_is_reaped(void **state)
{
    struct cordon_child child = {.source.fd = -1, .on_exit = on_exit_of};
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(7);
    assert_int_equal(cordon_child_watch(&loop, &child, pid), 0);
    while (!ordered)
        assert_int_equal(cordon_loop_turn(&loop, 1000), 0);
    assert_true(WIFEXITED(child_status) && WEXITSTATUS(child_status) == 7);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    cordon_child_kill(&child); /* nothing to kill */
}

static void a_child_can_be_killed(void **state)
{
    struct cordon_child child = {.source.fd = -1, .on_exit = on_exit_of};
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            (void)pause();
    }
    assert_int_equal(cordon_child_watch(&loop, &child, pid), 0);
    cordon_child_kill(&child);
    while (!ordered)
        assert_int_equal(cordon_loop_turn(&loop, 1000), 0);
    assert_true(WIFSIGNALED(child_status));
}

static void what_can_not_be_watched_is_closed(void **state)
{
    struct cordon_source source = {.fd = -1};
    char path[] = "/tmp/cordon-test-loop-XXXXXX";
    (void)state;
    int fd = mkstemp(path); /* epoll takes no plain files */
    assert_true(fd >= 0);
    (void)unlink(path);
    assert_true(cordon_source_watch(&loop, &source, fd, EPOLLIN) < 0);
    assert_int_equal(close(fd), -1);
    assert_false(source.watched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_come_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_ends_a_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_closed_source_is_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_child_is_reaped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_child_can_be_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_can_not_be_watched_is_closed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
