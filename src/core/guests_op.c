/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in kept guests: the service's side of the backend's streams. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/guests_internal.h"

#define SMALL_MS 30000 /* for an operation that answers at once, on a busy host */

struct cordon_live_stream {
    struct cordon_guest_item *item; /* pinned */
    struct cordon_stream *stream;
    bool exec, ended, rests;
    bool looks; /* of who may only look: no activity */
};

/* --- open and close --- */

/* Pinned and running: a paused one is resumed where its maker allowed that. */
static int pin_running(const char *tenant, const char *id, struct cordon_guest_item **ret, struct cordon_error *err)
{
    bool changed;
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    cordon_guests_lock(); /* its backend may know of a pause whose answer was lost */
    bool paused = item->paused || item->backend->guest_condition(item->handle) == CORDON_GUEST_IS_PAUSED;
    cordon_guests_unlock();
    if (paused && (!item->auto_resume || tenant == cordon_guests_look))
        r = cordon_fail(err, -EBUSY, CORDON_ERROR_PAUSED, "the guest %s is paused: resume it first", id);
    else if (paused)
        r = cordon_guest_life_resume(item, CORDON_KEEP, &changed, err);
    if (r < 0)
        cordon_guest_unpin(item);
    else
        *ret = item;
    return r;
}

static int take_place(struct cordon_guest_item *item, bool looks, struct cordon_error *err)
{
    unsigned most = (unsigned)cordon_settings_int(cordon_guests.settings, item->door, CORDON_SET_GUEST_STREAMS);
    cordon_guests_lock();
    unsigned streams = item->streams + item->looking;
    if (streams < most)
        ++*(looks ? &item->looking : &item->streams);
    if (!looks)
        item->active_us = cordon_guests_now();
    cordon_guests_unlock();
    if (streams < most)
        return 0;
    return cordon_fail(err, -EAGAIN, CORDON_ERROR_QUOTA,
                       "%u operations are under way in the guest %s, as many as may be (%s)", streams, item->id,
                       cordon_settings_name(item->door, CORDON_SET_GUEST_STREAMS));
}

static void give_place(struct cordon_guest_item *item, bool looks)
{
    cordon_guests_lock();
    --*(looks ? &item->looking : &item->streams);
    if (!looks)
        item->active_us = cordon_guests_now();
    bool wake = !looks && item->streams == 0 && item->idle_pause_ms;
    cordon_guests_unlock();
    if (wake)
        cordon_guests_watch_wake();
}

static int open_pinned(struct cordon_guest_item *item, bool looks, const struct cordon_operation *operation,
                       struct cordon_stream **ret, struct cordon_error *err)
{
    if (!item->backend->guest_open)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s has no operations in guests",
                           item->backend_name);
    struct cordon_operation own = *operation;
    const char **env = NULL;
    int r = operation->kind == CORDON_OP_EXEC
                ? cordon_guest_trust(item, operation->env, operation->env_count, &env, &own.env_count, err)
                : 0;
    if (r == 0)
        r = take_place(item, looks, err);
    if (env)
        own.env = env;
    if (r == 0) {
        r = item->backend->guest_open(item->handle, &own, ret, err);
        if (r < 0)
            give_place(item, looks);
    }
    free(env);
    return r;
}

int cordon_guests_open(const char *tenant, const char *id, const struct cordon_operation *operation,
                       struct cordon_live_stream **ret, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    bool exec = operation->kind == CORDON_OP_EXEC;
    int r = exec ? cordon_quota_rate(tenant, err) : 0;
    if (r == 0)
        r = pin_running(tenant, id, &item, err);
    if (r < 0)
        return r;
    struct cordon_live_stream *stream = calloc(1, sizeof *stream);
    bool looks = tenant == cordon_guests_look;
    r = stream ? open_pinned(item, looks, operation, &stream->stream, err)
               : cordon_fail_errno(err, -ENOMEM, "use a guest");
    if (r < 0) {
        free(stream);
        cordon_guest_unpin(item);
        return r;
    }
    stream->item = item;
    stream->exec = exec;
    stream->looks = looks;
    *ret = stream;
    return 0;
}

void cordon_guests_rest(struct cordon_live_stream *stream, bool rests)
{
    struct cordon_guest_item *item = stream->item;
    if (stream->rests == rests)
        return;
    stream->rests = rests;
    cordon_guests_lock();
    item->resting += rests ? 1 : -1u;
    item->streams += rests ? -1u : 1;
    item->active_us = cordon_guests_now();
    bool wake = item->streams == 0 && item->idle_pause_ms;
    cordon_guests_unlock();
    if (wake)
        cordon_guests_watch_wake();
}

