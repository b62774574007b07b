/* SPDX-License-Identifier: Apache-2.0 */
/* What the admin door keeps: settings with their audit log, secrets sealed, the history bounded. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "store/admin.h"

#define SECRET "sk-very-secret-0123456789"

static char state[64];
static struct cordon_store *store;

static int setup(void **unused)
{
    struct cordon_error err = {0};
    (void)snprintf(state, sizeof state, "/tmp/cordon-test-admin-XXXXXX");
    return mkdtemp(state) ? cordon_store_open(state, &store, &err) : -1;
}

static void remove_file(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", state, name);
    unlink(path);
}

static int teardown(void **unused)
{
    cordon_store_close(store);
    static const char *const names[] = {"cordon.db", "cordon.db-wal", "cordon.db-shm", "secret.key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove_file(names[i]);
    return rmdir(state);
}

static void write_settings(const struct cordon_setting_change *changes, size_t count)
{
    struct cordon_error err = {0};
    if (cordon_stored_settings_write(store, changes, count, CORDON_SETTINGS_ANY, "test", &err) < 0)
        fail_msg("%s", err.message);
}

/* All lists as one text each, for comparing. */
static char text[65536];

static int each_setting(void *context, const struct cordon_stored_setting *setting)
{
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s=%s%s;", setting->name, setting->value,
                   setting->secret ? "!" : "");
    assert_string_equal(setting->changed_by, "test");
    assert_true(setting->changed_s > 1700000000);
    return 0;
}

static const char *settings(void)
{
    *text = '\0';
    assert_int_equal(cordon_stored_settings_list(store, each_setting, NULL, NULL), 0);
    return text;
}

static int each_audit(void *context, const struct cordon_audit_entry *entry)
{
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s %s %s>%s;", entry->who, entry->action,
                   entry->subject, entry->before, entry->after);
    return 0;
}

static const char *audit(void)
{
    *text = '\0';
    assert_int_equal(cordon_audit_list(store, 0, 100, each_audit, NULL, NULL), 0);
    return text;
}

static void settings_are_kept_and_audited(void **unused)
{
    const struct cordon_setting_change first[] = {{"A", "1", false}, {"S", SECRET, true}};
    const struct cordon_setting_change second[] = {{"A", "2", false}, {"S", NULL, true}};
    write_settings(first, 2);
    assert_string_equal(settings(), "A=1;S=" SECRET "!;");
    write_settings(second, 2);
    assert_string_equal(settings(), "A=2;");
    assert_string_equal(audit(), "test setting.forget S (secret)>;test setting.change A 1>2;"
                                 "test setting.change S >(secret);test setting.change A >1;");
}

static int64_t revision(void)
{
    int64_t found = -5;
    assert_int_equal(cordon_stored_settings_revision(store, &found, NULL), 0);
    return found;
}

static void a_change_of_what_was_not_seen_is_refused(void **unused)
{
    const struct cordon_setting_change first[] = {{"A", "1", false}, {"B", "2", false}}, second[] = {{"A", "3", false}};
    const struct cordon_audit_entry other = {.who = "w", .action = "key.create", .subject = "s"};
    struct cordon_error err = {0};
    assert_int_equal(revision(), 0);
    assert_int_equal(cordon_stored_settings_write(store, first, 2, 0, "test", &err), 0);
    assert_int_equal(cordon_stored_settings_write(store, second, 1, 0, "test", &err), -ESTALE);
    assert_int_equal(err.kind, CORDON_ERROR_CONFLICT);
    assert_string_equal(settings(), "A=1;B=2;");
    int64_t seen = revision();
    assert_int_equal(cordon_audit_add(store, &other, NULL), 0);
    assert_int_equal(revision(), seen);
    assert_int_equal(cordon_stored_settings_write(store, second, 1, seen, "test", &err), 0);
    assert_string_equal(settings(), "A=3;B=2;");
    assert_true(revision() > seen);
}

