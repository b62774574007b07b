/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the warden. Theory of operation:
 *
 * One thread, one epoll loop, no wait on anything that a guest or client can delay. Everything is a small object with
 * sources in the loop:
 *
 *   peer     a gateway's connection; says ACQUIRE (peer.c).
 *   acquire  one that could not be answered at once; waits in its pool's queue (pool.c).
 *   pool     the guests of one kind: parked ones, those being made, how many there should be (pool.c).
 *   guest    a state machine from nothing to parked to leased to dead (guest.c, lease.c; bare.c for backend `none`).
 *   slot     what a guest is made in, and what is left of it for the next one (slot.c).
 *   template what guests start from: a tree, with a nursery, zygotes and pools of its own (template.c).
 *   nursery  the process from which agents come (nursery.c; its inside is agent/nursery.c).
 *   machine  a guest that is a virtual machine, driven by a vmm of its own (machine*.c, machine.h).
 *   zygote   the processes from which Python interpreters come (zygote.c).
 *
 * Who calls whom: events reach the object they are about; a guest tells its pool what became of it (cordon_pool_on_…),
 * and at the end of each turn the pools start what is missing (cordon_pools_step).
 */
#ifndef CORDON_WARDEN_WARDEN_H
#define CORDON_WARDEN_WARDEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/loop.h"
#include "isolate/cgroup.h"
#include "isolate/slotns.h"
#include "warden/unpack.h"
#include "warden/wire.h"

#define CORDON_SLOTS_MAX 4096u
#define CORDON_WAITING_MAX 8192u
#define CORDON_UID_RANGE 65536u

struct cordon_interpreters {
    char python[256], node[256], bash[256]; /* "": none */
};

struct cordon_warden_config {
    bool oneshot, allow_none;
    bool network;         /* runs may ask for it: guests that have it are kept warm */
    bool allow_emulation; /* machines without hardware help */
    bool force_emulation; /* … even where there is some */
    bool host_network;    /* of a oneshot that builds a template: its guests are in the host's network namespace */
    int template_fd;      /* of a oneshot that tries one: the file of CORDON_TEMPLATE_TRIAL; -1: none */
    bool root;            /* started with euid 0; else in a user namespace of its own, one id only */
    uid_t outer_uid, outer_gid;
    uid_t uid_base;
    uid_t zygote_uid; /* with root: in the first range that was free */
    uint64_t memory_bytes, max_memory_bytes, disk_bytes, disk_inodes;
    uint32_t pids, cpu_percent, open_files;
    unsigned floor[CORDON_GUEST_KIND__COUNT], pool_max;
    uint64_t start_us; /* what a guest may take to be ready, as long as somebody waits for it */
    uint64_t orphan_us;
    unsigned cpus;                                   /* of the host */
    struct cordon_interpreters interpreters;         /* of the default template */
    struct cordon_buf authority, trust_bundle;       /* PEM, for guests' trees; empty: none (base/trust.h) */
    char templates[4096];                            /* folder of the made ones' files */
    char image[4096], qemu[256];                     /* of machines: folder, program */
    unsigned machine_pool;                           /* clones parked of each machine template */
    uint64_t machine_memory_mb, machine_cpu_percent; /* what all of them may have together */
    unsigned templates_max;
    uint64_t template_bytes;
    char instance[64];           /* names the cgroups */
    struct cordon_error problem; /* a path that is of no use; code 0: none */
};

/* argv as in supervisor/roles.h; settings are loaded, checked and kept only as far as the warden needs them. */
int cordon_warden_configure(int argc, char **argv, struct cordon_warden_config *ret, struct cordon_error *err);
const char *cordon_interpreter_of(const struct cordon_interpreters *interpreters, enum cordon_guest_kind kind);
uint32_t cordon_guest_cpus(uint32_t cpu_percent, unsigned host_cpus); /* what a guest is told */

