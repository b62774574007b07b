/* SPDX-License-Identifier: Apache-2.0 */
/* Live runs over a fake backend: order of checks, events, outcomes completed, places and guests given back once. */
#include "core_helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/metrics.h"

static struct cordon_settings *settings;

static int setup(void **state)
{
    settings = load_settings("CORDON_MAX_RUNS=1", "CORDON_QUEUE=1", "CORDON_QUEUE_TIMEOUT_S=5",
                             "CORDON_ALLOWED_DOMAINS=*.a.com,b.com", "CORDON_ALLOW_NETWORK=1", NULL);
    cordon_admission_setup(settings);
    fake_reset();
    return 0;
}

static int teardown(void **state)
{
    struct cordon_admission now;
    cordon_admission_read(&now);
    assert_int_equal(now.running, 0);
    assert_int_equal(now.waiting, 0);
    assert_int_equal(fake.opened, fake.closed);
    cordon_settings_free(settings);
    return 0;
}

static struct cordon_run_request request_for(const char *code)
{
    struct cordon_run_request run;
    cordon_run_request_init(settings, CORDON_DOOR_NATIVE, &run);
    run.request.language = "python";
    run.request.code = (struct cordon_bytes){code, strlen(code)};
    return run;
}

static void open_fails(const struct cordon_run_request *run, enum cordon_error_kind kind, const char *part)
{
    struct cordon_live *live = NULL;
    struct cordon_error err = {0};
    assert_true(cordon_live_open(settings, run, &live, &err) < 0);
    assert_null(live);
    if (err.kind != kind || !strstr(err.message, part))
        fail_msg("kind %s, \"%s\"; expected \"%s\"", cordon_error_name(err.kind), err.message, part);
}

static struct cordon_live *open_live(const struct cordon_run_request *run)
{
    struct cordon_live *live = NULL;
    struct cordon_error err = {0};
    if (cordon_live_open(settings, run, &live, &err) < 0)
        fail_msg("%s", err.message);
    return live;
}

static void a_run_gives_its_events_and_one_outcome(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_live *live = open_live(&run);
    struct cordon_event event;
    assert_int_equal(fake.opened, 0); /* nothing is started before the first next */
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(event.type, CORDON_EVENT_STARTED);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(event.type, CORDON_EVENT_STDOUT);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(event.type, CORDON_EVENT_OUTCOME);
    assert_int_equal(event.outcome->cause, CORDON_CAUSE_EXITED);
    assert_int_equal(event.outcome->run_us, 1234);
    assert_string_equal(event.outcome->backend, "local");
    assert_true(event.outcome->total_us >= event.outcome->queue_us);
    assert_int_equal(fake.closed, 0); /* the answer may leave first */
    assert_int_equal(cordon_live_next(live, &event, NULL), 0);
    assert_int_equal(fake.closed, 1);
    assert_int_equal(cordon_live_next(live, &event, NULL), 0);
    cordon_live_close(live);
    assert_int_equal(fake.closed, 1);
    cordon_live_close(NULL);
}

static void closing_early_gives_all_back(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_event event;
    cordon_live_close(open_live(&run)); /* before it began */
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    cordon_live_close(live);
    assert_int_equal(fake.closed, 1);
}

static void langflows_none_runs_nothing_not_even_blank_code(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    run.door = CORDON_DOOR_LANGFLOW;
    open_fails(&run, CORDON_ERROR_REFUSED, "LANGFLOW_SANDBOX_BACKEND is none");
    run.request.code = (struct cordon_bytes){" ", 1};
    open_fails(&run, CORDON_ERROR_REFUSED, "LANGFLOW_SANDBOX_BACKEND is none");
    assert_int_equal(fake.opened, 0);
}

static void blank_code_starts_nothing_but_needs_a_backend(void **state)
{
    struct cordon_run_request run = request_for(" \n\t\r\n ");
    struct cordon_event event;
    fake.caps = (struct cordon_capabilities){.struct_size = sizeof fake.caps}; /* policy is not asked */
    fake.probe_result = -EIO;
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(event.type, CORDON_EVENT_OUTCOME);
    assert_int_equal(event.outcome->cause, CORDON_CAUSE_EXITED);
    assert_int_equal(event.outcome->exit_code, 0);
    assert_string_equal(event.outcome->backend, "local");
    assert_int_equal(cordon_live_next(live, &event, NULL), 0);
    cordon_live_close(live);
    assert_int_equal(fake.opened, 0);
    (void)snprintf(run.backend, sizeof run.backend, "nowhere");
    open_fails(&run, CORDON_ERROR_INVALID, "the request's backend must name one of these backends: none, local");
}