/* By another connection, as another program would. */
static void run_sql(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/cordon.db", state);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void the_revision_outlives_the_audit_log(void **unused)
{
    const struct cordon_setting_change first[] = {{"A", "1", false}}, second[] = {{"A", "2", false}};
    write_settings(first, 1);
    int64_t seen = revision();
    assert_true(seen > 0);
    write_settings(first, 1);
    assert_int_equal(revision(), seen); /* that was no change */
    run_sql("DELETE FROM audit");
    assert_int_equal(revision(), seen);
    assert_int_equal(cordon_stored_settings_write(store, second, 1, 0, "test", NULL), -ESTALE);
    assert_int_equal(cordon_stored_settings_write(store, second, 1, seen, "test", NULL), 0);
    assert_true(revision() > seen);
}

/* As a store of schema version 3 would be, which had it in the audit log. */
static int64_t revision_of_an_older_store(const char *sql)
{
    cordon_store_close(store);
    store = NULL;
    run_sql("DROP TABLE revisions; PRAGMA user_version = 3");
    run_sql(sql);
    assert_int_equal(cordon_store_open(state, &store, NULL), 0);
    return revision();
}

static void an_older_store_keeps_its_revision(void **unused)
{
    const struct cordon_setting_change changes[] = {{"A", "1", false}, {"B", "1", false}};
    const struct cordon_audit_entry other = {.who = "w", .action = "key.create", .subject = "s"};
    assert_int_equal(revision_of_an_older_store("SELECT 1"), 0);
    write_settings(changes, 2);
    assert_int_equal(cordon_audit_add(store, &other, NULL), 0);
    assert_int_equal(revision_of_an_older_store("SELECT 1"), 2);
    /* What an older program told of it is below what it is now. */
    assert_int_equal(revision_of_an_older_store("DELETE FROM audit WHERE action = 'setting.change'"), 3);
    assert_string_equal(settings(), "A=1;B=1;");
}

/* Whether the bytes are in any file of the state folder. */
static bool on_disk(const char *what)
{
    static const char *const names[] = {"cordon.db", "cordon.db-wal"};
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        static char data[1 << 20];
        (void)snprintf(path, sizeof path, "%s/%s", state, names[i]);
        FILE *file = fopen(path, "r");
        size_t size = file ? fread(data, 1, sizeof data, file) : 0;
        found = found || memmem(data, size, what, strlen(what));
        if (file)
            fclose(file);
    }
    return found;
}

static void secrets_are_not_on_the_disk_in_clear(void **unused)
{
    const struct cordon_setting_change changes[] = {{"S", SECRET, true}, {"OPEN", "plainly-seen", false}};
    write_settings(changes, 2);
    assert_true(on_disk("plainly-seen"));
    assert_false(on_disk(SECRET));
}

static void without_its_key_a_secret_stays_shut(void **unused)
{
    const struct cordon_setting_change changes[] = {{"S", SECRET, true}}, forgotten[] = {{"S", NULL, true}};
    struct cordon_error err = {0};
    struct stat st;
    char path[128];
    write_settings(changes, 1);
    (void)snprintf(path, sizeof path, "%s/secret.key", state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    remove_file("secret.key");
    assert_true(cordon_stored_settings_list(store, each_setting, NULL, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INFRASTRUCTURE);
    assert_non_null(strstr(err.message, "secret.key is missing"));
    assert_null(strstr(err.message, SECRET));
    assert_int_equal(stat(path, &st), -1); /* one that opens nothing is not made */
    assert_int_equal(cordon_stored_settings_write(store, changes, 1, CORDON_SETTINGS_ANY, "w", &err), -ENOENT);
    assert_non_null(strstr(err.message, "secret.key is missing"));
    assert_int_equal(stat(path, &st), -1); /* nor by who seals beside it */
    write_settings(forgotten, 1);
    write_settings(changes, 1); /* nothing is sealed: a new one is made */
    assert_int_equal(chmod(path, 0644), 0);
    assert_true(cordon_stored_settings_list(store, each_setting, NULL, &err) < 0);
    assert_non_null(strstr(err.message, "0600"));
}

#define KEY "000102030405060708090a0b0c0d0e0ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
#define OTHER_KEY "100102030405060708090a0b0c0d0e0ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"

static void a_given_key_seals_instead_of_the_file(void **unused)
{
    const struct cordon_setting_change changes[] = {{"S", SECRET, true}};
    struct cordon_error err = {0};
    struct stat st;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/secret.key", state);
    assert_int_equal(cordon_store_use_key(store, "no key"), -EINVAL);
    assert_int_equal(cordon_store_use_key(store, KEY), 0);
    write_settings(changes, 1);
    assert_string_equal(settings(), "S=" SECRET "!;");
    assert_int_equal(stat(path, &st), -1);
    assert_false(on_disk(SECRET));
    assert_int_equal(cordon_store_use_key(store, OTHER_KEY), 0);
    assert_int_equal(cordon_stored_settings_list(store, each_setting, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "secret of S does not open with CORDON_SECRET_KEY"));
    assert_non_null(strstr(err.message, "STATE/secret.key"));
    assert_int_equal(cordon_store_use_key(store, ""), 0);
    assert_int_equal(cordon_stored_settings_list(store, each_setting, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.message, "CORDON_SECRET_KEY"));
    assert_int_equal(cordon_store_use_key(store, KEY), 0); /* nothing was lost meanwhile */
    assert_string_equal(settings(), "S=" SECRET "!;");
}

/* How an operator goes from the file to a given key. */
static void the_files_own_key_may_be_given(void **unused)
{
    const struct cordon_setting_change changes[] = {{"S", SECRET, true}};
    unsigned char bytes[32];
    char path[128], hex[65];
    write_settings(changes, 1);
    (void)snprintf(path, sizeof path, "%s/secret.key", state);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, 32, file), 32);
    (void)fclose(file);
    remove_file("secret.key");
    for (size_t i = 0; i < 32; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    assert_int_equal(cordon_store_use_key(store, hex), 0);
    assert_string_equal(settings(), "S=" SECRET "!;");
}

static void the_audit_log_is_bounded(void **unused)
{
    struct cordon_audit_entry entry = {.who = "w", .action = "a", .subject = "s"};
    int64_t first = 0;
    for (int i = 0; i < 30; i++)
        assert_int_equal(cordon_audit_add(store, &entry, NULL), 0);
    *text = '\0';
    assert_int_equal(cordon_audit_list(store, 11, 4, each_audit, &first, NULL), 0);
    assert_string_equal(text, "w a s >;w a s >;w a s >;w a s >;");
}

static int each_entry(void *context, const struct cordon_history_entry *entry)
{
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s:%d:%s;", entry->backend, entry->exit_code,
                   entry->code ? entry->code : "-");
    return 0;
}

