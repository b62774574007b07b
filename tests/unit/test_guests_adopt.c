/* SPDX-License-Identifier: Apache-2.0 */
/* Guests are found again after a restart: one whose backend is not reached is no tombstone; and those that do not
 * answer, however many, delay neither the others nor who asks for others, nor the daemon's start or end. The backends
 * and the registry are the test's own. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "own_guests.h"

static _Thread_local unsigned waits; /* of who asks */

static int counted_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    waits++;
    return pthread_cond_clockwait(cond, mutex, clock, until);
}

#define pthread_cond_clockwait counted_wait
#include "core/guests_adopt.c"
#undef pthread_cond_clockwait

#define BOUND_MS 30000

static const char lives[] = "abcd000000000000live", fails[] = "abcd000000000000fail", gone[] = "abcd000000000000gone",
                  stray[] = "abcd0000000000strang", named[] = "abcd0000000000silent",
                  given_up[] = "abcdlate000000000000";

struct cordon_guest_handle {
    bool paused;
};

static struct cordon_error err;
static struct cordon_guest_handle running = {false}, standing = {true};
static atomic_bool reached;                  /* the service of `fails` */
static atomic_int tries, hanging, cancelled; /* of `fails`; of all that hang */
static atomic_int destroyed;
static int release_fd = -1; /* readable: "hangs" fail */

static int hang(int cancel_fd, int release, struct cordon_error *e)
{
    struct pollfd fds[] = {{.fd = cancel_fd, .events = POLLRDHUP}, {.fd = release, .events = POLLIN}};
    atomic_fetch_add(&hanging, 1);
    (void)poll(fds, 2, -1);
    if (!fds[0].revents)
        return cordon_fail(e, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "the service did not answer");
    atomic_fetch_add(&cancelled, 1);
    return cordon_fail(e, -ECANCELED, CORDON_ERROR_CANCELLED, "cancelled");
}

static int adopt_silent(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    return hang(cancel_fd, -1, e);
}

/* By the id. "late": found when it is released; "hangs": until it is released; "again": fails at once, and hangs for
 * good when it is tried again. */
static int adopt_local(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    static atomic_int seen[10];
    if (strcmp(id, gone) == 0)
        return cordon_fail(e, -ENOENT, CORDON_ERROR_GONE, "there is no such sandbox");
    if (strcmp(id, fails) == 0 && (atomic_fetch_add(&tries, 1) == 0 || !atomic_load(&reached)))
        return cordon_fail(e, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "the service did not answer");
    if (strncmp(id + 4, "again", 5) == 0 && atomic_fetch_add(&seen[id[19] - '0'], 1) == 0)
        return cordon_fail(e, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "not yet");
    if (strncmp(id + 4, "again", 5) == 0 || strncmp(id + 4, "hangs", 5) == 0)
        return hang(cancel_fd, id[4] == 'h' ? release_fd : -1, e);
    if (strcmp(id, given_up) == 0)
        (void)hang(cancel_fd, release_fd, NULL);
    *ret = strncmp(id + 4, "stands", 6) == 0 ? &standing : &running;
    return 0;
}

static int create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret, struct cordon_error *e)
{
    *ret = &running;
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
    return guest->paused ? CORDON_GUEST_IS_PAUSED : CORDON_GUEST_IS_RUNNING;
}

static int watch(struct cordon_guest_handle *guest)
{
    return -1;
}

static const struct cordon_backend local = {
    OWN_BACKEND("local"),     .guest_create = create,       .guest_adopt = adopt_local, .guest_release = release,
    .guest_destroy = destroy, .guest_condition = condition, .guest_watch = watch,
};
static const struct cordon_backend silent = {OWN_BACKEND("silent"), .guest_adopt = adopt_silent};

#define LOCAL OWN_RECORD("", "local", "")
#define SILENT OWN_RECORD("alice", "silent", "")
/* One more than may be looked for at once. */
#define NINE(prefix, record)                                                                                           \
    {prefix "0", record}, {prefix "1", record}, {prefix "2", record}, {prefix "3", record}, {prefix "4", record},      \
        {prefix "5", record}, {prefix "6", record}, {prefix "7", record},                                              \
    {                                                                                                                  \
        prefix "8", record                                                                                             \
    }

static struct cordon_guest_registry registry;

static void begin(const struct own_row *rows)
{
    static const struct cordon_backend *const backends[] = {&local, &silent, NULL};
    release_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(release_fd >= 0);
    hanging = cancelled = destroyed = 0;
    registry = own_registry(rows);
    own_guests_start(backends, &registry);
}

static void end(void)
{
    own_guests_stop(); /* which returns, though some hang */
    cordon_close(&release_fd);
}

static void reach(atomic_int *count, int wanted)
{
    for (int waited = 0; atomic_load(count) < wanted; waited += 10) {
        assert_true(waited < BOUND_MS);
        (void)poll(NULL, 0, 10);
    }
}

