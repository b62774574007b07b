/* SPDX-License-Identifier: Apache-2.0 */
/* What the admin door keeps: settings that were changed while the daemon ran, who did what, and the runs that were. */
#ifndef CORDON_STORE_ADMIN_H
#define CORDON_STORE_ADMIN_H

#include "store/store.h"

/* --- settings --- */

struct cordon_stored_setting {
    const char *name, *value; /* value in clear, also of a secret */
    bool secret;
    int64_t changed_s;
    const char *changed_by;
};

struct cordon_setting_change {
    const char *name;
    const char *value; /* NULL: forget the stored value */
    bool secret;       /* sealed in the database, masked in the audit log */
};

#define CORDON_SETTINGS_ANY INT64_C(-1)

/* each: called under the store's lock, so it must not call the store; non-zero ends the list (negative: the return). */
int cordon_stored_settings_list(struct cordon_store *store,
                                int (*each)(void *context, const struct cordon_stored_setting *setting), void *context,
                                struct cordon_error *err);
/* All of them or none, each with its line in the audit log; CONFLICT where `seen` is not CORDON_SETTINGS_ANY and not
 * the revision that they have. who: a key's id, or "local" for the command line. */
int cordon_stored_settings_write(struct cordon_store *store, const struct cordon_setting_change *changes, size_t count,
                                 int64_t seen, const char *who, struct cordon_error *err);
/* A number that grows with each change of a setting, by whatever process; 0: there was none yet. */
int cordon_stored_settings_revision(struct cordon_store *store, int64_t *ret, struct cordon_error *err);

/* --- the audit log: the newest CORDON_AUDIT_MAX entries --- */

#define CORDON_AUDIT_MAX 10000

struct cordon_audit_entry {
    int64_t id, at_s;
    const char *who, *action, *subject; /* "setting.change", "CORDON_TIMEOUT_S" */
    const char *before, *after;         /* "" where there is none; secrets are "(secret)" */
};

int cordon_audit_add(struct cordon_store *store, const struct cordon_audit_entry *entry, struct cordon_error *err);
/* Newest first, ids below `before` (0: from the newest), at most limit. */
int cordon_audit_list(struct cordon_store *store, int64_t before, unsigned limit,
                      int (*each)(void *context, const struct cordon_audit_entry *entry), void *context,
                      struct cordon_error *err);

/* --- the history of runs --- */

struct cordon_history_entry {
    int64_t id, at_ms; /* when it ended, Unix milliseconds */
    char tenant[40], key[17], door[24], backend[32], language[16], cause[24];
    int exit_code;
    uint64_t queue_us, start_us, run_us, total_us, cpu_us, memory_peak_bytes, stdout_bytes, stderr_bytes;
    char message[256];
    char *code, *stdout_text,
        *stderr_text; /* NULL unless the operator had them kept; owned by whoever made the entry */
};

struct cordon_history_filter {
    int64_t before;                         /* ids below; 0: from the newest */
    const char *backend, *language, *cause; /* NULL: any */
    unsigned limit;
};

int cordon_history_add(struct cordon_store *store, const struct cordon_history_entry *entries, size_t count,
                       struct cordon_error *err);
int cordon_history_list(struct cordon_store *store, const struct cordon_history_filter *filter,
                        int (*each)(void *context, const struct cordon_history_entry *entry), void *context,
                        struct cordon_error *err);
int cordon_history_get(struct cordon_store *store, int64_t id,
                       int (*each)(void *context, const struct cordon_history_entry *entry), void *context,
                       struct cordon_error *err); /* NOT_FOUND */
/* Forgets what is older, and all but the newest `most`. */
int cordon_history_prune(struct cordon_store *store, int64_t older_than_ms, uint64_t most, struct cordon_error *err);

#endif
