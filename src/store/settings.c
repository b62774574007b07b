/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/admin.h"
#include "store/database.h"
#include "store/secret.h"
#include "store/statement.h"

#define SEALED_MAX (1u << 20)
#define MASK "(secret)"

/* The value in clear into *clear. The lock is held. */
static int read_value(struct cordon_store *store, sqlite3_stmt *row, struct cordon_buf *clear, struct cordon_error *err)
{
    const void *data = sqlite3_column_blob(row, 1);
    size_t size = (size_t)sqlite3_column_bytes(row, 1);
    clear->size = 0;
    if (!sqlite3_column_int(row, 2))
        return cordon_buf_append(clear, size ? data : "", size) < 0 ? cordon_fail_errno(err, -ENOMEM, "read a setting")
                                                                    : 0;
    struct cordon_secret_key key;
    int r = cordon_store_secret_key(store, false, &key, err);
    if (r == 0)
        r = cordon_secret_open(&key, (const char *)sqlite3_column_text(row, 0), size ? data : "", size, clear, err);
    explicit_bzero(&key, sizeof key);
    return r;
}

int cordon_stored_settings_list(struct cordon_store *store,
                                int (*each)(void *context, const struct cordon_stored_setting *setting), void *context,
                                struct cordon_error *err)
{
    struct cordon_buf clear = CORDON_BUF_INIT(SEALED_MAX);
    sqlite3_stmt *row;
    int r = cordon_statement_begin(
        store, "SELECT name, value, secret, changed_s, changed_by FROM settings ORDER BY name", &row, err);
    while (r == 0 && (r = cordon_statement_step(store, row, "list the settings", err)) == 1) {
        r = read_value(store, row, &clear, err);
        const struct cordon_stored_setting setting = {
            .name = (const char *)sqlite3_column_text(row, 0),
            .value = clear.data ? clear.data : "",
            .secret = sqlite3_column_int(row, 2) != 0,
            .changed_s = sqlite3_column_int64(row, 3),
            .changed_by = (const char *)sqlite3_column_text(row, 4),
        };
        if (r == 0)
            r = each(context, &setting);
    }
    cordon_statement_end(store, row);
    cordon_buf_wipe(&clear);
    return r < 0 ? r : 0;
}

/* What the audit log has as the value before. The lock is held. */
static int read_before(struct cordon_store *store, const char *name, char to[256], struct cordon_error *err)
{
    sqlite3_stmt *row;
    int r = cordon_statement_prepare(store, "SELECT value, secret FROM settings WHERE name = ?1", &row, err);
    if (r < 0)
        return r;
    cordon_bind_text(row, 1, name);
    r = cordon_statement_step(store, row, "read a setting", err);
    const char *text = r == 1 && !sqlite3_column_int(row, 1) ? (const char *)sqlite3_column_text(row, 0) : "";
    (void)snprintf(to, 256, "%s", r == 1 && sqlite3_column_int(row, 1) ? MASK : text ? text : "");
    (void)sqlite3_finalize(row); /* repeats an error that was told */
    return r < 0 ? r : 0;
}

static int bind_value(struct cordon_store *store, sqlite3_stmt *statement, const struct cordon_setting_change *change,
                      struct cordon_buf *sealed, struct cordon_error *err)
{
    if (!change->secret) {
        (void)sqlite3_bind_blob(statement, 2, change->value, (int)strlen(change->value), SQLITE_STATIC);
        return 0;
    }
    struct cordon_secret_key key;
    int r = cordon_store_sealing_key(store, &key, err);
    if (r == 0)
        r = cordon_secret_seal(&key, change->name, change->value, strlen(change->value), sealed, err);
    explicit_bzero(&key, sizeof key);
    if (r == 0)
        (void)sqlite3_bind_blob(statement, 2, sealed->data, (int)sealed->size, SQLITE_STATIC);
    return r;
}

static int put(struct cordon_store *store, const struct cordon_setting_change *change, const char *who,
               struct cordon_error *err)
{
    static const char insert[] = "INSERT INTO settings (name, value, secret, changed_s, changed_by)"
                                 " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE SET value = excluded.value,"
                                 " secret = excluded.secret, changed_s = excluded.changed_s,"
                                 " changed_by = excluded.changed_by";
    struct cordon_buf sealed = CORDON_BUF_INIT(SEALED_MAX);
    sqlite3_stmt *statement;
    int r = cordon_statement_prepare(store, change->value ? insert : "DELETE FROM settings WHERE name = ?1", &statement,
                                     err);
    if (r < 0)
        return r;
    cordon_bind_text(statement, 1, change->name);
    if (change->value) {
        r = bind_value(store, statement, change, &sealed, err);
        (void)sqlite3_bind_int(statement, 3, change->secret); /* no memory makes the step fail */
        (void)sqlite3_bind_int64(statement, 4, (int64_t)time(NULL));
        cordon_bind_text(statement, 5, who);
    }
    if (r == 0)
        r = cordon_statement_step(store, statement, "write a setting", err);
    (void)sqlite3_finalize(statement); /* repeats an error that was told */
    cordon_buf_done(&sealed);
    return r;
}

