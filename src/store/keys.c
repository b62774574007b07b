/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: "e2b_" and 160 random bits in hex. Only their SHA-256 is stored, which needs no salt or stretching, since there
 * is nothing to guess. Good keys are cached by their hash for as long as `PRAGMA data_version` says that no other
 * process wrote; what this process writes empties the cache itself. So a revocation counts from the next request on.
 */
#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/json.h"
#include "store/database.h"
#include "store/statement.h"

#define SECRET_SIZE 20
#define PREFIX "e2b_"

_Static_assert(sizeof PREFIX - 1 + 2 * SECRET_SIZE + 1 == CORDON_KEY_TEXT, "the text's size");
_Static_assert(CORDON_HASH_SIZE == SHA256_DIGEST_LENGTH, "the hash's size");

#define COLUMNS "id, name, tenant, scope, created_s, revoked_s"

static const char *const statements[CORDON_KEY_STATEMENT__COUNT] = {
    [CORDON_KEY_INSERT] = "INSERT INTO keys (id, hash, name, scope, created_s) VALUES (?1, ?2, ?3, ?4, ?5)",
    [CORDON_KEY_BY_HASH] = "SELECT " COLUMNS ", hash FROM keys WHERE hash = ?1",
    [CORDON_KEY_ALL] = "SELECT " COLUMNS " FROM keys ORDER BY created_s, id",
    [CORDON_KEY_REVOKE] = "UPDATE keys SET revoked_s = ?2 WHERE id = ?1 AND revoked_s = 0",
    [CORDON_KEY_EXISTS] = "SELECT 1 FROM keys WHERE id = ?1",
    [CORDON_KEY_LIVE] = "SELECT count(*) FROM keys WHERE revoked_s = 0",
    [CORDON_KEY_VERSION] = "PRAGMA data_version",
};

int cordon_keys_prepare(struct cordon_store *store, struct cordon_error *err)
{
    for (size_t i = 0; i < CORDON_KEY_STATEMENT__COUNT; i++)
        if (sqlite3_prepare_v3(store->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &store->key_statements[i],
                               NULL) != SQLITE_OK)
            return cordon_store_fail(store, "prepare the keys", err);
    return 0;
}

void cordon_keys_finish(struct cordon_store *store)
{
    for (size_t i = 0; i < CORDON_KEY_STATEMENT__COUNT; i++)
        (void)sqlite3_finalize(store->key_statements[i]); /* repeats an error that was told */
}

static sqlite3_stmt *lock_statement(struct cordon_store *store, enum cordon_key_statement id)
{
    pthread_mutex_lock(&store->lock);
    return store->key_statements[id];
}

static void unlock_statement(struct cordon_store *store, sqlite3_stmt *statement)
{
    (void)sqlite3_reset(statement); /* repeats the step's error */
    (void)sqlite3_clear_bindings(statement);
    pthread_mutex_unlock(&store->lock);
}

static void hex(const unsigned char *bytes, size_t size, char *to)
{
    for (size_t i = 0; i < size; i++)
        (void)snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    (void)sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC); /* no memory makes the step fail */
}

static void hash_text(const char *text, size_t size, unsigned char hash[CORDON_HASH_SIZE])
{
    unsigned char *done = SHA256((const unsigned char *)text, size, hash);
    assert(done); /* libcrypto without SHA-256 is none */
}

static void column_text(sqlite3_stmt *statement, int at, char *to, size_t size)
{
    const unsigned char *text = sqlite3_column_text(statement, at);
    (void)snprintf(to, size, "%s", text ? (const char *)text : "");
}

static const struct {
    const char *name;
    enum cordon_key_scope scope;
} scopes[] = {{"run", CORDON_KEY_RUN}, {"admin", CORDON_KEY_ADMIN}, {"view", CORDON_KEY_VIEW}};
#define SCOPES (sizeof scopes / sizeof *scopes)

const char *cordon_key_scope_name(enum cordon_key_scope scope)
{
    for (size_t i = 0; i < SCOPES; i++)
        if (scopes[i].scope == scope)
            return scopes[i].name;
    return "?";
}

bool cordon_key_scope_parse(const char *name, enum cordon_key_scope *ret)
{
    for (size_t i = 0; i < SCOPES; i++)
        if (strcmp(scopes[i].name, name) == 0) {
            *ret = scopes[i].scope;
            return true;
        }
    return false;
}

/* One that a newer version made may do nothing that we know of but look. */
static enum cordon_key_scope read_scope(int stored)
{
    return stored == CORDON_KEY_RUN || stored == CORDON_KEY_ADMIN ? (enum cordon_key_scope)stored : CORDON_KEY_VIEW;
}

