/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests that are kept: the one service behind all doors, cells and `cordon guest`. It adds to a backend's guests what
 * no backend should decide: owners, names, lifetimes, idleness, quotas, the registry in the store, and tombstones.
 * Any thread. One process has one service.
 *
 * Owners. Each call names its tenant (the key's id; "" for callers without a key on the unix socket). A guest of
 * another tenant does not exist: NOT_FOUND, in the same words as an unknown id. cordon_guests_all sees every guest.
 *
 * Errors, all calls: NOT_FOUND (unknown id or name), GONE (it was there; the message says what ended it, and when),
 * PAUSED (it is paused and was not made with auto_resume), CONFLICT (name taken: -EEXIST; state: -EBUSY), QUOTA (a
 * limit of the key: answer 429; err->code is -EDQUOT for counts and memory, which pass when a guest goes, -EAGAIN for
 * the rate; cordon_guests_retry_after), REFUSED (policy), UNSUPPORTED, and those of <cordon/backend.h> for operations.
 *
 * Clocks. `ttl` runs in real time from creation, or from the last extend, resume or connect, and only while the guest
 * runs: a paused guest has no deadline, and goes on after resume with what was left unless the call names a new one
 * (with all of it, when it was paused because its time was over). Idleness runs while no exec runs and no stream is
 * open, from the end of the last one (opening any operation, a port or resume starts it anew; list, info, usage and
 * metrics don't). An exec's timeout stops while its guest is paused.
 */
#ifndef CORDON_CORE_GUESTS_H
#define CORDON_CORE_GUESTS_H

#include <cordon/backend.h>

#include "base/buf.h"
#include "base/error.h"
#include "core/settings.h"

#define CORDON_GUEST_ID 21              /* 4 characters of the node, 16 random ones (a-z0-9), NUL */
extern const char cordon_guests_all[];  /* as tenant: the operator, who sees every guest. Compared by its address */
extern const char cordon_guests_look[]; /* the same for who may only look: it resumes no guest, and keeps none awake */
#define CORDON_GUEST_NAME_MAX 63u
#define CORDON_GUEST_METADATA_MAX 64u           /* pairs */
#define CORDON_GUEST_METADATA_BYTES (16u << 10) /* keys and values together */
#define CORDON_GUEST_PRIVATE_MAX (64u << 10)

enum cordon_guest_end { CORDON_END_DESTROY = 0, CORDON_END_PAUSE }; /* what the end of its ttl does */

struct cordon_pair {
    const char *key, *value;
};

struct cordon_guest_create {
    const char *tenant;
    enum cordon_door door;     /* whose settings count, and by which it is listed */
    const char *backend;       /* NULL: the door's setting */
    const char *template_name; /* NULL: "default" */
    const char *name;          /* NULL: none. [A-Za-z0-9._-], unique among the tenant's guests that are not gone */
    const struct cordon_pair *metadata;
    size_t metadata_count;
    const char *const *env; /* "NAME=VALUE": of every exec; kept in the guest only, never stored or told */
    size_t env_count;
    uint64_t memory_bytes, disk_bytes; /* 0: the settings' */
    uint32_t disk_inodes, pids, cpu_percent;
    bool network;
    const char *const *allowed_domains;
    size_t allowed_domain_count;
    const char *const *headers; /* put into its requests, each "HOST NAME: VALUE" (core/egress.h). Secrets: kept sealed,
                                   never told */
    size_t header_count;
    uint64_t ttl_ms; /* 0: none */
    enum cordon_guest_end at_end;
    uint64_t idle_pause_ms;           /* 0: never */
    bool auto_resume;                 /* an operation on it while it is paused resumes it; else PAUSED */
    struct cordon_bytes private_data; /* the door's own, stored beside it (tokens, what it must echo); any bytes */
    int cancel_fd;                    /* -1: none */
};

/* A guest as it is now. One allocation; free with cordon_guest_info_free. Times: microseconds since 1970; 0: never. */
struct cordon_guest_info {
    char id[CORDON_GUEST_ID];
    enum cordon_door door;
    enum cordon_guest_condition condition;
    const char *tenant, *name, *template_name, *backend; /* name: "" when it has none */
    const struct cordon_pair *metadata;
    size_t metadata_count;
    struct cordon_bytes private_data;
    struct cordon_limits limits;
    bool network;
    const char *const *allowed_domains;
    size_t allowed_domain_count;
    size_t header_count; /* how many are put into its requests */
    enum cordon_isolation isolation;
    int64_t created_us, started_us; /* started: created or last resumed */
    int64_t paused_us;              /* when IS_PAUSED */
    int64_t ends_us;                /* 0: no ttl. While paused: what it would be if it was resumed now */
    int64_t active_us;              /* last activity */
    uint64_t idle_pause_ms;
    enum cordon_guest_end at_end;
    bool auto_resume;
    int64_t gone_us; /* when IS_GONE */
    /* when IS_GONE, one of: "destroyed", "forgotten", "ttl", "idle", "died", "daemon", "host", else "" */
    const char *cause;
    const char *reason; /* a sentence for it */
    const char *remote; /* what the service elsewhere whose it is calls it; "": none, or it is not known */
};
void cordon_guest_info_free(struct cordon_guest_info *info);

/* Makes a guest. The settings' policy is applied (REFUSED), then the key's quota (QUOTA). */
int cordon_guests_create(const struct cordon_guest_create *create, struct cordon_guest_info **ret,
                         struct cordon_error *err);
/* By id. A guest that is gone is still told (condition IS_GONE) for CORDON_GUEST_TOMBSTONES_H hours; then NOT_FOUND. */
int cordon_guests_info(const char *tenant, const char *id, struct cordon_guest_info **ret, struct cordon_error *err);
/* By name, among those not gone. */
int cordon_guests_find(const char *tenant, const char *name, struct cordon_guest_info **ret, struct cordon_error *err);

struct cordon_guest_query {
    const char *tenant;
    int door;                           /* enum cordon_door, or -1: of all doors */
    const struct cordon_pair *metadata; /* all must be there with these values */
    size_t metadata_count;
    const char *name;           /* NULL, a name, or a pattern with * and ? */
    const char *template_name;  /* NULL: any */
    bool running, paused, gone; /* all false: running and paused */
    int64_t started_after_us;   /* 0: any */
    uint64_t idle_ms;           /* only those idle for so long */
    bool ascending;             /* by creation; else newest first */
    size_t limit;               /* 1 … 500; 0: 100 */
    size_t offset;              /* either this … */
    const char *after;          /* … or next of the page before; NULL or "": from the start. INVALID when malformed */
};
struct cordon_guest_page {
    struct cordon_guest_info **guests;
    size_t count;
    size_t total;   /* that match, on all pages */
    size_t running; /* of those */
    char next[64];  /* for `after`; "": this was the last page */
};
int cordon_guests_list(const struct cordon_guest_query *query, struct cordon_guest_page *ret, struct cordon_error *err);
void cordon_guest_page_done(struct cordon_guest_page *page);

/* A value that a call may change or leave. */
#define CORDON_KEEP UINT64_MAX

/* Idempotent as the backend's. *changed (may be NULL): whether this call did it. */
int cordon_guests_pause(const char *tenant, const char *id, bool *changed, struct cordon_error *err);
/* ttl_ms: from now on; 0: none; CORDON_KEEP: what was left. */
int cordon_guests_resume(const char *tenant, const char *id, uint64_t ttl_ms, bool *changed, struct cordon_error *err);
/* Its end is ttl_ms from now (0: no end). only_later: an end that is later already stays. Works on a paused guest:
 * counts from its resume. */
int cordon_guests_extend(const char *tenant, const char *id, uint64_t ttl_ms, bool only_later,
                         struct cordon_error *err);
int cordon_guests_set_idle_pause(const char *tenant, const char *id, uint64_t idle_pause_ms, struct cordon_error *err);
/* Replaces what the guest may reach and which headers are put into its requests, at once: connections that no longer
 * fit are cut. What the door keeps beside the guest is replaced along with it: of two calls at once, everything is of
 * the later one. UNSUPPORTED where the backend can't. */
struct cordon_guest_network {
    bool on;
    const char *const *allowed_domains, *const *headers; /* as in cordon_guest_create */
    size_t allowed_domain_count, header_count;
    struct cordon_bytes private_data; /* of the door; data NULL: stays */
};
int cordon_guests_set_network(const char *tenant, const char *id, const struct cordon_guest_network *network,
                              struct cordon_error *err);
/* What its connections came to, and its egress log (a JSON array, appended). UNSUPPORTED where the backend can't. */
int cordon_guests_egress(const char *tenant, const char *id, struct cordon_egress_counts *counts,
                         struct cordon_buf *log, struct cordon_error *err);
/* In every state, and again: 0. NOT_FOUND only for what never was (or is forgotten). Returns when it is gone (5 s at
 * most). *changed (may be NULL): whether this call did it. */
int cordon_guests_destroy(const char *tenant, const char *id, bool *changed, struct cordon_error *err);
/* The same, and where it can't be ended (its service answers no more, say) it counts as gone from now on, by the cause
 * "forgotten": what may be left of it has to be ended where it is, by its `remote` name. */
int cordon_guests_forget(const char *tenant, const char *id, bool *changed, struct cordon_error *err);

/* Usage now, and CPU percent over the time since the last call or sample (100: one CPU). */
struct cordon_guest_metrics {
    int64_t at_us;
    struct cordon_guest_usage usage;
    double cpu_used_percent;
    uint64_t disk_used, disk_total;
};
int cordon_guests_metrics(const char *tenant, const char *id, struct cordon_guest_metrics *ret,
                          struct cordon_error *err);
/* What happened to it, oldest first: at most the newest 200 are kept, beyond its end as long as its tombstone, but not
 * beyond this process. */
struct cordon_guest_note {
    int64_t at_us;
    const char *what; /* "created", "paused", "resumed", "extended", "exec", "exit", "adopted", "gone" */
    const char *text; /* a sentence */
};
int cordon_guests_notes(const char *tenant, const char *id, int64_t after_us,
                        void (*each)(void *context, const struct cordon_guest_note *note), void *context,
                        struct cordon_error *err);

/*
 * Operations. `struct cordon_operation` and the events are <cordon/backend.h>'s. A live stream holds its guest: it is
 * activity, and destroy ends it with GONE. Streams count against CORDON_GUEST_STREAMS a guest.
 *
 * Interpreter contexts (cells): open an EXEC with channel set and a tag, keep the live stream, write requests to
 * CORDON_TO_CHANNEL and read CHANNEL, STDOUT and STDERR events; interrupt with CORDON_CONTROL_SIGNAL SIGINT, which
 * waits for no output. After a restart of the gateway find it by its tag (cordon_guests_execs) and ATTACH; several
 * readers may be attached, each gets all events, and all of them may write and control.
 */
struct cordon_live_stream;
int cordon_guests_open(const char *tenant, const char *id, const struct cordon_operation *operation,
                       struct cordon_live_stream **ret, struct cordon_error *err);
/* As stream_next of the backend: 1 event, 0 nothing within timeout_ms (or, with *ended set, nothing more ever). */
int cordon_guests_next(struct cordon_live_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                       bool *ended, struct cordon_error *err);
int cordon_guests_write(struct cordon_live_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                        struct cordon_error *err);
int cordon_guests_control(struct cordon_live_stream *stream, enum cordon_control control, uint32_t value,
                          struct cordon_error *err);
void cordon_guests_close(struct cordon_live_stream *stream); /* NULL is allowed */
/* An exec's stream that rests is no activity, and neither is its program, until it does not rest any more. */
void cordon_guests_rest(struct cordon_live_stream *stream, bool rests);
/* Sees to it that the guest runs, as opening an operation does: PAUSED where it was not made with auto_resume. */
int cordon_guests_wake(const char *tenant, const char *id, struct cordon_error *err);

/* Without a stream of one's own: to a program by its pid, or by its tag when pid is 0. NOT_FOUND when it does not run.
 */
int cordon_guests_exec_write(const char *tenant, const char *id, uint32_t pid, const char *tag,
                             enum cordon_stream_to to, const void *data, size_t size, struct cordon_error *err);
int cordon_guests_exec_control(const char *tenant, const char *id, uint32_t pid, const char *tag,
                               enum cordon_control control, uint32_t value, struct cordon_error *err);
int cordon_guests_execs(const char *tenant, const char *id,
                        void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                        struct cordon_error *err);

/* An operation whose whole answer is one entry or none: STAT, MKDIR, MOVE, REMOVE. entry (may be NULL) is called with
 * what came. */
int cordon_guests_file(const char *tenant, const char *id, const struct cordon_operation *operation,
                       void (*entry)(void *context, const struct cordon_file_entry *entry), void *context,
                       struct cordon_error *err);

/* A connection to a port that the guest listens on: *ret is the caller's, a non-blocking stream socket. */
int cordon_guests_port(const char *tenant, const char *id, uint16_t port, int cancel_fd, int *ret,
                       struct cordon_error *err);

/* Quotas, asked by whoever starts something in a key's name ("": no key, no limit). Runs: enter before
 * cordon_live_open, leave after close. */
int cordon_quota_run_enter(const char *tenant, uint64_t memory_bytes, struct cordon_error *err); /* QUOTA */
void cordon_quota_run_leave(const char *tenant, uint64_t memory_bytes);
/* Each request that costs something (create, exec, run): CORDON_KEY_RATE a minute and key. QUOTA. */
int cordon_quota_rate(const char *tenant, struct cordon_error *err);
/* What a key has and takes now. */
struct cordon_quota_use {
    size_t guests;
    uint64_t runs, memory_bytes; /* memory: the limits of its runs and guests together */
    uint64_t rate_left;          /* how many requests it may make at once; meaningless without CORDON_KEY_RATE */
};
void cordon_quota_read(const char *tenant, struct cordon_quota_use *ret);
unsigned cordon_guests_retry_after_s(const struct cordon_error *err); /* for the Retry-After header; at least 1 */

struct cordon_guests_counts {
    size_t running, paused;
    uint64_t memory_bytes; /* limits of all of them together */
};
void cordon_guests_count(const char *tenant, struct cordon_guests_counts *ret);

/*
 * The registry: one record a guest, living or gone, by id; and one of the id "node". Any thread; both pointers are
 * borrowed until cordon_guests_done. (Implemented by the store.)
 */
struct cordon_guest_registry {
    void *context;
    int (*put)(void *context, const char *id, const char *record, size_t size, struct cordon_error *err);
    int (*remove)(void *context, const char *id, struct cordon_error *err);
    /* Secrets of a record: appended sealed, or opened again. name is bound to them. */
    int (*seal)(void *context, const char *name, const char *text, size_t size, struct cordon_buf *to,
                struct cordon_error *err);
    int (*open)(void *context, const char *name, const void *sealed, size_t size, struct cordon_buf *to,
                struct cordon_error *err);
    /* row may call open, and nothing else of the registry. */
    int (*each)(void *context, void (*row)(void *row_context, const char *id, const char *record, size_t size),
                void *row_context, struct cordon_error *err);
};
/* The daemon's part. setup: reads the registry, and starts the one thread that watches lifetimes, idleness and deaths.
 * registry NULL: nothing outlives this process. */
int cordon_guests_setup(const struct cordon_settings *settings, const struct cordon_guest_registry *registry,
                        struct cordon_error *err);
/* Threads adopt what lives, make tombstones of what is gone, and try again with the rest; a later call starts those
 * that could not be. Who asks for what was not tried yet waits 5 s at most, all in all; then: UNAVAILABLE. */
void cordon_guests_adopt(void);
void cordon_guests_done(void); /* the guests live on for the next gateway, if their warden does */

#endif