static const char *history(const struct cordon_history_filter *filter)
{
    *text = '\0';
    assert_int_equal(cordon_history_list(store, filter, each_entry, NULL, NULL), 0);
    return text;
}

static void the_history_filters_and_is_bounded(void **unused)
{
    struct cordon_history_entry entries[] = {
        {.at_ms = 1000, .backend = "local", .language = "python", .cause = "exited", .exit_code = 1},
        {.at_ms = 2000, .backend = "e2b", .language = "bash", .cause = "timeout", .exit_code = 2},
        {.at_ms = 3000,
         .backend = "local",
         .language = "bash",
         .cause = "exited",
         .exit_code = 3,
         .code = (char[]){"x"}},
    };
    struct cordon_error err = {0};
    assert_int_equal(cordon_history_add(store, entries, 3, NULL), 0);
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 10}), "local:3:x;e2b:2:-;local:1:-;");
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 1, .before = 3}), "e2b:2:-;");
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 9, .backend = "local", .language = "bash"}),
                        "local:3:x;");
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 9, .cause = "timeout"}), "e2b:2:-;");
    *text = '\0';
    assert_int_equal(cordon_history_get(store, 2, each_entry, NULL, NULL), 0);
    assert_string_equal(text, "e2b:2:-;");
    assert_int_equal(cordon_history_prune(store, 1500, 100, NULL), 0);
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 10}), "local:3:x;e2b:2:-;");
    assert_int_equal(cordon_history_prune(store, 0, 1, NULL), 0);
    assert_string_equal(history(&(struct cordon_history_filter){.limit = 10}), "local:3:x;");
    assert_int_equal(cordon_history_get(store, 2, each_entry, NULL, &err), -ENOENT);
    assert_int_equal(err.kind, CORDON_ERROR_NOT_FOUND);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(settings_are_kept_and_audited),
        TEST(a_change_of_what_was_not_seen_is_refused),
        TEST(the_revision_outlives_the_audit_log),
        TEST(an_older_store_keeps_its_revision),
        TEST(secrets_are_not_on_the_disk_in_clear),
        TEST(without_its_key_a_secret_stays_shut),
        TEST(a_given_key_seals_instead_of_the_file),
        TEST(the_files_own_key_may_be_given),
        TEST(the_audit_log_is_bounded),
        TEST(the_history_filters_and_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
