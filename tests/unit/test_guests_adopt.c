/* SPDX-License-Identifier: Apache-2.0 */
/* Guests are found again after a restart: one whose backend is not reached is no tombstone, and one that does not
 * answer delays neither the others nor whoever starts the daemon. The backend and the registry are the test's own. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/guests.h"
#include "core_helper.h"

#define BOUND_MS 30000

static const char hangs[] = "abcd000000000000hang", lives[] = "abcd000000000000live", fails[] = "abcd000000000000fail",
                  ended[] = "abcd000000000000gone", given_up[] = "abcd000000000000late";

struct cordon_guest_handle {
    int gone_fd;
};

static struct cordon_guest_handle live = {-1};
static struct cordon_error err;
static atomic_bool reached; /* the service of `fails` */
static atomic_int tries, destroyed;
static int release_fd = -1; /* readable: `hangs` may go on */

static int adopt(const char *id, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    struct pollfd wait = {.fd = release_fd, .events = POLLIN};
    if (strcmp(id, hangs) == 0 || strcmp(id, given_up) == 0)
        (void)poll(&wait, 1, -1);
    if (strcmp(id, ended) == 0 || strcmp(id, hangs) == 0)
        return cordon_fail(e, -ENOENT, CORDON_ERROR_GONE, "there is no such sandbox");
    if (strcmp(id, fails) == 0 && (atomic_fetch_add(&tries, 1) == 0 || !atomic_load(&reached)))
        return cordon_fail(e, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "the service did not answer");
    *ret = &live;
    return 0;
}

static void release(struct cordon_guest_handle *guest)
{
    (void)guest;
}

static int destroy(struct cordon_guest_handle *guest, struct cordon_error *e)
{
    atomic_fetch_add(&destroyed, 1);
    return 0;
}

static enum cordon_guest_condition condition(struct cordon_guest_handle *guest)
{
    return CORDON_GUEST_IS_RUNNING;
}

static int watch(struct cordon_guest_handle *guest)
{
    return -1;
}

static struct cordon_capabilities caps;

static const struct cordon_capabilities *capabilities(void)
{
    return &caps;
}

static const struct cordon_backend backend = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof backend,
    .name = "local",
    .capabilities = capabilities,
    .guest_adopt = adopt,
    .guest_release = release,
    .guest_destroy = destroy,
    .guest_condition = condition,
    .guest_watch = watch,
};

static int put(void *context, const char *id, const char *record, size_t size, struct cordon_error *e)
{
    return 0;
}

static int forget(void *context, const char *id, struct cordon_error *e)
{
    return 0;
}

static int each(void *context, void (*row)(void *row_context, const char *id, const char *record, size_t size),
                void *row_context, struct cordon_error *e)
{
    static const char record[] = "{\"tenant\":\"\",\"name\":\"\",\"template\":\"default\",\"backend\":\"local\"}";
    static const char strange[] = "{\"tenant\":\"\",\"name\":\"\",\"template\":\"default\",\"backend\":\"removed\"}";
    static const char remote[] =
        "{\"tenant\":\"\",\"name\":\"\",\"template\":\"default\",\"backend\":\"local\",\"remote\":\"sb_1\"}";
    row(row_context, hangs, record, sizeof record - 1);
    row(row_context, given_up, remote, sizeof remote - 1);
    row(row_context, fails, record, sizeof record - 1);
    row(row_context, ended, record, sizeof record - 1);
    row(row_context, lives, record, sizeof record - 1);
    row(row_context, "abcd0000000000strange", strange, sizeof strange - 1); /* an id that is none */
    row(row_context, "abcd0000000000strang", strange, sizeof strange - 1);
    return 0;
}

static const struct cordon_guest_registry registry = {.put = put, .remove = forget, .each = each};
static struct cordon_settings *settings;

