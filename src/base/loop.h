/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of warden and egress: one thread, one epoll. A source, a timer or a child is embedded in the object
 * that it belongs to and found back with CORDON_OWNER. Removing one inside a callback is safe for every other callback
 * of the same turn: events that still wait for it are dropped.
 */
#ifndef CORDON_BASE_LOOP_H
#define CORDON_BASE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#define CORDON_OWNER(type, member, at) ((type *)(void *)((char *)(at)-offsetof(type, member)))
#define CORDON_LOOP_BATCH 64

struct cordon_source {
    int fd; /* owned by the source; -1: not there */
    bool watched;
    void (*on_event)(struct cordon_source *source, uint32_t events);
};

struct cordon_timer {
    uint64_t due_us;
    bool armed;
    void (*on_due)(struct cordon_timer *timer);
    struct cordon_timer *earlier, *later;
};

/* A child process, waited for by its pidfd. */
struct cordon_child {
    struct cordon_source source;
    pid_t pid;
    void (*on_exit)(struct cordon_child *child, int status); /* status as in waitpid; the child is reaped */
};

struct cordon_loop {
    int epoll;
    bool stop;
    struct epoll_event batch[CORDON_LOOP_BATCH];
    int batch_at, batch_size;
    struct cordon_timer *first, *last;
    void (*on_turn)(struct cordon_loop *loop); /* after the events of each turn */
};

int cordon_loop_init(struct cordon_loop *loop);
void cordon_loop_done(struct cordon_loop *loop);
/* Runs until loop->stop. 0, or negative errno when waiting itself fails. */
int cordon_loop_run(struct cordon_loop *loop);
/* One turn: waits at most timeout_ms (-1: until something happens). */
int cordon_loop_turn(struct cordon_loop *loop, int timeout_ms);

/* Takes fd (closes it on failure). events: EPOLLIN and so on; EPOLLHUP and EPOLLERR always come. */
int cordon_source_watch(struct cordon_loop *loop, struct cordon_source *source, int fd, uint32_t events);
/* Other events from now on; 0 events: only EPOLLHUP and EPOLLERR. 0 or negative errno. */
int cordon_source_set(struct cordon_loop *loop, struct cordon_source *source, uint32_t events);
/* The same for a descriptor that stays its owner's: it is given up with forget, before it is closed. */
int cordon_source_lend(struct cordon_loop *loop, struct cordon_source *source, int fd, uint32_t events);
void cordon_source_forget(struct cordon_loop *loop, struct cordon_source *source);
/* Stops watching and closes. Fine on a source that was never watched. */
void cordon_source_close(struct cordon_loop *loop, struct cordon_source *source);

void cordon_timer_arm(struct cordon_loop *loop, struct cordon_timer *timer, uint64_t delay_us);
void cordon_timer_cancel(struct cordon_loop *loop, struct cordon_timer *timer);

/* Watches a child that was just made. When that fails the child is killed and reaped. */
int cordon_child_watch(struct cordon_loop *loop, struct cordon_child *child, pid_t pid);
void cordon_child_kill(struct cordon_child *child); /* SIGKILL; on_exit follows. Nothing when there is no child. */

#endif