static void read_row(sqlite3_stmt *statement, struct cordon_key_info *ret)
{
    *ret = (struct cordon_key_info){
        .scope = read_scope(sqlite3_column_int(statement, 3)),
        .created_s = sqlite3_column_int64(statement, 4),
        .revoked_s = sqlite3_column_int64(statement, 5),
    };
    column_text(statement, 0, ret->id, sizeof ret->id);
    column_text(statement, 1, ret->name, sizeof ret->name);
    column_text(statement, 2, ret->tenant, sizeof ret->tenant);
}

static int check_name(const char *name, enum cordon_key_scope scope, struct cordon_error *err)
{
    size_t size = strlen(name);
    bool good = size && size < sizeof((struct cordon_key_info *)0)->name && cordon_utf8_valid(name, size);
    for (const char *p = name; *p; p++)
        good = good && (unsigned char)*p >= 0x20 && *p != 0x7F;
    if (!good)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "a key's name must be 1 to 63 bytes of text without control characters");
    if (scope != CORDON_KEY_RUN && scope != CORDON_KEY_ADMIN && scope != CORDON_KEY_VIEW)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a key's scope must be run, admin or view");
    return 0;
}

static int insert(struct cordon_store *store, const struct cordon_key_info *info,
                  const unsigned char hash[CORDON_HASH_SIZE], struct cordon_error *err)
{
    sqlite3_stmt *statement = lock_statement(store, CORDON_KEY_INSERT);
    bind_text(statement, 1, info->id);
    (void)sqlite3_bind_blob(statement, 2, hash, CORDON_HASH_SIZE, SQLITE_STATIC);
    bind_text(statement, 3, info->name);
    (void)sqlite3_bind_int(statement, 4, (int)info->scope);
    (void)sqlite3_bind_int64(statement, 5, info->created_s);
    int r = sqlite3_step(statement) == SQLITE_DONE ? 0 : cordon_store_fail(store, "add a key", err);
    unlock_statement(store, statement);
    return r;
}

int cordon_key_create(struct cordon_store *store, const char *name, enum cordon_key_scope scope,
                      char text[CORDON_KEY_TEXT], struct cordon_key_info *ret, struct cordon_error *err)
{
    unsigned char bytes[SECRET_SIZE + 8], hash[CORDON_HASH_SIZE];
    struct cordon_key_info info = {.scope = scope, .tenant = "default", .created_s = (int64_t)time(NULL)};
    int r = check_name(name, scope, err);
    if (r < 0)
        return r;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cordon_fail_errno(err, -EIO, "get random bytes for a key");
    memcpy(text, PREFIX, sizeof PREFIX - 1);
    hex(bytes, SECRET_SIZE, text + sizeof PREFIX - 1);
    hex(bytes + SECRET_SIZE, 8, info.id);
    explicit_bzero(bytes, sizeof bytes);
    (void)snprintf(info.name, sizeof info.name, "%s", name);
    hash_text(text, CORDON_KEY_TEXT - 1, hash);
    r = insert(store, &info, hash, err);
    if (r < 0)
        explicit_bzero(text, CORDON_KEY_TEXT);
    else
        *ret = info;
    return r;
}

static bool well_formed(const char *text, size_t size)
{
    if (size != CORDON_KEY_TEXT - 1 || memcmp(text, PREFIX, sizeof PREFIX - 1) != 0)
        return false;
    for (size_t i = sizeof PREFIX - 1; i < size; i++)
        if (!text[i] || !strchr("0123456789abcdef", text[i]))
            return false;
    return true;
}

/* Empties the cache when another process has written. The lock is held. */
static int refresh(struct cordon_store *store, struct cordon_error *err)
{
    sqlite3_stmt *statement = store->key_statements[CORDON_KEY_VERSION];
    int r = 0;
    if (sqlite3_step(statement) != SQLITE_ROW) {
        r = cordon_store_fail(store, "read the version", err);
    } else if (sqlite3_column_int64(statement, 0) != store->cached_version) {
        store->cached_version = sqlite3_column_int64(statement, 0);
        memset(store->cached, 0, sizeof store->cached);
    }
    (void)sqlite3_reset(statement); /* repeats the step's error */
    return r;
}

/* The lock is held. */
static const struct cordon_key_info *find_cached(const struct cordon_store *store,
                                                 const unsigned char hash[CORDON_HASH_SIZE])
{
    for (size_t i = 0; i < CORDON_KEYS_CACHED; i++)
        if (store->cached[i].used && CRYPTO_memcmp(store->cached[i].hash, hash, CORDON_HASH_SIZE) == 0)
            return &store->cached[i].info;
    return NULL;
}

