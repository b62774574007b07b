/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching directories: as a stream, or by a watcher that is asked again and again (which the synchronous Python SDK
 * does). A watcher is a stream of core's that waits, unread, for the next question; what comes meanwhile waits in the
 * guest's bounded queues, and what is lost there is told by core. Watchers end by RemoveWatcher, with their guest, or
 * when nobody has asked for WATCHER_IDLE_US; there is no thread for them, so the last is seen when the next one is
 * made.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "door/door.h"
#include "door/e2b/envd.h"
#include "door/e2b/envelope.h"

#define WATCHER_IDLE_US (600u * 1000000ull)
#define ID_TEXT CORDON_E2B_TOKEN_TEXT
#define ANSWER_EVENTS 1000u /* in one answer; the rest comes with the next */

static const char *change_name(enum cordon_change change)
{
    switch (change) {
    case CORDON_CHANGE_CREATE:
        return "EVENT_TYPE_CREATE";
    case CORDON_CHANGE_REMOVE:
        return "EVENT_TYPE_REMOVE";
    case CORDON_CHANGE_RENAME:
        return "EVENT_TYPE_RENAME";
    case CORDON_CHANGE_CHMOD:
        return "EVENT_TYPE_CHMOD";
    default:
        return "EVENT_TYPE_WRITE"; /* the protocol has no word for changes that were lost: look anew */
    }
}

static void tell_change(struct cordon_json *json, const struct cordon_stream_event *event, bool with_entry)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "name");
    cordon_json_text(json, event->name ? event->name : "");
    cordon_json_key(json, "type");
    cordon_json_text(json, change_name(event->change));
    if (with_entry && event->entry) {
        cordon_json_key(json, "entry");
        cordon_e2b_tell_entry(json, event->entry);
    }
    cordon_json_object_end(json);
}

static int tell(struct cordon_e2b_outlet *outlet, const struct cordon_stream_event *event, struct cordon_buf *to,
                struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    if (event->type == CORDON_STREAM_WATCHING)
        cordon_e2b_envelope_text(to, "{\"start\":{}}");
    if (event->type != CORDON_STREAM_CHANGE)
        return event->type == CORDON_STREAM_END;
    size_t start = cordon_e2b_envelope_begin(to, false);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "filesystem");
    tell_change(&json, event, outlet->entries);
    cordon_json_object_end(&json);
    cordon_e2b_envelope_end(to, start);
    return 0;
}

struct watch_call {
    struct cordon_operation operation;
    bool entries;
};

static int read_watch(const struct cordon_http_request *request, const struct cordon_value *message,
                      struct cordon_door_memory *memory, struct watch_call *call, struct cordon_error *err)
{
    *call = (struct watch_call){
        .operation = {.struct_size = sizeof call->operation, .kind = CORDON_OP_WATCH, .cancel_fd = -1}};
    int r = cordon_e2b_user(request, &call->operation.user, err);
    if (r == 0)
        r = cordon_e2b_path_field(message, "path", memory, &call->operation.path, err);
    if (r == 0)
        r = cordon_field_bool(message, "recursive", &call->operation.recursive, err);
    if (r >= 0)
        r = cordon_field_bool(message, "includeEntry", &call->entries, err);
    if (r >= 0)
        r = cordon_field_bool(message, "include_entry", &call->entries, err);
    return r < 0 ? r : 0;
}

int cordon_e2b_fs_watch(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct watch_call call;
    int r = cordon_e2b_stream_message(request, &message, err);
    if (r == 0)
        r = read_watch(request, &message, &memory, &call, err);
    if (r < 0)
        return r;
    call.operation.cancel_fd = request->fd;
    const struct cordon_e2b_outlet outlet = {.tell = tell, .keepalive = "{\"keepalive\":{}}", .entries = call.entries};
    return cordon_e2b_stream(request, &call.operation, &outlet, err);
}

struct watcher {
    struct watcher *next;
    char id[ID_TEXT];
    char guest[CORDON_GUEST_ID], tenant[64];
    bool entries, busy, removed; /* busy: an answer is being made of it; who removes it then leaves it to that one */
    uint64_t asked_us;
    struct cordon_live_stream *live;
};

