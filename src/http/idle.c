/* SPDX-License-Identifier: Apache-2.0 */
#include "http/idle.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

#define IDLE_MAX 32

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cordon_http_idle idle[IDLE_MAX]; /* the longest idle first */
static size_t idle_count;

static bool find_origin(const char *url, char to[256])
{
    const char *host = strncasecmp(url, "http://", 7) == 0    ? url + 7
                       : strncasecmp(url, "https://", 8) == 0 ? url + 8
                                                              : NULL;
    if (!host)
        return false;
    size_t size = (size_t)(host - url) + strcspn(host, "/?#");
    return (size_t)snprintf(to, 256, "%.*s", (int)size, url) < 256 && size > (size_t)(host - url);
}

/* The lock is held. */
static struct cordon_http_idle remove_at(size_t i)
{
    struct cordon_http_idle pair = idle[i];
    memmove(&idle[i], &idle[i + 1], (--idle_count - i) * sizeof *idle);
    return pair;
}

static void drop_older(uint64_t since_us)
{
    for (;;) {
        struct cordon_http_idle pair = {0};
        pthread_mutex_lock(&lock);
        if (idle_count && idle[0].since_us < since_us)
            pair = remove_at(0);
        pthread_mutex_unlock(&lock);
        if (!pair.multi)
            return;
        cordon_http_idle_done(&pair);
    }
}

int cordon_http_idle_take(const char *url, struct cordon_http_idle *ret)
{
    *ret = (struct cordon_http_idle){0};
    if (!find_origin(url, ret->origin))
        return -EINVAL;
    drop_older(cordon_now_us() - CORDON_HTTP_IDLE_S * 1000000ull);
    pthread_mutex_lock(&lock);
    for (size_t i = idle_count; i > 0; i--) {
        if (strcmp(idle[i - 1].origin, ret->origin) == 0) {
            *ret = remove_at(i - 1);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (ret->multi)
        return 0;
    ret->multi = curl_multi_init();
    ret->easy = curl_easy_init();
    return ret->multi && ret->easy ? 0 : -ENOMEM;
}

void cordon_http_idle_give(struct cordon_http_idle *pair)
{
    struct cordon_http_idle oldest = {0};
    pair->since_us = cordon_now_us();
    pthread_mutex_lock(&lock);
    if (idle_count == IDLE_MAX)
        oldest = remove_at(0);
    idle[idle_count++] = *pair;
    pthread_mutex_unlock(&lock);
    *pair = (struct cordon_http_idle){0};
    if (oldest.multi)
        cordon_http_idle_done(&oldest);
}

void cordon_http_idle_done(struct cordon_http_idle *pair)
{
    curl_easy_cleanup(pair->easy);
    if (pair->multi)
        (void)curl_multi_cleanup(pair->multi); /* can't fail for one without handles */
    *pair = (struct cordon_http_idle){0};
}

void cordon_http_idle_drop(void)
{
    drop_older(UINT64_MAX);
}
