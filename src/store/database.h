/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the store: its connection, and what each kind of object keeps with it. */
#ifndef CORDON_STORE_DATABASE_H
#define CORDON_STORE_DATABASE_H

#include <pthread.h>
#include <sqlite3.h>

#include "store/secret.h"
#include "store/store.h"

#define CORDON_HASH_SIZE 32
#define CORDON_KEYS_CACHED 64

enum cordon_key_statement {
    CORDON_KEY_INSERT,
    CORDON_KEY_BY_HASH,
    CORDON_KEY_ALL,
    CORDON_KEY_REVOKE,
    CORDON_KEY_EXISTS,
    CORDON_KEY_LIVE,
    CORDON_KEY_VERSION,
    CORDON_KEY_STATEMENT__COUNT
};

enum cordon_guest_statement { CORDON_GUEST_PUT, CORDON_GUEST_REMOVE, CORDON_GUEST_ALL, CORDON_GUEST_STATEMENT__COUNT };

struct cordon_store {
    pthread_mutex_t lock;
    sqlite3 *db;
    int folder;                          /* the state folder */
    struct cordon_secret_key secret_key; /* where one was given */
    sqlite3_stmt *key_statements[CORDON_KEY_STATEMENT__COUNT];
    sqlite3_stmt *guest_statements[CORDON_GUEST_STATEMENT__COUNT];
    /* Keys that were found good while the database had version cached_version. */
    struct cordon_key_cached {
        bool used;
        unsigned char hash[CORDON_HASH_SIZE];
        struct cordon_key_info info;
    } cached[CORDON_KEYS_CACHED];
    size_t cached_next;
    int64_t cached_version;
};

/* The key that secrets are sealed with; make: as cordon_secret_key_load. The caller wipes it. */
int cordon_store_secret_key(const struct cordon_store *store, bool make, struct cordon_secret_key *ret,
                            struct cordon_error *err);
/* The same, to seal with: made where it is missing and no setting was sealed with it; else -ENOENT, since what was
 * sealed would never open again. The lock is held. */
int cordon_store_sealing_key(struct cordon_store *store, struct cordon_secret_key *ret, struct cordon_error *err);
int cordon_store_fail(struct cordon_store *store, const char *what, struct cordon_error *err);
int cordon_keys_prepare(struct cordon_store *store, struct cordon_error *err);
void cordon_keys_finish(struct cordon_store *store);
int cordon_store_guests_prepare(struct cordon_store *store, struct cordon_error *err);
void cordon_store_guests_finish(struct cordon_store *store);

#endif
