/* SPDX-License-Identifier: Apache-2.0 */
/* CreateOS's protocol: addresses, envelopes, the making and the end of sandboxes, files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/remote/createos.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#define DENY_ALL "240.0.0.0/4" /* the idiom: there is no word for it */
#define PAUSE_MOST_S 86400u
#define PAGE 500
#define PAGES 40
#define VIEWS_MAX (16u << 20)
#define LOST_US 10000000u

static void make_url(char to[CORDON_CREATEOS_URL], const char *path)
{
    const char *base = cordon_remote_text(CORDON_SET_CREATEOS_BASE_URL);
    (void)snprintf(to, CORDON_CREATEOS_URL, "%.*s%s", (int)cordon_remote_base(base), base,
                   path); /* a cut one is answered as unknown */
}

static const char *const *make_headers(struct cordon_remote_headers *to, const char *type)
{
    to->count = 0;
    cordon_remote_add(to, "X-Api-Key", cordon_remote_text(CORDON_SET_CREATEOS_API_KEY));
    cordon_remote_add(to, "Content-Type", type);
    return to->list;
}

int cordon_createos_open(struct cordon_http_call *call, const char *path, const char *type,
                         struct cordon_http_transfer **ret, struct cordon_error *err)
{
    char url[CORDON_CREATEOS_URL];
    struct cordon_remote_headers headers;
    make_url(url, path);
    call->url = url;
    call->headers = make_headers(&headers, type);
    int r = cordon_http_open(call, ret, err);
    call->url = NULL;
    call->headers = NULL;
    return r;
}

int cordon_createos_ask(struct cordon_http_call *call, const char *path, const char *what,
                        struct cordon_http_answer *answer, struct cordon_value *data, struct cordon_error *err)
{
    char url[CORDON_CREATEOS_URL];
    struct cordon_remote_headers headers;
    char status[16] = "";
    struct cordon_value root;
    make_url(url, path);
    call->url = url;
    call->headers = make_headers(&headers, "application/json");
    *answer = (struct cordon_http_answer){0};
    int r = cordon_http_exchange(call, answer, err);
    if (r < 0)
        return r;
    if (answer->status / 100 != 2)
        return cordon_remote_refused(&cordon_createos_service, what, answer->status, &answer->body, err);
    if (cordon_value_parse(answer->body.data ? answer->body.data : "", answer->body.size, &root, NULL) == 0 &&
        cordon_value_text(&root, "status", status, sizeof status) && strcmp(status, "success") == 0 &&
        cordon_value_member(&root, "data", data))
        return 0;
    return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                       "%s: %s was answered with something that is no success", cordon_createos_service.title, what);
}

/* --- sandboxes --- */

static bool exception_accepted(void)
{
    const char *item;
    if (cordon_remote_true(CORDON_SET_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS))
        return true;
    for (size_t i = 0; (item = cordon_settings_item(cordon_remote_settings(), CORDON_DOOR_NATIVE,
                                                    CORDON_SET_ACCEPT_EGRESS_EXCEPTIONS, i));
         i++)
        if (strcmp(item, CORDON_CREATEOS_EXCEPTION) == 0)
            return true;
    return false;
}

int cordon_createos_check_network(bool network, size_t rules, struct cordon_error *err)
{
    if (rules)
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "CreateOS does not hold rules by name, and the run has some (CORDON_ALLOWED_DOMAINS); the code "
            "was refused");
    if (!network && !exception_accepted())
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "with the network off CreateOS still reaches " CORDON_CREATEOS_EXCEPTION ", which nobody accepted "
            "(LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS or CORDON_ACCEPT_EGRESS_EXCEPTIONS); the "
            "code was refused");
    return 0;
}

static void write_create(const struct cordon_createos_wish *wish, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    const struct {
        const char *key, *text;
    } texts[] = {
        {"shape", wish->shape}, {"rootfs", cordon_remote_text(CORDON_SET_CREATEOS_ROOTFS)}, {"name", wish->name}};
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(&json, texts[i].key);
        cordon_json_text(&json, texts[i].text);
    }
    cordon_json_key(&json, "egress");
    cordon_json_array_begin(&json);
    cordon_json_text(&json, wish->network ? "*" : DENY_ALL);
    cordon_json_array_end(&json);
    if (wish->env_count)
        cordon_remote_write_env(&json, "envs", wish->env, wish->env_count);
    cordon_json_key(&json, "auto_pause_after_seconds");
    cordon_json_uint(&json, wish->pause_s < PAUSE_MOST_S ? wish->pause_s : PAUSE_MOST_S);
    cordon_json_object_end(&json);
}