/* The lock is held. 1: found, 0: not. */
static int find_stored(struct cordon_store *store, const unsigned char hash[CORDON_HASH_SIZE],
                       struct cordon_key_info *ret, struct cordon_error *err)
{
    sqlite3_stmt *statement = store->key_statements[CORDON_KEY_BY_HASH];
    (void)sqlite3_bind_blob(statement, 1, hash, CORDON_HASH_SIZE, SQLITE_STATIC);
    int step = sqlite3_step(statement);
    int r = step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : cordon_store_fail(store, "find a key", err);
    if (r == 1) {
        read_row(statement, ret);
        const void *stored = sqlite3_column_blob(statement, 6);
        r = stored && sqlite3_column_bytes(statement, 6) == CORDON_HASH_SIZE &&
            CRYPTO_memcmp(stored, hash, CORDON_HASH_SIZE) == 0;
    }
    (void)sqlite3_reset(statement); /* repeats the step's error */
    (void)sqlite3_clear_bindings(statement);
    return r;
}

static int find(struct cordon_store *store, const unsigned char hash[CORDON_HASH_SIZE], struct cordon_key_info *ret,
                struct cordon_error *err)
{
    int r = refresh(store, err);
    if (r < 0)
        return r;
    const struct cordon_key_info *cached = find_cached(store, hash);
    if (cached) {
        *ret = *cached;
        return 1;
    }
    r = find_stored(store, hash, ret, err);
    if (r == 1 && !ret->revoked_s) {
        struct cordon_key_cached *place = &store->cached[store->cached_next++ % CORDON_KEYS_CACHED];
        place->used = true;
        memcpy(place->hash, hash, CORDON_HASH_SIZE);
        place->info = *ret;
    }
    return r;
}

int cordon_key_check(struct cordon_store *store, const char *text, size_t size, struct cordon_key_info *ret,
                     struct cordon_error *err)
{
    unsigned char hash[CORDON_HASH_SIZE];
    struct cordon_key_info info;
    if (!well_formed(text, size))
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                           "the key is not of the form e2b_ and 40 hex digits; `cordon key create` makes one");
    hash_text(text, size, hash);
    pthread_mutex_lock(&store->lock);
    int r = find(store, hash, &info, err);
    pthread_mutex_unlock(&store->lock);
    if (r < 0)
        return r;
    if (r == 0 || info.revoked_s)
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "the key is %s",
                           r ? "revoked" : "not known here; `cordon key create` makes one");
    *ret = info;
    return 0;
}

int cordon_key_list(struct cordon_store *store, int (*each)(void *context, const struct cordon_key_info *key),
                    void *context, struct cordon_error *err)
{
    sqlite3_stmt *statement = lock_statement(store, CORDON_KEY_ALL);
    struct cordon_key_info info;
    int step, r = 0;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW && r == 0) {
        read_row(statement, &info);
        r = each(context, &info);
    }
    if (r == 0 && step != SQLITE_DONE)
        r = cordon_store_fail(store, "list the keys", err);
    unlock_statement(store, statement);
    return r < 0 ? r : 0;
}

static int key_exists(struct cordon_store *store, const char *id, struct cordon_error *err)
{
    sqlite3_stmt *statement = lock_statement(store, CORDON_KEY_EXISTS);
    bind_text(statement, 1, id);
    int step = sqlite3_step(statement);
    int r = step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : cordon_store_fail(store, "find a key", err);
    unlock_statement(store, statement);
    return r;
}

int cordon_key_is_live(struct cordon_store *store, const char *id, struct cordon_error *err)
{
    sqlite3_stmt *row;
    int r = cordon_statement_begin(store, "SELECT 1 FROM keys WHERE id = ?1 AND revoked_s = 0", &row, err);
    if (r == 0) {
        cordon_bind_text(row, 1, id);
        r = cordon_statement_step(store, row, "find a key", err);
    }
    cordon_statement_end(store, row);
    return r;
}

int cordon_key_revoke(struct cordon_store *store, const char *id, struct cordon_error *err)
{
    int r = key_exists(store, id, err);
    if (r < 0)
        return r;
    if (r == 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND,
                           "there is no key with id %.40s; `cordon key list` shows them", id);
    sqlite3_stmt *statement = lock_statement(store, CORDON_KEY_REVOKE);
    bind_text(statement, 1, id);
    (void)sqlite3_bind_int64(statement, 2, (int64_t)time(NULL));
    r = sqlite3_step(statement) == SQLITE_DONE ? 0 : cordon_store_fail(store, "revoke a key", err);
    memset(store->cached, 0, sizeof store->cached);
    unlock_statement(store, statement);
    return r;
}

int cordon_key_count(struct cordon_store *store, struct cordon_error *err)
{
    sqlite3_stmt *statement = lock_statement(store, CORDON_KEY_LIVE);
    int r = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int(statement, 0)
                                                  : cordon_store_fail(store, "count the keys", err);
    unlock_statement(store, statement);
    return r;
}
