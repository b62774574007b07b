/* SPDX-License-Identifier: Apache-2.0 */
/* A guest that ends while it is being made or adopted: its handle stays until the last use of it is over. And two who
 * change what it may reach at once: what is recorded is what is enforced. The backend and the registry are the test's
 * own, which have another thread do the other thing at the worst moment. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/egress.h"
#include "core/guests.h"
#include "own_guests.h"

#define ADOPTED "abcd0123456789abcdef"

#define BOUND_MS 30000

struct cordon_guest_handle {
    int gone_fd;
    atomic_bool gone, released;
};

static struct cordon_guest_handle handle;
static const char *to_destroy; /* while it is watched for the first time; NULL: nothing */
static bool was_released;      /* within that */
static struct cordon_error err;

/* Who does something else at once, for the later tests. */
#define MEANWHILE_MS 300 /* how long the other one gets to come between, which it must not */

static struct {
    char id[CORDON_GUEST_ID];
    void *(*what)(void *id);
    pthread_t thread;
    bool began, while_saved; /* else while it is enforced */
    int ended;               /* eventfd */
} other = {.ended = -1};

static int take_handle(struct cordon_guest_handle **ret)
{
    handle.gone_fd = eventfd(0, EFD_CLOEXEC);
    handle.gone = handle.released = false;
    *ret = &handle;
    return 0;
}

static int create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    to_destroy = other.what ? NULL : spec->id;
    return take_handle(ret);
}

static int adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    to_destroy = id;
    return take_handle(ret);
}

static void release(struct cordon_guest_handle *guest)
{
    (void)close(guest->gone_fd);
    guest->released = true;
}

static int destroy(struct cordon_guest_handle *guest, struct cordon_error *e)
{
    guest->gone = true;
    return 0;
}

static enum cordon_guest_condition condition(struct cordon_guest_handle *guest)
{
    return guest->gone ? CORDON_GUEST_IS_GONE : CORDON_GUEST_IS_RUNNING;
}

static void *destroy_it(void *id)
{
    (void)cordon_guests_destroy(cordon_guests_all, id, NULL, NULL);
    return NULL;
}

