/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests: owners, lifetimes, pauses, and what becomes of them when a gateway, an agent or a warden is lost. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/guest.h"
#include "guests_service.h"

static void pauses(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    bool changed;
    struct cordon_operation operation = shell(argv, "i=0; while :; do i=$((i+1)); done");
    operation.timeout_ms = 1500;
    struct cordon_live_stream *stream, *refused;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    uint64_t before = cordon_now_us();
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    assert_true(changed);
    print_message("# paused in %llu us\n", (unsigned long long)(cordon_now_us() - before));
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    assert_false(changed);
    struct cordon_guest_metrics first, second;
    ok(cordon_guests_metrics(tenant, id, &first, &err));
    (void)poll(NULL, 0, 1600); /* its time does not run */
    ok(cordon_guests_metrics(tenant, id, &second, &err));
    assert_int_equal(first.usage.cpu_us / 1000, second.usage.cpu_us / 1000);
    assert_true(cordon_guests_open(tenant, id, &operation, &refused, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_PAUSED);
    ok(cordon_guests_resume(tenant, id, CORDON_KEEP, &changed, &err));
    assert_true(changed);
    struct result result = {0};
    drain(stream, &result);
    assert_int_equal(result.exit.cause, CORDON_CAUSE_TIMEOUT);
    cordon_guests_close(stream);
    ok(cordon_guests_pause(tenant, id, &changed, &err));
    before = cordon_now_us();
    ok(cordon_guests_destroy(tenant, id, &changed, &err)); /* while it is frozen */
    assert_true(changed && cordon_now_us() - before < 60000000);
    ok(cordon_guests_destroy(tenant, id, &changed, &err));
    assert_false(changed);
    assert_true(cordon_guests_pause(tenant, id, &changed, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    free(id);
}

static void lifetimes(void **state)
{
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, NULL, 300, 0), *idle = create_as(tenant, NULL, 0, 2000);
    assert_string_equal(run(idle, "sleep 2.5; echo busy").out, "busy\n"); /* so it was not paused */
    assert_true(is_within(idle, CORDON_GUEST_IS_PAUSED, cause));
    assert_true(is_within(id, CORDON_GUEST_IS_GONE, cause));
    assert_string_equal(cause, "ttl");
    free(id);
    destroy(idle);
    const struct cordon_guest_create wanted = {.tenant = tenant,
                                               .memory_bytes = 64u << 20,
                                               .ttl_ms = 1500,
                                               .at_end = CORDON_END_PAUSE,
                                               .auto_resume = true,
                                               .cancel_fd = -1};
    struct cordon_guest_info *info;
    ok(cordon_guests_create(&wanted, &info, &err));
    id = strdup(info->id);
    cordon_guest_info_free(info);
    assert_true(is_within(id, CORDON_GUEST_IS_PAUSED, cause));
    assert_string_equal(run(id, "echo awake").out, "awake\n"); /* which resumes it, with all of its time */
    assert_true(is_within(id, CORDON_GUEST_IS_PAUSED, cause));
    destroy(id);
}

static void owners_names_and_quotas(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, "mine", 0, 0);
    struct cordon_guest_info *info;
    struct cordon_guest_create taken = {.tenant = tenant, .name = "mine", .memory_bytes = 64u << 20, .cancel_fd = -1};
    assert_int_equal(cordon_guests_create(&taken, &info, &err), -EEXIST);
    assert_int_equal(cordon_guests_info("mallory", id, &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_find("mallory", "mine", &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_destroy("mallory", id, NULL, &err), -ENOENT);
    ok(cordon_guests_find(tenant, "mine", &info, &err));
    assert_string_equal(info->id, id);
    cordon_guest_info_free(info);
    char *second = create(), *third = create();
    taken.name = NULL;
    assert_int_equal(cordon_guests_create(&taken, &info, &err), -EDQUOT);
    assert_int_equal(err.kind, CORDON_ERROR_QUOTA);
    struct cordon_guest_query query = {.tenant = tenant, .door = -1, .limit = 2};
    struct cordon_guest_page page;
    ok(cordon_guests_list(&query, &page, &err));
    assert_int_equal(page.total, 3);
    assert_int_equal(page.count, 2);
    char mark[64];
    (void)snprintf(mark, sizeof mark, "%s", page.next);
    cordon_guest_page_done(&page);
    query.after = mark;
    ok(cordon_guests_list(&query, &page, &err));
    assert_int_equal(page.count, 1);
    assert_string_equal(page.guests[0]->id, id);
    assert_string_equal(page.next, "");
    cordon_guest_page_done(&page);
    destroy(id);
    destroy(second);
    destroy(third);
}

static void is_adopted(void **state)
{
    const char *argv[4];
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create_as(tenant, "stays", 0, 0);
    struct cordon_operation operation = shell(argv, "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after");
    operation.tag = "t";
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    uint32_t pid = event.pid;
    cordon_guests_close(stream);
    restart_service();
    assert_int_equal(condition(id, cause), CORDON_GUEST_IS_RUNNING);
    struct cordon_operation again = {
        .struct_size = sizeof again, .kind = CORDON_OP_ATTACH, .pid = pid, .replay_bytes = 100, .cancel_fd = -1};
    ok(cordon_guests_open(tenant, id, &again, &stream, &err));
    put(id, "go", "", 0);
    struct result result = {0};
    drain(stream, &result);
    assert_string_equal(result.out, "before\nafter\n");
    cordon_guests_close(stream);
    destroy(id);
}

static bool read_parent(const char *pid, pid_t *parent, char name[32])
{
    char path[64], text[512];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    if (cordon_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    const char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    char state;
    if (!open_at || !close_at || sscanf(close_at + 1, " %c %d", &state, parent) != 2)
        return false;
    (void)snprintf(name, 32, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return state != 'Z';
}

/* Our warden's agents: grandchildren of it, by its nurseries. */
static size_t kill_agents(void)
{
    size_t killed = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        pid_t parent, grandparent;
        char name[32], other[32], text[16];
        if (*entry->d_name < '0' || *entry->d_name > '9' || !read_parent(entry->d_name, &parent, name) ||
            strcmp(name, "cordon-agent") != 0)
            continue;
        (void)snprintf(text, sizeof text, "%d", (int)parent);
        if (read_parent(text, &grandparent, other) && grandparent == warden && strcmp(other, "cordon-nursery") == 0)
            killed += kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return killed;
}

/* The parked ones died as well, and who asks before the warden knows may get one of them. */
static void wait_for_new_ones(void)
{
    const struct cordon_guest_create wanted = {
        .tenant = tenant, .memory_bytes = 256u << 20, .disk_bytes = 64u << 20, .cancel_fd = -1};
    struct cordon_warden_hello hello;
    for (int i = 0; i < 1200; i++) {
        struct cordon_guest_info *info = NULL;
        bool made = cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0 &&
                    cordon_guests_create(&wanted, &info, &err) == 0;
        bool lives = made && info->condition == CORDON_GUEST_IS_RUNNING;
        char *id = made ? strdup(info->id) : NULL;
        cordon_guest_info_free(info);
        if (id)
            destroy(id);
        if (lives)
            return;
        (void)poll(NULL, 0, 50);
    }
    fail_msg("no guest lives after all agents were killed: %s", err.message);
}

static void a_killed_agent_is_told(void **state)
{
    const char *argv[4];
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation operation = shell(argv, "sleep 60");
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended;
    int r;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    assert_true(kill_agents() >= 1);
    while ((r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1)
        continue;
    assert_int_equal(r, -ESRCH);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    cordon_guests_close(stream);
    assert_true(is_within(id, CORDON_GUEST_IS_GONE, cause));
    assert_string_equal(cause, "died");
    assert_true(cordon_guests_open(tenant, id, &operation, &stream, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_GONE);
    destroy(id); /* which is fine, too */
    wait_for_new_ones();
}

static void a_lost_warden_is_told(void **state)
{
    char cause[16];
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *fresh;
    kill_warden();
    assert_true(is_within(id, CORDON_GUEST_IS_GONE, cause));
    assert_string_equal(cause, "died");
    free(id);
    assert_int_equal(start_warden(), 0);
    fresh = create();
    assert_string_equal(run(fresh, "echo new").out, "new\n");
    destroy(fresh);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses),
        cmocka_unit_test(lifetimes),
        cmocka_unit_test(owners_names_and_quotas),
        cmocka_unit_test(is_adopted),
        cmocka_unit_test(a_killed_agent_is_told),
        cmocka_unit_test(a_lost_warden_is_told),
    };
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
