/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests on what speaks E2B's protocol: a sandbox each, found again by what stands in its metadata. A sandbox ends
 * by its own lifetime (CORDON_E2B_TIMEOUT_S) unless that is renewed; one thread renews it for all that run, three times
 * in a lifetime, and so hears of those that are gone. Should this daemon end, theirs is the only end that they need.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/e2b_guest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CREATE_US 60000000u
#define CALL_US 15000000u
#define PAUSE_US 60000000u /* a snapshot of memory is written */
#define DESTROY_US 5000000u

struct cordon_e2b_box cordon_e2b_guest_box(struct cordon_guest_handle *guest, bool root)
{
    pthread_mutex_lock(&guest->lock);
    struct cordon_e2b_box box = guest->box;
    pthread_mutex_unlock(&guest->lock);
    box.root = root;
    return box;
}

static uint64_t life_s(const struct cordon_e2b_kind *kind)
{
    return (uint64_t)cordon_remote_number(kind->life);
}

/* --- calls of the control plane about one sandbox --- */

/* What follows its id in the path, and the body; the status is the caller's to judge. */
static int about(const struct cordon_e2b_kind *kind, const struct cordon_e2b_box *box, const char *method,
                 const char *rest, const char *body, uint64_t patience_us, int cancel_fd,
                 struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[160];
    struct cordon_remote_headers headers;
    (void)snprintf(path, sizeof path, "/sandboxes/%s%s", box->id, rest); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(kind, method, path, url, &headers);
    call.body = (struct cordon_bytes){body, body ? strlen(body) : 0};
    call.deadline_us = cordon_now_us() + patience_us;
    call.cancel_fd = cancel_fd;
    call.retry = CORDON_HTTP_RETRY_SAFE; /* all of these may come twice */
    return cordon_http_exchange(&call, answer, err);
}

static int refused(const struct cordon_e2b_kind *kind, const char *what, const struct cordon_http_answer *answer,
                   struct cordon_error *err)
{
    if (answer->status == 404)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "%s: the sandbox is no more (%s)", kind->service->title,
                           what);
    return cordon_remote_refused(kind->service, what, answer->status, &answer->body, err);
}

/* What the service says of it: "running", "paused"; "" when it does not say. 0, or -ENOENT: it is no more. */
static int ask_state(struct cordon_guest_handle *guest, char to[32])
{
    struct cordon_http_answer answer = {0};
    struct cordon_value root;
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    int r = about(guest->kind, &box, "GET", "", NULL, CALL_US, -1, &answer, NULL);
    *to = '\0';
    if (r == 0 && answer.status == 200 &&
        cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) == 0)
        (void)cordon_value_text(&root, "state", to, 32); /* "" is none */
    bool gone = r == 0 && answer.status == 404;
    cordon_buf_done(&answer.body);
    explicit_bzero(&box, sizeof box);
    return gone ? -ENOENT : 0;
}

static bool is_paused(struct cordon_remote_kept *kept)
{
    char state[32];
    return ask_state((struct cordon_guest_handle *)kept, state) == 0 &&
           strcmp(state, "paused") == 0; /* its first member */
}

/* There is no lifetime to renew of one that is gone, or that is paused: by us just now, or by a call whose answer was
 * lost. */
static void not_renewed(struct cordon_remote_kept *kept)
{
    char state[32];
    int r = ask_state((struct cordon_guest_handle *)kept, state); /* its first member */
    if (r == -ENOENT)
        cordon_remote_kept_lost(kept);
    else if (strcmp(state, "paused") == 0)
        cordon_remote_kept_set(kept, CORDON_GUEST_IS_PAUSED);
}

/* What fails otherwise is tried again in a third of a lifetime. */
void cordon_e2b_guest_renew(struct cordon_remote_kept *kept)
{
    char body[64];
    struct cordon_http_answer answer;
    struct cordon_error err = {0};
    struct cordon_guest_handle *guest = (struct cordon_guest_handle *)kept; /* its first member */
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    (void)snprintf(body, sizeof body, "{\"timeout\":%llu}", (unsigned long long)life_s(guest->kind)); /* fits */
    int r = about(guest->kind, &box, "POST", "/timeout", body, CALL_US, -1, &answer, &err);
    if (r == 0 && (answer.status == 404 || answer.status == 409))
        not_renewed(kept);
    else if (r == 0 && answer.status / 100 != 2)
        r = refused(guest->kind, "renewing a sandbox's lifetime", &answer, &err);
    cordon_buf_done(&answer.body);
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox's lifetime could not be renewed", "backend", guest->kind->service->name,
                   "sandbox", box.id, "error", err.message, NULL);
    explicit_bzero(&box, sizeof box);
}

