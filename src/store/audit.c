/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "store/admin.h"
#include "store/statement.h"

int cordon_audit_add_locked(struct cordon_store *store, const struct cordon_audit_entry *entry,
                            struct cordon_error *err)
{
    static const char insert[] = "INSERT INTO audit (at_s, who, action, subject, before, after)"
                                 " VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    static const char prune[] = "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1";
    const char *const texts[] = {entry->who, entry->action, entry->subject, entry->before, entry->after};
    sqlite3_stmt *statement;
    int r = cordon_statement_prepare(store, insert, &statement, err);
    if (r < 0)
        return r;
    (void)sqlite3_bind_int64(statement, 1, (int64_t)time(NULL)); /* no memory makes the step fail */
    for (int i = 0; i < 5; i++)
        cordon_bind_text(statement, i + 2, texts[i] ? texts[i] : "");
    r = cordon_statement_step(store, statement, "write the audit log", err);
    (void)sqlite3_finalize(statement); /* repeats an error that was told */
    if (r == 0)
        r = cordon_statement_prepare(store, prune, &statement, err);
    if (r < 0)
        return r;
    (void)sqlite3_bind_int(statement, 1, CORDON_AUDIT_MAX);
    r = cordon_statement_step(store, statement, "shorten the audit log", err);
    (void)sqlite3_finalize(statement); /* as above */
    return r;
}

int cordon_audit_add(struct cordon_store *store, const struct cordon_audit_entry *entry, struct cordon_error *err)
{
    int r = cordon_transaction_begin(store, err);
    return r < 0 ? r : cordon_transaction_end(store, cordon_audit_add_locked(store, entry, err), err);
}

int cordon_audit_list(struct cordon_store *store, int64_t before, unsigned limit,
                      int (*each)(void *context, const struct cordon_audit_entry *entry), void *context,
                      struct cordon_error *err)
{
    static const char select[] = "SELECT id, at_s, who, action, subject, before, after FROM audit"
                                 " WHERE ?1 = 0 OR id < ?1 ORDER BY id DESC LIMIT ?2";
    sqlite3_stmt *row;
    int r = cordon_statement_begin(store, select, &row, err);
    if (r == 0) {
        (void)sqlite3_bind_int64(row, 1, before); /* no memory makes the step fail */
        (void)sqlite3_bind_int64(row, 2, limit);
    }
    while (r == 0 && (r = cordon_statement_step(store, row, "read the audit log", err)) == 1) {
        const struct cordon_audit_entry entry = {
            .id = sqlite3_column_int64(row, 0),
            .at_s = sqlite3_column_int64(row, 1),
            .who = (const char *)sqlite3_column_text(row, 2),
            .action = (const char *)sqlite3_column_text(row, 3),
            .subject = (const char *)sqlite3_column_text(row, 4),
            .before = (const char *)sqlite3_column_text(row, 5),
            .after = (const char *)sqlite3_column_text(row, 6),
        };
        r = each(context, &entry);
    }
    cordon_statement_end(store, row);
    return r < 0 ? r : 0;
}
