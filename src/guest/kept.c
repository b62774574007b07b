/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests as a whole: made, adopted, paused, asked, destroyed. See kept.h. */
#include "guest/kept.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "isolate/cgroup.h"

#define SETUP_S 10
#define SETUP_MACHINE_S 30 /* software emulation takes its time */
#define ADOPT_TRIES 3
#define END_S 5
#define ANSWER_MS 10000
#define LOOK_US 100000u /* how often who waits sees whether he is cancelled: what he waits for has no descriptor */

static struct cordon_guest_handle *new_handle(const char *id)
{
    pthread_condattr_t attr;
    struct cordon_guest_handle *guest = calloc(1, sizeof *guest);
    if (!guest)
        return NULL;
    guest->refs = 1;
    guest->lease = CORDON_LEASE_NONE;
    guest->pending_fd = -1;
    guest->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)snprintf(guest->id, sizeof guest->id, "%s", id);
    (void)pthread_mutex_init(&guest->lock, NULL); /* default attributes: none of these can fail */
    (void)pthread_mutex_init(&guest->send_lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&guest->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (guest->gone_fd >= 0)
        return guest;
    cordon_kept_unref(guest);
    return NULL;
}

/* With the lock held: until something changed, or that time. */
static void wait_for_change(struct cordon_guest_handle *guest, uint64_t until_us)
{
    const struct timespec until = {(time_t)(until_us / 1000000), (long)(until_us % 1000000) * 1000};
    (void)pthread_cond_timedwait(&guest->changed, &guest->lock, &until); /* what woke us is looked at by who waits */
}

static bool is_cancelled(int cancel_fd)
{
    struct pollfd peer = {.fd = cancel_fd, .events = POLLRDHUP};
    return cancel_fd >= 0 && poll(&peer, 1, 0) > 0;
}

/* Until what `done` points to is true, or the guest is gone: 0, -ETIMEDOUT, -ECANCELED, -ESRCH. */
static int wait_until(struct cordon_guest_handle *guest, const bool *done, int seconds, int cancel_fd)
{
    uint64_t now = cordon_now_us(), until_us = now + (uint64_t)seconds * 1000000;
    int r = 0;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    for (; !*done && !guest->gone && r == 0; now = cordon_now_us()) {
        if (now >= until_us)
            r = -ETIMEDOUT;
        else if (is_cancelled(cancel_fd))
            r = -ECANCELED;
        else
            wait_for_change(guest, cancel_fd >= 0 && now + LOOK_US < until_us ? now + LOOK_US : until_us);
    }
    if (*done)
        r = 0;
    else if (guest->gone)
        r = -ESRCH;
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

/* Its agent's word. */
static int wait_for_agent(struct cordon_guest_handle *guest, const bool *done, int cancel_fd, struct cordon_error *err)
{
    int seconds = guest->machine ? SETUP_MACHINE_S : SETUP_S;
    int r = wait_until(guest, done, seconds, cancel_fd);
    if (r == -ESRCH)
        return cordon_kept_say_gone(guest, err);
    if (r == -ECANCELED)
        return cordon_fail(err, r, CORDON_ERROR_CANCELLED, "who asked for the guest %s left", guest->id);
    return r == 0 ? 0
                  : cordon_fail(err, r, CORDON_ERROR_UNAVAILABLE, "the guest %s did not answer within %d s", guest->id,
                                seconds);
}

/* --- made, adopted --- */

static int set_up(struct cordon_guest_handle *guest, const struct cordon_guest_spec *spec, struct cordon_error *err)
{
    const struct cordon_exec_limits limits = {.disk_bytes = spec->limits.disk_bytes,
                                              .disk_inodes = spec->limits.disk_inodes,
                                              .memory_bytes = spec->limits.memory_bytes,
                                              .open_files = spec->limits.open_files,
                                              .cpu_percent = spec->limits.cpu_percent};
    struct cordon_buf fields = CORDON_BUF_INIT(CORDON_FRAME_MAX);
    (void)cordon_exec_limits_put(&fields, &limits); /* failures stick in fields.failed */
    for (size_t i = 0; i < spec->env_count; i++)
        (void)cordon_field_put(&fields, CORDON_FIELD_ENV, spec->env[i], (uint32_t)strlen(spec->env[i]));
    int r = fields.failed
                ? cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "the guest's environment is too large")
                : cordon_kept_send_frame(guest, CORDON_FRAME_SETUP, 0, NULL, 0, fields.data, fields.size, err);
    cordon_buf_wipe(&fields); /* environment */
    if (r < 0)
        return r;
    r = wait_for_agent(guest, &guest->set_up, spec->cancel_fd, err);
    if (r < 0)
        return r;
    if (guest->failed.code < 0 && err)
        *err = guest->failed;
    return guest->failed.code;
}

