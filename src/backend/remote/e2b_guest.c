/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests on E2B: a sandbox each, found again by what stands in its metadata. A sandbox ends by its own lifetime
 * (CORDON_E2B_TIMEOUT_S) unless that is renewed; one thread renews it for all that run, three times in a lifetime, and
 * so hears of those that are gone. Should this daemon end, theirs is the only end that they need.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "backend/remote/e2b_guest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CREATE_US 60000000u
#define CALL_US 15000000u
#define PAUSE_US 60000000u /* a snapshot of memory is written */
#define DESTROY_US 5000000u

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct cordon_guest_handle *first;
    pthread_t renewer;
    bool started, stopping;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

struct cordon_e2b_box cordon_e2b_guest_box(struct cordon_guest_handle *guest, bool root)
{
    pthread_mutex_lock(&guest->lock);
    struct cordon_e2b_box box = guest->box;
    pthread_mutex_unlock(&guest->lock);
    box.root = root;
    return box;
}

static uint64_t life_s(void)
{
    return (uint64_t)cordon_remote_number(cordon_e2b_kind.life);
}

/* --- calls of the control plane about one sandbox --- */

/* What follows its id in the path, and the body; the status is the caller's to judge. */
static int about(const struct cordon_e2b_box *box, const char *method, const char *rest, const char *body,
                 uint64_t patience_us, struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[160];
    struct cordon_remote_headers headers;
    (void)snprintf(path, sizeof path, "/sandboxes/%s%s", box->id, rest); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(&cordon_e2b_kind, method, path, url, &headers);
    call.body = (struct cordon_bytes){body, body ? strlen(body) : 0};
    call.deadline_us = cordon_now_us() + patience_us;
    call.retry = CORDON_HTTP_RETRY_SAFE; /* all of these may come twice */
    return cordon_http_exchange(&call, answer, err);
}

static int refused(const char *what, const struct cordon_http_answer *answer, struct cordon_error *err)
{
    if (answer->status == 404)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "E2B: the sandbox is no more (%s)", what);
    return cordon_remote_refused(cordon_e2b_kind.service, what, answer->status, &answer->body, err);
}

static void mark_gone(struct cordon_guest_handle *guest)
{
    atomic_store(&guest->condition, CORDON_GUEST_IS_GONE);
    (void)eventfd_write(guest->gone_fd, 1); /* one that was written to stays readable */
}

/* --- the lifetime of all --- */

/* 404: gone. Anything else is tried again in a third of a lifetime. */
static bool renew(const struct cordon_e2b_box *box)
{
    char body[64];
    struct cordon_http_answer answer;
    struct cordon_error err = {0};
    (void)snprintf(body, sizeof body, "{\"timeout\":%llu}", (unsigned long long)life_s()); /* fits */
    int r = about(box, "POST", "/timeout", body, CALL_US, &answer, &err);
    if (r == 0 && answer.status / 100 != 2 && answer.status != 404)
        r = refused("renewing a sandbox's lifetime", &answer, &err);
    bool gone = r == 0 && answer.status == 404;
    cordon_buf_done(&answer.body);
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox's lifetime could not be renewed", "backend", "e2b", "sandbox", box->id,
                   "error", err.message, NULL);
    return !gone;
}

/* With the lock held: those that run, copied, so that no call is made under the lock. */
static size_t copy_running(struct cordon_e2b_box **ret)
{
    size_t count = 0, at = 0;
    for (struct cordon_guest_handle *guest = all.first; guest; guest = guest->next)
        count++;
    *ret = calloc(count ? count : 1, sizeof **ret);
    for (struct cordon_guest_handle *guest = all.first; *ret && guest; guest = guest->next)
        if (atomic_load(&guest->condition) == CORDON_GUEST_IS_RUNNING)
            (*ret)[at++] = cordon_e2b_guest_box(guest, false);
    return at;
}