enum cordon_slot_state {
    CORDON_SLOT_EMPTY = 0,
    CORDON_SLOT_MAKING,
    CORDON_SLOT_FREE,
    CORDON_SLOT_USED,
    CORDON_SLOT_HELD /* its guest is dead, but something of it is still there */
};

struct cordon_machines;
struct cordon_machine_template;

struct cordon_slot {
    struct cordon_warden *warden;
    enum cordon_slot_state state;
    unsigned index;
    uid_t uids;               /* the first of its range, once it was made for the first time; 0: none yet */
    bool has_cgroup, suspect; /* suspect: looked over once, and its network namespace was not clean */
    struct cordon_slotns ns;
    struct cordon_cgroup_slot cgroup;
    struct cordon_child maker; /* MAKING */
    int maker_sock;
    struct cordon_guest *guest; /* USED; MAKING: who waits for it, or NULL */
    struct cordon_timer again;  /* HELD: look again */
    uint64_t held_us;
    struct cordon_slot *next_free;
};

enum cordon_guest_state {
    CORDON_GUEST_SLOT = 0,    /* waits for its slot */
    CORDON_GUEST_AGENT,       /* waits for the nursery's report */
    CORDON_GUEST_INTERPRETER, /* waits for the zygote's reply, and the ready pipe's byte and end */
    CORDON_GUEST_READY,       /* parked */
    CORDON_GUEST_LEASING,     /* a machine: waits until its guest has taken the lease */
    CORDON_GUEST_LEASED,
    CORDON_GUEST_DYING /* waits for process 1's end, and for answers that still name it */
};

struct cordon_zygote;
struct cordon_acquire;

/* What a guest has besides when it is a machine. */
struct cordon_vm {
    struct cordon_source control; /* to its vmm; fd -1: it is none */
    bool builds;                  /* it is to become its pool's template */
    bool booted;                  /* not a clone */
    uint32_t start;               /* enum cordon_machine_start; once leased */
    uint32_t charged_mb, charged_cpu;
    uint32_t rehearsals;          /* that are over */
    struct cordon_acquire *taker; /* LEASING: for whom */
    uint32_t seq, verb;           /* of the order that waits for its report; 0: none */
    uint32_t asked_seq;           /* of the gateway's request behind it */
    int adopter;                  /* the lease of a gateway that adopts it, until its channel is there */
    uint64_t lease_us;
    char ended[256]; /* why it did, by its vmm's account */
};

#define CORDON_GUEST_NAMESPACES 4

struct cordon_guest {
    struct cordon_warden *warden;
    struct cordon_pool *pool;
    enum cordon_guest_state state;
    uint64_t seq;
    struct cordon_slot *slot;   /* NULL: backend `none` without cgroups */
    struct cordon_source death; /* pidfd of process 1 */
    struct cordon_child bare;   /* backend `none`: the agent */
    bool bare_plain;            /* …not process 1 of a pid namespace */
    char *bare_folder;
    struct cordon_source ready, lease;
    int channel; /* the gateway's end, until it is handed over */
    /* kept.c */
    struct cordon_cgroup_freezer freezer;
    int control;                 /* to the agent: brings it new channels */
    char id[24];                 /* since it was leased */
    bool paused, woken, ordered; /* woken: it is to be paused, and runs; ordered: its gateway wants it destroyed */
    uint32_t pause_seq;          /* the PAUSE that waits for all to stand still */
    uint64_t pause_until_us;
    struct cordon_timer freeze;
    int namespaces[CORDON_GUEST_NAMESPACES];
    int ends[5];                /* the interpreter's: driver, ready, stdin, stdout, stderr; until sent */
    bool at_nursery, at_zygote; /* an answer is still to come */
    bool forked, said_ready, ready_ended, alive, has_namespaces;
    struct cordon_zygote *zygote;
    uint64_t oom_kill_base, cpu_usage_base;
    uint64_t started_us;
    struct cordon_vm vm;
    struct cordon_timer timer;            /* being made: too long; parked: proven; dying: too long */
    struct cordon_guest *previous, *next; /* in the warden's list of all, by age */
    struct cordon_guest *next_parked;
};