/* The echo must say what was asked for: a rule set that a host can't read fails open. */
static bool denies(const struct cordon_value *data)
{
    struct cordon_value list, key, item;
    if (!cordon_value_member(data, "egress", &list) || list.kind != CORDON_VALUE_ARRAY)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    return cordon_value_next(&walk, &key, &item) && cordon_value_equals(&item, DENY_ALL) &&
           !cordon_value_next(&walk, &key, &item);
}

bool cordon_createos_id_ok(const char *id)
{
    return *id && strcspn(id, "/?#% ") == strlen(id);
}

bool cordon_createos_gone(const char *status)
{
    return strcmp(status, "destroying") == 0 || strcmp(status, "destroyed") == 0 || strcmp(status, "failed") == 0;
}

/* One page of sandboxes: 1 found, with its status; 0 not on it; *count: how many were on it; negative: it is none. */
static int look_through(const struct cordon_value *data, const char *name, char id[80], char status[24], size_t *count,
                        struct cordon_error *err)
{
    struct cordon_value list = *data, key, item;
    char other[80];
    (void)cordon_value_member(data, "data", &list); /* newer servers have the list with its pages in one more object */
    if (list.kind != CORDON_VALUE_ARRAY)            /* which is not to be taken for one without the sandbox */
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                           "CreateOS: looking for a sandbox was answered with something that is no list");
    struct cordon_value_walk walk = cordon_value_walk(&list);
    for (*count = 0; cordon_value_next(&walk, &key, &item); ++*count) {
        if (item.kind != CORDON_VALUE_OBJECT || !cordon_value_text(&item, "name", other, sizeof other) ||
            strcmp(other, name) != 0 || !cordon_value_text(&item, "status", status, 24) ||
            cordon_createos_gone(status) || !cordon_value_text(&item, "id", id, 80) || !cordon_createos_id_ok(id))
            continue; /* names may be used again when their sandbox has ended */
        return 1;
    }
    return 0;
}

int cordon_createos_named(const char *name, uint64_t deadline_us, int cancel_fd, char id[80], char status[24],
                          struct cordon_error *err)
{
    char path[80];
    size_t count = PAGE;
    int r = 0;
    for (unsigned page = 0; page < PAGES && r == 0 && count == PAGE; page++) {
        struct cordon_http_answer answer;
        struct cordon_value data;
        struct cordon_http_call call = {.method = "GET",
                                        .deadline_us = deadline_us,
                                        .answer_max = VIEWS_MAX,
                                        .cancel_fd = cancel_fd,
                                        .retry = CORDON_HTTP_RETRY_SAFE};
        (void)snprintf(path, sizeof path, "/v1/sandboxes?limit=%d&offset=%u", PAGE, page * PAGE); /* fits */
        r = cordon_createos_ask(&call, path, "looking for a sandbox", &answer, &data, err);
        if (r == 0)
            r = look_through(&data, name, id, status, &count, err);
        cordon_buf_done(&answer.body);
    }
    return r != 0 ? (r < 0 ? r : 0)
                  : cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "CreateOS has no sandbox of the name %.22s", name);
}

/* Its answer was lost, so it may have been made, and its name is all that is known of it. The service may need a while
 * to show it: who waits looks once, and what comes later is looked for behind him. */
static void find_lost(const char *name, char id[80])
{
    char status[24];
    if (cordon_createos_named(name, cordon_now_us() + LOST_US, -1, id, status, NULL) == 0)
        return;
    *id = '\0';
    cordon_createos_lost_add(name);
}

