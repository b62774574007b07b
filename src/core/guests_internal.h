/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the service of kept guests. Theory of operation:
 *
 * One table of guests, living ones and tombstones, under one lock, which is never held while a backend works. What
 * changes a guest's life (pause, resume, destroy) is done by one thread at a time, by the guest's own `life` lock,
 * taken before the table's; so is what changes its network (`rules`: what is recorded last is what is enforced) and
 * what tells the registry (`saves`: the newest record is written last; taken after the others). Who uses a guest's
 * handle pins the guest (`uses`); the handle is given back when it is gone
 * and nobody pins it any more.
 *
 * One thread watches (guests_watch.c): it sleeps until the next end of a ttl or of idleness, or until a guest is gone.
 * A few a backend find the guests of the last gateway again (guests_adopt.c), and are gone when all are found.
 */
#ifndef CORDON_CORE_GUESTS_INTERNAL_H
#define CORDON_CORE_GUESTS_INTERNAL_H

#include <pthread.h>
#include <stddef.h>

#include "base/buf.h"
#include "core/egress.h"
#include "core/guests.h"

#define CORDON_GUEST_BUCKETS 1024u
#define CORDON_GUEST_NOTES 200u
/* Of one that is gone: what a key can make without end must be small. */
#define CORDON_GUEST_NOTES_GONE 8u
#define CORDON_GUEST_PRIVATE_GONE 4096u /* larger ones are dropped */
#define CORDON_GUEST_DOMAINS_MAX 256u

/* A backend may be of an earlier version, whose row ends sooner. */
#define CORDON_GUEST_HAS(backend, member)                                                                              \
    ((backend)->struct_size >= offsetof(struct cordon_backend, member) + sizeof(backend)->member && (backend)->member)

struct cordon_note {
    int64_t at_us;
    const char *what;
    char text[120];
};

struct cordon_guest_item {
    char id[CORDON_GUEST_ID];
    struct cordon_guest_item *next_by_id, *next, *previous; /* the latter two: by creation */
    pthread_mutex_t life, rules, saves;
    const struct cordon_backend *backend;
    struct cordon_guest_handle *handle; /* NULL: gone, or not adopted yet */
    bool making;                        /* its place is taken, it is not there yet */
    bool gone;
    bool surplus;              /* it is gone, and its key has others that ended later: it is to be forgotten */
    bool seeking;              /* somebody looks for it after a restart (guests_adopt.c) */
    unsigned tries;            /* to find it again that failed */
    uint64_t again_us;         /* of cordon_now_us: not before */
    uint64_t awaited_until_us; /* who asks for it waits for its first try no longer; 0: nobody asked */
    char trouble[160];         /* of the last try; "": none */
    unsigned uses, streams;
    unsigned looking; /* streams of who may only look: they take places, and are no activity */
    unsigned resting; /* streams that are no activity, nor are the programs that they started */
    unsigned refs;    /* of the item's memory: the table, and pins */
    enum cordon_door door;
    char *tenant, *name, *template_name, *backend_name, *remote; /* remote: NULL: none is known */
    struct cordon_pair *metadata;
    size_t metadata_count;
    struct cordon_buf private_data;
    struct cordon_limits limits;
    bool network;
    char **domains;
    size_t domain_count;
    char **headers; /* secrets: wiped */
    size_t header_count;
    enum cordon_isolation isolation;
    int64_t created_us, started_us, paused_us, ends_us, ttl_us, left_us, active_us, gone_us;
    uint64_t idle_pause_ms;
    enum cordon_guest_end at_end;
    bool auto_resume, paused;
    char cause[16], reason[256];
    struct cordon_note *notes;
    size_t note_count, note_at, note_room;
    uint64_t sampled_cpu_us;
    int64_t sampled_us;
    int64_t save_again_us; /* its record could not be stored: not before; 0: what is stored is true */
    int gone_fd;           /* borrowed from the handle */
};

struct cordon_guests {
    pthread_mutex_t lock;
    const struct cordon_settings *settings;
    const struct cordon_guest_registry *registry;
    struct cordon_guest_item *by_id[CORDON_GUEST_BUCKETS];
    struct cordon_guest_item *first, *last;
    char node[5];
    bool ready, stopping;
    int epoll, wake;
    pthread_t watcher;
};
extern struct cordon_guests cordon_guests;

int64_t cordon_guests_now(void); /* microseconds since 1970 */
void cordon_guests_lock(void);
void cordon_guests_unlock(void);

