/* SPDX-License-Identifier: Apache-2.0 */
/* One-time links into the admin page. As of keys, only the SHA-256 is stored. */
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "store/statement.h"

#define LIFE_S 86400
#define SECRET_SIZE 20

_Static_assert(2 * SECRET_SIZE + 1 == CORDON_LINK_TEXT, "the text's size");

static int put(struct cordon_store *store, const unsigned char hash[SHA256_DIGEST_LENGTH], struct cordon_error *err)
{
    sqlite3_stmt *statement;
    int r = cordon_statement_begin(store, "INSERT INTO links (hash, created_s) VALUES (?1, ?2)", &statement, err);
    if (r == 0) {
        (void)sqlite3_bind_blob(statement, 1, hash, SHA256_DIGEST_LENGTH, SQLITE_STATIC); /* fails the step */
        (void)sqlite3_bind_int64(statement, 2, (int64_t)time(NULL));
        r = cordon_statement_step(store, statement, "keep a link", err);
    }
    cordon_statement_end(store, statement);
    return r;
}

int cordon_link_create(struct cordon_store *store, char text[CORDON_LINK_TEXT], struct cordon_error *err)
{
    unsigned char bytes[SECRET_SIZE], hash[SHA256_DIGEST_LENGTH];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cordon_fail_errno(err, -EIO, "get random bytes for a link");
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    (void)SHA256((const unsigned char *)text, CORDON_LINK_TEXT - 1, hash); /* returns its last argument */
    return put(store, hash, err);
}

/* Old ones go along with it. */
int cordon_link_use(struct cordon_store *store, const char *text, size_t size, struct cordon_error *err)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    sqlite3_stmt *statement;
    (void)SHA256((const unsigned char *)text, size, hash); /* returns its last argument */
    int r = cordon_statement_begin(
        store, "DELETE FROM links WHERE created_s < ?1 OR hash = ?2 RETURNING created_s, hash = ?2", &statement, err);
    int64_t oldest = (int64_t)time(NULL) - LIFE_S;
    bool found = false;
    if (r == 0) {
        (void)sqlite3_bind_int64(statement, 1, oldest); /* fails the step */
        (void)sqlite3_bind_blob(statement, 2, hash, SHA256_DIGEST_LENGTH, SQLITE_STATIC);
    }
    while (r == 0 && (r = cordon_statement_step(store, statement, "use a link", err)) == 1) {
        found = found || (sqlite3_column_int64(statement, 0) >= oldest && sqlite3_column_int(statement, 1));
        r = 0;
    }
    cordon_statement_end(store, statement);
    if (r == 0 && !found)
        r = cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                        "this link is unknown, was used already or is older than a day; `cordon key link` makes one");
    return r;
}