int cordon_guests_wake(const char *tenant, const char *id, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = pin_running(tenant, id, &item, err);
    if (r >= 0)
        cordon_guest_unpin(item);
    return r < 0 ? r : 0;
}

void cordon_guests_close(struct cordon_live_stream *stream)
{
    if (!stream)
        return;
    cordon_guests_rest(stream, false);
    stream->item->backend->stream_close(stream->stream);
    give_place(stream->item, stream->looks);
    cordon_guest_unpin(stream->item);
    free(stream);
}

/* --- events --- */

static void note(struct cordon_live_stream *stream, const struct cordon_stream_event *event)
{
    if (!stream->exec || (event->type != CORDON_STREAM_STARTED && event->type != CORDON_STREAM_EXIT))
        return;
    cordon_guests_lock();
    if (event->type == CORDON_STREAM_STARTED)
        cordon_guest_item_note(stream->item, "exec", "process %u was started", event->pid);
    else
        cordon_guest_item_note(stream->item, "exit", "a process ended with exit code %d, signal %d",
                               event->exit->exit_code, event->exit->signal);
    cordon_guests_unlock();
}

/* What the backend says of a guest that went is not yet the reason: the table may know it. */
static int tell_truth(struct cordon_guest_item *item, int r, struct cordon_error *err)
{
    if (r >= 0 || !err || err->kind != CORDON_ERROR_GONE)
        return r;
    cordon_guests_lock();
    if (item->gone)
        r = cordon_guest_say_gone(item, err);
    cordon_guests_unlock();
    return r;
}

int cordon_guests_next(struct cordon_live_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                       bool *ended, struct cordon_error *err)
{
    *ended = stream->ended;
    if (stream->ended)
        return 0;
    int r = stream->item->backend->stream_next(stream->stream, timeout_ms, event, err);
    if (r == 1) {
        note(stream, event);
        stream->ended = event->type == CORDON_STREAM_EXIT || event->type == CORDON_STREAM_END;
    }
    return tell_truth(stream->item, r, err);
}

int cordon_guests_write(struct cordon_live_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                        struct cordon_error *err)
{
    int r = stream->item->backend->stream_write(stream->stream, to, data, size, err);
    return tell_truth(stream->item, r, err);
}

int cordon_guests_control(struct cordon_live_stream *stream, enum cordon_control control, uint32_t value,
                          struct cordon_error *err)
{
    int r = stream->item->backend->stream_control(stream->stream, control, value, err);
    return tell_truth(stream->item, r, err);
}

/* --- programs --- */

int cordon_guests_execs(const char *tenant, const char *id,
                        void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                        struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = item->backend->guest_execs ? item->backend->guest_execs(item->handle, each, context, err)
                                   : cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                                                 "the backend %s does not list programs", item->backend_name);
    r = tell_truth(item, r, err);
    cordon_guest_unpin(item);
    return r;
}

struct search {
    uint32_t pid;
    const char *tag;
    uint32_t found;
};

static void match(void *context, const struct cordon_exec_info *exec)
{
    struct search *search = context;
    bool same = search->pid ? exec->pid == search->pid : search->tag && strcmp(exec->tag, search->tag) == 0;
    if (same && exec->running && !search->found)
        search->found = exec->pid;
}

static int attach(const char *tenant, const char *id, uint32_t pid, const char *tag, struct cordon_live_stream **ret,
                  struct cordon_error *err)
{
    struct search search = {.pid = pid, .tag = tag};
    int r = cordon_guests_execs(tenant, id, match, &search, err);
    if (r < 0)
        return r;
    if (!search.found && pid)
        return cordon_fail(err, -ESRCH, CORDON_ERROR_NOT_FOUND, "process %u of the guest %s does not run", pid, id);
    if (!search.found)
        return cordon_fail(err, -ESRCH, CORDON_ERROR_NOT_FOUND, "no process with the tag %.63s runs in the guest %s",
                           tag ? tag : "", id);
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_ATTACH, .pid = search.found, .cancel_fd = -1};
    return cordon_guests_open(tenant, id, &operation, ret, err);
}