struct cordon_acquire {
    struct cordon_warden *warden;
    struct cordon_pool *pool;
    struct cordon_warden_acquire request;
    struct cordon_source lease; /* watched for a gateway that gives up */
    unsigned attempts;
    uint64_t counted_seq;       /* guests up to this one do not count as another attempt */
    uint64_t from_seq;          /* guests up to this one were there before it */
    uint64_t ticket;            /* of a machine's: who came first is first, whatever the pool */
    struct cordon_guest *guest; /* it waits no more: that machine takes its lease */
    struct cordon_acquire *next;
};

/* The pools of one template; those of backend `none` are used in the default one only. */
enum { CORDON_POOLS_PLAIN = 0, CORDON_POOLS_UNISOLATED, CORDON_POOLS_NETWORK, CORDON_POOLS };

struct cordon_pool {
    struct cordon_warden *warden;
    struct cordon_template *template;
    struct cordon_machine_template *machine; /* its guests are machines, made of this; else NULL */
    enum cordon_guest_kind kind;
    bool unisolated, network;
    bool wanted; /* somebody asked; until then a made template's has nothing parked */
    struct cordon_guest *parked, *parked_last;
    struct cordon_acquire *waiting, *waiting_last;
    unsigned parked_count, waiting_count, making, target, misses;
    bool healthy;              /* one was made, and not too many failed since */
    unsigned failures;         /* in a row */
    uint64_t failed_seq;       /* guests up to this one belong to the last of them */
    struct cordon_timer rest;  /* armed: no refill before it is due */
    struct cordon_timer later; /* armed: no refill yet, a run has just begun */
    struct cordon_timer shrink;
    char why[400]; /* of the last failure */
};

struct cordon_peer {
    struct cordon_warden *warden;
    struct cordon_source source;
    struct cordon_peer *next;
};

struct cordon_nursery {
    struct cordon_warden *warden;
    struct cordon_template *template;
    struct cordon_child child;
    struct cordon_source socket;
    struct cordon_timer restart;
    unsigned failures, jobs;
    uint64_t started_us;
};

enum cordon_zygote_state { CORDON_ZYGOTE_LOADING, CORDON_ZYGOTE_SERVING, CORDON_ZYGOTE_RETIRED };

struct cordon_zygote { /* one process */
    struct cordon_zygote_place *place;
    enum cordon_zygote_state state;
    struct cordon_child child;
    struct cordon_source socket;
    struct cordon_timer timer; /* LOADING: too long; SERVING: its age */
    unsigned forks, jobs;
    uint32_t seq;
    struct cordon_zygote *next; /* older ones of the place */
};

struct cordon_zygote_place { /* "python" or "data": one process at a time serves it */
    struct cordon_warden *warden;
    struct cordon_template *template;
    const char *name;
    struct cordon_zygote *current, *coming, *retired;
    struct cordon_timer restart;
    unsigned failures;
    bool given_up; /* interpreters are executed instead */
};

#define CORDON_ZYGOTES 2

enum cordon_template_state {
    CORDON_TEMPLATE_LOADING, /* its tree is being made; who asks for its guests waits */
    CORDON_TEMPLATE_SERVING,
    CORDON_TEMPLATE_FAILED, /* told to whoever asks, until it is tried again */
    CORDON_TEMPLATE_RETIRED /* no longer found by its name; freed when its last guest is gone */
};