static int attach(struct cordon_guest_handle *guest, const struct cordon_warden_acquire *wanted, int cancel_fd,
                  struct cordon_error *err)
{
    int r = cordon_lease_open(wanted, cancel_fd, &guest->lease, err);
    if (r < 0)
        return r;
    guest->oom_kills = guest->lease.oom_kill_base;
    guest->paused = guest->lease.paused;
    r = cordon_kept_dispatch_add(guest);
    return r < 0 ? cordon_fail_errno(err, r, "watch the guest %s", guest->id) : 0;
}

static void order_end(struct cordon_guest_handle *guest)
{
    const struct cordon_lease_request request = {
        .version = CORDON_WARDEN_VERSION, .verb = CORDON_LEASE_DESTROY, .seq = UINT32_MAX};
    if (guest->lease.lease >= 0)
        (void)cordon_send_fds(guest->lease.lease, &request, sizeof request, NULL, 0,
                              MSG_DONTWAIT); /* a warden that is gone has ended it, too */
}

static int create_once(const struct cordon_guest_spec *spec, bool machine, struct cordon_guest_handle **ret,
                       struct cordon_error *err)
{
    struct cordon_warden_acquire wanted = {
        .version = CORDON_WARDEN_VERSION,
        .kind = CORDON_GUEST_KEPT,
        .cpu_percent = spec->limits.cpu_percent,
        .pids = spec->limits.pids,
        .memory_bytes = spec->limits.memory_bytes,
        .network = spec->egress != NULL && (spec->network || !machine), /* a machine without it has no device */
        .machine = machine,
    };
    (void)snprintf(wanted.template_name, sizeof wanted.template_name, "%s",
                   spec->template_name ? spec->template_name : "default");
    (void)snprintf(wanted.id, sizeof wanted.id, "%s", spec->id);
    struct cordon_guest_handle *guest = new_handle(spec->id);
    if (!guest)
        return cordon_fail_errno(err, -ENOMEM, "make a guest");
    guest->machine = machine;
    int r = attach(guest, &wanted, spec->cancel_fd, err);
    if (r == 0)
        r = wait_for_agent(guest, &guest->ready, spec->cancel_fd, err);
    if (r == 0 && wanted.network)
        r = cordon_egress_open(guest->id, guest->lease.network, spec->egress, &guest->egress, err);
    if (r == 0)
        r = set_up(guest, spec, err);
    if (r == 0) {
        *ret = guest;
        return 0;
    }
    order_end(guest);
    cordon_kept_release(guest);
    return r;
}

/* One that was killed while it was parked may be handed over before its warden sees that: another one is asked for. */
static int create(const struct cordon_guest_spec *spec, bool machine, struct cordon_guest_handle **ret,
                  struct cordon_error *err)
{
    struct cordon_error own = {0};
    int r = create_once(spec, machine, ret, &own);
    if (r < 0 && own.kind == CORDON_ERROR_GONE)
        r = create_once(spec, machine, ret, &own);
    if (r < 0 && err)
        *err = own;
    return r;
}

int cordon_kept_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    return create(spec, false, ret, err);
}

int cordon_kept_create_machine(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                               struct cordon_error *err)
{
    return create(spec, true, ret, err);
}

static int send_notice(struct cordon_guest_handle *guest, bool paused, struct cordon_error *err)
{
    const char bytes[8] = {CORDON_KEPT_PAUSED, 0, 0, 0, paused};
    return cordon_kept_send_frame(guest, CORDON_FRAME_CONTROL, 0, bytes, sizeof bytes, NULL, 0, err);
}