static struct {
    pthread_mutex_t lock;
    struct watcher *first;
} watchers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void free_watchers(struct watcher *watcher)
{
    for (struct watcher *next; watcher; watcher = next) {
        next = watcher->next;
        cordon_guests_close(watcher->live);
        free(watcher);
    }
}

/* Takes out of the list what nobody asks any longer; the caller frees it, without the lock. */
static struct watcher *take_idle(uint64_t now)
{
    struct watcher *taken = NULL;
    for (struct watcher **at = &watchers.first; *at;) {
        struct watcher *watcher = *at;
        if (watcher->busy || now - watcher->asked_us < WATCHER_IDLE_US) {
            at = &watcher->next;
            continue;
        }
        *at = watcher->next;
        watcher->next = taken;
        taken = watcher;
    }
    return taken;
}

enum bound { OF_GUEST, OF_KEY, OF_ALL, BOUNDS };

static const struct {
    enum cordon_setting setting;
    const char *where;
} bounds[BOUNDS] = {
    [OF_GUEST] = {CORDON_SET_GUEST_WATCHERS, "this sandbox"},
    [OF_KEY] = {CORDON_SET_KEY_WATCHERS, "this key's sandboxes"},
    [OF_ALL] = {CORDON_SET_WATCHERS, "all sandboxes"},
};

/* Which bound leaves no place for one more, or BOUNDS. With the lock held. */
static enum bound find_full(const struct watcher *new, const size_t most[BOUNDS])
{
    size_t count[BOUNDS] = {0};
    enum bound full = OF_GUEST;
    for (const struct watcher *watcher = watchers.first; watcher; watcher = watcher->next) {
        count[OF_GUEST] += strcmp(watcher->guest, new->guest) == 0;
        count[OF_KEY] += strcmp(watcher->tenant, new->tenant) == 0;
        count[OF_ALL]++;
    }
    while (full < BOUNDS && count[full] < most[full])
        full++;
    return full;
}

/* Takes the watcher when it returns 0. */
static int add_watcher(struct watcher *watcher, const struct cordon_settings *settings, struct cordon_error *err)
{
    size_t most[BOUNDS];
    for (enum bound i = 0; i < BOUNDS; i++)
        most[i] = (size_t)cordon_settings_int(settings, CORDON_DOOR_E2B, bounds[i].setting);
    pthread_mutex_lock(&watchers.lock);
    struct watcher *idle = take_idle(cordon_now_us());
    enum bound full = find_full(watcher, most);
    if (full == BOUNDS) {
        watcher->next = watchers.first;
        watchers.first = watcher;
    }
    pthread_mutex_unlock(&watchers.lock);
    free_watchers(idle);
    return full == BOUNDS
               ? 0
               : cordon_fail(err, -EMFILE, CORDON_ERROR_QUOTA,
                             "%s: there are %zu watchers, as many as %s allows; remove some", bounds[full].where,
                             most[full], cordon_settings_name(CORDON_DOOR_E2B, bounds[full].setting));
}

/* Until its WATCHING came, or an error. */
static int wait_watching(struct cordon_live_stream *live, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    for (;;) {
        int r = cordon_guests_next(live, -1, &event, &ended, err);
        if (r < 0 || (r > 0 && event.type == CORDON_STREAM_WATCHING))
            return r < 0 ? r : 0;
        if (ended)
            return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the watch ended before it began");
    }
}

static int open_watcher(const struct cordon_http_request *request, const struct watch_call *call, struct watcher **ret,
                        struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (!watcher || !cordon_e2b_token_make(watcher->id)) {
        free(watcher);
        return cordon_fail_errno(err, -ENOMEM, "making a watcher");
    }
    (void)snprintf(watcher->guest, sizeof watcher->guest, "%s", guest->id); /* fits */
    (void)snprintf(watcher->tenant, sizeof watcher->tenant, "%s", guest->tenant);
    watcher->entries = call->entries;
    watcher->asked_us = cordon_now_us();
    int r = cordon_guests_open(guest->tenant, guest->id, &call->operation, &watcher->live, err);
    if (r == 0)
        r = wait_watching(watcher->live, err);
    if (r == 0)
        r = add_watcher(watcher, doors->settings, err);
    if (r < 0)
        free_watchers(watcher);
    else
        *ret = watcher;
    return r;
}