/* Until it was looked for once. */
static void try_once(const char *id)
{
    bool tried = false;
    for (int waited = 0; !tried; waited += 10) {
        cordon_guests_lock();
        const struct cordon_guest_item *item = cordon_guest_item_find(id);
        tried = !item->seeking && (item->tries || !is_sought(item));
        cordon_guests_unlock();
        assert_true(waited < BOUND_MS);
        (void)poll(NULL, 0, tried ? 0 : 10);
    }
}

static enum cordon_guest_condition condition_of(const char *id, char reason[256])
{
    struct cordon_guest_info *info = NULL;
    try_once(id);
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

static void use_soon(const char *id)
{
    for (int waited = 0; use(id) < 0; waited += 20) {
        assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
        assert_true(waited < BOUND_MS);
        (void)poll(NULL, 0, 20);
    }
}

/* --- the tests --- */

static const struct own_row silent_ones[] = {NINE("abcd000000000silent", SILENT), {NULL, NULL}};

/* Silent ones that would hold all threads of all backends. */
static const struct own_row mixed[] = {
    NINE("abcd000000000silent", SILENT),
    NINE("abcd000000001silent", SILENT),
    {fails, LOCAL},
    {gone, LOCAL},
    {lives, LOCAL},
    {"abcd0000000000strange", OWN_RECORD("", "removed", "")}, /* an id that is none */
    {stray, OWN_RECORD("", "removed", "")},
    {NULL, NULL}};

static void others_are_found_beside_many_that_hang(void **state)
{
    (void)state;
    begin(mixed);
    cordon_guests_adopt();
    reach(&hanging, ADOPTERS);
    use_soon(lives);
    end();
}

static void only_what_is_gone_is_told_to_be(void **state)
{
    char reason[256];
    (void)state;
    begin(mixed);
    cordon_guests_adopt();
    assert_int_equal(condition_of(gone, reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "no such sandbox"));
    assert_int_equal(use(gone), -ESRCH);
    assert_int_equal(condition_of(stray, reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "there is no backend removed"));
    assert_int_equal(condition_of(fails, reason), CORDON_GUEST_IS_RUNNING);
    end();
}

static void one_whose_service_is_not_reached_is_looked_for_again(void **state)
{
    bool changed;
    (void)state;
    atomic_store(&reached, false);
    atomic_store(&tries, 0);
    begin(mixed);
    cordon_guests_adopt();
    try_once(fails);
    assert_true(use(fails) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "so far in vain: the service did not answer"));
    assert_true(cordon_guests_destroy(cordon_guests_all, fails, &changed, &err) < 0); /* it is not, so it is not told */
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    atomic_store(&reached, true);
    use_soon(fails);
    assert_true(atomic_load(&tries) > 1);
    end();
}

/* Its service does not answer, and whoever gives it up is told what it is called there. It is found all the same, and
 * is not to go on then. */
static void one_that_hangs_can_be_given_up(void **state)
{
    static const struct own_row rows[] = {{given_up, OWN_RECORD("", "local", ",\"remote\":\"sb_1\"")}, {NULL, NULL}};
    bool changed;
    char reason[256];
    (void)state;
    begin(rows);
    cordon_guests_adopt();
    reach(&hanging, 1);
    assert_int_equal(cordon_guests_forget(cordon_guests_all, given_up, &changed, &err), 0);
    assert_true(changed);
    assert_int_equal(cordon_guests_forget(cordon_guests_all, given_up, &changed, &err), 0);
    assert_false(changed);
    assert_int_equal(use(given_up), -ESRCH);
    assert_int_equal(atomic_load(&destroyed), 0);
    assert_int_equal(eventfd_write(release_fd, 1), 0);
    reach(&destroyed, 1);
    assert_int_equal(condition_of(given_up, reason), CORDON_GUEST_IS_GONE);
    assert_non_null(strstr(reason, "given up on request"));
    assert_non_null(strstr(reason, "sb_1"));
    end();
    assert_int_equal(atomic_load(&destroyed), 1);
}

/* The first to fail are due again while others hang: who was not tried yet is, then. */
static void the_untried_come_first(void **state)
{
    static const struct own_row rows[] = {
        NINE("abcdagain0000000000", LOCAL), NINE("abcdhangs0000000000", LOCAL), {lives, LOCAL}, {NULL, NULL}};
    (void)state;
    begin(rows);
    cordon_guests_adopt();
    reach(&hanging, ADOPTERS);
    (void)poll(NULL, 0, AGAIN_S * 1000); /* no condition: the more of them are due, the more is proven */
    assert_int_equal(eventfd_write(release_fd, 1), 0);
    use_soon(lives);
    end();
}