static int adopt_once(const char *id, bool machine, int cancel_fd, bool *woken, struct cordon_guest_handle **ret,
                      struct cordon_error *err)
{
    struct cordon_warden_acquire wanted = {.version = CORDON_WARDEN_VERSION,
                                           .kind = CORDON_GUEST_KEPT,
                                           .adopt = 1,
                                           .machine = machine,
                                           .cpu_percent = 1,
                                           .pids = 2,
                                           .memory_bytes = 4u << 20,
                                           .template_name =
                                               "default"}; /* the least that is not refused: nothing is changed */
    (void)snprintf(wanted.id, sizeof wanted.id, "%s", id);
    struct cordon_guest_handle *guest = new_handle(id);
    if (!guest)
        return cordon_fail_errno(err, -ENOMEM, "adopt a guest");
    guest->set_up = true;
    guest->machine = machine;
    int r = attach(guest, &wanted, cancel_fd, err);
    if (r == 0 && machine && guest->paused) {
        cordon_kept_set_paused(guest, false, false); /* in this moment it reads */
        r = *woken ? 0 : -ETIMEDOUT;                 /* once more, and it greets */
        *woken = true;
    }
    if (r == 0)
        r = wait_for_agent(guest, &guest->ready, cancel_fd, err);
    if (r == 0 && guest->lease.network[0] >= 0) /* until its rules are set again */
        r = cordon_egress_open(guest->id, guest->lease.network, &CORDON_EGRESS_POLICY_OFF, &guest->egress, err);
    if (r == 0)
        r = send_notice(guest, guest->paused, err); /* who died may have said something else */
    if (r < 0) {
        cordon_kept_release(guest);
        return r;
    }
    *ret = guest;
    return 0;
}

/* A machine that is paused runs for the moment in which it is adopted: it can be given a channel, and greet, only then.
 * It did not see that the one of before ended, so the first that it is given is ended for it to see, and it greets on
 * the next. One that was too slow to see that has another try. At last it is paused again: by its warden, where we
 * don't get that far. */
static int adopt(const char *id, bool machine, int cancel_fd, struct cordon_guest_handle **ret,
                 struct cordon_error *err)
{
    static const struct timespec to_see_an_end = {.tv_nsec = 200000000};
    bool woken = false;
    int r = adopt_once(id, machine, cancel_fd, &woken, ret, err);
    for (int tries = 1; machine && tries < ADOPT_TRIES && r == -ETIMEDOUT; tries++) {
        (void)nanosleep(&to_see_an_end, NULL); /* one cut short is made good by the next try */
        r = adopt_once(id, machine, cancel_fd, &woken, ret, err);
    }
    if (r < 0 || !woken)
        return r;
    r = cordon_kept_pause(*ret, CORDON_PAUSE_FREEZE, err);
    if (r < 0)
        cordon_kept_release(*ret);
    return r;
}

int cordon_kept_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    return adopt(id, false, cancel_fd, ret, err);
}

int cordon_kept_adopt_machine(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    return adopt(id, true, cancel_fd, ret, err);
}

void cordon_kept_release(struct cordon_guest_handle *guest)
{
    if (!guest)
        return;
    cordon_kept_dispatch_remove(guest);
    cordon_kept_unref(guest);
}

int cordon_kept_destroy(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    static const bool never = false;
    order_end(guest);
    int r = wait_until(guest, &never, END_S, -1);
    return r == -ESRCH
               ? 0
               : cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE,
                             "the end of the guest %s was ordered, and is not there after %d s", guest->id, END_S);
}

/* --- paused --- */

int cordon_kept_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err)
{
    if (how != CORDON_PAUSE_FREEZE)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "guests of this host are paused by freezing: their memory and disk are not saved");
    cordon_kept_set_paused(guest, true, false); /* so that nothing is written behind the notice that can wait */
    int r = send_notice(guest, true, err);      /* clocks stop before the code does, not after */
    if (r < 0)
        return r;
    cordon_kept_set_paused(guest, true, true);
    r = cordon_kept_order(guest, CORDON_LEASE_PAUSE, err);
    if (r == 0)
        return 0;
    cordon_kept_set_paused(guest, false, false);
    (void)send_notice(guest, false, NULL); /* the first error is the one to tell */
    return r;
}

