/* SPDX-License-Identifier: Apache-2.0 */
/* cordon guest: create, list, show, log, pause, resume, extend, rm. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/guest.h"
#include "cli/headers.h"
#include "core/value.h"

#define REPLY_MAX (256u << 20)

/* A member's text as it stands, without its quotes; "-" for null. Ids, names, states and times need no decoding. */
static struct cordon_value plain(const struct cordon_value *object, const char *name)
{
    struct cordon_value value;
    if (!cordon_value_member(object, name, &value) || value.kind == CORDON_VALUE_NULL)
        return (struct cordon_value){.data = "-", .size = 1};
    if (value.kind == CORDON_VALUE_STRING)
        return (struct cordon_value){.data = value.data + 1, .size = value.size - 2};
    return value;
}

static int parse(const struct cordon_buf *reply, struct cordon_value *ret, struct cordon_error *err)
{
    return cordon_value_parse(reply->data ? reply->data : "", reply->size, ret, err);
}

/* --- create --- */

static int write_number(struct cordon_json *json, const char *name, const char *option, const char *text,
                        struct cordon_error *err)
{
    char *end, digits[32];
    if (!text)
        return 0;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value < 1e9))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s \"%.40s\": give a number above 0", option, text);
    (void)snprintf(digits, sizeof digits, "%.15g", value); /* fits */
    cordon_json_key(json, name);
    cordon_json_raw(json, digits, strlen(digits));
    return 0;
}

static int write_duration(struct cordon_json *json, const char *name, const char *option, const char *text,
                          struct cordon_error *err)
{
    char digits[32];
    double seconds;
    if (!text)
        return 0;
    int r = cordon_guest_duration(text, option, &seconds, err);
    if (r < 0)
        return r;
    (void)snprintf(digits, sizeof digits, "%.15g", seconds); /* fits */
    cordon_json_key(json, name);
    cordon_json_raw(json, digits, strlen(digits));
    return 0;
}

static int write_guest(const struct cordon_guest_options *options, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_guest_write_text(&json, "name", options->argc ? options->argv[0] : NULL);
    cordon_guest_write_text(&json, "template", options->template_name);
    cordon_guest_write_text(&json, "backend", options->backend);
    cordon_guest_write_pairs(&json, "env", &options->env);
    cordon_guest_write_pairs(&json, "metadata", &options->metadata);
    int r = write_number(&json, "memory_mb", "-m", options->memory_mb, err);
    if (r == 0)
        r = write_number(&json, "disk_mb", "--disk", options->disk_mb, err);
    if (r == 0)
        r = write_duration(&json, "ttl_s", "--ttl", options->ttl_s, err);
    if (r == 0)
        r = write_duration(&json, "idle_pause_s", "--idle", options->idle, err);
    if (r == 0)
        r = cordon_cli_network_write(options->network, &options->domains, &options->headers, &json, err);
    if (options->auto_resume) {
        cordon_json_key(&json, "auto_resume");
        cordon_json_bool(&json, true);
    }
    cordon_json_object_end(&json);
    return r;
}

/* The whole object with --json, else one member of it. */
static int print_answer(const struct cordon_guest_call *call, const struct cordon_buf *reply, const char *name,
                        struct cordon_error *err)
{
    struct cordon_value object;
    if (call->options->json)
        return fwrite(reply->data, 1, reply->size, stdout) == reply->size ? 0 : -EIO;
    int r = parse(reply, &object, err);
    if (r == 0) {
        struct cordon_value text = plain(&object, name);
        (void)printf("%.*s\n", (int)text.size, text.data);
    }
    return r;
}

int cordon_guest_do_create(struct cordon_guest_call *call, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20), reply = CORDON_BUF_INIT(REPLY_MAX);
    int r = write_guest(call->options, &body, err);
    if (r == 0)
        r = cordon_guest_ask(call, "POST", "/v1/guests", &body, &reply, err);
    if (r == 0)
        r = print_answer(call, &reply, "id", err);
    cordon_buf_done(&body);
    cordon_buf_done(&reply);
    return r;
}

/* --- list, and all of a list --- */

static int list_path(const struct cordon_guest_options *options, const char *after, struct cordon_buf *to,
                     struct cordon_error *err)
{
    double idle_s = 0;
    int r = options->idle ? cordon_guest_duration(options->idle, "--idle", &idle_s, err) : 0;
    (void)cordon_buf_appendf(to, "/v1/guests?limit=500&idle_s=%.0f&state=running,paused%s", idle_s,
                             options->all ? ",gone" : ""); /* sticky, as the next */
    if (options->name) {
        (void)cordon_buf_appends(to, "&name=");
        cordon_guest_escape(to, options->name);
    }
    if (options->template_name) {
        (void)cordon_buf_appends(to, "&template=");
        cordon_guest_escape(to, options->template_name);
    }
    if (*after) {
        (void)cordon_buf_appends(to, "&after=");
        cordon_guest_escape(to, after);
    }
    return r;
}

