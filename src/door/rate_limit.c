/* SPDX-License-Identifier: Apache-2.0 */
#include "door/rate_limit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SLICES 64u
#define ROWS 512u
#define PLACES 8u /* in a row */

struct window {
    uint8_t who[16]; /* the address, or what else the client is called */
    bool used;
    uint64_t heard_us;
    uint64_t told_us;        /* of its last refusal that was a first one; 0: none */
    uint64_t newest;         /* number of the newest slice */
    uint32_t slices[SLICES]; /* [number % SLICES] */
};

struct cordon_rate_limit {
    struct cordon_rate rate;
    uint64_t slice_us;
    uint64_t seed; /* so that nobody can choose addresses of one row */
    pthread_mutex_t lock;
    struct window rows[ROWS][PLACES];
};

struct cordon_rate_limit *cordon_rate_limit_new(const struct cordon_rate *rate)
{
    struct cordon_rate_limit *limit = calloc(1, sizeof *limit);
    if (!limit)
        return NULL;
    limit->rate = *rate;
    limit->slice_us = (rate->period_us + SLICES - 2) / (SLICES - 1); /* one slice is always only begun */
    pthread_mutex_init(&limit->lock, NULL);
    if (getrandom(&limit->seed, sizeof limit->seed, 0) != (ssize_t)sizeof limit->seed)
        limit->seed = (uint64_t)(uintptr_t)limit; /* can't fail once the kernel has booted */
    return limit;
}

void cordon_rate_limit_free(struct cordon_rate_limit *limit)
{
    if (!limit)
        return;
    pthread_mutex_destroy(&limit->lock);
    free(limit);
}

/* An IPv4 address (also one that came as IPv6) whole, of an IPv6 address its /64, of anything else its name's hash. */
static void name_client(const char *client, uint8_t who[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char address[64];
    const char *port = strrchr(client, ':');
    size_t size = port ? (size_t)(port - client) : strlen(client);
    (void)snprintf(address, sizeof address, "%.*s", (int)(size < 63 ? size : 63), client);
    memset(who, 0, 16);
    if (inet_pton(AF_INET, address, who + 12) == 1) {
        memcpy(who, mapped, sizeof mapped);
    } else if (inet_pton(AF_INET6, address, who) == 1) {
        if (memcmp(who, mapped, sizeof mapped) != 0)
            memset(who + 8, 0, 8);
    } else {
        (void)snprintf((char *)who, 16, "%s", client); /* "unix:uid=0"; cut on purpose */
    }
}

static size_t row_of(const struct cordon_rate_limit *limit, const uint8_t who[16])
{
    uint64_t halves[2];
    memcpy(halves, who, sizeof halves);
    uint64_t hash = (halves[0] ^ limit->seed) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
    hash = (hash ^ halves[1]) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 32;
    return hash % ROWS;
}

/* The client's window; where it has none, the one that is given up for it. The lock is held. */
static struct window *find_window(struct cordon_rate_limit *limit, const uint8_t who[16])
{
    struct window *row = limit->rows[row_of(limit, who)], *oldest = row;
    for (size_t i = 0; i < PLACES; i++) {
        if (row[i].used && memcmp(row[i].who, who, 16) == 0)
            return &row[i];
        if (!row[i].used || (oldest->used && row[i].heard_us < oldest->heard_us))
            oldest = &row[i];
    }
    *oldest = (struct window){.used = true};
    memcpy(oldest->who, who, 16);
    return oldest;
}

/* Empties the slices that left the window since it was last looked at. */
static void advance(struct window *window, uint64_t slice)
{
    uint64_t passed = slice > window->newest ? slice - window->newest : 0;
    if (passed > SLICES)
        passed = SLICES;
    for (uint64_t i = 0; i < passed; i++)
        window->slices[(slice - i) % SLICES] = 0;
    if (slice > window->newest)
        window->newest = slice;
}

static bool ask(struct cordon_rate_limit *limit, const char *client, uint64_t now_us, bool count, bool *ret_first)
{
    uint8_t who[16];
    uint64_t sum = 0;
    name_client(client, who);
    pthread_mutex_lock(&limit->lock);
    struct window *window = find_window(limit, who);
    advance(window, now_us / limit->slice_us);
    window->heard_us = now_us;
    for (size_t i = 0; i < SLICES; i++)
        sum += window->slices[i];
    bool full = sum >= limit->rate.count;
    bool first = full && (!window->told_us || now_us - window->told_us >= limit->rate.period_us);
    if (first)
        window->told_us = now_us;
    if (!full && count)
        window->slices[window->newest % SLICES]++;
    pthread_mutex_unlock(&limit->lock);
    if (ret_first)
        *ret_first = first;
    return !full;
}

bool cordon_rate_limit_take(struct cordon_rate_limit *limit, const char *client, uint64_t now_us, bool *ret_first)
{
    return ask(limit, client, now_us, true, ret_first);
}

bool cordon_rate_limit_full(struct cordon_rate_limit *limit, const char *client, uint64_t now_us, bool *ret_first)
{
    return !ask(limit, client, now_us, false, ret_first);
}