int cordon_kept_resume(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    int r = cordon_kept_order(guest, CORDON_LEASE_RESUME, err);
    if (r < 0)
        return r;
    cordon_kept_set_paused(guest, false, false);
    return send_notice(guest, false, err);
}

enum cordon_guest_condition cordon_kept_condition(struct cordon_guest_handle *guest)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    enum cordon_guest_condition ret = guest->gone     ? CORDON_GUEST_IS_GONE
                                      : guest->paused ? CORDON_GUEST_IS_PAUSED
                                                      : CORDON_GUEST_IS_RUNNING;
    (void)pthread_mutex_unlock(&guest->lock);
    return ret;
}

const char *cordon_kept_why_gone(struct cordon_guest_handle *guest)
{
    return guest->why; /* written before it was gone, once */
}

int cordon_kept_watch(struct cordon_guest_handle *guest)
{
    return guest->gone_fd;
}

uint32_t cordon_kept_running(struct cordon_guest_handle *guest, uint64_t *changed_us)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    uint32_t running = guest->gone ? 0 : guest->running + guest->relays;
    *changed_us = guest->running_changed_us;
    (void)pthread_mutex_unlock(&guest->lock);
    return running;
}

/* --- asked --- */

static int check_network(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    if (cordon_kept_condition(guest) == CORDON_GUEST_IS_GONE)
        return cordon_kept_say_gone(guest, err);
    if (guest->egress)
        return 0;
    return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                       guest->machine
                           ? "the guest %s is a virtual machine that was made without the network, so it has "
                             "no device for it: make one with the network"
                           : "the guest %s was made where guests may have no network, so it can be given "
                             "none now",
                       guest->id);
}

int cordon_kept_network(struct cordon_guest_handle *guest, const struct cordon_egress_policy *policy,
                        struct cordon_error *err)
{
    int r = check_network(guest, err);
    return r < 0 ? r : cordon_egress_update(guest->egress, policy, err);
}

int cordon_kept_egress(struct cordon_guest_handle *guest, struct cordon_egress_counts *ret,
                       void (*tell)(void *context, const char *log, size_t size), void *context,
                       struct cordon_error *err)
{
    struct cordon_buf log = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    *ret = (struct cordon_egress_counts){0};
    if (!guest->egress && cordon_kept_condition(guest) != CORDON_GUEST_IS_GONE)
        return 0; /* without a network it has reached nothing */
    int r = check_network(guest, err);
    if (r == 0 && cordon_egress_read(guest->egress, ret, &log) < 0)
        r = cordon_fail_errno(err, -ENOMEM, "read the egress log of the guest %s", guest->id);
    if (r == 0)
        tell(context, log.data, log.size);
    cordon_buf_done(&log);
    return r;
}

int cordon_kept_usage(struct cordon_guest_handle *guest, struct cordon_guest_usage *ret, struct cordon_error *err)
{
    const struct cordon_lease *lease = &guest->lease;
    if (cordon_kept_condition(guest) == CORDON_GUEST_IS_GONE)
        return cordon_kept_say_gone(guest, err);
    uint64_t cpu = cordon_cgroup_read_cpu_us(lease->cpu_usage);
    *ret = (struct cordon_guest_usage){
        .struct_size = sizeof *ret,
        .cpu_us = cpu > lease->cpu_usage_base ? cpu - lease->cpu_usage_base : 0,
        .memory_bytes = cordon_cgroup_read_number(lease->memory_now),
        .memory_cache_bytes = cordon_cgroup_read_cache(lease->memory_stat),
        .processes = (uint32_t)cordon_cgroup_read_number(lease->pids_now),
    };
    return 0;
}

