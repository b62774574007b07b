/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes on CreateOS whose making was answered to nobody, and that the service did not show at once. Nothing there
 * ends one that appears later, and it costs; so it is looked for by its name, more and more seldom, and ended when it
 * is seen. One thread, from the first of them on.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "backend/remote/createos.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define MOST 256u
#define CALL_US 10000000u
#define SECOND_US UINT64_C(1000000)

static const unsigned after_s[] = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}; /* half an hour in all */
#define TRIES (sizeof after_s / sizeof *after_s)

struct lost {
    char name[23];
    unsigned tries;
    uint64_t next_us; /* of cordon_now_us: not before */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stopping;
    int cancel[2]; /* sockets: the second is closed to break off a call under way */
    struct lost items[MOST];
    size_t count;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .cancel = {-1, -1}};

static void give_up(const char *name, const char *why)
{
    cordon_log(CORDON_LOG_WARN,
               "a sandbox may have been made whose making was answered to nobody; if it is there it has to be ended by "
               "hand",
               "backend", "createos", "name", name, "error", why, NULL);
}

/* 0: it was seen and ended; else not yet. */
static int look(const char *name, struct cordon_error *err)
{
    char id[80], status[24];
    int r = cordon_createos_named(name, cordon_now_us() + CALL_US, self.cancel[0], id, status, err);
    if (r == 0)
        r = cordon_createos_kill(id, cordon_now_us() + CALL_US, self.cancel[0], err);
    if (r == 0)
        cordon_log(CORDON_LOG_INFO, "a sandbox whose making was answered to nobody has appeared, and was ended",
                   "backend", "createos", "name", name, "sandbox", id, NULL);
    return r;
}

/* With the lock held: the one that is due first; NULL: there is none. */
static struct lost *first_due(void)
{
    struct lost *first = NULL;
    for (size_t i = 0; i < self.count; i++)
        if (!first || self.items[i].next_us < first->next_us)
            first = &self.items[i];
    return first;
}

/* With the lock held, which is given up meanwhile; only this thread takes items out. */
static void try_one(struct lost *item)
{
    struct cordon_error err = {0};
    struct lost tried = *item;
    pthread_mutex_unlock(&self.lock);
    int r = look(tried.name, &err);
    pthread_mutex_lock(&self.lock);
    if (r < 0 && ++item->tries < TRIES) {
        item->next_us = cordon_now_us() + after_s[item->tries] * SECOND_US;
        return;
    }
    if (r < 0)
        give_up(tried.name, err.message);
    *item = self.items[--self.count];
}

static void *look_for_all(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&self.lock);
    while (!self.stopping) {
        struct lost *item = first_due();
        const struct timespec until = {item ? (time_t)(item->next_us / SECOND_US) : 0,
                                       item ? (long)(item->next_us % SECOND_US) * 1000 : 0};
        if (!item)
            (void)pthread_cond_wait(&self.changed, &self.lock);
        else if (item->next_us > cordon_now_us()) /* what woke us is looked at anew */
            (void)pthread_cond_clockwait(&self.changed, &self.lock, CLOCK_MONOTONIC, &until);
        else
            try_one(item);
    }
    pthread_mutex_unlock(&self.lock);
    return NULL;
}

/* With the lock held. */
static bool start(void)
{
    self.stopping = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, self.cancel) < 0)
        return false;
    if (pthread_create(&self.thread, NULL, look_for_all, NULL) == 0)
        return true;
    cordon_close(&self.cancel[0]);
    cordon_close(&self.cancel[1]);
    return false;
}

void cordon_createos_lost_add(const char *name)
{
    pthread_mutex_lock(&self.lock);
    self.started = self.started || start();
    bool takes = self.started && self.count < MOST;
    if (takes) {
        struct lost *item = &self.items[self.count++];
        *item = (struct lost){.next_us = cordon_now_us() + after_s[0] * SECOND_US};
        (void)snprintf(item->name, sizeof item->name, "%s", name); /* fits: names have no more */
        pthread_cond_broadcast(&self.changed);
    }
    pthread_mutex_unlock(&self.lock);
    if (!takes)
        give_up(name, "too many are looked for");
}

void cordon_createos_lost_stop(void)
{
    pthread_mutex_lock(&self.lock);
    bool started = self.started;
    self.stopping = true;
    self.started = false;
    cordon_close(&self.cancel[1]);
    pthread_cond_broadcast(&self.changed);
    pthread_mutex_unlock(&self.lock);
    if (started)
        (void)pthread_join(self.thread, NULL); /* it was started */
    cordon_close(&self.cancel[0]);
    while (self.count)
        give_up(self.items[--self.count].name, "the daemon ended before it was seen");
}
