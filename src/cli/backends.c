/* SPDX-License-Identifier: Apache-2.0 */
/* cordon backends: asked of the daemon where there is one, else of a warden started for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/builtin.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/oneshot.h"
#include "cli/run_events.h"
#include "core/registry.h"
#include "core/value.h"
#include "core/verify.h"
#include "door/door.h"

static const char help[] = "usage: cordon backends [--json]\n"
                           "\n"
                           "Lists the backends: what each can enforce here, and why one can not run code now.\n";

static int ask_daemon(int fd, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(1u << 20);
    int r = cordon_daemon_get(fd, "/v1/backends", &http, err);
    const char *text = http.body.data ? http.body.data : "";
    if (r == 0 && http.status != 200)
        r = cordon_error_read(text, http.body.size, err);
    if (r == 0)
        r = cordon_buf_append(to, text, http.body.size);
    cordon_http_reader_done(&http);
    return r;
}

static int ask_ourselves(const struct cordon_settings *settings, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    struct cordon_oneshot oneshot;
    int r = cordon_cli_backends_load(settings, err);
    if (r < 0)
        return r;
    /* Without one, each backend says in its own words why it can't run code. */
    (void)cordon_oneshot_start(&(struct cordon_oneshot_options){.template_fd = -1}, &oneshot, NULL);
    cordon_door_backends_write(&json);
    cordon_oneshot_stop(&oneshot);
    cordon_cli_backends_drop();
    return to->failed ? -ENOMEM : 0;
}

static void print_list(const struct cordon_value *list)
{
    struct cordon_value none, item;
    struct cordon_value_walk walk = cordon_value_walk(list);
    size_t count = 0;
    for (; cordon_value_next(&walk, &none, &item); count++)
        (void)printf("%s%.*s", count ? ", " : "", (int)item.size - 2, item.data + 1);
    (void)printf("%s\n", count ? "" : "none");
}

static void print_value(const struct cordon_value *key, const struct cordon_value *value)
{
    (void)printf("    %-20.*s ", (int)key->size - 2, key->data + 1);
    if (value->kind == CORDON_VALUE_STRING)
        (void)printf("%.*s\n", (int)value->size - 2, value->data + 1);
    else if (value->kind == CORDON_VALUE_BOOL)
        (void)printf("%s\n", cordon_value_true(value) ? "yes" : "no");
    else if (cordon_value_equals(key, "max_timeout_s") && value->size == 1 && *value->data == '0')
        (void)printf("no cap\n");
    else if (value->kind == CORDON_VALUE_ARRAY)
        print_list(value);
    else
        (void)printf("%.*s\n", (int)value->size, value->data);
}

/* --- declared beside verified --- */

/* What was measured of the capability of that name: 1 and *ret, or 0. */
static int find_measured(const struct cordon_value *verified, const char *name, struct cordon_value *ret)
{
    struct cordon_value list, key, item, value;
    if (!cordon_value_member(verified, "capabilities", &list) || list.kind != CORDON_VALUE_ARRAY)
        return 0;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &item)) {
        if (!cordon_value_member(&item, "name", &value) || !cordon_value_equals(&value, name))
            continue;
        *ret = item;
        return 1;
    }
    return 0;
}

static bool is_true(const struct cordon_value *object, const char *name)
{
    struct cordon_value value;
    return cordon_value_member(object, name, &value) && value.kind == CORDON_VALUE_BOOL && cordon_value_true(&value);
}

/* "declared D, verified V: evidence"; where they differ, on stderr as well. */
static void print_measured(const char *backend, const char *name, const struct cordon_value *item)
{
    static const char *const answers[] = {"no", "yes"};
    struct cordon_value value;
    char evidence[300] = "";
    bool known = cordon_value_member(item, "verified", &value) && value.kind == CORDON_VALUE_BOOL;
    bool declares = cordon_value_member(item, "declared", &value) && value.kind == CORDON_VALUE_BOOL;
    if (cordon_value_member(item, "evidence", &value))
        cordon_value_copy(&value, evidence, sizeof evidence);
    bool differs = is_true(item, "differs");
    (void)printf("    %-20s declared %s, verified %s%s%s%s\n", name,
                 declares ? answers[is_true(item, "declared")] : "-", known ? answers[is_true(item, "verified")] : "-",
                 differs ? "  ** DIFFERS **" : "", *evidence ? ": " : "", evidence);
    if (differs)
        (void)fprintf(stderr, "cordon: WARNING: the backend %s declares %s, and cordon verify measured otherwise: %s\n",
                      backend, name, evidence);
}