/* Page after page. */
static int each_guest(struct cordon_guest_call *call,
                      int (*each)(struct cordon_guest_call *call, const struct cordon_value *guest,
                                  struct cordon_error *err),
                      struct cordon_error *err)
{
    char after[128] = "";
    int r;
    do {
        struct cordon_buf path = CORDON_BUF_INIT(64u << 10), reply = CORDON_BUF_INIT(REPLY_MAX);
        struct cordon_value page, guests, guest, key;
        r = list_path(call->options, after, &path, err);
        if (r == 0)
            r = cordon_guest_ask(call, "GET", path.data, NULL, &reply, err);
        if (r == 0)
            r = parse(&reply, &page, err);
        if (r == 0 && cordon_value_member(&page, "guests", &guests)) {
            struct cordon_value_walk walk = cordon_value_walk(&guests);
            while (r == 0 && cordon_value_next(&walk, &key, &guest))
                r = each(call, &guest, err);
        }
        struct cordon_value next = {.data = "-", .size = 1};
        if (r == 0)
            next = plain(&page, "next");
        (void)snprintf(after, sizeof after, "%.*s", next.size == 1 ? 0 : (int)next.size, next.data); /* fits */
        cordon_buf_done(&path);
        cordon_buf_done(&reply);
    } while (r == 0 && *after);
    return r;
}

static int print_guest(struct cordon_guest_call *call, const struct cordon_value *guest, struct cordon_error *err)
{
    if (call->options->json)
        return printf("%.*s\n", (int)guest->size, guest->data) < 0 ? -EIO : 0;
    static const char *const columns[] = {"id", "state", "name", "active_at", "ends_at"};
    static const int widths[] = {20, 8, 24, 24, 0};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        struct cordon_value text = plain(guest, columns[i]);
        (void)printf("%.*s%*s", (int)text.size, text.data,
                     (int)text.size < widths[i] ? widths[i] - (int)text.size + 1 : (i < 4), "");
    }
    struct cordon_value state = plain(guest, "state"), reason = plain(guest, "reason");
    if (state.size == 4 && memcmp(state.data, "gone", 4) == 0 && reason.size > 1)
        (void)printf("  %.*s", (int)reason.size, reason.data);
    return putchar('\n') == EOF ? -EIO : 0;
}

int cordon_guest_do_list(struct cordon_guest_call *call, struct cordon_error *err)
{
    if (!call->options->json)
        (void)printf("%-20s %-8s %-24s %-24s %s\n", "id", "state", "name", "active", "ends");
    return each_guest(call, print_guest, err);
}

/* --- those that are named --- */

static int act_on(struct cordon_guest_call *call, const char *name, const char *method, const char *rest,
                  const struct cordon_buf *body, struct cordon_buf *reply, struct cordon_error *err)
{
    struct cordon_buf path = CORDON_BUF_INIT(8192);
    int r = cordon_guest_path(&path, name, rest, err);
    if (r == 0)
        r = cordon_guest_ask(call, method, path.data, body, reply, err);
    cordon_buf_done(&path);
    return r;
}

/* The id of the newest guest of that name that is gone; false: there is none. */
static bool find_gone(struct cordon_guest_call *call, const char *name, char id[128])
{
    struct cordon_buf path = CORDON_BUF_INIT(8192), reply = CORDON_BUF_INIT(REPLY_MAX);
    struct cordon_value page, guests, guest, key;
    bool found = false;
    (void)cordon_buf_appends(&path, "/v1/guests?limit=1&state=gone&name="); /* sticky, as the next */
    cordon_guest_escape(&path, name);
    if (!path.failed && cordon_guest_ask(call, "GET", path.data, NULL, &reply, NULL) == 0 &&
        parse(&reply, &page, NULL) == 0 && cordon_value_member(&page, "guests", &guests)) {
        struct cordon_value_walk walk = cordon_value_walk(&guests);
        found = cordon_value_next(&walk, &key, &guest);
        struct cordon_value text = found ? plain(&guest, "id") : (struct cordon_value){.data = "", .size = 0};
        (void)snprintf(id, 128, "%.*s", (int)text.size, text.data); /* fits */
    }
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return found;
}

/* One that is gone is known to the daemon by its id, since its name may be another's by now; who asks has the name. */
static int ask_about(struct cordon_guest_call *call, const char *rest, struct cordon_buf *reply,
                     struct cordon_error *err)
{
    struct cordon_error why = {0};
    char id[128];
    int r = act_on(call, call->options->argv[0], "GET", rest, NULL, reply, &why);
    if (r < 0 && why.kind == CORDON_ERROR_NOT_FOUND && find_gone(call, call->options->argv[0], id))
        return act_on(call, id, "GET", rest, NULL, reply, err);
    if (r < 0)
        *err = why;
    return r;
}

