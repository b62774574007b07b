/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of kept guests: records by id. They are written at every turn of a guest's life, so a write does not
 * wait for the disk: it outlives this process, and after a loss of power there are no guests that it could tell of.
 */
#include <errno.h>
#include <string.h>

#include "core/guests.h"
#include "store/database.h"
#include "store/secret.h"

static const char *const texts[CORDON_GUEST_STATEMENT__COUNT] = {
    [CORDON_GUEST_PUT] = "INSERT INTO guests (id, record) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET record = ?2",
    [CORDON_GUEST_REMOVE] = "DELETE FROM guests WHERE id = ?1",
    [CORDON_GUEST_ALL] = "SELECT id, record FROM guests",
};

int cordon_store_guests_prepare(struct cordon_store *store, struct cordon_error *err)
{
    for (size_t i = 0; i < CORDON_GUEST_STATEMENT__COUNT; i++)
        if (sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &store->guest_statements[i], NULL) !=
            SQLITE_OK)
            return cordon_store_fail(store, "prepare the statements of guests", err);
    return 0;
}

void cordon_store_guests_finish(struct cordon_store *store)
{
    for (size_t i = 0; i < CORDON_GUEST_STATEMENT__COUNT; i++)
        (void)sqlite3_finalize(store->guest_statements[i]); /* repeats the last step's error */
}

/* The lock is held. */
static int write_row(struct cordon_store *store, enum cordon_guest_statement which, const char *id, const char *record,
                     size_t size, const char *what, struct cordon_error *err)
{
    sqlite3_stmt *statement = store->guest_statements[which];
    /* What can't be bound makes the step fail. */
    (void)sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
    if (record)
        (void)sqlite3_bind_blob(statement, 2, record, (int)size, SQLITE_STATIC);
    (void)sqlite3_exec(store->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL); /* else it only takes longer */
    int r = sqlite3_step(statement) == SQLITE_DONE ? 0 : cordon_store_fail(store, what, err);
    (void)sqlite3_reset(statement); /* repeats the step's error */
    (void)sqlite3_clear_bindings(statement);
    (void)sqlite3_exec(store->db, "PRAGMA synchronous = FULL", NULL, NULL, NULL); /* for keys */
    return r;
}

static int put(void *context, const char *id, const char *record, size_t size, struct cordon_error *err)
{
    struct cordon_store *store = context;
    pthread_mutex_lock(&store->lock);
    int r = write_row(store, CORDON_GUEST_PUT, id, record, size, "keep a guest", err);
    pthread_mutex_unlock(&store->lock);
    return r;
}

static int drop(void *context, const char *id, struct cordon_error *err)
{
    struct cordon_store *store = context;
    pthread_mutex_lock(&store->lock);
    int r = write_row(store, CORDON_GUEST_REMOVE, id, NULL, 0, "forget a guest", err);
    pthread_mutex_unlock(&store->lock);
    return r;
}

static int each(void *context, void (*row)(void *row_context, const char *id, const char *record, size_t size),
                void *row_context, struct cordon_error *err)
{
    struct cordon_store *store = context;
    pthread_mutex_lock(&store->lock);
    sqlite3_stmt *statement = store->guest_statements[CORDON_GUEST_ALL];
    int step;
    while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(statement, 0), *record = sqlite3_column_blob(statement, 1);
        if (id && record)
            row(row_context, id, record, (size_t)sqlite3_column_bytes(statement, 1));
    }
    int r = step == SQLITE_DONE ? 0 : cordon_store_fail(store, "list the guests", err);
    (void)sqlite3_reset(statement); /* repeats the step's error */
    pthread_mutex_unlock(&store->lock);
    return r;
}

static int seal(void *context, const char *name, const char *text, size_t size, struct cordon_buf *to,
                struct cordon_error *err)
{
    struct cordon_store *store = context;
    struct cordon_secret_key key;
    int r = cordon_store_secret_key(store, false, &key, err); /* without the lock: a transaction may wait for seconds */
    if (r == -ENOENT) {
        pthread_mutex_lock(&store->lock);
        r = cordon_store_sealing_key(store, &key, err);
        pthread_mutex_unlock(&store->lock);
    }
    if (r == 0)
        r = cordon_secret_seal(&key, name, text, size, to, err);
    explicit_bzero(&key, sizeof key);
    return r;
}

static int open_sealed(void *context, const char *name, const void *sealed, size_t size, struct cordon_buf *to,
                       struct cordon_error *err)
{
    const struct cordon_store *store = context;
    struct cordon_secret_key key;
    int r = cordon_store_secret_key(store, false, &key, err);
    if (r == 0)
        r = cordon_secret_open(&key, name, sealed, size, to, err);
    explicit_bzero(&key, sizeof key);
    return r;
}

struct cordon_guest_registry cordon_store_guests(struct cordon_store *store)
{
    return (struct cordon_guest_registry){
        .context = store, .put = put, .remove = drop, .seal = seal, .open = open_sealed, .each = each};
}