static void renew_all(void)
{
    struct cordon_e2b_box *boxes;
    size_t count = copy_running(&boxes);
    pthread_mutex_unlock(&all.lock);
    for (size_t i = 0; i < count; i++) {
        if (renew(&boxes[i]))
            continue;
        pthread_mutex_lock(&all.lock);
        for (struct cordon_guest_handle *guest = all.first; guest; guest = guest->next)
            if (strcmp(guest->box.id, boxes[i].id) == 0)
                mark_gone(guest);
        pthread_mutex_unlock(&all.lock);
    }
    if (boxes)
        explicit_bzero(boxes, count * sizeof *boxes);
    free(boxes);
    pthread_mutex_lock(&all.lock);
}

static void *renewer(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&all.lock);
    while (!all.stopping) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until); /* can't fail */
        until.tv_sec += (time_t)(life_s() / 3 ? life_s() / 3 : 1);
        if (pthread_cond_timedwait(&all.wake, &all.lock, &until) == ETIMEDOUT)
            renew_all();
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

void cordon_e2b_guests_shutdown(void)
{
    pthread_mutex_lock(&all.lock);
    bool started = all.started;
    all.stopping = true;
    all.started = false;
    pthread_cond_broadcast(&all.wake);
    pthread_mutex_unlock(&all.lock);
    if (started)
        (void)pthread_join(all.renewer, NULL); /* it was started */
}

/* --- handles --- */

static int enlist(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    int r = 0;
    pthread_mutex_lock(&all.lock);
    if (!all.started) {
        all.stopping = false;
        r = -pthread_create(&all.renewer, NULL, renewer, NULL);
        all.started = r == 0;
    }
    if (r == 0) {
        guest->next = all.first;
        all.first = guest;
    }
    pthread_mutex_unlock(&all.lock);
    return r < 0 ? cordon_fail_errno(err, r, "E2B: the thread that renews sandboxes") : 0;
}

static struct cordon_guest_handle *new_handle(struct cordon_error *err)
{
    struct cordon_guest_handle *guest = calloc(1, sizeof *guest);
    if (guest)
        guest->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!guest || guest->gone_fd < 0) {
        free(guest);
        (void)cordon_fail_errno(err, -ENOMEM, "E2B: a guest"); /* fills it */
        return NULL;
    }
    (void)pthread_mutex_init(&guest->lock, NULL); /* can't fail with these arguments */
    atomic_init(&guest->condition, CORDON_GUEST_IS_RUNNING);
    return guest;
}

void cordon_e2b_guest_release(struct cordon_guest_handle *guest)
{
    if (!guest)
        return;
    pthread_mutex_lock(&all.lock);
    for (struct cordon_guest_handle **at = &all.first; *at; at = &(*at)->next)
        if (*at == guest) {
            *at = guest->next;
            break;
        }
    pthread_mutex_unlock(&all.lock);
    cordon_close(&guest->gone_fd);
    (void)pthread_mutex_destroy(&guest->lock); /* nobody holds it */
    explicit_bzero(&guest->box, sizeof guest->box);
    free(guest);
}

int cordon_e2b_guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                            struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_guest_handle *guest = new_handle(err);
    if (!guest)
        return -ENOMEM;
    const struct cordon_e2b_wish wish = {.life_s = life_s(),
                                         .network = spec->network,
                                         .guest = spec->id,
                                         .env = spec->env,
                                         .env_count = spec->env_count,
                                         .deadline_us = cordon_now_us() + CREATE_US,
                                         .cancel_fd = spec->cancel_fd};
    int r = cordon_e2b_make(&cordon_e2b_kind, &wish, &guest->box, &own);
    if (r == 0)
        r = enlist(guest, &own);
    if (r == 0) {
        *ret = guest;
        return 0;
    }
    if (*guest->box.id) /* ends by its lifetime, else */
        (void)cordon_e2b_kill(&cordon_e2b_kind, &guest->box, cordon_now_us() + DESTROY_US, -1, NULL);
    cordon_e2b_guest_release(guest);
    if (own.kind == CORDON_ERROR_INFRASTRUCTURE)
        own.kind = CORDON_ERROR_UNAVAILABLE;
    if (err)
        *err = own;
    return r;
}

