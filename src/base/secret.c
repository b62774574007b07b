/* SPDX-License-Identifier: Apache-2.0 */
/* Readers take no lock: the count is raised only when the entry is whole, and none is taken out while there are any. */
#include "base/secret.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static char *secrets[CORDON_SECRETS_MAX];
static atomic_size_t secret_count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* The lock is held. */
static int add(const char *text)
{
    size_t count = atomic_load(&secret_count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(secrets[i], text) == 0)
            return 0;
    if (count == CORDON_SECRETS_MAX)
        return -ENOSPC;
    secrets[count] = strdup(text);
    if (!secrets[count])
        return -ENOMEM;
    atomic_store(&secret_count, count + 1);
    return 0;
}

int cordon_secret_add(const char *text)
{
    if (!text || strlen(text) < CORDON_SECRET_MIN)
        return -EINVAL;
    (void)pthread_mutex_lock(&adding); /* can't fail for a plain mutex */
    int r = add(text);
    (void)pthread_mutex_unlock(&adding);
    return r;
}

static void mask_whole(char *text, const char *secret, size_t size)
{
    for (char *at = text; (at = strstr(at, secret)); at += 3) {
        memcpy(at, "***", 3);
        memmove(at + 3, at + size, strlen(at + size) + 1);
    }
}

/* A text that was cut may end within a secret. */
static void mask_end(char *text, const char *secret, size_t size)
{
    size_t length = strlen(text);
    for (size_t part = size - 1; part >= CORDON_SECRET_MIN; part--) {
        if (part > length || memcmp(text + length - part, secret, part) != 0)
            continue;
        memcpy(text + length - part, "***", 4);
        return;
    }
}

void cordon_secret_mask(char *text)
{
    size_t count = atomic_load(&secret_count);
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(secrets[i]);
        mask_whole(text, secrets[i], size);
        mask_end(text, secrets[i], size);
    }
}

void cordon_secret_forget(void)
{
    size_t count = atomic_exchange(&secret_count, 0);
    for (size_t i = 0; i < count; i++) {
        explicit_bzero(secrets[i], strlen(secrets[i]));
        free(secrets[i]);
        secrets[i] = NULL;
    }
}
