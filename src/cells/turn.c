/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of one context come one after the other, in the order in which they asked. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "cells/internal.h"

#define WAITERS_MAX 64u

/* Takes the waiter out of the queue; false when its turn came meanwhile. */
static bool withdraw(struct cordon_context *context, struct cordon_cells_waiter *waiter)
{
    for (struct cordon_cells_waiter **at = &context->waiters; *at; at = &(*at)->next) {
        if (*at != waiter)
            continue;
        *at = waiter->next;
        context->waiting--;
        return true;
    }
    return false;
}

static int wait_for_turn(struct cordon_context *context, struct cordon_cells_waiter *waiter, int cancel_fd,
                         struct cordon_error *err)
{
    struct pollfd fds[] = {{.fd = waiter->fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLRDHUP}};
    int r;
    do
        r = poll(fds, cancel_fd >= 0 ? 2 : 1, -1);
    while (r < 0 && errno == EINTR);
    if (fds[0].revents && r > 0)
        return 0;
    r = r < 0 ? -errno : -ECANCELED;
    pthread_mutex_lock(&context->lock);
    bool withdrawn = withdraw(context, waiter);
    pthread_mutex_unlock(&context->lock);
    if (!withdrawn)
        cordon_context_leave(context);
    return cordon_fail(err, r, r == -ECANCELED ? CORDON_ERROR_CANCELLED : CORDON_ERROR_INFRASTRUCTURE,
                       "the client left while its cell waited for the one before");
}

int cordon_context_enter(struct cordon_context *context, int cancel_fd, struct cordon_error *err)
{
    struct cordon_cells_waiter waiter = {.fd = -1};
    pthread_mutex_lock(&context->lock);
    if (!context->busy) {
        context->busy = true;
        pthread_mutex_unlock(&context->lock);
        return 0;
    }
    int r = context->waiting >= WAITERS_MAX ? -EBUSY : 0;
    if (r == 0 && (waiter.fd = eventfd(0, EFD_CLOEXEC)) < 0)
        r = -errno;
    if (r == 0) {
        struct cordon_cells_waiter **at = &context->waiters;
        while (*at)
            at = &(*at)->next;
        *at = &waiter;
        context->waiting++;
    }
    pthread_mutex_unlock(&context->lock);
    if (r == -EBUSY)
        return cordon_fail(err, r, CORDON_ERROR_BUSY, "%u cells wait for context %s already; try again later",
                           WAITERS_MAX, context->info.id);
    if (r < 0)
        return cordon_fail_errno(err, r, "waiting for context %s", context->info.id);
    r = wait_for_turn(context, &waiter, cancel_fd, err);
    cordon_close(&waiter.fd);
    return r;
}

void cordon_context_leave(struct cordon_context *context)
{
    uint64_t one = 1;
    pthread_mutex_lock(&context->lock);
    struct cordon_cells_waiter *first = context->waiters;
    if (context->stream)
        cordon_guests_rest(context->stream, !first);
    if (first) {
        context->waiters = first->next;
        context->waiting--;
        (void)!write(first->fd, &one, sizeof one); /* an eventfd at 0 takes it */
    } else {
        context->busy = false;
    }
    pthread_mutex_unlock(&context->lock);
}