static int print_reply(struct cordon_guest_call *call, const char *rest, struct cordon_error *err)
{
    struct cordon_buf reply = CORDON_BUF_INIT(REPLY_MAX);
    int r = ask_about(call, rest, &reply, err);
    if (r == 0 && fwrite(reply.data, 1, reply.size, stdout) != reply.size)
        r = cordon_fail_errno(err, -EIO, "writing to stdout");
    cordon_buf_done(&reply);
    return r;
}

int cordon_guest_do_show(struct cordon_guest_call *call, struct cordon_error *err)
{
    return print_reply(call, "", err);
}

int cordon_guest_do_log(struct cordon_guest_call *call, struct cordon_error *err)
{
    struct cordon_buf reply = CORDON_BUF_INIT(REPLY_MAX);
    struct cordon_value object, notes, note, key;
    int r = ask_about(call, "/notes", &reply, err);
    if (r == 0 && call->options->json)
        r = fwrite(reply.data, 1, reply.size, stdout) == reply.size ? 0 : -EIO;
    else if (r == 0 && (r = parse(&reply, &object, err)) == 0 && cordon_value_member(&object, "notes", &notes)) {
        struct cordon_value_walk walk = cordon_value_walk(&notes);
        while (cordon_value_next(&walk, &key, &note)) {
            struct cordon_value at = plain(&note, "at"), what = plain(&note, "what"), text = plain(&note, "text");
            (void)printf("%.*s  %-10.*s %.*s\n", (int)at.size, at.data, (int)what.size, what.data, (int)text.size,
                         text.data);
        }
    }
    cordon_buf_done(&reply);
    return r;
}

static int act_on_all(struct cordon_guest_call *call, const char *method, const char *rest,
                      const struct cordon_buf *body, struct cordon_error *err)
{
    int r = 0;
    for (int i = 0; i < call->options->argc && r == 0; i++)
        r = act_on(call, call->options->argv[i], method, rest, body, NULL, err);
    return r;
}

int cordon_guest_do_pause(struct cordon_guest_call *call, struct cordon_error *err)
{
    return act_on_all(call, "POST", "/pause", NULL, err);
}

static int with_durations(struct cordon_guest_call *call, const char *rest, bool idle, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    int r = write_duration(&json, "ttl_s", "--ttl", call->options->ttl_s, err);
    if (r == 0 && idle)
        r = write_duration(&json, "idle_pause_s", "--idle", call->options->idle, err);
    cordon_json_object_end(&json);
    if (r == 0)
        r = act_on_all(call, "POST", rest, &body, err);
    cordon_buf_done(&body);
    return r;
}

int cordon_guest_do_resume(struct cordon_guest_call *call, struct cordon_error *err)
{
    return with_durations(call, "/resume", false, err);
}

int cordon_guest_do_extend(struct cordon_guest_call *call, struct cordon_error *err)
{
    if (!call->options->ttl_s && !call->options->idle)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "extend: give --ttl DURATION or --idle DURATION");
    return with_durations(call, "/extend", true, err);
}

/* What became of one that was given up, and what it is called where it may still be. */
static int forget(struct cordon_guest_call *call, const char *name, struct cordon_error *err)
{
    struct cordon_buf reply = CORDON_BUF_INIT(REPLY_MAX);
    struct cordon_value guest;
    int r = act_on(call, name, "DELETE", "?forget=true", NULL, &reply, err);
    if (r == 0 && (r = parse(&reply, &guest, err)) == 0) {
        struct cordon_value reason = plain(&guest, "reason");
        (void)printf("%s: %.*s\n", name, (int)reason.size, reason.data);
    }
    cordon_buf_done(&reply);
    return r;
}

static int remove_one(struct cordon_guest_call *call, const char *name, struct cordon_error *err)
{
    return call->options->forget ? forget(call, name, err) : act_on(call, name, "DELETE", "", NULL, NULL, err);
}

static int remove_guest(struct cordon_guest_call *call, const struct cordon_value *guest, struct cordon_error *err)
{
    char name[128];
    struct cordon_value id = plain(guest, "id");
    (void)snprintf(name, sizeof name, "%.*s", (int)id.size, id.data); /* fits */
    int r = remove_one(call, name, err);
    if (r == 0 && !call->options->forget)
        (void)printf("%s\n", name);
    return r;
}

/* By a pattern none is looked at twice: lists are made page by page, and what is gone is in none. */
int cordon_guest_do_rm(struct cordon_guest_call *call, struct cordon_error *err)
{
    const struct cordon_guest_options *options = call->options;
    if (options->argc && (options->name || options->idle || options->template_name))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "give guests, or --name, --template and --idle, not both");
    int r = 0;
    for (int i = 0; i < options->argc && r == 0; i++)
        r = remove_one(call, options->argv[i], err);
    if (options->argc)
        return r;
    if (!options->name)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "which ones? Give guests, or --name PATTERN ('*' for all) with or without --idle DURATION");
    return each_guest(call, remove_guest, err);
}
