/* SPDX-License-Identifier: Apache-2.0 */
#include "door/admin/session.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

#define SESSIONS 64
#define RANDOM_SIZE 32
#define CLIENTS 256
#define CLIENT_FAILURES 10 /* a minute */
#define ALL_FAILURES 100
#define MINUTE_US 60000000u

static struct place {
    bool used;
    unsigned char hash[SHA256_DIGEST_LENGTH];
    struct cordon_session session;
    uint64_t opened_us, seen_us;
} places[SESSIONS];

/* Failed logins of the minute that began at since_us. */
static struct failures {
    char client[64];
    uint64_t since_us;
    unsigned count;
} failures[CLIENTS], all_failures;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void hash_cookie(const char *text, size_t size, unsigned char to[SHA256_DIGEST_LENGTH])
{
    (void)SHA256((const unsigned char *)text, size, to); /* returns its last argument */
}

static int random_text(char to[CORDON_SESSION_TEXT], struct cordon_error *err)
{
    unsigned char bytes[RANDOM_SIZE];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cordon_fail_errno(err, -EIO, "get random bytes for a session");
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(to + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return 0;
}

static bool is_over(const struct place *place, uint64_t now)
{
    return now - place->seen_us > CORDON_SESSION_IDLE_S * UINT64_C(1000000) ||
           now - place->opened_us > CORDON_SESSION_LIFE_S * UINT64_C(1000000);
}

/* The lock is held. A free place, else the one that was seen longest ago. */
static struct place *take_place(uint64_t now)
{
    struct place *oldest = &places[0];
    for (size_t i = 0; i < SESSIONS; i++) {
        if (!places[i].used || is_over(&places[i], now))
            return &places[i];
        if (places[i].seen_us < oldest->seen_us)
            oldest = &places[i];
    }
    return oldest;
}

int cordon_session_open(const struct cordon_key_info *key, char cookie[CORDON_SESSION_TEXT], struct cordon_session *ret,
                        struct cordon_error *err)
{
    struct cordon_session session = {.scope = key->scope};
    uint64_t now = cordon_now_us();
    int r = random_text(cookie, err);
    if (r == 0)
        r = random_text(session.csrf, err);
    if (r < 0)
        return r;
    (void)snprintf(session.key_id, sizeof session.key_id, "%s", key->id); /* the sizes agree */
    (void)snprintf(session.key_name, sizeof session.key_name, "%s", key->name);
    pthread_mutex_lock(&lock);
    struct place *place = take_place(now);
    *place = (struct place){.used = true, .session = session, .opened_us = now, .seen_us = now};
    hash_cookie(cookie, CORDON_SESSION_TEXT - 1, place->hash);
    pthread_mutex_unlock(&lock);
    *ret = session;
    return 0;
}

/* The value of the next cookie of our name in "a=b; cordon_session=…"; NULL: none. Moves *at behind it. */
static const char *next_cookie(const char **at, size_t *size)
{
    static const char name[] = CORDON_SESSION_COOKIE "=";
    while (*at && **at) {
        const char *pair = *at + strspn(*at, " ;");
        size_t length = strcspn(pair, ";");
        *at = pair + length;
        if (strncmp(pair, name, sizeof name - 1) == 0) {
            *size = length - (sizeof name - 1);
            return pair + sizeof name - 1;
        }
    }
    return NULL;
}

/* The lock is held. */
static struct place *find_by_cookie(const char *text)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    uint64_t now = cordon_now_us();
    hash_cookie(text, CORDON_SESSION_TEXT - 1, hash);
    for (size_t i = 0; i < SESSIONS; i++)
        if (places[i].used && CRYPTO_memcmp(places[i].hash, hash, sizeof hash) == 0 && !is_over(&places[i], now)) {
            places[i].seen_us = now;
            return &places[i];
        }
    return NULL;
}

/* The lock is held. There may be more cookies of the name: a host below ours, as sandboxes have them, can set one for
 * ours, too. The first that is a session counts. */