int cordon_e2b_watcher_create(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct watch_call call;
    char id[ID_TEXT];
    struct watcher *watcher = NULL;
    int r = cordon_e2b_message(request, &message, err);
    if (r == 0)
        r = read_watch(request, &message, &memory, &call, err);
    if (r == 0)
        r = open_watcher(request, &call, &watcher, err);
    if (r < 0)
        return r;
    memcpy(id, watcher->id, sizeof id);
    struct cordon_buf body = CORDON_BUF_INIT(256);
    (void)cordon_buf_appendf(&body, "{\"watcherId\":\"%s\"}", id); /* sticky, seen by the reply */
    return cordon_e2b_answer(request, &body, err);
}

/* The watcher that the message names, of the guest that the request is for. */
static int read_watcher_id(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                           const char **ret, struct cordon_error *err)
{
    struct cordon_value message;
    *ret = NULL;
    int r = cordon_e2b_message(request, &message, err);
    if (r == 0)
        r = cordon_field_text(&message, "watcherId", memory, ret, err);
    if (r == 0)
        r = cordon_field_text(&message, "watcher_id", memory, ret, err);
    if (r == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "watcherId is missing");
    return r < 0 ? r : 0;
}

static struct watcher **find_watcher(const char *guest, const char *id)
{
    struct watcher **at = &watchers.first;
    while (*at && (strcmp((*at)->guest, guest) != 0 || !cordon_e2b_token_ok((*at)->id, id)))
        at = &(*at)->next;
    return at;
}

static int no_watcher(struct cordon_error *err)
{
    return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no such watcher in this sandbox");
}

/* To make an answer of it: nobody else frees it then. */
static int borrow_watcher(const char *guest, const char *id, struct watcher **ret, struct cordon_error *err)
{
    pthread_mutex_lock(&watchers.lock);
    struct watcher *found = *find_watcher(guest, id);
    int r = !found ? -ENOENT : found->busy ? -EBUSY : 0;
    if (r == 0) {
        found->busy = true;
        found->asked_us = cordon_now_us();
        *ret = found;
    }
    pthread_mutex_unlock(&watchers.lock);
    if (r == -EBUSY)
        return cordon_fail(err, r, CORDON_ERROR_CONFLICT, "this watcher is being asked by another call");
    return r < 0 ? no_watcher(err) : 0;
}

static void give_back(struct watcher *watcher)
{
    pthread_mutex_lock(&watchers.lock);
    watcher->busy = false;
    bool removed = watcher->removed;
    pthread_mutex_unlock(&watchers.lock);
    if (removed)
        free_watchers(watcher);
}

static int collect_changes(const struct watcher *watcher, struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    for (size_t i = 0; i < ANSWER_EVENTS && !ended; i++) {
        int r = cordon_guests_next(watcher->live, 0, &event, &ended, err);
        if (r <= 0)
            return r;
        if (event.type == CORDON_STREAM_CHANGE)
            tell_change(json, &event, watcher->entries);
    }
    return 0;
}

int cordon_e2b_watcher_events(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20);
    struct cordon_json json = {.buf = &body};
    struct watcher *watcher = NULL;
    const char *id;
    int r = read_watcher_id(request, &memory, &id, err);
    if (r == 0)
        r = borrow_watcher(cordon_e2b_visit(request)->guest->id, id, &watcher, err);
    if (r < 0)
        return r;
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "events");
    cordon_json_array_begin(&json);
    r = collect_changes(watcher, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    give_back(watcher);
    if (r == 0)
        return cordon_e2b_answer(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

int cordon_e2b_watcher_remove(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct watcher *unused = NULL;
    const char *id;
    int r = read_watcher_id(request, &memory, &id, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&watchers.lock);
    struct watcher **at = find_watcher(cordon_e2b_visit(request)->guest->id, id), *found = *at;
    if (found) {
        *at = found->next;
        found->next = NULL;
        found->removed = true;
        unused = found->busy ? NULL : found;
    }
    pthread_mutex_unlock(&watchers.lock);
    free_watchers(unused);
    return found ? cordon_e2b_answer_empty(request, err) : no_watcher(err);
}
