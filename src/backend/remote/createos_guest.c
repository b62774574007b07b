/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests on CreateOS: a sandbox each, found again by its name. The service gives them no end; what is not used for
 * a day pauses there by itself, which is the backstop for a daemon that never comes back, and is woken by its next use.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/createos_guest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CREATE_US 60000000u
#define CALL_US 10000000u
#define FIND_US 60000000u
#define DESTROY_US 5000000u
#define CHANGE_US 120000000u /* a pause writes the memory */
#define POLL_US 250000u
#define LOOK_S 20
#define IDLE_S 86400

static void look(struct cordon_remote_kept *kept);

static unsigned often(void)
{
    return LOOK_S;
}

static struct cordon_remote_keeper keeper = CORDON_REMOTE_KEEPER(often, look);

void cordon_createos_guests_stop(void)
{
    cordon_remote_keeper_stop(&keeper);
    cordon_createos_lost_stop();
}

/* --- calls about one sandbox --- */

/* What the service says of its state. -ENOENT, GONE: it is no more. */
static int ask_status(const char *id, char to[24], struct cordon_error *err)
{
    char path[128];
    struct cordon_http_answer answer;
    struct cordon_value data;
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%.79s", id); /* fits */
    struct cordon_http_call call = {
        .method = "GET", .deadline_us = cordon_now_us() + CALL_US, .cancel_fd = -1, .retry = CORDON_HTTP_RETRY_SAFE};
    *to = '\0';
    int r = cordon_createos_ask(&call, path, "asking for a sandbox", &answer, &data, err);
    if (r == 0)
        (void)cordon_value_text(&data, "status", to, 24); /* "" is no state that is waited for */
    if (answer.status == 404 || cordon_createos_gone(to))
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "CreateOS: the sandbox is no more");
    cordon_buf_done(&answer.body);
    return r;
}

static void look(struct cordon_remote_kept *kept)
{
    char status[24];
    struct cordon_error err = {0};
    struct cordon_guest_handle *guest = (struct cordon_guest_handle *)kept; /* its first member */
    int r = ask_status(guest->id, status, &err);
    if (r == -ENOENT)
        cordon_remote_kept_lost(kept);
    else if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be asked for", "backend", "createos", "sandbox", guest->id,
                   "error", err.message, NULL);
}

/* pause or resume, until the service says that it is done. */
static int change(struct cordon_guest_handle *guest, const char *verb, const char *wanted, struct cordon_error *err)
{
    char path[128], what[40], status[24];
    struct cordon_http_answer answer;
    struct cordon_value data;
    uint64_t until = cordon_now_us() + CHANGE_US;
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%.79s/%s", guest->id, verb); /* fits */
    (void)snprintf(what, sizeof what, "to %s a sandbox", verb);                   /* fits */
    struct cordon_http_call call = {
        .method = "POST", .body = {"{}", 2}, .deadline_us = until, .cancel_fd = -1, .retry = CORDON_HTTP_RETRY_REFUSED};
    struct cordon_error own = {0};
    int r = cordon_createos_ask(&call, path, what, &answer, &data, &own);
    if (answer.status == 409)
        r = 0; /* it is already, or on its way: what it comes to is seen below */
    if (answer.status == 404)
        r = cordon_fail(&own, -ENOENT, CORDON_ERROR_GONE, "CreateOS: the sandbox is no more (%s)", what);
    cordon_buf_done(&answer.body);
    if (r < 0 && err)
        *err = own;
    while (r == 0 && (r = ask_status(guest->id, status, err)) == 0 && strcmp(status, wanted) != 0) {
        if (cordon_now_us() + POLL_US >= until)
            return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "CreateOS: %s: it is %.23s", what, status);
        r = cordon_http_pause(cordon_now_us() + POLL_US, -1, err); /* there is no call that waits */
    }
    return r;
}

int cordon_createos_guest_refused(struct cordon_guest_handle *guest, const char *what, unsigned status,
                                  const struct cordon_buf *body, struct cordon_error *err)
{
    if (cordon_remote_kept_condition(&guest->kept) == CORDON_GUEST_IS_GONE)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "CreateOS: the sandbox is no more (%s)", what);
    struct cordon_error own = {0};
    (void)cordon_remote_refused(&cordon_createos_service, what, status, body, &own); /* fills it */
    if (status / 100 == 4)
        (void)cordon_createos_words(own.message, &own); /* it may be about the file */
    if (err)
        *err = own;
    return own.code;
}

/* Looked at last: whether that is a pause of ours, which nobody but a resume of ours ends. */
bool cordon_createos_guest_woke(struct cordon_guest_handle *guest, unsigned status)
{
    char now[24];
    return status == 409 && ask_status(guest->id, now, NULL) == 0 &&
           (strcmp(now, "paused") == 0 || strcmp(now, "pausing") == 0) &&
           cordon_remote_kept_condition(&guest->kept) == CORDON_GUEST_IS_RUNNING &&
           change(guest, "resume", "running", NULL) == 0;
}

/* --- handles --- */