/* guests.c; with the lock held unless said */
struct cordon_guest_item *cordon_guest_item_new(const char *id);
void cordon_guest_item_enter(struct cordon_guest_item *item); /* into the table, which owns it then */
void cordon_guest_item_leave(struct cordon_guest_item *item); /* out of the table */
struct cordon_guest_item *cordon_guest_item_find(const char *id);
void cordon_guest_item_unref(struct cordon_guest_item *item);
bool cordon_guest_item_is_of(const struct cordon_guest_item *item, const char *tenant);
struct cordon_guest_info *cordon_guest_item_info(const struct cordon_guest_item *item); /* NULL: no memory */
void cordon_guest_item_note(struct cordon_guest_item *item, const char *what, const char *fmt, ...) CORDON_PRINTF(3, 4);
/* Takes the lock. 0 and *ret pinned: NOT_FOUND, or GONE unless `also_gone`. */
int cordon_guest_pin(const char *tenant, const char *id, bool also_gone, struct cordon_guest_item **ret,
                     struct cordon_error *err);
/* The same of one that is gone, or was not found again yet, too: it may have no handle. */
int cordon_guest_pin_any(const char *tenant, const char *id, struct cordon_guest_item **ret, struct cordon_error *err);
void cordon_guest_unpin(struct cordon_guest_item *item); /* takes the lock */
int cordon_guest_say_gone(const struct cordon_guest_item *item, struct cordon_error *err);
/* Marks it gone, once. The registry is told by cordon_guest_save, without the lock. */
void cordon_guest_item_end(struct cordon_guest_item *item, const char *cause, const char *reason);
/* Where more of that key (NULL: of any) are gone than are to be remembered, those that ended first are to be forgotten,
 * by the watcher. */
void cordon_guests_bound_tombstones(const char *tenant);
/* What its service calls it, by its handle. */
void cordon_guest_item_remote(struct cordon_guest_item *item);

/* guests_adopt.c; with the lock held but for the last, which they give up while they wait. A guest that is looked for
 * after a restart is waited for until it was tried once, and no longer than 5 s after the first who did so. */
struct cordon_guest_item *cordon_guest_item_find_sought(const char *id, const char *tenant); /* as item_find */
/* True: it was waited for, and the table may have changed: look again. */
bool cordon_guest_item_await(struct cordon_guest_item *item);
void cordon_guests_settle(const char *tenant); /* all of the tenant's */
int cordon_guest_say_sought(const struct cordon_guest_item *item, struct cordon_error *err);
void cordon_guests_adopt_stop(void); /* `stopping` is set; cancels tries under way */

/* guests_network.c */
/* Is what a new guest is to reach well-formed? Told before it is judged. */
int cordon_guest_network_check(const struct cordon_guest_create *create, struct cordon_error *err);
bool cordon_guest_may_have_network(const struct cordon_guest_item *item);
/* What the item's network and domains mean behind its door. Free with _done. */
int cordon_guest_network_policy(const struct cordon_guest_item *item, struct cordon_egress_policy *ret,
                                struct cordon_error *err);
/* A copy of texts; NULL: no memory. texts_free wipes it. */
char **cordon_guest_texts_copy(const char *const *texts, size_t count);
void cordon_guest_texts_free(char **texts, size_t count);
/* env and what makes its programs trust the authority for hosts with headers; *ret is to be freed, NULL: env does. */
int cordon_guest_trust(struct cordon_guest_item *item, const char *const *env, size_t count, const char ***ret,
                       size_t *ret_count, struct cordon_error *err);
void cordon_guest_network_restore(struct cordon_guest_item *item); /* of a guest that was adopted */

/* guests_record.c */
struct cordon_guest_item *cordon_guest_record_read(const char *id, const char *record, size_t size); /* NULL: no use */
/* Takes the lock. A failure is logged, and the watcher tries again until it is stored. */
void cordon_guest_save(struct cordon_guest_item *item);
/* The same, for who must not go on without. */
int cordon_guest_store(struct cordon_guest_item *item, struct cordon_error *err);

/* guests_life.c; with the lock held: its clocks stand still from now on, or go on */
void cordon_guest_item_paused(struct cordon_guest_item *item);
void cordon_guest_item_resumed(struct cordon_guest_item *item);
/* Without the lock, the item pinned. */
int cordon_guest_life_pause(struct cordon_guest_item *item, const char *why, bool *changed, struct cordon_error *err);
int cordon_guest_life_resume(struct cordon_guest_item *item, uint64_t ttl_ms, bool *changed, struct cordon_error *err);
int cordon_guest_life_destroy(struct cordon_guest_item *item, const char *cause, const char *reason, bool *changed,
                              struct cordon_error *err);

/* guests_watch.c */
int cordon_guests_watch_start(struct cordon_error *err);
void cordon_guests_watch_stop(void);
void cordon_guests_watch_wake(void); /* something is due sooner */
int cordon_guests_watch_add(struct cordon_guest_item *item);
void cordon_guests_watch_remove(struct cordon_guest_item *item);

/* quota.c: what a kept guest takes of its key; guests_life.c asks with the lock held */
int cordon_quota_guest_check(const char *tenant, enum cordon_door door, uint64_t memory_bytes,
                             struct cordon_error *err);

#endif
