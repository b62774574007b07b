/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"

int cordon_loop_init(struct cordon_loop *loop)
{
    *loop = (struct cordon_loop){.epoll = epoll_create1(EPOLL_CLOEXEC)};
    return loop->epoll < 0 ? -errno : 0;
}

void cordon_loop_done(struct cordon_loop *loop)
{
    cordon_close(&loop->epoll);
}

int cordon_source_lend(struct cordon_loop *loop, struct cordon_source *source, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    source->fd = fd;
    source->watched = true;
    return 0;
}

int cordon_source_watch(struct cordon_loop *loop, struct cordon_source *source, int fd, uint32_t events)
{
    int r = cordon_source_lend(loop, source, fd, events);
    if (r < 0)
        cordon_close(&fd);
    return r;
}

int cordon_source_set(struct cordon_loop *loop, struct cordon_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &event) < 0 ? -errno : 0;
}

void cordon_source_forget(struct cordon_loop *loop, struct cordon_source *source)
{
    if (source->watched) {
        /* Needed although the fd may be closed next: another process may still hold the same open file. */
        (void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
        for (int i = loop->batch_at; i < loop->batch_size; i++)
            if (loop->batch[i].data.ptr == source)
                loop->batch[i].data.ptr = NULL;
    }
    source->watched = false;
    source->fd = -1;
}

void cordon_source_close(struct cordon_loop *loop, struct cordon_source *source)
{
    int fd = source->watched ? source->fd : -1;
    cordon_source_forget(loop, source);
    cordon_close(&fd);
}

void cordon_timer_cancel(struct cordon_loop *loop, struct cordon_timer *timer)
{
    if (!timer->armed)
        return;
    if (timer->earlier)
        timer->earlier->later = timer->later;
    else
        loop->first = timer->later;
    if (timer->later)
        timer->later->earlier = timer->earlier;
    else
        loop->last = timer->earlier;
    timer->armed = false;
}

void cordon_timer_arm(struct cordon_loop *loop, struct cordon_timer *timer, uint64_t delay_us)
{
    cordon_timer_cancel(loop, timer);
    timer->due_us = cordon_now_us() + delay_us;
    /* From the end: most timers are like the ones before them, so their place is found at once. */
    struct cordon_timer *before = loop->last;
    while (before && before->due_us > timer->due_us)
        before = before->earlier;
    timer->earlier = before;
    timer->later = before ? before->later : loop->first;
    if (timer->later)
        timer->later->earlier = timer;
    else
        loop->last = timer;
    if (before)
        before->later = timer;
    else
        loop->first = timer;
    timer->armed = true;
}

static void on_child(struct cordon_source *source, uint32_t events)
{
    struct cordon_child *child = CORDON_OWNER(struct cordon_child, source, source);
    int status = 0;
    pid_t r;
    do
        r = waitpid(child->pid, &status, WNOHANG);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return;
    child->pid = -1;
    child->on_exit(child, status);
}

int cordon_child_watch(struct cordon_loop *loop, struct cordon_child *child, pid_t pid)
{
    int fd = cordon_pidfd_open(pid), r = fd < 0 ? fd : 0;
    child->pid = pid;
    child->source.on_event = on_child;
    if (r == 0)
        r = cordon_source_watch(loop, &child->source, fd, EPOLLIN);
    if (r < 0) {
        (void)kill(pid, SIGKILL);    /* it is our unreaped child, so it is there */
        (void)waitpid(pid, NULL, 0); /* nothing to learn */
        child->pid = -1;
    }
    return r;
}

void cordon_child_kill(struct cordon_child *child)
{
    if (child->source.watched && child->pid > 0)
        (void)kill(child->pid, SIGKILL); /* unreaped, so the number is still its own */
}

static void run_timers(struct cordon_loop *loop)
{
    uint64_t now = cordon_now_us();
    while (loop->first && loop->first->due_us <= now) {
        struct cordon_timer *timer = loop->first;
        cordon_timer_cancel(loop, timer);
        timer->on_due(timer);
    }
}

static int wait_ms(const struct cordon_loop *loop, int timeout_ms)
{
    if (!loop->first)
        return timeout_ms;
    uint64_t now = cordon_now_us();
    uint64_t ms = loop->first->due_us <= now ? 0 : (loop->first->due_us - now + 999) / 1000;
    if (ms > 3600000)
        ms = 3600000;
    return timeout_ms >= 0 && (uint64_t)timeout_ms < ms ? timeout_ms : (int)ms;
}

int cordon_loop_turn(struct cordon_loop *loop, int timeout_ms)
{
    int n = epoll_wait(loop->epoll, loop->batch, CORDON_LOOP_BATCH, wait_ms(loop, timeout_ms));
    if (n < 0 && errno != EINTR)
        return -errno;
    loop->batch_size = n < 0 ? 0 : n;
    for (loop->batch_at = 0; loop->batch_at < loop->batch_size;) {
        struct epoll_event event = loop->batch[loop->batch_at++];
        struct cordon_source *source = event.data.ptr;
        if (source)
            source->on_event(source, event.events);
    }
    loop->batch_size = 0;
    run_timers(loop);
    if (loop->on_turn)
        loop->on_turn(loop);
    return 0;
}

int cordon_loop_run(struct cordon_loop *loop)
{
    int r = 0;
    while (!loop->stop && r == 0)
        r = cordon_loop_turn(loop, -1);
    return r;
}