static void failures_come_in_their_order_and_never_fall_back(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    fake.probe_result = -EIO;
    fake.caps.languages = "bash";
    open_fails(&run, CORDON_ERROR_UNAVAILABLE, "the host lacks something"); /* rather than what depends on the host */
    fake.caps.deny_all_egress = false;
    open_fails(&run, CORDON_ERROR_REFUSED, "cannot block all egress"); /* but what is declared comes first */
    (void)snprintf(run.backend, sizeof run.backend, "None");
    open_fails(&run, CORDON_ERROR_REFUSED, "CORDON_ALLOW_NONE");
    run.request.language = "cobol";
    open_fails(&run, CORDON_ERROR_INVALID, "cobol");
    assert_int_equal(fake.opened, 0);
}

static void a_backend_without_runs_is_unsupported(void **state)
{
    static struct cordon_backend lame;
    lame = fake_backend;
    lame.name = "lame";
    lame.run_open = NULL;
    assert_int_equal(cordon_registry_add(&lame, NULL), 0);
    struct cordon_run_request run = request_for("print(1)");
    (void)snprintf(run.backend, sizeof run.backend, "lame");
    open_fails(&run, CORDON_ERROR_UNSUPPORTED, "lame does not run programs");
}

static void a_guest_that_can_not_be_had_is_an_error_once(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_error err = {0};
    struct cordon_event event;
    fake.open_result = -EAGAIN;
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, &err), -EAGAIN);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    struct cordon_admission now;
    cordon_admission_read(&now);
    assert_int_equal(now.running, 0); /* its place is free already */
    assert_int_equal(cordon_live_next(live, &event, &err), 0);
    cordon_live_close(live);
}

static void a_backend_that_breaks_off_is_infrastructure(void **state)
{
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_event event;
    fake.event_count = 2; /* no outcome */
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(event.outcome->cause, CORDON_CAUSE_INFRASTRUCTURE);
    assert_true(*event.outcome->message);
    assert_int_equal(cordon_live_next(live, &event, NULL), 0);
    cordon_live_close(live);
}

static void an_older_outcome_is_completed_with_zeros(void **state)
{
    static struct cordon_outcome old;
    memset(&old, 0xAA, sizeof old);
    old.struct_size = offsetof(struct cordon_outcome, message);
    old.cause = CORDON_CAUSE_EXITED;
    static const struct cordon_event events[] = {{.type = CORDON_EVENT_OUTCOME, .outcome = &old}};
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_event event;
    fake.events = events;
    fake.event_count = 1;
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_string_equal(event.outcome->message, "");
    assert_int_equal(event.outcome->oom_kills, 0);
    assert_string_equal(event.outcome->backend, "local");
    cordon_live_close(live);
}

static void the_settings_domains_hold_where_a_run_names_none(void **state)
{
    static const char *const own[] = {"x.a.com"};
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_event event;
    run.request.network = true;
    struct cordon_live *live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(fake.seen.allowed_domain_count, 2);
    assert_string_equal(fake.seen.allowed_domains[1], "b.com");
    cordon_live_close(live);
    run.request.allowed_domains = own;
    run.request.allowed_domain_count = 1;
    live = open_live(&run);
    assert_int_equal(cordon_live_next(live, &event, NULL), 1);
    assert_int_equal(fake.seen.allowed_domain_count, 1);
    assert_string_equal(fake.seen.allowed_domains[0], "x.a.com");
    cordon_live_close(live);
}

struct waiting {
    pthread_t thread;
    struct cordon_live *live;
    int result;
    struct cordon_error err;
    uint64_t queue_us;
};

static void *run_whole(void *arg)
{
    struct waiting *w = arg;
    struct cordon_event event;
    while ((w->result = cordon_live_next(w->live, &event, &w->err)) > 0)
        if (event.type == CORDON_EVENT_OUTCOME)
            w->queue_us = event.outcome->queue_us;
    cordon_live_close(w->live);
    return NULL;
}

