/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kept guests on services elsewhere share: whether they are there, and one thread a service that looks after those
 * that run, one after the other, without a lock. A service's own handle begins with struct cordon_remote_kept.
 */
#ifndef CORDON_BACKEND_REMOTE_KEPT_H
#define CORDON_BACKEND_REMOTE_KEPT_H

#include <pthread.h>
#include <stdatomic.h>

#include <cordon/backend.h>

#include "http/client.h"

struct cordon_remote_kept {
    struct cordon_remote_kept *next; /* of the keeper's list */
    struct cordon_remote_keeper *keeper;
    bool seen;             /* in this round */
    _Atomic int condition; /* enum cordon_guest_condition */
    int gone_fd;           /* an eventfd */
};

struct cordon_remote_keeper {
    unsigned (*period_s)(void);
    void (*look)(struct cordon_remote_kept *guest); /* at one that runs: it may turn out to be gone */
    /* the rest is the keeper's own */
    struct cordon_remote_kept *first, *looked_at;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stopping;
};
#define CORDON_REMOTE_KEEPER(period, look_)                                                                            \
    {                                                                                                                  \
        .period_s = (period), .look = (look_), .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER  \
    }

/* A zeroed handle's beginning: running, in no list. 0 or -errno with err. */
int cordon_remote_kept_init(struct cordon_remote_kept *guest, struct cordon_error *err);
/* From now on it is looked after. */
int cordon_remote_kept_enter(struct cordon_remote_keeper *keeper, struct cordon_remote_kept *guest,
                             struct cordon_error *err);
/* Its end as a handle; waits for a look that is under way. */
void cordon_remote_kept_done(struct cordon_remote_kept *guest);

void cordon_remote_kept_set(struct cordon_remote_kept *guest, enum cordon_guest_condition condition);
/* A look found nothing: gone, unless it was paused meanwhile, when there may be nothing to find. */
void cordon_remote_kept_lost(struct cordon_remote_kept *guest);
/* Pausing by that call: PAUSED before it begins (what it races is not to believe, or undo, what it does), RUNNING again
 * when it fails, unless `is_paused` hears from the service that it was done all the same: its answer may have been
 * lost.
 */
int cordon_remote_kept_pause(struct cordon_remote_kept *guest,
                             int (*call)(struct cordon_remote_kept *guest, struct cordon_error *err),
                             bool (*is_paused)(struct cordon_remote_kept *guest), struct cordon_error *err);
enum cordon_guest_condition cordon_remote_kept_condition(const struct cordon_remote_kept *guest);

/* Which part of a file is wanted. */
struct cordon_remote_range {
    uint64_t skip, left; /* left: UINT64_MAX: to the end */
};
/* The next bytes of it, as they come: 1; 0 when timeout_ms (-1: patience_us) passed without any, or, with *ended, after
 * the last; or negative. */
int cordon_remote_range_next(struct cordon_http_transfer *transfer, struct cordon_remote_range *range, int timeout_ms,
                             uint64_t patience_us, struct cordon_bytes *ret, bool *ended, struct cordon_error *err);

void cordon_remote_keeper_stop(struct cordon_remote_keeper *keeper);

#endif
