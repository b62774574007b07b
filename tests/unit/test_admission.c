/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: places, order of arrival, the queue's bound and time, clients that leave while they wait. */
#include "core_helper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/admission.h"

static void setup_with(const char *max_runs, const char *waiting, const char *timeout)
{
    struct cordon_settings *s = load_settings(max_runs, waiting, timeout, NULL);
    cordon_admission_setup(s);
    cordon_settings_free(s);
}

static struct cordon_admission now(void)
{
    struct cordon_admission ret;
    cordon_admission_read(&ret);
    return ret;
}

static void wait_until_waiting(uint64_t count)
{
    for (int i = 0; i < 20000 && now().waiting != count; i++)
        usleep(1000);
    assert_int_equal(now().waiting, count);
}

struct client {
    pthread_t thread;
    int cancel_fd, index, result;
    struct cordon_error err;
};

static atomic_int order[64], arrived;

static void *enter(void *arg)
{
    struct client *client = arg;
    client->result = cordon_admission_enter(client->cancel_fd, &client->err);
    if (client->result == 0)
        order[arrived++] = client->index;
    return NULL;
}

static void start(struct client *client, int index, int cancel_fd)
{
    *client = (struct client){.index = index, .cancel_fd = cancel_fd};
    assert_int_equal(pthread_create(&client->thread, NULL, enter, client), 0);
}

static void four_runs_a_cpu_by_default(void **state)
{
    setup_with("CORDON_MAX_RUNS=0", "CORDON_QUEUE=9", "CORDON_QUEUE_TIMEOUT_S=1");
    assert_true(now().max_runs >= 4 && now().max_runs % 4 == 0);
    assert_int_equal(now().max_waiting, 9);
}

static void places_go_round_in_the_order_of_arrival(void **state)
{
    struct client clients[20];
    setup_with("CORDON_MAX_RUNS=2", "CORDON_QUEUE=100", "CORDON_QUEUE_TIMEOUT_S=20");
    uint64_t admitted = now().admitted;
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    arrived = 0;
    for (int i = 0; i < 20; i++) {
        start(&clients[i], i, -1);
        wait_until_waiting((uint64_t)i + 1);
    }
    for (int i = 0; i < 20; i++) { /* each leave wakes exactly the next */
        cordon_admission_leave();
        pthread_join(clients[i].thread, NULL);
        assert_int_equal(arrived, i + 1);
        assert_int_equal(order[i], i);
        assert_int_equal(now().running, 2);
        assert_int_equal(now().waiting, (uint64_t)(19 - i));
    }
    cordon_admission_leave();
    cordon_admission_leave();
    assert_int_equal(now().running, 0);
    assert_int_equal(now().admitted - admitted, 22);
}

static void a_full_queue_is_busy_with_its_counts(void **state)
{
    struct client waiting;
    struct cordon_error err = {0};
    setup_with("CORDON_MAX_RUNS=1", "CORDON_QUEUE=1", "CORDON_QUEUE_TIMEOUT_S=20");
    uint64_t refused = now().refused;
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    start(&waiting, 0, -1);
    wait_until_waiting(1);
    assert_true(cordon_admission_enter(-1, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    assert_non_null(strstr(err.message, "1 runs run (CORDON_MAX_RUNS) and 1 wait"));
    assert_int_equal(now().refused - refused, 1);
    cordon_admission_leave();
    pthread_join(waiting.thread, NULL);
    assert_int_equal(waiting.result, 0);
    cordon_admission_leave();
    setup_with("CORDON_MAX_RUNS=1", "CORDON_QUEUE=0", "CORDON_QUEUE_TIMEOUT_S=20");
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    assert_true(cordon_admission_enter(-1, &err) < 0);
    cordon_admission_leave();
}

static void the_wait_ends(void **state)
{
    struct cordon_error err = {0};
    setup_with("CORDON_MAX_RUNS=1", "CORDON_QUEUE=5", "CORDON_QUEUE_TIMEOUT_S=1");
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    uint64_t start_us = cordon_now_us();
    assert_true(cordon_admission_enter(-1, &err) < 0);
    uint64_t took_us = cordon_now_us() - start_us;
    assert_true(took_us >= 1000000 && took_us < 15000000);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    assert_non_null(strstr(err.message, "CORDON_QUEUE_TIMEOUT_S"));
    assert_int_equal(now().waiting, 0);
    cordon_admission_leave();
    assert_int_equal(now().running, 0);
}

static void a_client_that_leaves_leaves_the_queue(void **state)
{
    struct client clients[3];
    int pair[2];
    setup_with("CORDON_MAX_RUNS=1", "CORDON_QUEUE=5", "CORDON_QUEUE_TIMEOUT_S=20");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(cordon_admission_enter(-1, NULL), 0);
    arrived = 0;
    for (int i = 0; i < 3; i++) {
        start(&clients[i], i, i == 1 ? pair[0] : -1);
        wait_until_waiting((uint64_t)i + 1);
    }
    assert_int_equal(write(pair[1], "GET", 3), 3); /* more from the client is no leaving */
    usleep(20000);
    assert_int_equal(now().waiting, 3);
    assert_int_equal(shutdown(pair[1], SHUT_WR), 0);
    pthread_join(clients[1].thread, NULL);
    assert_true(clients[1].result < 0);
    assert_int_equal(clients[1].err.kind, CORDON_ERROR_CANCELLED);
    assert_int_equal(now().waiting, 2);
    for (int i = 0; i < 3; i += 2) {
        cordon_admission_leave();
        pthread_join(clients[i].thread, NULL);
        assert_int_equal(clients[i].result, 0);
    }
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 2);
    cordon_admission_leave();
    close(pair[0]);
    close(pair[1]);
}

/* Many threads, few places, some that give up: no place is lost or made. */
enum { ROUNDS = 1000 };
static atomic_int inside, most_inside, done_runs;

static void *crowd(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        int pair[2];
        bool leaves = (random = random * 1103515245u + 12345u) >> 16 & 1;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        if (leaves)
            close(pair[1]);
        if (cordon_admission_enter(pair[0], NULL) == 0) {
            int n = ++inside;
            if (n > most_inside)
                most_inside = n;
            sched_yield();
            inside--;
            done_runs++;
            cordon_admission_leave();
        }
        close(pair[0]);
        if (!leaves)
            close(pair[1]);
    }
    return NULL;
}

static void no_place_is_lost_in_a_crowd(void **state)
{
    pthread_t threads[16];
    setup_with("CORDON_MAX_RUNS=3", "CORDON_QUEUE=100", "CORDON_QUEUE_TIMEOUT_S=20");
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    assert_true(most_inside <= 3);
    assert_true(done_runs >= 16 * ROUNDS / 3);
    assert_int_equal(now().running, 0);
    assert_int_equal(now().waiting, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_runs_a_cpu_by_default),
        cmocka_unit_test(places_go_round_in_the_order_of_arrival),
        cmocka_unit_test(a_full_queue_is_busy_with_its_counts),
        cmocka_unit_test(the_wait_ends),
        cmocka_unit_test(a_client_that_leaves_leaves_the_queue),
        cmocka_unit_test(no_place_is_lost_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
