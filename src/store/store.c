/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One SQLite connection under one lock, in WAL mode, so that the daemon and `cordon key` may have it open at once.
 *
 * Its folder was checked before (supervisor/state.h), and who opens it is the folder's owner. Nothing in the folder is
 * followed when it is a symbolic link all the same.
 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/database.h"
#include "store/statement.h"

#define SCHEMA_VERSION 4

/* Each takes the schema one version further, within one transaction. */
static const char *const migrations[SCHEMA_VERSION] = {
    "CREATE TABLE keys ("
    " id TEXT PRIMARY KEY NOT NULL,"
    " hash BLOB UNIQUE NOT NULL,"
    " name TEXT NOT NULL,"
    " tenant TEXT NOT NULL DEFAULT 'default',"
    " scope INTEGER NOT NULL,"
    " created_s INTEGER NOT NULL,"
    " revoked_s INTEGER NOT NULL DEFAULT 0"
    ") WITHOUT ROWID;",
    "CREATE TABLE guests (id TEXT PRIMARY KEY NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE settings ("
    " name TEXT PRIMARY KEY NOT NULL,"
    " value BLOB NOT NULL," /* sealed where secret (store/secret.h) */
    " secret INTEGER NOT NULL,"
    " changed_s INTEGER NOT NULL,"
    " changed_by TEXT NOT NULL"
    ") WITHOUT ROWID;"
    "CREATE TABLE audit ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at_s INTEGER NOT NULL,"
    " who TEXT NOT NULL,"
    " action TEXT NOT NULL,"
    " subject TEXT NOT NULL,"
    " before TEXT NOT NULL,"
    " after TEXT NOT NULL"
    ");"
    "CREATE TABLE links (hash BLOB PRIMARY KEY NOT NULL, created_s INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE history ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at_ms INTEGER NOT NULL,"
    " tenant TEXT NOT NULL, key TEXT NOT NULL, door TEXT NOT NULL, backend TEXT NOT NULL, language TEXT NOT NULL,"
    " cause TEXT NOT NULL, exit_code INTEGER NOT NULL,"
    " queue_us INTEGER NOT NULL, start_us INTEGER NOT NULL, run_us INTEGER NOT NULL, total_us INTEGER NOT NULL,"
    " cpu_us INTEGER NOT NULL, memory_peak INTEGER NOT NULL, stdout_bytes INTEGER NOT NULL,"
    " stderr_bytes INTEGER NOT NULL, message TEXT NOT NULL,"
    " code TEXT, stdout TEXT, stderr TEXT"
    ");"
    "CREATE INDEX history_by_time ON history (at_ms);",
    /* Before, it was the number of the newest change in the audit log, which is shortened: one that is no longer there
     * was below the log's next number. */
    "CREATE TABLE revisions (name TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO revisions VALUES ('settings', coalesce("
    " (SELECT max(id) FROM audit WHERE action IN ('setting.change', 'setting.forget')),"
    " (SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0));",
};

int cordon_store_fail(struct cordon_store *store, const char *what, struct cordon_error *err)
{
    int found = sqlite3_errcode(store->db) & 0xff; /* without what SQLite says of it more closely */
    int code = found == SQLITE_BUSY ? -EAGAIN : found == SQLITE_FULL ? -ENOSPC : -EIO;
    return cordon_fail(err, code, CORDON_ERROR_INFRASTRUCTURE, "%s in the store: %s%s", what, sqlite3_errmsg(store->db),
                       found == SQLITE_FULL ? ": free space in the state folder's file system" : "");
}

static int run_sql(struct cordon_store *store, const char *sql, const char *what, struct cordon_error *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return cordon_store_fail(store, what, err);
}

static int read_version(struct cordon_store *store, int *ret, struct cordon_error *err)
{
    sqlite3_stmt *statement = NULL;
    int r = 0;
    if (sqlite3_prepare_v2(store->db, "PRAGMA user_version", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        r = cordon_store_fail(store, "read the schema's version", err);
    else
        *ret = sqlite3_column_int(statement, 0);
    (void)sqlite3_finalize(statement); /* repeats the step's error */
    return r;
}

/* Under the write lock, since another process may migrate at the same time. */
static int migrate_locked(struct cordon_store *store, struct cordon_error *err)
{
    int version;
    char sql[64];
    int r = read_version(store, &version, err);
    if (r < 0)
        return r;
    if (version > SCHEMA_VERSION)
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE,
                           "the store has schema version %d, this cordon knows up to %d: it was used by a newer one; "
                           "upgrade, or use another --state",
                           version, SCHEMA_VERSION);
    for (; r == 0 && version < SCHEMA_VERSION; version++)
        r = run_sql(store, migrations[version], "make the tables", err);
    if (r < 0)
        return r;
    (void)snprintf(sql, sizeof sql, "PRAGMA user_version = %d; COMMIT", SCHEMA_VERSION);
    return run_sql(store, sql, "write the schema's version", err);
}

static int migrate(struct cordon_store *store, struct cordon_error *err)
{
    int version;
    int r = read_version(store, &version, err);
    if (r < 0 || version == SCHEMA_VERSION)
        return r;
    r = run_sql(store, "BEGIN IMMEDIATE", "begin", err);
    if (r < 0)
        return r;
    r = migrate_locked(store, err);
    if (r < 0)
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL); /* the first error is the one to tell */
    return r;
}