static void who_asks_waits_for_his_own_and_once(void **state)
{
    static const struct own_row rows[] = {{named, OWN_RECORD("alice", "silent", ",\"name\":\"mine\"")},
                                          NINE("abcd000000000silent", SILENT),
                                          {NULL, NULL}};
    const struct cordon_guest_create wanted = {.tenant = "bob", .name = "mine", .cancel_fd = -1};
    struct cordon_guest_query query = {.tenant = "bob", .door = -1};
    struct cordon_guest_page page;
    struct cordon_guest_info *info = NULL;
    (void)state;
    begin(rows);
    cordon_guests_adopt();
    waits = 0;
    assert_int_equal(cordon_guests_list(&query, &page, &err), 0);
    assert_int_equal(page.count, 0);
    cordon_guest_page_done(&page);
    assert_int_equal(cordon_guests_find("bob", "mine", &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_find(cordon_guests_all, "no such name", &info, &err), -ENOENT);
    assert_int_equal(cordon_guests_create(&wanted, &info, &err), 0);
    cordon_guest_info_free(info);
    assert_int_equal(waits, 0);
    query.tenant = "alice";
    assert_int_equal(cordon_guests_list(&query, &page, &err), 0);
    assert_int_equal(page.count, 10);
    cordon_guest_page_done(&page);
    assert_true(waits > 0);
    waits = 0;
    assert_int_equal(cordon_guests_find("alice", "mine", &info, &err), 0);
    assert_string_equal(info->id, named);
    cordon_guest_info_free(info);
    assert_int_equal(cordon_guests_list(&query, &page, &err), 0);
    cordon_guest_page_done(&page);
    assert_true(use(named) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "is being looked for after a restart"));
    assert_int_equal(waits, 0);
    end();
}

static void the_end_cancels_what_hangs(void **state)
{
    (void)state;
    begin(silent_ones);
    cordon_guests_adopt();
    reach(&hanging, ADOPTERS);
    end();
    assert_int_equal(atomic_load(&hanging), ADOPTERS); /* not the one beyond: it is bounded */
    assert_int_equal(atomic_load(&cancelled), ADOPTERS);
}

/* Stacks of 128 TiB: there are not that many addresses. */
static void without_a_thread_it_is_begun_later(void **state)
{
    pthread_attr_t usual, huge;
    (void)state;
    begin(mixed);
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    cordon_guests_adopt(); /* which returns */
    cordon_guests_adopt();
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    for (const struct crew *crew = adopters.crews; crew; crew = crew->next)
        assert_int_equal(crew->count, 0);
    assert_int_equal(use(lives), -EAGAIN);
    cordon_guests_adopt();
    use_soon(lives);
    end();
    (void)pthread_attr_destroy(&usual);
    (void)pthread_attr_destroy(&huge);
}

static struct cordon_guest_info *info_of(const char *id)
{
    struct cordon_guest_info *info = NULL;
    try_once(id);
    assert_int_equal(cordon_guests_info(cordon_guests_all, id, &info, &err), 0);
    return info;
}

/* A gateway that died between an order and its record. Times: microseconds since 1970. */
static void the_condition_that_is_found_counts(void **state)
{
#define PAST ",\"ends_us\":1,\"ttl_us\":60000000,\"left_us\":50000000"
    static const struct own_row rows[] = {
        {"abcdruns000000000000", OWN_RECORD("", "local", PAST ",\"paused\":1,\"paused_us\":7")},
        {"abcdstands0000000000", OWN_RECORD("", "local", ",\"ends_us\":4102444800000000,\"ttl_us\":60000000")},
        {"abcdstands0000000001", OWN_RECORD("", "local", PAST ",\"paused\":1,\"paused_us\":7")},
        {lives, LOCAL},
        {NULL, NULL}};
    int64_t now = cordon_guests_now();
    (void)state;
    begin(rows);
    cordon_guests_adopt();
    struct cordon_guest_info *info = info_of(rows[0].id);
    assert_int_equal(info->condition, CORDON_GUEST_IS_RUNNING); /* with what was left, and not at an end of long ago */
    assert_true(info->ends_us >= now + 50000000);
    cordon_guest_info_free(info);
    info = info_of(rows[1].id);
    assert_int_equal(info->condition, CORDON_GUEST_IS_PAUSED);
    assert_true(info->paused_us >= now && info->ends_us > now + 60000000);
    cordon_guest_info_free(info);
    info = info_of(rows[2].id);
    assert_int_equal(info->condition, CORDON_GUEST_IS_PAUSED);
    assert_int_equal(info->paused_us, 7);
    cordon_guest_info_free(info);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_found_beside_many_that_hang),
        cmocka_unit_test(only_what_is_gone_is_told_to_be),
        cmocka_unit_test(one_whose_service_is_not_reached_is_looked_for_again),
        cmocka_unit_test(one_that_hangs_can_be_given_up),
        cmocka_unit_test(the_untried_come_first),
        cmocka_unit_test(who_asks_waits_for_his_own_and_once),
        cmocka_unit_test(the_end_cancels_what_hangs),
        cmocka_unit_test(without_a_thread_it_is_begun_later),
        cmocka_unit_test(the_condition_that_is_found_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