struct cordon_template {
    struct cordon_warden *warden;
    char name[40];
    enum cordon_template_state state;
    int root_ns; /* mount namespace with its tree as root */
    struct cordon_interpreters interpreters;
    uint32_t languages;                         /* bits by enum cordon_guest_kind */
    char unseen[CORDON_GUEST_KIND__COUNT][300]; /* why guests can't see the interpreter; "": they can */
    struct cordon_nursery nursery;
    struct cordon_zygote_place zygotes[CORDON_ZYGOTES];
    struct cordon_pool pools[CORDON_POOLS][CORDON_GUEST_KIND__COUNT];
    unsigned guests; /* of all pools, in whatever state */
    /* Of made ones only. */
    struct stat file; /* as it was when it was loaded */
    struct cordon_child loader;
    struct cordon_source report;
    struct cordon_timer timer; /* LOADING: too long; SERVING: idle */
    uint64_t used_us;
    int status; /* FAILED: negative errno, and why */
    char why[400];
    struct cordon_template *next;
};

struct cordon_warden {
    struct cordon_loop loop;
    struct cordon_warden_config config;
    struct cordon_source control, signals;
    int local_status; /* 0, or why `local` can't run */
    char why[512];
    struct cordon_cgroup_root *cgroups;
    uint32_t abilities;
    int agent_memfd, filter_memfd, no_filter_memfd, null;
    int uids; /* locks of uid ranges; negative: can't be had */
    uint64_t uids_next;
    struct cordon_peer *peers;
    int32_t told_status, told_machines; /* in the last hello */
    uint32_t told_abilities;
    struct cordon_slot *slots;                    /* CORDON_SLOTS_MAX of them */
    unsigned waiting_max;                         /* acquires; by what RLIMIT_NOFILE leaves */
    unsigned slots_max, slots_used;               /* the first slots_used were made at some time */
    struct cordon_slot *free_slots, *empty_slots; /* empty ones have nothing made */
    unsigned free_count, spare_making;
    unsigned slot_failures;
    unsigned free_least; /* fewest free slots since the last trim */
    struct cordon_timer slot_rest, trim;
    struct cordon_template base; /* the default one: always there, and first of the list of all, by next */
    struct cordon_machines *machines;
    struct cordon_guest *guests, *guests_last;
    unsigned guest_count, leased_count, acquire_count, removals;
    uint64_t last_seq;
    bool stopping, bare_plain;
};

/* config.c: the limit that code gets where no control group holds its processes; 0: one does */
uint32_t cordon_guest_processes(const struct cordon_warden *warden);

/* slot.c */
void cordon_slots_init(struct cordon_warden *warden);
void cordon_slots_done(struct cordon_warden *warden);
void cordon_slots_step(struct cordon_warden *warden);         /* makes one ahead where none is */
bool cordon_slots_coming(const struct cordon_warden *warden); /* will one be free soon, by itself? */
/* Gives guest a slot: 1 at once, 0 later by cordon_guest_on_slot; negative when there is none to have. */
int cordon_slot_take(struct cordon_warden *warden, struct cordon_guest *guest, struct cordon_error *err);
/* The guest in it is dead. */
void cordon_slot_release(struct cordon_slot *slot);
void cordon_slot_leave(struct cordon_slot *slot, struct cordon_guest *guest); /* guest no longer waits for it */

/* uids.c: ranges of CORDON_UID_RANGE uids that no other warden of this host uses, until this one's end */
int cordon_uids_open(struct cordon_warden *warden, struct cordon_error *err); /* takes the zygote uid's, too */
int cordon_uids_take(struct cordon_warden *warden, uid_t *ret, struct cordon_error *err);

/* guest.c */
int cordon_guest_make(struct cordon_pool *pool, struct cordon_error *err);
/* A machine that is to become its pool's template; told by cordon_machine_built. NULL with err. */
struct cordon_guest *cordon_guest_make_template(struct cordon_pool *pool, struct cordon_error *err);
void cordon_guest_on_slot(struct cordon_guest *guest, const struct cordon_error *failed);
struct cordon_nursery_report;
void cordon_guest_on_report(struct cordon_guest *guest, const struct cordon_nursery_report *report, int *fds,
                            size_t nfds);