/* A form is sent whole: what it leaves as it is stored already is no change, nor is forgetting what is not there. 1, 0
 * or negative. */
static int changes_nothing(struct cordon_store *store, const struct cordon_setting_change *change,
                           struct cordon_error *err)
{
    static const char same[] = "SELECT 1 FROM settings WHERE name = ?1 AND value = ?2 AND secret = 0";
    sqlite3_stmt *row;
    if (change->value && change->secret)
        return 0; /* each sealing of a secret is another text */
    int r = cordon_statement_prepare(store, change->value ? same : "SELECT 1 FROM settings WHERE name = ?1", &row, err);
    if (r < 0)
        return r;
    cordon_bind_text(row, 1, change->name);
    if (change->value)
        (void)sqlite3_bind_blob(row, 2, change->value, (int)strlen(change->value), SQLITE_STATIC);
    r = cordon_statement_step(store, row, "read a setting", err);
    (void)sqlite3_finalize(row); /* repeats an error that was told */
    return r < 0 || change->value ? r : !r;
}

/* The lock is held, within a transaction, and the change is in the audit log: the revision is its number there, by
 * which a page finds what came since. */
static int raise_revision(struct cordon_store *store, struct cordon_error *err)
{
    sqlite3_stmt *statement;
    int r =
        cordon_statement_prepare(store,
                                 "UPDATE revisions SET revision = max(revision + 1, (SELECT seq FROM sqlite_sequence"
                                 " WHERE name = 'audit')) WHERE name = 'settings'",
                                 &statement, err);
    if (r < 0)
        return r;
    r = cordon_statement_step(store, statement, "write the settings' revision", err);
    (void)sqlite3_finalize(statement); /* repeats an error that was told */
    return r;
}

static int write_one(struct cordon_store *store, const struct cordon_setting_change *change, const char *who,
                     struct cordon_error *err)
{
    char before[256];
    int r = changes_nothing(store, change, err);
    if (r)
        return r < 0 ? r : 0;
    r = read_before(store, change->name, before, err);
    if (r == 0)
        r = put(store, change, who, err);
    const struct cordon_audit_entry entry = {
        .who = who,
        .action = change->value ? "setting.change" : "setting.forget",
        .subject = change->name,
        .before = before,
        .after = !change->value   ? ""
                 : change->secret ? MASK
                                  : change->value,
    };
    if (r == 0)
        r = cordon_audit_add_locked(store, &entry, err);
    return r < 0 ? r : raise_revision(store, err);
}

/* The lock is held. */
static int read_revision(struct cordon_store *store, int64_t *ret, struct cordon_error *err)
{
    sqlite3_stmt *row;
    int r = cordon_statement_prepare(store, "SELECT revision FROM revisions WHERE name = 'settings'", &row, err);
    if (r < 0)
        return r;
    r = cordon_statement_step(store, row, "read the settings' revision", err);
    if (r == 1)
        *ret = sqlite3_column_int64(row, 0);
    (void)sqlite3_finalize(row); /* repeats an error that was told */
    if (r == 0)                  /* each store has that row */
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the store has no revision of its settings");
    return r < 0 ? r : 0;
}

int cordon_stored_settings_revision(struct cordon_store *store, int64_t *ret, struct cordon_error *err)
{
    pthread_mutex_lock(&store->lock);
    int r = read_revision(store, ret, err);
    pthread_mutex_unlock(&store->lock);
    return r;
}

static int check_seen(struct cordon_store *store, int64_t seen, struct cordon_error *err)
{
    int64_t now = 0;
    if (seen == CORDON_SETTINGS_ANY)
        return 0;
    int r = read_revision(store, &now, err);
    if (r < 0 || now == seen)
        return r;
    return cordon_fail(err, -ESTALE, CORDON_ERROR_CONFLICT,
                       "settings were changed since they were read (revision %lld, now %lld): read them anew",
                       (long long)seen, (long long)now);
}

int cordon_stored_settings_write(struct cordon_store *store, const struct cordon_setting_change *changes, size_t count,
                                 int64_t seen, const char *who, struct cordon_error *err)
{
    int r = cordon_transaction_begin(store, err);
    if (r < 0)
        return r;
    r = check_seen(store, seen, err);
    for (size_t i = 0; i < count && r == 0; i++)
        r = write_one(store, &changes[i], who, err);
    return cordon_transaction_end(store, r, err);
}