/* --- handles --- */

static int new_handle(struct cordon_e2b_kind *kind, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    struct cordon_guest_handle *guest = calloc(1, sizeof *guest);
    int r = guest ? cordon_remote_kept_init(&guest->kept, err)
                  : cordon_fail_errno(err, -ENOMEM, "%s: a guest", kind->service->title);
    if (r < 0) {
        free(guest);
        return r;
    }
    guest->kind = kind;
    (void)pthread_mutex_init(&guest->lock, NULL); /* can't fail with these arguments */
    *ret = guest;
    return 0;
}

void cordon_e2b_guest_release(struct cordon_guest_handle *guest)
{
    if (!guest)
        return;
    cordon_remote_kept_done(&guest->kept);
    (void)pthread_mutex_destroy(&guest->lock); /* nobody holds it */
    explicit_bzero(&guest->box, sizeof guest->box);
    free(guest);
}

/* The code for status 3, or why it could not be tried. */
static int try_inside(struct cordon_guest_handle *guest, uint64_t with, struct cordon_error *err)
{
    static const char *const argv[] = {"python3", "-c", CORDON_E2B_INSIDE};
    const struct cordon_operation operation = {.struct_size = sizeof operation,
                                               .kind = CORDON_OP_EXEC,
                                               .argv = argv,
                                               .argc = 3,
                                               .timeout_ms = 15000,
                                               .kill_on_close = true,
                                               .cancel_fd = -1};
    struct cordon_stream *stream = NULL;
    struct cordon_stream_event event;
    int status = -1, r = cordon_e2b_stream_open(guest, &operation, &stream, err);
    while (r == 0 && (r = cordon_e2b_stream_next(stream, -1, &event, err)) > 0 && event.type != CORDON_STREAM_EXIT)
        r = 0;
    if (r > 0 && event.exit->cause == CORDON_CAUSE_EXITED)
        status = event.exit->exit_code;
    cordon_e2b_stream_close(stream);
    return r < 0 ? r : cordon_e2b_inside_judge(guest->kind, with, status, err);
}

int cordon_e2b_guest_create(struct cordon_e2b_kind *kind, const struct cordon_guest_spec *spec,
                            struct cordon_guest_handle **ret, struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_guest_handle *guest;
    uint64_t with = cordon_remote_with(); /* before: what it is made with */
    int r = new_handle(kind, &guest, err);
    if (r < 0)
        return r;
    const struct cordon_e2b_wish wish = {.life_s = life_s(kind),
                                         .network = spec->network,
                                         .guest = spec->id,
                                         .env = spec->env,
                                         .env_count = spec->env_count,
                                         .deadline_us = cordon_now_us() + CREATE_US,
                                         .cancel_fd = spec->cancel_fd};
    r = cordon_e2b_make(kind, &wish, &guest->box, &own);
    if (r == 0 && kind->tries_inside && !spec->network && !cordon_e2b_inside_known(kind, with))
        r = try_inside(guest, with, &own);
    if (r == 0)
        r = cordon_remote_kept_enter(kind->keeper, &guest->kept, &own);
    if (r == 0) {
        *ret = guest;
        return 0;
    }
    if (*guest->box.id) /* ends by its lifetime, else */
        (void)cordon_e2b_kill(kind, &guest->box, cordon_now_us() + DESTROY_US, -1, NULL);
    cordon_e2b_guest_release(guest);
    if (own.kind == CORDON_ERROR_INFRASTRUCTURE)
        own.kind = CORDON_ERROR_UNAVAILABLE;
    if (err)
        *err = own;
    return r;
}

/* The row's sandbox, if it is the guest's: a service that knows no filter lists those of others, too. */
static bool is_of(const struct cordon_value *row, const char *id)
{
    struct cordon_value metadata, guest;
    return cordon_value_member(row, "metadata", &metadata) && cordon_value_member(&metadata, "guest", &guest) &&
           cordon_value_equals(&guest, id);
}

