/* SPDX-License-Identifier: Apache-2.0 */
/* A guest that ends while it is being made or adopted: its handle stays until the last use of it is over. The backend
 * is one of the test's own, which has another thread destroy the guest at the worst moment. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/guests.h"
#include "core_helper.h"

#define ADOPTED "abcd0123456789abcdef"

struct cordon_guest_handle {
    int gone_fd;
    bool gone, released;
};

static struct cordon_guest_handle handle;
static const char *to_destroy; /* while it is watched for the first time; NULL: nothing */
static bool was_released;      /* within that */
static struct cordon_error err;

static int take_handle(struct cordon_guest_handle **ret)
{
    handle = (struct cordon_guest_handle){.gone_fd = eventfd(0, EFD_CLOEXEC)};
    *ret = &handle;
    return 0;
}

static int create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    to_destroy = spec->id;
    return take_handle(ret);
}

static int adopt(const char *id, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    to_destroy = id;
    return take_handle(ret);
}

static void release(struct cordon_guest_handle *guest)
{
    guest->released = true;
    (void)close(guest->gone_fd);
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
    pthread_t other;
    char id[CORDON_GUEST_ID];
    (void)snprintf(id, sizeof id, "%s", to_destroy);
    assert_int_equal(pthread_create(&other, NULL, destroy_it, id), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    was_released = guest->released;
    return guest->gone_fd;
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
    .guest_create = create,
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
    row(row_context, ADOPTED, record, sizeof record - 1);
    return 0;
}

static const struct cordon_guest_registry registry = {.put = put, .remove = forget, .each = each};

static struct cordon_settings *settings;

static void start(const struct cordon_guest_registry *with)
{
    static const struct cordon_backend *const builtin[] = {&backend, NULL};
    fake_reset();
    caps = fake.caps;
    caps.guests = true;
    was_released = false;
    cordon_registry_setup(builtin);
    settings = load_settings(NULL, NULL);
    if (cordon_guests_setup(settings, with, &err) < 0)
        fail_msg("%s", err.message);
}

static void check_end(void)
{
    assert_true(handle.gone);
    assert_false(was_released);
    assert_true(handle.released); /* by the last use */
    cordon_guests_done();
    cordon_settings_free(settings);
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
    start(&registry);
    cordon_guests_adopt();
    check_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_while_it_is_made),
        cmocka_unit_test(one_that_ends_while_it_is_adopted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