static int post(const struct cordon_createos_wish *wish, const struct cordon_buf *body, char id[80],
                struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value data;
    struct cordon_http_call call = {.method = "POST",
                                    .body = {body->data, body->size},
                                    .deadline_us = wish->deadline_us,
                                    .cancel_fd = -1, /* see cordon_remote_stayed */
                                    .retry = CORDON_HTTP_RETRY_REFUSED};
    int r = cordon_createos_ask(&call, "/v1/sandboxes", "making a sandbox", &answer, &data, err);
    bool refused = answer.status / 100 == 4 || (!answer.status && err->kind == CORDON_ERROR_UNAVAILABLE); /* not sent */
    if (r == 0 && (!cordon_value_text(&data, "id", id, 80) || !cordon_createos_id_ok(id))) {
        *id = '\0';
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                        "CreateOS: making a sandbox was answered without its id");
    }
    if (r == 0 && !wish->network && !denies(&data))
        r = cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "CreateOS: a sandbox without network was asked for, and the answer does not say that this one has "
            "none (egress); the code was not run");
    cordon_buf_done(&answer.body);
    if (r < 0 && !*id && !refused)
        find_lost(wish->name, id);
    return r;
}

int cordon_createos_make(const struct cordon_createos_wish *wish, char id[80], struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    write_create(wish, &body);
    *id = '\0';
    int r = body.failed ? cordon_fail_errno(&own, -ENOMEM, "CreateOS: making a sandbox") : post(wish, &body, id, &own);
    cordon_buf_done(&body);
    if (r == 0)
        r = cordon_remote_stayed(wish->cancel_fd, &own);
    if (r < 0 && err)
        *err = own;
    return r;
}

int cordon_createos_kill(const char *id, uint64_t deadline_us, int cancel_fd, struct cordon_error *err)
{
    char path[160];
    struct cordon_http_answer answer;
    struct cordon_value data;
    struct cordon_error own = {0};
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%.79s", id); /* fits */
    struct cordon_http_call call = {
        .method = "DELETE", .deadline_us = deadline_us, .cancel_fd = cancel_fd, .retry = CORDON_HTTP_RETRY_SAFE};
    int r = cordon_createos_ask(&call, path, "ending a sandbox", &answer, &data, &own);
    if (answer.status / 100 == 2 || answer.status == 404) /* whatever was said with it */
        r = 0;
    if (r < 0 && err)
        *err = own;
    cordon_buf_done(&answer.body);
    return r;
}

/* --- files --- */

static int files_path(const char *id, const char *path, struct cordon_buf *to, struct cordon_error *err)
{
    *to = CORDON_BUF_INIT(CORDON_CREATEOS_URL - 200);
    (void)cordon_buf_appendf(to, "/v1/sandboxes/%.79s/files?path=", id); /* sticky */
    (void)cordon_url_encode(to, path, strlen(path));
    return to->failed ? cordon_fail_errno(err, -ENAMETOOLONG, "CreateOS: a path") : 0;
}

int cordon_createos_upload(const char *id, const char *path, struct cordon_bytes content, uint64_t deadline_us,
                           int cancel_fd, struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[CORDON_CREATEOS_URL];
    struct cordon_remote_headers headers;
    struct cordon_buf where;
    *answer = (struct cordon_http_answer){0};
    int r = files_path(id, path, &where, err);
    if (r == 0) {
        make_url(url, where.data);
        struct cordon_http_call call = {.method = "PUT",
                                        .url = url,
                                        .headers = make_headers(&headers, "application/octet-stream"),
                                        .body = content,
                                        .deadline_us = deadline_us,
                                        .cancel_fd = cancel_fd,
                                        .retry = CORDON_HTTP_RETRY_SAFE}; /* the same file twice is the same file */
        r = cordon_http_exchange(&call, answer, err);
    }
    cordon_buf_done(&where);
    return r;
}

int cordon_createos_download(const char *id, const char *path, uint64_t deadline_us, int cancel_fd,
                             struct cordon_http_transfer **ret, struct cordon_error *err)
{
    struct cordon_buf where;
    struct cordon_http_call call = {
        .method = "GET", .answer_max = SIZE_MAX, .deadline_us = deadline_us, .cancel_fd = cancel_fd};
    int r = files_path(id, path, &where, err); /* the content's limit is its reader's */
    if (r == 0)
        r = cordon_createos_open(&call, where.data, "", ret, err);
    cordon_buf_done(&where);
    return r;
}