/* The sandbox's id, by the guest's. */
static int find(const struct cordon_e2b_kind *kind, const char *id, int cancel_fd, struct cordon_e2b_box *box,
                struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_value root, key, item;
    (void)snprintf(path, sizeof path, "/v2/sandboxes?metadata=guest%%3D%.40s&state=running%%2Cpaused", id); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(kind, "GET", path, url, &headers);
    call.deadline_us = cordon_now_us() + CALL_US;
    call.cancel_fd = cancel_fd;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, err);
    *box->id = '\0';
    /* A list that is not had is none without the sandbox. */
    if (r == 0 && answer.status != 200)
        r = cordon_remote_refused(kind->service, "looking for a sandbox", answer.status, &answer.body, err);
    if (r == 0 && (cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) < 0 ||
                   root.kind != CORDON_VALUE_ARRAY))
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                        "%s: looking for a sandbox was answered with something that is no list", kind->service->title);
    if (r == 0) {
        struct cordon_value_walk walk = cordon_value_walk(&root);
        while (!*box->id && cordon_value_next(&walk, &key, &item))
            if (is_of(&item, id))
                (void)cordon_value_text(&item, "sandboxID", box->id, sizeof box->id); /* "" is none */
    }
    cordon_buf_done(&answer.body);
    if (r == 0 && (!*box->id || strcspn(box->id, "/?#% ") != strlen(box->id)))
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "%s has no sandbox for the guest %.40s", kind->service->title,
                        id);
    return r;
}

int cordon_e2b_guest_adopt(struct cordon_e2b_kind *kind, const char *id, int cancel_fd,
                           struct cordon_guest_handle **ret, struct cordon_error *err)
{
    char state[32] = "";
    struct cordon_http_answer answer = {0};
    struct cordon_value root;
    struct cordon_guest_handle *guest;
    int r = new_handle(kind, &guest, err);
    if (r < 0)
        return r;
    r = find(kind, id, cancel_fd, &guest->box, err);
    if (r == 0)
        r = about(kind, &guest->box, "GET", "", NULL, CALL_US, cancel_fd, &answer, err);
    if (r == 0 && answer.status != 200)
        r = refused(kind, "asking for a sandbox", &answer, err);
    if (r == 0)
        r = cordon_e2b_take(kind, &answer, &guest->box, err);
    if (r == 0 && cordon_value_parse(answer.body.data, answer.body.size, &root, NULL) == 0)
        (void)cordon_value_text(&root, "state", state, sizeof state);
    if (strcmp(state, "paused") == 0)
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_PAUSED);
    cordon_buf_done(&answer.body);
    if (r == 0)
        r = cordon_remote_kept_enter(kind->keeper, &guest->kept, err);
    if (r < 0)
        cordon_e2b_guest_release(guest);
    else
        *ret = guest;
    return r;
}

int cordon_e2b_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    int r = cordon_e2b_kill(guest->kind, &box, cordon_now_us() + DESTROY_US, -1, err);
    if (r == 0)
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_GONE);
    explicit_bzero(&box, sizeof box);
    return r;
}

static int call_pause(struct cordon_remote_kept *kept, struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_guest_handle *guest = (struct cordon_guest_handle *)kept; /* its first member */
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    int r = about(guest->kind, &box, "POST", "/pause", "{}", PAUSE_US, -1, &answer, err);
    if (r == 0 && answer.status / 100 != 2 && answer.status != 409) /* 409: it is */
        r = refused(guest->kind, "pausing a sandbox", &answer, err);
    cordon_buf_done(&answer.body);
    explicit_bzero(&box, sizeof box);
    return r;
}

int cordon_e2b_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err)
{
    (void)how; /* the service has one way: its memory is kept, nothing runs */
    return cordon_remote_kept_pause(&guest->kept, call_pause, is_paused, err);
}

int cordon_e2b_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    char body[64];
    struct cordon_http_answer answer;
    struct cordon_e2b_box box = cordon_e2b_guest_box(guest, false);
    (void)snprintf(body, sizeof body, "{\"timeout\":%llu}", (unsigned long long)life_s(guest->kind)); /* fits */
    int r = about(guest->kind, &box, "POST", "/connect", body, PAUSE_US, -1, &answer, err);
    if (r == 0 && answer.status / 100 != 2)
        r = refused(guest->kind, "resuming a sandbox", &answer, err);
    if (r == 0)
        r = cordon_e2b_take(guest->kind, &answer, &box, err);
    if (r == 0) {
        pthread_mutex_lock(&guest->lock);
        memcpy(guest->box.token, box.token, sizeof box.token); /* they may be new ones */
        memcpy(guest->box.traffic, box.traffic, sizeof box.traffic);
        pthread_mutex_unlock(&guest->lock);
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_RUNNING);
    }
    cordon_buf_done(&answer.body);
    explicit_bzero(&box, sizeof box);
    return r;
}

enum cordon_guest_condition cordon_e2b_guest_condition(struct cordon_guest_handle *guest)
{
    return cordon_remote_kept_condition(&guest->kept);
}

const char *cordon_e2b_guest_remote(struct cordon_guest_handle *guest)
{
    return guest->box.id; /* which never changes */
}

int cordon_e2b_guest_watch(struct cordon_guest_handle *guest)
{
    return guest->kept.gone_fd;
}
