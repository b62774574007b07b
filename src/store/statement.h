/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the store: one statement at a time, for what is done seldom (keys keep theirs prepared). */
#ifndef CORDON_STORE_STATEMENT_H
#define CORDON_STORE_STATEMENT_H

#include "store/database.h"

struct cordon_audit_entry;

/* Takes the lock and prepares; _end, which is to be called in any case, finalizes and gives it back. */
int cordon_statement_begin(struct cordon_store *store, const char *sql, sqlite3_stmt **ret, struct cordon_error *err);
void cordon_statement_end(struct cordon_store *store, sqlite3_stmt *statement);
/* With the lock held. */
int cordon_statement_prepare(struct cordon_store *store, const char *sql, sqlite3_stmt **ret, struct cordon_error *err);
/* 1: a row; 0: done; negative with err. */
int cordon_statement_step(struct cordon_store *store, sqlite3_stmt *statement, const char *what,
                          struct cordon_error *err);
void cordon_bind_text(sqlite3_stmt *statement, int at, const char *text); /* borrowed until the statement ends */

/* Lock and transaction. _end commits when r is not negative, else rolls back; gives back the lock; returns r. */
int cordon_transaction_begin(struct cordon_store *store, struct cordon_error *err);
int cordon_transaction_end(struct cordon_store *store, int r, struct cordon_error *err);

int cordon_audit_add_locked(struct cordon_store *store, const struct cordon_audit_entry *entry,
                            struct cordon_error *err);

#endif