static int watch(struct cordon_guest_handle *guest)
{
    pthread_t thread;
    char id[CORDON_GUEST_ID];
    if (!to_destroy)
        return guest->gone_fd;
    (void)snprintf(id, sizeof id, "%s", to_destroy);
    assert_int_equal(pthread_create(&thread, NULL, destroy_it, id), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    was_released = guest->released;
    return guest->gone_fd;
}

/* --- two at once --- */

static char enforced[CORDON_EGRESS_NAME_SIZE], recorded[4096];

static void other_at(void *(*what)(void *id))
{
    other.what = what;
    other.began = false;
    other.ended = eventfd(0, EFD_CLOEXEC);
}

static void let_the_other_try(bool while_saved)
{
    struct pollfd wait = {.fd = other.ended, .events = POLLIN};
    if (!other.what || other.began || other.while_saved != while_saved)
        return;
    other.began = true;
    assert_int_equal(pthread_create(&other.thread, NULL, other.what, other.id), 0);
    (void)poll(&wait, 1, MEANWHILE_MS);
}

static void other_is_done(void)
{
    assert_true(other.began);
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    (void)close(other.ended);
    other.what = NULL;
}

static void other_has_done(void)
{
    static const uint64_t one = 1;
    assert_int_equal(write(other.ended, &one, sizeof one), sizeof one);
}

static int set_rule(const char *id, const char *rule)
{
    const struct cordon_guest_network wanted = {
        .on = true, .allowed_domains = &rule, .allowed_domain_count = 1, .private_data = {rule, strlen(rule)}};
    struct cordon_error mine = {0};
    int r = cordon_guests_set_network("alice", id, &wanted, &mine);
    if (r < 0)
        print_message("# %s: %s\n", rule, mine.message);
    return r;
}

static void *set_second(void *id)
{
    int r = set_rule(id, "second.test");
    other_has_done();
    return r < 0 ? id : NULL;
}

static void *destroy_meanwhile(void *id)
{
    (void)destroy_it(id);
    other_has_done();
    return NULL;
}

static int network(struct cordon_guest_handle *guest, const struct cordon_egress_policy *policy, struct cordon_error *e)
{
    (void)snprintf(enforced, sizeof enforced, "%s", policy->rule_count ? policy->rules[0].name : "");
    if (strcmp(enforced, "first.test") == 0)
        let_the_other_try(false);
    return 0;
}

static const struct cordon_backend backend = {
    OWN_BACKEND("local"),     .guest_create = create,       .guest_adopt = adopt, .guest_release = release,
    .guest_destroy = destroy, .guest_condition = condition, .guest_watch = watch, .guest_network = network,
};

static const struct own_row rows[] = {{ADOPTED, OWN_RECORD("", "local", "")}, {NULL, NULL}};

static int put_and_let_try(void *context, const char *id, const char *record, size_t size, struct cordon_error *e)
{
    char text[sizeof recorded];
    (void)snprintf(text, sizeof text, "%.*s", (int)size, record);
    if (strstr(text, "first.test"))
        let_the_other_try(true);
    memcpy(recorded, text, sizeof text);
    return 0;
}

static struct cordon_guest_registry registry, slow_registry;

static void start(const struct cordon_guest_registry *with)
{
    static const struct cordon_backend *const backends[] = {&backend, NULL};
    was_released = false;
    own_guests_start(backends, with);
}

static void check_end(void)
{
    assert_true(handle.gone);
    assert_false(was_released);
    assert_true(handle.released); /* by the last use */
    own_guests_stop();
}

static void one_that_ends_while_it_is_made(void **state)
{
    const struct cordon_guest_create wanted = {.tenant = "alice", .cancel_fd = -1};
    struct cordon_guest_info *info = NULL;
    (void)state;
    start(NULL);
    if (cordon_guests_create(&wanted, &info, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(info->condition, CORDON_GUEST_IS_GONE);
    cordon_guest_info_free(info);
    check_end();
}

static void one_that_ends_while_it_is_adopted(void **state)
{
    (void)state;
    registry = own_registry(rows);
    start(&registry);
    cordon_guests_adopt();
    for (int waited = 0; !handle.released && waited < BOUND_MS; waited += 10)
        (void)poll(NULL, 0, 10);
    check_end();
}

/* A guest with the rule first.test, while whose setting the other one did what it does. */
static struct cordon_guest_info *with_first(void *(*what)(void *id), const struct cordon_guest_registry *with)
{
    const struct cordon_guest_create wanted = {.tenant = "alice", .cancel_fd = -1};
    struct cordon_guest_info *info = NULL;
    other_at(what);
    other.while_saved = with != NULL;
    start(with);
    own_caps.network = true;
    if (cordon_guests_create(&wanted, &info, &err) < 0)
        fail_msg("%s", err.message);
    (void)snprintf(other.id, sizeof other.id, "%s", info->id);
    cordon_guest_info_free(info);
    assert_int_equal(set_rule(other.id, "first.test"), 0);
    other_is_done();
    assert_int_equal(cordon_guests_info("alice", other.id, &info, &err), 0);
    return info;
}

static void end(struct cordon_guest_info *info)
{
    cordon_guest_info_free(info);
    (void)destroy_it(other.id);
    own_guests_stop();
}

static void of_two_rules_at_once_one_is_enforced_and_recorded(void **state)
{
    (void)state;
    struct cordon_guest_info *info = with_first(set_second, NULL);
    assert_int_equal(info->allowed_domain_count, 1);
    assert_string_equal(info->allowed_domains[0], enforced);
    assert_int_equal(info->private_data.size, strlen(enforced));
    assert_memory_equal(info->private_data.data, enforced, strlen(enforced));
    end(info);
}

/* The registry is slow with the record of the first one. */
static void the_newest_record_is_kept(void **state)
{
    (void)state;
    slow_registry = own_registry(NULL);
    slow_registry.put = put_and_let_try;
    struct cordon_guest_info *info = with_first(destroy_meanwhile, &slow_registry);
    assert_int_equal(info->condition, CORDON_GUEST_IS_GONE);
    if (!strstr(recorded, "\"cause\":\"destroyed\""))
        fail_msg("the record is not of its end: %s", recorded);
    end(info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_while_it_is_made),
        cmocka_unit_test(one_that_ends_while_it_is_adopted),
        cmocka_unit_test(of_two_rules_at_once_one_is_enforced_and_recorded),
        cmocka_unit_test(the_newest_record_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