static struct place *find_place(const struct cordon_http_request *request)
{
    const char *at = cordon_http_header(request, "Cookie"), *text;
    struct place *found = NULL;
    size_t size;
    while (!found && (text = next_cookie(&at, &size)))
        if (size == CORDON_SESSION_TEXT - 1)
            found = find_by_cookie(text);
    return found;
}

void cordon_session_close(const struct cordon_http_request *request)
{
    pthread_mutex_lock(&lock);
    struct place *place = find_place(request);
    if (place)
        *place = (struct place){0};
    pthread_mutex_unlock(&lock);
}

bool cordon_session_find(struct cordon_store *store, const struct cordon_http_request *request,
                         struct cordon_session *ret)
{
    pthread_mutex_lock(&lock);
    struct place *place = find_place(request);
    if (place)
        *ret = place->session;
    pthread_mutex_unlock(&lock);
    if (!place || !ret->key_id[0])
        return place != NULL;
    if (cordon_key_is_live(store, ret->key_id, NULL) == 1)
        return true;
    cordon_session_close(request);
    return false;
}

bool cordon_session_only_reads(const struct cordon_http_request *request)
{
    return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

int cordon_session_authorize(struct cordon_store *store, const struct cordon_http_request *request,
                             struct cordon_session *ret, struct cordon_error *err)
{
    const char *token = cordon_http_header(request, CORDON_CSRF_HEADER);
    if (!cordon_session_find(store, request, ret))
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                           "no key came with the request, and no session that is alive: log in again");
    if (cordon_session_only_reads(request))
        return 0;
    if (!token || strlen(token) != CORDON_SESSION_TEXT - 1 ||
        CRYPTO_memcmp(token, ret->csrf, CORDON_SESSION_TEXT - 1) != 0)
        return cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                           "a request with a session that changes something needs the header " CORDON_CSRF_HEADER
                           " with the session's token");
    return 0;
}

/* --- failed logins --- */

/* The client's address without its port. */
static void address_of(const struct cordon_http_request *request, char to[64])
{
    char *port;
    (void)snprintf(to, 64, "%s", request->client); /* the sizes agree */
    if (request->peer_uid < 0 && (port = strrchr(to, ':')))
        *port = '\0';
}

/* The lock is held. The client's row, a new one in the place of the oldest if it has none. */
static struct failures *failures_of(const char *client, uint64_t now)
{
    struct failures *oldest = &failures[0];
    for (size_t i = 0; i < CLIENTS; i++) {
        if (strcmp(failures[i].client, client) == 0)
            return &failures[i];
        if (failures[i].since_us < oldest->since_us)
            oldest = &failures[i];
    }
    *oldest = (struct failures){.since_us = now};
    (void)snprintf(oldest->client, sizeof oldest->client, "%s", client); /* the sizes agree */
    return oldest;
}

static unsigned recent(struct failures *of, uint64_t now)
{
    if (now - of->since_us > MINUTE_US) {
        of->since_us = now;
        of->count = 0;
    }
    return of->count;
}

int cordon_login_allowed(const struct cordon_http_request *request, struct cordon_error *err)
{
    uint64_t now = cordon_now_us();
    char client[64];
    address_of(request, client);
    pthread_mutex_lock(&lock);
    bool allowed = recent(failures_of(client, now), now) < CLIENT_FAILURES && recent(&all_failures, now) < ALL_FAILURES;
    pthread_mutex_unlock(&lock);
    return allowed ? 0
                   : cordon_fail(err, -EAGAIN, CORDON_ERROR_QUOTA,
                                 "too many logins failed within a minute: wait a minute and try again");
}

void cordon_login_failed(const struct cordon_http_request *request)
{
    uint64_t now = cordon_now_us();
    char client[64];
    address_of(request, client);
    pthread_mutex_lock(&lock);
    struct failures *own = failures_of(client, now);
    (void)recent(own, now);
    (void)recent(&all_failures, now);
    own->count++;
    all_failures.count++;
    pthread_mutex_unlock(&lock);
}
