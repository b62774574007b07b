/* SPDX-License-Identifier: Apache-2.0 */
/* The store: keys made, checked, revoked (also from another process), modes of files, damaged and newer stores. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "store/store.h"

static char dir[64], state[96];

static int setup(void **unused)
{
    (void)snprintf(dir, sizeof dir, "/tmp/cordon-test-store-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(state, sizeof state, "%s/state", dir);
    return mkdir(state, 0700);
}

static void remove_all(const char *path)
{
    char child[512];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        (void)snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (unlink(child) < 0)
            remove_all(child);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static int teardown(void **unused)
{
    remove_all(dir);
    return 0;
}

static struct cordon_store *open_store(void)
{
    struct cordon_store *store = NULL;
    struct cordon_error err = {0};
    if (cordon_store_open(state, &store, &err) < 0)
        fail_msg("%s", err.message);
    return store;
}

static void create(struct cordon_store *store, const char *name, char text[CORDON_KEY_TEXT],
                   struct cordon_key_info *info)
{
    struct cordon_error err = {0};
    if (cordon_key_create(store, name, CORDON_KEY_RUN, text, info, &err) < 0)
        fail_msg("%s", err.message);
}

static bool good(struct cordon_store *store, const char *text)
{
    struct cordon_key_info info;
    struct cordon_error err = {0};
    int r = cordon_key_check(store, text, strlen(text), &info, &err);
    assert_true(r == 0 || err.kind == CORDON_ERROR_UNAUTHENTICATED);
    return r == 0;
}

static void keys_are_made_and_checked(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT], other[CORDON_KEY_TEXT];
    struct cordon_key_info made, again, found;
    assert_int_equal(cordon_key_count(store, NULL), 0);
    create(store, "ci \xC3\xA4", text, &made);
    create(store, "ci \xC3\xA4", other, &again); /* names need not differ */
    assert_int_equal(strlen(text), 44);
    assert_int_equal(strncmp(text, "e2b_", 4), 0);
    assert_int_equal(strspn(text + 4, "0123456789abcdef"), 40);
    assert_string_not_equal(text, other);
    assert_string_not_equal(made.id, again.id);
    assert_int_equal(strlen(made.id), 16);
    assert_int_equal(cordon_key_check(store, text, 44, &found, NULL), 0);
    assert_string_equal(found.id, made.id);
    assert_string_equal(found.name, "ci \xC3\xA4");
    assert_string_equal(found.tenant, "default");
    assert_int_equal(found.scope, CORDON_KEY_RUN);
    assert_true(found.created_s > 1700000000 && !found.revoked_s);
    assert_int_equal(cordon_key_count(store, NULL), 2);
    cordon_store_close(store);
    store = open_store();
    assert_true(good(store, text));
    cordon_store_close(store);
}

static void malformed_and_unknown_keys_are_refused(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    struct cordon_error err = {0};
    create(store, "a", text, &info);
    static const char *const bad[] = {"",
                                      "e2b_",
                                      "Bearer x",
                                      "e2b_0000000000000000000000000000000000000000",
                                      "E2B_0000000000000000000000000000000000000000",
                                      "e2b_00000000000000000000000000000000000000000",
                                      "e2b_000000000000000000000000000000000000000g",
                                      "' OR 1=1 --"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(good(store, bad[i]));
    assert_true(cordon_key_check(store, text, 43, &info, &err) < 0);
    text[43] = text[43] == '0' ? '1' : '0';
    assert_false(good(store, text));
    char nul[CORDON_KEY_TEXT];
    memcpy(nul, text, sizeof nul);
    nul[10] = '\0';
    assert_true(cordon_key_check(store, nul, 44, &info, &err) < 0);
    cordon_store_close(store);
}

static void names_and_scopes_are_checked(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT], name[65];
    struct cordon_key_info info;
    struct cordon_error err = {0};
    memset(name, 'n', 64);
    name[64] = '\0';
    const char *const bad[] = {"", name, "a\nb", "\xFF", "a\x7F"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(cordon_key_create(store, bad[i], CORDON_KEY_RUN, text, &info, &err) < 0);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    }
    assert_true(cordon_key_create(store, "a", (enum cordon_key_scope)9, text, &info, &err) < 0);
    name[63] = '\0';
    assert_int_equal(cordon_key_create(store, name, CORDON_KEY_ADMIN, text, &info, &err), 0);
    assert_int_equal(cordon_key_check(store, text, 44, &info, &err), 0);
    assert_int_equal(info.scope, CORDON_KEY_ADMIN);
    cordon_store_close(store);
}