/* What is told of a program, out of an INFO frame; texts lie in `texts`. */
static void read_info(struct cordon_guest_handle *guest, const struct cordon_frame *frame, char texts[4][8300],
                      struct cordon_exec_info *ret)
{
    enum { TAG, USER, CWD, COMMAND };
    struct cordon_field field;
    struct cordon_ended ended;
    uint32_t terminal = 0;
    size_t at = 0, size = 0;
    *ret = (struct cordon_exec_info){.running = true};
    for (int i = 0; i < 4; i++)
        texts[i][0] = '\0';
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        int text = field.tag == CORDON_FIELD_TAG    ? TAG
                   : field.tag == CORDON_FIELD_USER ? USER
                   : field.tag == CORDON_FIELD_CWD  ? CWD
                                                    : -1;
        if (text >= 0)
            (void)snprintf(texts[text], sizeof texts[text], "%.*s", (int)(field.length < 8000 ? field.length : 8000),
                           field.data);
        if (field.tag == CORDON_FIELD_PID)
            (void)cordon_field_u32(&field, &ret->pid); /* what is malformed stays 0 */
        if (field.tag == CORDON_FIELD_TERMINAL)
            ret->pty = cordon_field_u32(&field, &terminal) == 0;
        if (field.tag == CORDON_FIELD_ARGUMENT && size + field.length + 1 < sizeof texts[COMMAND]) {
            memcpy(texts[COMMAND] + size, field.data, field.length);
            size += field.length;
            texts[COMMAND][size++] = '\0';
        }
        if (field.tag == CORDON_FIELD_ENDED && cordon_ended_read(field.data, field.length, &ended) == 0) {
            ret->running = false;
            cordon_kept_judge(guest, &ended, &ret->exit);
        }
    }
    ret->tag = texts[TAG];
    ret->user = texts[USER][0] ? texts[USER] : "user";
    ret->cwd = texts[CWD];
    ret->command = texts[COMMAND];
    ret->command_size = size ? size - 1 : 0;
}

/* Runs an operation of ours to its end. */
static int ask(struct cordon_guest_handle *guest, uint32_t kind, struct cordon_buf *fields, int cancel_fd,
               int (*take)(void *context, struct cordon_stream *stream), void *context, struct cordon_error *err)
{
    struct cordon_stream *stream;
    struct cordon_stream_event event;
    (void)cordon_field_put_u32(fields, CORDON_FIELD_OPERATION, kind); /* failures stick in fields->failed */
    int r = cordon_kept_open_fields(guest, kind, fields, cancel_fd, &stream, err);
    if (r < 0)
        return r;
    do
        r = cordon_kept_stream_step(stream, ANSWER_MS, &event, take, context, err);
    while (r == 1 && event.type != CORDON_STREAM_END);
    if (r == 0 && !stream->over)
        r = cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "the guest %s did not answer within %d s", guest->id,
                        ANSWER_MS / 1000);
    cordon_kept_stream_close(stream);
    return r < 0 ? r : 0;
}

struct listing {
    void (*each)(void *context, const struct cordon_exec_info *exec);
    void *context;
    char texts[4][8300];
};

static int take_info(void *context, struct cordon_stream *stream)
{
    struct listing *listing = context;
    struct cordon_exec_info info;
    struct cordon_frame frame;
    if (cordon_frame_parse(stream->current.data, stream->current.size, 1, &frame) <= 0 ||
        frame.type != CORDON_FRAME_INFO)
        return 0;
    read_info(stream->guest, &frame, listing->texts, &info);
    listing->each(listing->context, &info);
    return 0;
}

int cordon_kept_execs(struct cordon_guest_handle *guest,
                      void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                      struct cordon_error *err)
{
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    cordon_autofree struct listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return cordon_fail_errno(err, -ENOMEM, "list the programs of a guest");
    listing->each = each;
    listing->context = context;
    int r = ask(guest, CORDON_KEPT_OP_EXECS, &fields, -1, take_info, listing, err);
    cordon_buf_done(&fields);
    return r;
}

static int take_port(void *context, struct cordon_stream *stream)
{
    int *ret = context;
    if (stream->port_fd >= 0)
        *ret = CORDON_TAKE_FD(stream->port_fd);
    return 0;
}

int cordon_kept_port(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, int *ret,
                     struct cordon_error *err)
{
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    int fd = -1;
    if (guest->machine)
        return cordon_kept_port_relay(guest, port, cancel_fd, ret, err);
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_PORT, port); /* failures stick in fields.failed */
    int r = ask(guest, CORDON_KEPT_OP_PORT, &fields, cancel_fd, take_port, &fd, err);
    cordon_buf_done(&fields);
    if (r == 0 && fd < 0)
        r = cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the guest %s gave no connection", guest->id);
    if (r == 0)
        *ret = fd;
    else
        cordon_close(&fd);
    return r;
}
