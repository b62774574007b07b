/* SPDX-License-Identifier: Apache-2.0 */
#include "store/statement.h"

int cordon_statement_prepare(struct cordon_store *store, const char *sql, sqlite3_stmt **ret, struct cordon_error *err)
{
    *ret = NULL;
    if (sqlite3_prepare_v2(store->db, sql, -1, ret, NULL) != SQLITE_OK)
        return cordon_store_fail(store, "prepare a statement", err);
    return 0;
}

int cordon_statement_begin(struct cordon_store *store, const char *sql, sqlite3_stmt **ret, struct cordon_error *err)
{
    pthread_mutex_lock(&store->lock);
    return cordon_statement_prepare(store, sql, ret, err);
}

void cordon_statement_end(struct cordon_store *store, sqlite3_stmt *statement)
{
    (void)sqlite3_finalize(statement); /* repeats an error that was told */
    pthread_mutex_unlock(&store->lock);
}

int cordon_statement_step(struct cordon_store *store, sqlite3_stmt *statement, const char *what,
                          struct cordon_error *err)
{
    int step = sqlite3_step(statement);
    return step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : cordon_store_fail(store, what, err);
}

void cordon_bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    (void)sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC); /* no memory makes the step fail */
}

int cordon_transaction_begin(struct cordon_store *store, struct cordon_error *err)
{
    pthread_mutex_lock(&store->lock);
    if (sqlite3_exec(store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    int r = cordon_store_fail(store, "begin", err);
    pthread_mutex_unlock(&store->lock);
    return r;
}

int cordon_transaction_end(struct cordon_store *store, int r, struct cordon_error *err)
{
    if (r >= 0 && sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        r = cordon_store_fail(store, "commit", err);
    if (r < 0)
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL); /* the first error is the one to tell */
    pthread_mutex_unlock(&store->lock);
    return r;
}