void cordon_guest_on_agent_lost(struct cordon_guest *guest);
void cordon_guest_on_zygote(struct cordon_guest *guest, int status, const char *stage);
struct cordon_guest *cordon_guest_find(struct cordon_warden *warden, uint64_t seq);
void cordon_guest_fail(struct cordon_guest *guest, int status, const char *fmt, ...) CORDON_PRINTF(3, 4);
void cordon_guest_destroy(struct cordon_guest *guest);
void cordon_guest_gone(struct cordon_guest *guest); /* its processes are */
static inline bool cordon_guest_is_kept(const struct cordon_guest *guest)
{
    return guest->pool->kind == CORDON_GUEST_KEPT;
}

/* lease.c */
/* Hands a parked guest over. Negative when it can't be (limits); the guest stays the caller's to destroy then. */
int cordon_guest_lease(struct cordon_guest *guest, const struct cordon_warden_acquire *request, int lease, bool warm,
                       struct cordon_error *err);
/* What is sent with it: 0, or negative errno. */
int cordon_guest_send_grant(struct cordon_guest *guest, int lease, bool warm);

/* kept.c: guests that do not end with their lease */
int cordon_keep_prepare(struct cordon_guest *guest, int *agent_end,
                        struct cordon_error *err); /* before it is launched */
void cordon_keep_leased(struct cordon_guest *guest, const struct cordon_warden_acquire *request, int lease);
void cordon_keep_adopt(struct cordon_warden *warden, const struct cordon_warden_acquire *request, int lease_take);
/* Of a machine: the answer to what asked for it. */
void cordon_keep_answer(struct cordon_guest *guest, uint32_t seq, int status);
void cordon_keep_adopted(struct cordon_guest *guest, int status); /* its new channel is there, or is not */
void cordon_keep_dying(struct cordon_guest *guest);               /* it is being killed */
void cordon_keep_done(struct cordon_guest *guest);

/* bare.c */
int cordon_bare_start(struct cordon_guest *guest, int channel, int ready, struct cordon_error *err);
void cordon_bare_remove_folder(struct cordon_warden *warden, char *folder_take);
void cordon_bare_remove_stale(struct cordon_warden *warden); /* folders of wardens that were killed */

/* pool.c */
void cordon_pools_init(struct cordon_template *template);
/* Nobody waits, nothing is parked, no timer runs. */
void cordon_pools_close(struct cordon_template *template, int status, const char *why);
void cordon_pools_refuse(struct cordon_template *template, enum cordon_guest_kind kind, int status, const char *why);
bool cordon_pools_wait(const struct cordon_template *template); /* does somebody? */
void cordon_pools_step(struct cordon_warden *warden);
void cordon_pools_done(struct cordon_warden *warden);
void cordon_pool_init_machine(struct cordon_pool *pool, struct cordon_machine_template *template,
                              enum cordon_guest_kind kind);
void cordon_pool_close(struct cordon_pool *pool, int status, const char *why);
/* What a machine was to be leased to: it waits again, or was answered. */
void cordon_pool_take_back(struct cordon_acquire *acquire, const char *why);
void cordon_pool_end_acquire(struct cordon_acquire *acquire);
void cordon_pool_acquire(struct cordon_pool *pool, const struct cordon_warden_acquire *request, int lease_take);
void cordon_pool_on_proven(struct cordon_pool *pool);   /* a guest was of use to somebody, or stays parked */
void cordon_pool_on_returned(struct cordon_pool *pool); /* a lease ended */
void cordon_pool_on_ready(struct cordon_pool *pool, struct cordon_guest *guest);
void cordon_pool_on_failure(struct cordon_pool *pool, uint64_t seq, int status, const char *why);
void cordon_pool_on_parked_death(struct cordon_pool *pool);
int cordon_pools_status(const struct cordon_warden *warden, char *why, size_t size); /* for hello */
void cordon_pool_unpark(struct cordon_pool *pool, struct cordon_guest *guest);
void cordon_pool_end_parked(struct cordon_pool *pool); /* all that wait in it */