static void wait_until_waiting(uint64_t count)
{
    struct cordon_admission now = {0};
    for (int i = 0; i < 20000 && now.waiting != count; i++, usleep(1000))
        cordon_admission_read(&now);
    assert_int_equal(now.waiting, count);
}

static void runs_wait_for_the_one_before(void **state)
{
    struct cordon_run_request run = request_for("print(1)"), leaving = run;
    struct waiting second = {0}, third = {0};
    struct cordon_error err = {0};
    struct cordon_event event;
    int gate[2], client[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    struct cordon_live *first = open_live(&run);
    assert_int_equal(cordon_live_next(first, &event, NULL), 1);
    second.live = open_live(&run);
    assert_int_equal(pthread_create(&second.thread, NULL, run_whole, &second), 0);
    wait_until_waiting(1);
    third.live = open_live(&run); /* opened, but the queue is full */
    assert_true(cordon_live_next(third.live, &event, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    cordon_live_close(third.live);
    usleep(20000);
    cordon_live_close(first);
    pthread_join(second.thread, NULL);
    assert_int_equal(second.result, 0);
    assert_true(second.queue_us >= 20000);
    leaving.request.cancel_fd = client[0];
    first = open_live(&run);
    assert_int_equal(cordon_live_next(first, &event, NULL), 1);
    third.live = open_live(&leaving);
    assert_int_equal(pthread_create(&third.thread, NULL, run_whole, &third), 0);
    wait_until_waiting(1);
    close(client[1]);
    pthread_join(third.thread, NULL);
    assert_int_equal(third.err.kind, CORDON_ERROR_CANCELLED);
    cordon_live_close(first);
    close(client[0]);
    close(gate[0]);
    close(gate[1]);
}

static void runs_are_counted(void **state)
{
    struct cordon_buf before = CORDON_BUF_INIT(1u << 20), after = CORDON_BUF_INIT(1u << 20);
    struct cordon_run_request run = request_for("print(1)");
    struct cordon_event event;
    cordon_metrics_write(&before);
    assert_false(before.failed);
    struct cordon_live *live = open_live(&run);
    while (cordon_live_next(live, &event, NULL) > 0)
        ;
    cordon_live_close(live);
    run.request.language = "cobol";
    open_fails(&run, CORDON_ERROR_INVALID, "");
    cordon_metrics_add(CORDON_METRIC_HTTP_REQUESTS, 5);
    cordon_metrics_set(CORDON_METRIC_HTTP_CONNECTIONS, 3);
    cordon_metrics_write(&after);
    static const char *const rising[] = {"\ncordon_runs_total{backend=\"local\",language=\"python\",cause=\"exited\"} ",
                                         "\ncordon_errors_total{kind=\"invalid_request\"} ",
                                         "\ncordon_total_seconds_count ", "\ncordon_runs_admitted_total "};
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++) {
        const char *a = strstr(before.data, rising[i]), *b = strstr(after.data, rising[i]);
        assert_non_null(b);
        assert_int_equal(atoll(b + strlen(rising[i])), (a ? atoll(a + strlen(rising[i])) : 0) + 1);
    }
    assert_non_null(strstr(after.data, "\ncordon_http_requests_total 5\n"));
    assert_non_null(strstr(after.data, "\ncordon_http_connections 3\n"));
    assert_non_null(strstr(after.data, "cordon_total_seconds_bucket{le=\"+Inf\"}"));
    cordon_buf_done(&before);
    cordon_buf_done(&after);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_run_gives_its_events_and_one_outcome),
        TEST(closing_early_gives_all_back),
        TEST(langflows_none_runs_nothing_not_even_blank_code),
        TEST(blank_code_starts_nothing_but_needs_a_backend),
        TEST(failures_come_in_their_order_and_never_fall_back),
        TEST(a_backend_without_runs_is_unsupported),
        TEST(a_guest_that_can_not_be_had_is_an_error_once),
        TEST(a_backend_that_breaks_off_is_infrastructure),
        TEST(an_older_outcome_is_completed_with_zeros),
        TEST(the_settings_domains_hold_where_a_run_names_none),
        TEST(runs_wait_for_the_one_before),
        TEST(runs_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