int cordon_guests_exec_write(const char *tenant, const char *id, uint32_t pid, const char *tag,
                             enum cordon_stream_to to, const void *data, size_t size, struct cordon_error *err)
{
    struct cordon_live_stream *stream;
    int r = attach(tenant, id, pid, tag, &stream, err);
    if (r < 0)
        return r;
    r = cordon_guests_write(stream, to, data, size, err);
    cordon_guests_close(stream);
    return r;
}

int cordon_guests_exec_control(const char *tenant, const char *id, uint32_t pid, const char *tag,
                               enum cordon_control control, uint32_t value, struct cordon_error *err)
{
    struct cordon_live_stream *stream;
    int r = attach(tenant, id, pid, tag, &stream, err);
    if (r < 0)
        return r;
    r = cordon_guests_control(stream, control, value, err);
    cordon_guests_close(stream);
    return r;
}

/* --- files, ports, usage --- */

int cordon_guests_file(const char *tenant, const char *id, const struct cordon_operation *operation,
                       void (*entry)(void *context, const struct cordon_file_entry *entry), void *context,
                       struct cordon_error *err)
{
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(tenant, id, operation, &stream, err);
    if (r < 0)
        return r;
    while ((r = cordon_guests_next(stream, SMALL_MS, &event, &ended, err)) == 1)
        if (event.type == CORDON_STREAM_ENTRY && entry)
            entry(context, event.entry);
    if (r == 0 && !ended)
        r = cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "the guest %s did not answer within %d s", id,
                        SMALL_MS / 1000);
    cordon_guests_close(stream);
    return r;
}

int cordon_guests_port(const char *tenant, const char *id, uint16_t port, int cancel_fd, int *ret,
                       struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = pin_running(tenant, id, &item, err);
    if (r < 0)
        return r;
    r = item->backend->guest_port ? take_place(item, false, err)
                                  : cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                                                "the backend %s reaches no ports of guests", item->backend_name);
    if (r == 0) {
        r = tell_truth(item, item->backend->guest_port(item->handle, port, cancel_fd, ret, err), err);
        give_place(item, false);
    }
    cordon_guest_unpin(item);
    return r;
}

static void read_disk(struct cordon_guest_item *item, struct cordon_guest_metrics *ret)
{
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_DISK, .cancel_fd = -1};
    struct cordon_stream *stream;
    struct cordon_stream_event event;
    if (!item->backend->guest_open || item->backend->guest_open(item->handle, &operation, &stream, NULL) < 0)
        return; /* its other figures are told all the same */
    while (item->backend->stream_next(stream, SMALL_MS / 10, &event, NULL) == 1 && event.type != CORDON_STREAM_END) {
        if (event.type != CORDON_STREAM_DISK)
            continue;
        ret->disk_used = event.disk_used;
        ret->disk_total = event.disk_total;
    }
    item->backend->stream_close(stream);
}

/* With the lock held. */
static double cpu_percent(struct cordon_guest_item *item, uint64_t cpu_us, int64_t now)
{
    int64_t since = item->sampled_us ? item->sampled_us : item->created_us;
    uint64_t used = cpu_us > item->sampled_cpu_us ? cpu_us - item->sampled_cpu_us : 0;
    item->sampled_us = now;
    item->sampled_cpu_us = cpu_us;
    return now > since ? 100.0 * (double)used / (double)(now - since) : 0;
}

int cordon_guests_metrics(const char *tenant, const char *id, struct cordon_guest_metrics *ret,
                          struct cordon_error *err)
{
    struct cordon_guest_item *item;
    struct cordon_guest_metrics metrics = {0};
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = item->backend->guest_usage ? item->backend->guest_usage(item->handle, &metrics.usage, err)
                                   : cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                                                 "the backend %s does not tell what guests use", item->backend_name);
    r = tell_truth(item, r, err);
    if (r == 0) {
        metrics.disk_total = item->limits.disk_bytes;
        if (!item->paused)
            read_disk(item, &metrics);
        cordon_guests_lock();
        metrics.at_us = cordon_guests_now();
        metrics.usage.memory_limit_bytes = item->limits.memory_bytes;
        metrics.usage.cpu_percent = item->limits.cpu_percent;
        metrics.cpu_used_percent = cpu_percent(item, metrics.usage.cpu_us, metrics.at_us);
        cordon_guests_unlock();
        *ret = metrics;
    }
    cordon_guest_unpin(item);
    return r;
}