/* The sandbox's id, by the guest's. */
static int find(const char *id, char to[80], struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_value root, key, item;
    (void)snprintf(path, sizeof path, "/v2/sandboxes?metadata=guest%%3D%.40s&state=running%%2Cpaused", id); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(&cordon_e2b_kind, "GET", path, url, &headers);
    call.deadline_us = cordon_now_us() + CALL_US;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, err);
    *to = '\0';
    if (r == 0 && answer.status != 200)
        r = refused("looking for a sandbox", &answer, err);
    if (r == 0 && cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) == 0 &&
        root.kind == CORDON_VALUE_ARRAY) {
        struct cordon_value_walk walk = cordon_value_walk(&root);
        if (cordon_value_next(&walk, &key, &item) && item.kind == CORDON_VALUE_OBJECT)
            (void)cordon_value_text(&item, "sandboxID", to, 80);
    }
    cordon_buf_done(&answer.body);
    if (r == 0 && (!*to || strcspn(to, "/?#% ") != strlen(to)))
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "E2B has no sandbox for the guest %.40s", id);
    return r;
}

int cordon_e2b_guest_adopt(const char *id, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    char state[32] = "";
    struct cordon_http_answer answer = {0};
    struct cordon_value root;
    struct cordon_guest_handle *guest = new_handle(err);
    if (!guest)
        return -ENOMEM;
    int r = find(id, guest->box.id, err);
    if (r == 0)
        r = about(&guest->box, "GET", "", NULL, CALL_US, &answer, err);
    if (r == 0 && answer.status != 200)
        r = refused("asking for a sandbox", &answer, err);
    if (r == 0)
        r = cordon_e2b_take(&cordon_e2b_kind, &answer, &guest->box, err);
    if (r == 0 && cordon_value_parse(answer.body.data, answer.body.size, &root, NULL) == 0)
        (void)cordon_value_text(&root, "state", state, sizeof state);
    if (strcmp(state, "paused") == 0)
        atomic_store(&guest->condition, CORDON_GUEST_IS_PAUSED);
    cordon_buf_done(&answer.body);
    if (r == 0)
        r = enlist(guest, err);
    if (r < 0)
        cordon_e2b_guest_release(guest);
    else
        *ret = guest;
    return r;
}

int cordon_e2b_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    int r = cordon_e2b_kill(&cordon_e2b_kind, &box, cordon_now_us() + DESTROY_US, -1, err);
    if (r == 0)
        mark_gone(guest);
    explicit_bzero(&box, sizeof box);
    return r;
}

int cordon_e2b_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    (void)how; /* the service has one way: its memory is kept, nothing runs */
    int r = about(&box, "POST", "/pause", "{}", PAUSE_US, &answer, err);
    if (r == 0 && answer.status / 100 != 2 && answer.status != 409) /* 409: it is */
        r = refused("pausing a sandbox", &answer, err);
    if (r == 0)
        atomic_store(&guest->condition, CORDON_GUEST_IS_PAUSED);
    cordon_buf_done(&answer.body);
    explicit_bzero(&box, sizeof box);
    return r;
}

int cordon_e2b_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    char body[64];
    struct cordon_http_answer answer;
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    (void)snprintf(body, sizeof body, "{\"timeout\":%llu}", (unsigned long long)life_s()); /* fits */
    int r = about(&box, "POST", "/connect", body, PAUSE_US, &answer, err);
    if (r == 0 && answer.status / 100 != 2)
        r = refused("resuming a sandbox", &answer, err);
    if (r == 0)
        r = cordon_e2b_take(&cordon_e2b_kind, &answer, &box, err);
    if (r == 0) {
        pthread_mutex_lock(&guest->lock);
        memcpy(guest->box.token, box.token, sizeof box.token); /* they may be new ones */
        memcpy(guest->box.traffic, box.traffic, sizeof box.traffic);
        pthread_mutex_unlock(&guest->lock);
        atomic_store(&guest->condition, CORDON_GUEST_IS_RUNNING);
    }
    cordon_buf_done(&answer.body);
    explicit_bzero(&box, sizeof box);
    return r;
}

enum cordon_guest_condition cordon_e2b_guest_condition(struct cordon_guest_handle *guest)
{
    return (enum cordon_guest_condition)atomic_load(&guest->condition);
}

int cordon_e2b_guest_watch(struct cordon_guest_handle *guest)
{
    return guest->gone_fd;
}