static int start(void **state)
{
    static const struct cordon_backend *const builtin[] = {&backend, NULL};
    (void)state;
    fake_reset();
    caps = fake.caps;
    caps.guests = true;
    release_fd = eventfd(0, EFD_CLOEXEC);
    cordon_registry_setup(builtin);
    settings = load_settings("CORDON_ALLOW_NETWORK=true", NULL);
    if (release_fd < 0 || cordon_guests_setup(settings, &registry, &err) < 0)
        return -1;
    cordon_guests_adopt(); /* which returns, though one of them hangs */
    return 0;
}

static int stop(void **state)
{
    (void)state;
    (void)eventfd_write(release_fd, 1);
    cordon_guests_done();
    cordon_settings_free(settings);
    return close(release_fd);
}

static enum cordon_guest_condition condition_of(const char *id, char reason[256])
{
    struct cordon_guest_info *info = NULL;
    assert_int_equal(cordon_guests_info(cordon_guests_all, id, &info, &err), 0);
    enum cordon_guest_condition ret = info->condition;
    (void)snprintf(reason, 256, "%s", info->reason);
    cordon_guest_info_free(info);
    return ret;
}

static int use(const char *id)
{
    err = (struct cordon_error){0};
    return cordon_guests_extend(cordon_guests_all, id, 0, false, &err);
}

static void the_others_are_found_beside_one_that_hangs(void **state)
{
    (void)state;
    if (use(lives) < 0)
        fail_msg("%s", err.message);
}

static void only_what_is_gone_is_told_to_be(void **state)
{
    char reason[256];
    (void)state;
    assert_int_equal(condition_of(ended, reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "no such sandbox"));
    assert_int_equal(use(ended), -ESRCH);
    assert_int_equal(condition_of("abcd0000000000strang", reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "there is no backend removed"));
    assert_int_equal(condition_of(fails, reason), CORDON_GUEST_IS_RUNNING);
}

static void one_whose_service_is_not_reached_is_looked_for_again(void **state)
{
    bool changed;
    (void)state;
    assert_true(use(fails) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "so far in vain: the service did not answer"));
    assert_true(cordon_guests_destroy(cordon_guests_all, fails, &changed, &err) < 0); /* it is not, so it is not told */
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    atomic_store(&reached, true);
    for (int waited = 0; use(fails) < 0; waited += 20) {
        assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
        assert_true(waited < BOUND_MS);
        (void)poll(NULL, 0, 20);
    }
    assert_true(atomic_load(&tries) > 1);
}

/* Its service does not answer, and whoever gives it up is told what it is called there. It is found all the same, which
 * is seen in the next test, and is not to go on then. */
static void one_that_hangs_can_be_given_up(void **state)
{
    bool changed;
    char reason[256];
    (void)state;
    assert_int_equal(cordon_guests_forget(cordon_guests_all, given_up, &changed, &err), 0);
    assert_true(changed);
    assert_int_equal(condition_of(given_up, reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "given up on request"));
    assert_non_null(strstr(reason, "sb_1"));
    assert_int_equal(cordon_guests_forget(cordon_guests_all, given_up, &changed, &err), 0);
    assert_false(changed);
    assert_int_equal(use(given_up), -ESRCH);
    assert_int_equal(atomic_load(&destroyed), 0);
}

/* A first try that takes long: who asks is told so in a while, and what comes of it is told then. */
static void one_that_hangs_is_told_to_be_looked_for(void **state)
{
    char reason[256];
    (void)state;
    assert_true(use(hangs) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_int_equal(eventfd_write(release_fd, 1), 0);
    for (int waited = 0; condition_of(hangs, reason) != CORDON_GUEST_IS_GONE || !atomic_load(&destroyed);
         waited += 20) {
        assert_true(waited < BOUND_MS);
        (void)poll(NULL, 0, 20);
    }
    assert_int_equal(condition_of(given_up, reason), CORDON_GUEST_IS_GONE);
    assert_int_equal(atomic_load(&destroyed), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_are_found_beside_one_that_hangs),
        cmocka_unit_test(only_what_is_gone_is_told_to_be),
        cmocka_unit_test(one_whose_service_is_not_reached_is_looked_for_again),
        cmocka_unit_test(one_that_hangs_can_be_given_up),
        cmocka_unit_test(one_that_hangs_is_told_to_be_looked_for),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