/* peer.c */
int cordon_peer_add(struct cordon_warden *warden, int fd_take);
void cordon_peers_tell(struct cordon_warden *warden); /* a new hello, where it differs from the last */
void cordon_peers_done(struct cordon_warden *warden);
void cordon_peer_refuse(int lease, int status, const char *why);

/* request.c */
#define CORDON_NO_MACHINE_NETWORK                                                                                      \
    "no network device can be made here for a machine (cordon doctor tells why: machines: network)"
/* May this be made? 0, or negative errno and why, in words for the client. Of a made template only its name's form is
 * looked at. */
int cordon_request_check(const struct cordon_warden *warden, const struct cordon_warden_acquire *request, char *why,
                         size_t size);
/* Has the template, whose tree is there, an interpreter for this kind? In the same way. */
int cordon_request_check_language(const struct cordon_template *template, enum cordon_guest_kind kind, bool unisolated,
                                  char *why, size_t size);

/* nursery.c */
int cordon_nursery_start(struct cordon_template *template, struct cordon_error *err);
bool cordon_nursery_is_there(const struct cordon_template *template); /* or is not worth waiting for */
bool cordon_nursery_is_dead(const struct cordon_template *template);  /* now, before its event came */
void cordon_nursery_stop(struct cordon_template *template);
int cordon_nursery_send(struct cordon_guest *guest, int channel, int ready, const int agent_ends[4],
                        struct cordon_error *err);

/* zygote.c */
void cordon_zygotes_init(struct cordon_template *template);
void cordon_zygotes_want(struct cordon_template *template, enum cordon_guest_kind kind); /* starts what it takes */
void cordon_zygotes_done(struct cordon_template *template);
struct cordon_zygote_place *cordon_zygote_place_of(struct cordon_template *template, enum cordon_guest_kind kind);
int cordon_zygote_send(struct cordon_guest *guest, struct cordon_error *err);
void cordon_zygote_end(struct cordon_zygote *zygote); /* kills it; its jobs are answered as failed */

/* template.c */
void cordon_templates_init(struct cordon_warden *warden);
/* The default template's tree and nursery. Waits for the tree (some milliseconds). */
int cordon_templates_open(struct cordon_warden *warden, struct cordon_error *err);
/* The template of that name (a valid one), which may still be loading: NULL with status and why when there is none. */
struct cordon_template *cordon_template_find(struct cordon_warden *warden, const char *name, int *status, char *why,
                                             size_t size);
void cordon_templates_step(struct cordon_warden *warden); /* at the end of a turn: frees what is no longer used */
void cordon_templates_done(struct cordon_warden *warden); /* all guests are gone */

/* template_load.c */
/* In a child: makes the tree of the default template (file -1) or of the one in file, and tells it on sock by a
 * struct cordon_template_report; lives until sock's other end is closed. */
_Noreturn void cordon_template_load(const struct cordon_warden *warden, int file, int sock);
struct cordon_template_report {
    struct cordon_error err; /* code 0: the tree is there, as this process's mount namespace */
    struct cordon_interpreters interpreters;
    struct cordon_unpack_result unpacked; /* of a made one */
};

/* process.c: children of the warden */
/* Forks; 0 in the child, which holds 0-2 and `keep` only and dies with the warden. */
pid_t cordon_process_fork(const int *keep, size_t count);
int cordon_process_become_child(pid_t parent, const int *keep, size_t count); /* after a bare clone */
/* In a child, for nursery and zygotes: the zygote uid, no capabilities, dies with the warden. */
int cordon_process_drop(const struct cordon_warden_config *config);
int cordon_process_drop_to(const struct cordon_warden_config *config, uid_t uid); /* with root: to that uid */
/* In a child, before an exec: fds become 0, 1, 3, 4…; 2 stays; all others are closed. */
int cordon_process_place(const int *fds, size_t count);

#endif