static void revoked_keys_are_refused_at_once(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    struct cordon_error err = {0};
    create(store, "a", text, &info);
    assert_true(good(store, text)); /* now it is cached */
    assert_int_equal(cordon_key_revoke(store, info.id, &err), 0);
    assert_false(good(store, text));
    assert_int_equal(cordon_key_revoke(store, info.id, &err), 0); /* again is no error */
    assert_int_equal(cordon_key_count(store, NULL), 0);
    assert_true(cordon_key_revoke(store, "0123456789abcdef", &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_NOT_FOUND);
    cordon_store_close(store);
}

/* Runs f in another process, as `cordon key` is. */
static void elsewhere(void (*f)(const char *), const char *arg)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        f(arg);
        _exit(0);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void revoke_here(const char *id)
{
    struct cordon_store *store = NULL;
    if (cordon_store_open(state, &store, NULL) < 0 || cordon_key_revoke(store, id, NULL) < 0)
        _exit(1);
    cordon_store_close(store);
}

static void create_here(const char *path)
{
    struct cordon_store *store = NULL;
    char text[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    FILE *to = fopen(path, "w");
    if (!to || cordon_store_open(state, &store, NULL) < 0 ||
        cordon_key_create(store, "other", CORDON_KEY_RUN, text, &info, NULL) < 0)
        _exit(1);
    (void)fprintf(to, "%s", text);
    (void)fclose(to);
    cordon_store_close(store);
}

static void another_process_is_seen_at_once(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT], theirs[CORDON_KEY_TEXT] = "", path[128];
    struct cordon_key_info info;
    create(store, "a", text, &info);
    assert_true(good(store, text));
    elsewhere(revoke_here, info.id);
    assert_false(good(store, text));
    (void)snprintf(path, sizeof path, "%s/key", dir);
    elsewhere(create_here, path);
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    assert_int_equal(fread(theirs, 1, 44, from), 44);
    (void)fclose(from);
    assert_true(good(store, theirs));
    cordon_store_close(store);
}

struct listing {
    size_t count;
    char ids[4][17];
};

static int each(void *context, const struct cordon_key_info *key)
{
    struct listing *listing = context;
    (void)snprintf(listing->ids[listing->count++], 17, "%s", key->id);
    return listing->count == 3 ? -EINTR : 0;
}

static void keys_are_listed_and_a_list_can_be_ended(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    struct listing listing = {0};
    assert_int_equal(cordon_key_list(store, each, &listing, NULL), 0);
    assert_int_equal(listing.count, 0);
    for (int i = 0; i < 4; i++)
        create(store, "a", text, &info);
    assert_int_equal(cordon_key_list(store, each, &listing, NULL), -EINTR);
    assert_int_equal(listing.count, 3);
    assert_true(good(store, text)); /* the lock is free again */
    cordon_store_close(store);
}

static mode_t mode_of(const char *name)
{
    char path[160];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s%s%s", state, *name ? "/" : "", name);
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void files_are_for_their_owner_only(void **unused)
{
    mode_t old = umask(0);
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT], path[160];
    struct cordon_key_info info;
    create(store, "a", text, &info);
    umask(old);
    assert_int_equal(mode_of(""), 0700);
    assert_int_equal(mode_of("cordon.db"), 0600);
    assert_int_equal(mode_of("cordon.db-wal"), 0600);
    assert_int_equal(mode_of("cordon.db-shm"), 0600);
    cordon_store_close(store);
    /* The secret itself is nowhere in the file. */
    (void)snprintf(path, sizeof path, "%s/cordon.db", state);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *content = calloc(1, 1u << 20);
    assert_non_null(content);
    size_t size = fread(content, 1, (1u << 20) - 1, file);
    assert_true(size > 100);
    assert_null(memmem(content, size, text + 4, 40));
    assert_null(memmem(content, size, "e2b_", 4));
    assert_non_null(memmem(content, size, info.id, 16));
    free(content);
    (void)fclose(file);
}

static void links_are_not_followed(void **unused)
{
    char path[160], target[160];
    struct cordon_store *store = NULL;
    cordon_store_close(open_store());
    (void)snprintf(path, sizeof path, "%s/cordon.db", state);
    (void)snprintf(target, sizeof target, "%s/elsewhere.db", dir);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_true(cordon_store_open(state, &store, NULL) < 0);
    assert_null(store);
}

static void a_newer_or_damaged_store_is_refused(void **unused)
{
    char path[160];
    struct cordon_store *store = NULL;
    struct cordon_error err = {0};
    sqlite3 *db = NULL;
    cordon_store_close(open_store());
    (void)snprintf(path, sizeof path, "%s/cordon.db", state);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_true(cordon_store_open(state, &store, &err) < 0);
    assert_non_null(strstr(err.message, "newer"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%s",
                  "this is not a database, but long enough to be taken for the header of one, isn't it? Yes it is.");
    (void)fclose(file);
    assert_true(cordon_store_open(state, &store, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INFRASTRUCTURE);
    assert_null(store);
}

static void a_folder_that_can_not_be_is_told(void **unused)
{
    struct cordon_store *store = NULL;
    struct cordon_error err = {0};
    assert_true(cordon_store_open("/proc/nowhere/x", &store, &err) < 0);
    assert_non_null(strstr(err.message, "/proc/nowhere/x"));
    assert_true(cordon_store_open("", &store, &err) < 0);
}

static void *check_many(void *arg)
{
    void **args = arg;
    for (int i = 0; i < 500; i++)
        if (!good(args[0], args[1]))
            return (void *)1;
    return NULL;
}

static void threads_share_it(void **unused)
{
    struct cordon_store *store = open_store();
    char text[CORDON_KEY_TEXT], more[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    pthread_t threads[4];
    create(store, "a", text, &info);
    void *args[] = {store, text};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, check_many, args), 0);
    for (int i = 0; i < 20; i++)
        create(store, "more", more, &info);
    for (size_t i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cordon_store_close(store);
    cordon_store_close(NULL);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(keys_are_made_and_checked),
        TEST(malformed_and_unknown_keys_are_refused),
        TEST(names_and_scopes_are_checked),
        TEST(revoked_keys_are_refused_at_once),
        TEST(another_process_is_seen_at_once),
        TEST(keys_are_listed_and_a_list_can_be_ended),
        TEST(files_are_for_their_owner_only),
        TEST(links_are_not_followed),
        TEST(a_newer_or_damaged_store_is_refused),
        TEST(a_folder_that_can_not_be_is_told),
        TEST(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