/* *ret is its real path, as SQLite is told to follow no link. */
static int open_folder(const char *state_dir, int *ret_fd, char **ret, struct cordon_error *err)
{
    cordon_autofree char *real = realpath(state_dir, NULL);
    cordon_autoclose int fd = real ? open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "the state folder %.200s", state_dir);
    *ret = CORDON_TAKE(real);
    *ret_fd = CORDON_TAKE_FD(fd);
    return 0;
}

/* Before SQLite can make it with another mode. */
static int make_file(int folder, struct cordon_error *err)
{
    cordon_autoclose int fd = openat(folder, "cordon.db", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 && errno != EEXIST ? cordon_fail_errno(err, -errno, "make the store's file") : 0;
}

static int open_database(struct cordon_store *store, const char *path, struct cordon_error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE;
    if (sqlite3_open_v2(path, &store->db, flags, NULL) != SQLITE_OK) {
        int r = cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "open the store: %s",
                            store->db ? sqlite3_errmsg(store->db) : "no memory");
        cordon_error_detail(err, "%s", path);
        return r;
    }
    (void)sqlite3_busy_timeout(store->db, 5000); /* another process writes for milliseconds */
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    int r =
        run_sql(store, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -256", "set up", err);
    if (r == 0)
        r = migrate(store, err);
    if (r == 0)
        r = cordon_keys_prepare(store, err);
    return r < 0 ? r : cordon_store_guests_prepare(store, err);
}

static void close_store(struct cordon_store **store)
{
    cordon_store_close(*store);
}

int cordon_store_open(const char *state_dir, struct cordon_store **ret, struct cordon_error *err)
{
    cordon_autofree char *real = NULL, *path = NULL;
    cordon_autoclose int folder = -1;
    __attribute__((cleanup(close_store))) struct cordon_store *store = NULL;
    int r = open_folder(state_dir, &folder, &real, err);
    if (r == 0)
        r = make_file(folder, err);
    if (r < 0)
        return r;
    store = calloc(1, sizeof *store);
    if (store)
        store->folder = -1;
    if (!store || asprintf(&path, "%s/cordon.db", real) < 0)
        return cordon_fail_errno(err, -ENOMEM, "open the store");
    (void)pthread_mutex_init(&store->lock, NULL); /* default attributes: can't fail */
    store->folder = CORDON_TAKE_FD(folder);
    r = open_database(store, path, err);
    if (r < 0)
        return r;
    *ret = CORDON_TAKE(store);
    return 0;
}

int cordon_store_use_key(struct cordon_store *store, const char *text)
{
    store->secret_key.given = *text;
    return !*text || cordon_secret_key_read(text, store->secret_key.bytes) ? 0 : -EINVAL;
}

int cordon_store_secret_key(const struct cordon_store *store, bool make, struct cordon_secret_key *ret,
                            struct cordon_error *err)
{
    if (!store->secret_key.given)
        return cordon_secret_key_load(store->folder, make, ret, err);
    *ret = store->secret_key;
    return 0;
}

int cordon_store_sealing_key(struct cordon_store *store, struct cordon_secret_key *ret, struct cordon_error *err)
{
    sqlite3_stmt *row;
    int r = cordon_statement_prepare(store, "SELECT 1 FROM settings WHERE secret = 1 LIMIT 1", &row, err);
    if (r < 0)
        return r;
    r = cordon_statement_step(store, row, "look for stored secrets", err);
    (void)sqlite3_finalize(row); /* repeats an error that was told */
    return r < 0 ? r : cordon_store_secret_key(store, r == 0, ret, err);
}

void cordon_store_close(struct cordon_store *store)
{
    if (!store)
        return;
    cordon_keys_finish(store);
    cordon_store_guests_finish(store);
    (void)sqlite3_close(store->db); /* all statements are finalized: can't be busy */
    (void)pthread_mutex_destroy(&store->lock);
    cordon_close(&store->folder);
    explicit_bzero(store, sizeof *store);
    free(store);
}