static void print_verified(const char *backend, const struct cordon_value *verified)
{
    struct cordon_value value, item;
    int64_t at = 0;
    char version[32] = "", time_text[40] = "";
    struct tm tm;
    if (verified->kind != CORDON_VALUE_OBJECT) {
        (void)printf("    %-20s never (cordon verify %s)\n", "verified", backend);
        return;
    }
    if (cordon_value_member(verified, "at", &value))
        (void)cordon_value_integer(&value, &at); /* 0 else */
    if (cordon_value_member(verified, "version", &value))
        cordon_value_copy(&value, version, sizeof version);
    time_t seconds = (time_t)at;
    if (gmtime_r(&seconds, &tm))
        (void)strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M UTC", &tm); /* fits */
    (void)printf("    %-20s %s, by cordon %s\n", "verified", time_text, version);
    for (int i = 0; i < CORDON_VERIFY__COUNT; i++) {
        const char *name = cordon_verify_item_name((enum cordon_verify_item)i);
        if (find_measured(verified, name, &item))
            print_measured(backend, name, &item);
    }
}

/* A capability that was measured is told by print_verified. */
static bool was_measured(const struct cordon_value *verified, const struct cordon_value *key)
{
    struct cordon_value item;
    char name[40];
    cordon_value_copy(key, name, sizeof name);
    return verified->kind == CORDON_VALUE_OBJECT && !cordon_value_equals(key, "egress_exceptions") &&
           find_measured(verified, name, &item);
}

/* One backend's object as text. */
static void print_backend(const struct cordon_value *backend)
{
    struct cordon_value key, value, inner_key, inner, verified = {.kind = CORDON_VALUE_NULL};
    char name[40] = "";
    (void)cordon_value_member(backend, "verified", &verified); /* else never */
    struct cordon_value_walk walk = cordon_value_walk(backend);
    while (cordon_value_next(&walk, &key, &value)) {
        if (cordon_value_equals(&key, "name")) {
            cordon_value_copy(&value, name, sizeof name);
            (void)printf("%s\n", name);
        }
        if (cordon_value_equals(&key, "able") || cordon_value_equals(&key, "reason"))
            print_value(&key, &value);
        else if (cordon_value_equals(&key, "capabilities") && value.kind == CORDON_VALUE_OBJECT) {
            struct cordon_value_walk capabilities = cordon_value_walk(&value);
            while (cordon_value_next(&capabilities, &inner_key, &inner))
                if (!was_measured(&verified, &inner_key))
                    print_value(&inner_key, &inner);
        }
    }
    print_verified(name, &verified);
}

static int print_text(const struct cordon_buf *text, struct cordon_error *err)
{
    struct cordon_value root, key, list, backend;
    int r = cordon_value_parse(text->data, text->size, &root, err);
    if (r < 0)
        return r;
    struct cordon_value_walk walk = {0};
    if (root.kind == CORDON_VALUE_OBJECT)
        walk = cordon_value_walk(&root);
    if (!walk.p || !cordon_value_next(&walk, &key, &list) || list.kind != CORDON_VALUE_ARRAY)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "the daemon's answer can not be read");
    walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &backend))
        if (backend.kind == CORDON_VALUE_OBJECT)
            print_backend(&backend);
    return 0;
}

static int act(const struct cordon_settings *settings, bool json, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    cordon_autoclose int daemon = cordon_daemon_connect(settings, err);
    int r = daemon == -ENOENT ? ask_ourselves(settings, &text, err)
            : daemon < 0      ? daemon
                              : ask_daemon(daemon, &text, err);
    if (r == -ENOMEM)
        r = cordon_fail_errno(err, r, "listing the backends");
    while (text.size && text.data[text.size - 1] == '\n')
        text.size--;
    if (r == 0 && json)
        return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "writing the list") : 0;
    if (r == 0)
        r = print_text(&text, err);
    cordon_buf_done(&text);
    return r;
}

int cordon_cli_backends(int argc, char **argv)
{
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    bool json = false;
    int status = cordon_cli_json_option(argc, argv, help, &json);
    if (status >= 0)
        return status;
    int r = cordon_cli_settings(NULL, NULL, &settings, &err);
    if (r == 0)
        r = act(settings, json, &err);
    cordon_settings_free(settings);
    return r < 0 ? cordon_cli_fail(&err) : 0;
}
