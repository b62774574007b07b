/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept between starts, in SQLite (STATE/cordon.db). Thread-safe. Keys are stored as SHA-256 only. */
#ifndef CORDON_STORE_STORE_H
#define CORDON_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cordon_store;

/* The folder is there; the store in it is created, migrated. */
int cordon_store_open(const char *state_dir, struct cordon_store **ret, struct cordon_error *err);
/* Secrets are sealed and opened with this key, as CORDON_SECRET_KEY has it; "": with the one of the folder. Before any
 * other thread has the store. -EINVAL: it is no key. */
int cordon_store_use_key(struct cordon_store *store, const char *text);
void cordon_store_close(struct cordon_store *store);

/* Admin may do all; view may only look, at everything. */
enum cordon_key_scope { CORDON_KEY_RUN = 1, CORDON_KEY_ADMIN = 2, CORDON_KEY_VIEW = 3 };

#define CORDON_KEY_TEXT 45 /* "e2b_" + 40 hex digits + NUL */

struct cordon_key_info {
    char id[17]; /* 16 hex digits, public */
    char name[64];
    char tenant[40];
    enum cordon_key_scope scope;
    int64_t created_s, revoked_s; /* Unix seconds; 0: not revoked */
};

/* Makes a key; its text is returned this once. The caller wipes it. */
int cordon_key_create(struct cordon_store *store, const char *name, enum cordon_key_scope scope,
                      char text[CORDON_KEY_TEXT], struct cordon_key_info *ret, struct cordon_error *err);
/* Constant-time in the secret; UNAUTHENTICATED when unknown, malformed or revoked. A small cache keeps it off the disk.
 */
int cordon_key_check(struct cordon_store *store, const char *text, size_t size, struct cordon_key_info *ret,
                     struct cordon_error *err);
/* each: called under the store's lock, so it must not call the store; a non-zero return ends the list (negative: it is
 * the return). */
int cordon_key_list(struct cordon_store *store, int (*each)(void *context, const struct cordon_key_info *key),
                    void *context, struct cordon_error *err);
int cordon_key_revoke(struct cordon_store *store, const char *id, struct cordon_error *err); /* NOT_FOUND */
/* guests.c: the registry of kept guests; lives as long as the store */
struct cordon_guest_registry;
struct cordon_guest_registry cordon_store_guests(struct cordon_store *store);

int cordon_key_count(struct cordon_store *store, struct cordon_error *err); /* live ones, or negative */
const char *cordon_key_scope_name(enum cordon_key_scope scope);             /* "run", "admin", "view" */
bool cordon_key_scope_parse(const char *name, enum cordon_key_scope *ret);
int cordon_key_is_live(struct cordon_store *store, const char *id, struct cordon_error *err); /* 1, 0 or negative */

/* A link into the admin page that works once, within a day: its secret is returned here only. */
#define CORDON_LINK_TEXT 41 /* 40 hex digits + NUL */
int cordon_link_create(struct cordon_store *store, char text[CORDON_LINK_TEXT], struct cordon_error *err);
/* UNAUTHENTICATED when it is unknown, used or old. */
int cordon_link_use(struct cordon_store *store, const char *text, size_t size, struct cordon_error *err);

#endif