static int new_handle(struct cordon_guest_handle **ret, struct cordon_error *err)
{
    struct cordon_guest_handle *guest = calloc(1, sizeof *guest);
    int r = guest ? cordon_remote_kept_init(&guest->kept, err) : cordon_fail_errno(err, -ENOMEM, "CreateOS: a guest");
    if (r < 0)
        free(guest);
    else
        *ret = guest;
    return r;
}

void cordon_createos_guest_release(struct cordon_guest_handle *guest)
{
    if (!guest)
        return;
    cordon_remote_kept_done(&guest->kept);
    free(guest);
}

/* 22 characters, as many as a name may have. */
static void name_of(const char *id, char to[23])
{
    (void)snprintf(to, 23, "g-%.20s", id); /* cut on purpose, if ever */
}

static int make(const struct cordon_guest_spec *spec, struct cordon_guest_handle *guest, struct cordon_error *err)
{
    char shape[64], name[23];
    uint64_t until = cordon_now_us() + CREATE_US;
    int r = cordon_createos_check_network(spec->network, spec->allowed_domain_count, err);
    if (r == 0)
        r = cordon_createos_shape_choose(spec->limits.memory_bytes, until, spec->cancel_fd, shape, err);
    if (r < 0)
        return r;
    name_of(spec->id, name);
    const struct cordon_createos_wish wish = {.name = name,
                                              .shape = shape,
                                              .network = spec->network,
                                              .pause_s = IDLE_S,
                                              .env = spec->env,
                                              .env_count = spec->env_count,
                                              .deadline_us = until,
                                              .cancel_fd = spec->cancel_fd};
    return cordon_createos_make(&wish, guest->id, err);
}

int cordon_createos_guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                                 struct cordon_error *err)
{
    struct cordon_error own = {0}, why = {0};
    struct cordon_guest_handle *guest;
    int r = new_handle(&guest, err);
    if (r < 0)
        return r;
    r = make(spec, guest, &own);
    if (r == 0)
        r = cordon_remote_kept_enter(&keeper, &guest->kept, &own);
    if (r == 0) {
        *ret = guest;
        return 0;
    }
    if (*guest->id && cordon_createos_kill(guest->id, cordon_now_us() + DESTROY_US, -1, &why) < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be ended; it pauses by itself, and must be ended by hand",
                   "backend", "createos", "sandbox", guest->id, "error", why.message, NULL);
    cordon_createos_guest_release(guest);
    if (own.kind == CORDON_ERROR_INFRASTRUCTURE)
        own.kind = CORDON_ERROR_UNAVAILABLE;
    if (err)
        *err = own;
    return r;
}

/* The sandbox's id and status, by the guest's id. */
static int find(const char *guest, int cancel_fd, char id[80], char status[24], struct cordon_error *err)
{
    char name[23];
    name_of(guest, name);
    return cordon_createos_named(name, cordon_now_us() + FIND_US, cancel_fd, id, status, err);
}

int cordon_createos_guest_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret,
                                struct cordon_error *err)
{
    char status[24] = "";
    struct cordon_guest_handle *guest;
    int r = new_handle(&guest, err);
    if (r < 0)
        return r;
    r = find(id, cancel_fd, guest->id, status, err);
    if (strcmp(status, "paused") == 0 || strcmp(status, "pausing") == 0)
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_PAUSED);
    if (r == 0)
        r = cordon_remote_kept_enter(&keeper, &guest->kept, err);
    if (r < 0)
        cordon_createos_guest_release(guest);
    else
        *ret = guest;
    return r;
}

int cordon_createos_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    int r = cordon_createos_kill(guest->id, cordon_now_us() + DESTROY_US, -1, err);
    if (r == 0)
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_GONE);
    return r;
}

static int call_pause(struct cordon_remote_kept *kept, struct cordon_error *err)
{
    return change((struct cordon_guest_handle *)kept, "pause", "paused", err); /* its first member */
}

static bool is_paused(struct cordon_remote_kept *kept)
{
    char status[24];
    struct cordon_guest_handle *guest = (struct cordon_guest_handle *)kept;             /* its first member */
    return ask_status(guest->id, status, NULL) == 0 && strncmp(status, "paus", 4) == 0; /* paused, pausing */
}

int cordon_createos_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err)
{
    (void)how; /* the service has one way: its memory is kept, nothing runs */
    return cordon_remote_kept_pause(&guest->kept, call_pause, is_paused, err);
}

int cordon_createos_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    int r = change(guest, "resume", "running", err);
    if (r == 0)
        cordon_remote_kept_set(&guest->kept, CORDON_GUEST_IS_RUNNING);
    return r;
}

enum cordon_guest_condition cordon_createos_guest_condition(struct cordon_guest_handle *guest)
{
    return cordon_remote_kept_condition(&guest->kept);
}

const char *cordon_createos_guest_remote(struct cordon_guest_handle *guest)
{
    return guest->id;
}

int cordon_createos_guest_watch(struct cordon_guest_handle *guest)
{
    return guest->kept.gone_fd;
}
