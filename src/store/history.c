/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/admin.h"
#include "store/statement.h"

#define COLUMNS                                                                                                        \
    "at_ms, tenant, key, door, backend, language, cause, exit_code, queue_us, start_us, run_us, total_us, cpu_us,"     \
    " memory_peak, stdout_bytes, stderr_bytes, message, code, stdout, stderr"

static void bind_entry(sqlite3_stmt *statement, const struct cordon_history_entry *entry)
{
    const char *const texts[] = {entry->tenant, entry->key, entry->door, entry->backend, entry->language, entry->cause};
    const uint64_t numbers[] = {entry->queue_us, entry->start_us,          entry->run_us,       entry->total_us,
                                entry->cpu_us,   entry->memory_peak_bytes, entry->stdout_bytes, entry->stderr_bytes};
    const char *const last[] = {entry->message, entry->code, entry->stdout_text, entry->stderr_text};
    int at = 1;
    (void)sqlite3_bind_int64(statement, at++, entry->at_ms); /* no memory makes the step fail */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        cordon_bind_text(statement, at++, texts[i]);
    (void)sqlite3_bind_int(statement, at++, entry->exit_code);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sqlite3_bind_int64(statement, at++, (int64_t)numbers[i]);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        cordon_bind_text(statement, at++, last[i]); /* NULL binds NULL */
}

int cordon_history_add(struct cordon_store *store, const struct cordon_history_entry *entries, size_t count,
                       struct cordon_error *err)
{
    static const char insert[] = "INSERT INTO history (" COLUMNS ") VALUES"
                                 " (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
                                 " ?19, ?20)";
    sqlite3_stmt *statement = NULL;
    int r = cordon_transaction_begin(store, err);
    if (r < 0)
        return r;
    r = cordon_statement_prepare(store, insert, &statement, err);
    for (size_t i = 0; i < count && r == 0; i++) {
        bind_entry(statement, &entries[i]);
        r = cordon_statement_step(store, statement, "write the history", err);
        (void)sqlite3_reset(statement); /* repeats an error that was told */
    }
    (void)sqlite3_finalize(statement); /* the same */
    return cordon_transaction_end(store, r, err);
}

static void column_text(sqlite3_stmt *row, int at, char *to, size_t size)
{
    const unsigned char *text = sqlite3_column_text(row, at);
    (void)snprintf(to, size, "%s", text ? (const char *)text : "");
}

/* The long texts are borrowed from the row. */
static void read_entry(sqlite3_stmt *row, struct cordon_history_entry *ret)
{
    uint64_t *const numbers[] = {&ret->queue_us, &ret->start_us,          &ret->run_us,       &ret->total_us,
                                 &ret->cpu_us,   &ret->memory_peak_bytes, &ret->stdout_bytes, &ret->stderr_bytes};
    char **const last[] = {&ret->code, &ret->stdout_text, &ret->stderr_text};
    *ret = (struct cordon_history_entry){.id = sqlite3_column_int64(row, 0), .at_ms = sqlite3_column_int64(row, 1)};
    column_text(row, 2, ret->tenant, sizeof ret->tenant);
    column_text(row, 3, ret->key, sizeof ret->key);
    column_text(row, 4, ret->door, sizeof ret->door);
    column_text(row, 5, ret->backend, sizeof ret->backend);
    column_text(row, 6, ret->language, sizeof ret->language);
    column_text(row, 7, ret->cause, sizeof ret->cause);
    ret->exit_code = sqlite3_column_int(row, 8);
    for (int i = 0; i < 8; i++)
        *numbers[i] = (uint64_t)sqlite3_column_int64(row, 9 + i);
    column_text(row, 17, ret->message, sizeof ret->message);
    for (int i = 0; i < 3; i++)
        *last[i] = (char *)(uintptr_t)sqlite3_column_text(row, 18 + i);
}

static int each_row(struct cordon_store *store, sqlite3_stmt *row,
                    int (*each)(void *context, const struct cordon_history_entry *entry), void *context,
                    struct cordon_error *err)
{
    struct cordon_history_entry entry;
    int r, count = 0;
    while ((r = cordon_statement_step(store, row, "read the history", err)) == 1) {
        read_entry(row, &entry);
        count++;
        r = each(context, &entry);
        if (r)
            break;
    }
    return r < 0 ? r : count;
}

int cordon_history_list(struct cordon_store *store, const struct cordon_history_filter *filter,
                        int (*each)(void *context, const struct cordon_history_entry *entry), void *context,
                        struct cordon_error *err)
{
    static const char select[] = "SELECT id, " COLUMNS " FROM history WHERE (?1 = 0 OR id < ?1)"
                                 " AND (?2 IS NULL OR backend = ?2) AND (?3 IS NULL OR language = ?3)"
                                 " AND (?4 IS NULL OR cause = ?4) ORDER BY id DESC LIMIT ?5";
    sqlite3_stmt *row;
    int r = cordon_statement_begin(store, select, &row, err);
    if (r == 0) {
        (void)sqlite3_bind_int64(row, 1, filter->before); /* no memory makes the step fail */
        cordon_bind_text(row, 2, filter->backend);
        cordon_bind_text(row, 3, filter->language);
        cordon_bind_text(row, 4, filter->cause);
        (void)sqlite3_bind_int64(row, 5, filter->limit);
        r = each_row(store, row, each, context, err);
    }
    cordon_statement_end(store, row);
    return r < 0 ? r : 0;
}

int cordon_history_get(struct cordon_store *store, int64_t id,
                       int (*each)(void *context, const struct cordon_history_entry *entry), void *context,
                       struct cordon_error *err)
{
    sqlite3_stmt *row;
    int r = cordon_statement_begin(store, "SELECT id, " COLUMNS " FROM history WHERE id = ?1", &row, err);
    if (r == 0) {
        (void)sqlite3_bind_int64(row, 1, id); /* no memory makes the step fail */
        r = each_row(store, row, each, context, err);
    }
    cordon_statement_end(store, row);
    if (r == 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND,
                           "there is no run %lld in the history: it is bounded by age and number", (long long)id);
    return r < 0 ? r : 0;
}

int cordon_history_prune(struct cordon_store *store, int64_t older_than_ms, uint64_t most, struct cordon_error *err)
{
    sqlite3_stmt *statement;
    int r = cordon_statement_begin(
        store, "DELETE FROM history WHERE at_ms < ?1 OR id <= (SELECT max(id) FROM history) - ?2", &statement, err);
    if (r == 0) {
        (void)sqlite3_bind_int64(statement, 1, older_than_ms); /* no memory makes the step fail */
        (void)sqlite3_bind_int64(statement, 2, (int64_t)most);
        r = cordon_statement_step(store, statement, "shorten the history", err);
    }
    cordon_statement_end(store, statement);
    return r < 0 ? r : 0;
}
