/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cordon key create | list | revoke. The database belongs to the gateway's user; as root we become that user before it
 * is opened (supervisor/state.h).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/run_events.h"
#include "core/value.h"
#include "store/store.h"
#include "supervisor/state.h"

static const char help[] =
    "usage: cordon key create [--name NAME] [--scope run|admin|view] [--json] [--state DIR] [--config FILE]\n"
    "       cordon key link [--state DIR] [--config FILE]\n"
    "       cordon key list [--json] [--state DIR] [--config FILE]\n"
    "       cordon key revoke ID [--state DIR] [--config FILE]\n"
    "\n"
    "Keys open the daemon's doors; a running daemon knows of a change at once. A key is shown only when\n"
    "it is created: what is kept is its hash. link prints an address of the admin page that logs in once: of the "
    "daemon\n"
    "that runs there; without one, of the settings as they are here.\n"
    "\n"
    "  --name NAME    for people to tell keys apart\n"
    "  --scope WHAT   run (the default), admin, which may do all, or view, which may only look\n"
    "  --json         JSON instead of text\n"
    "  --state DIR    the daemon's state folder (CORDON_STATE)\n"
    "  --config FILE  settings, as for cordon serve\n";

struct arguments {
    const char *name, *file;
    enum cordon_key_scope scope;
    bool json;
    char *flags[2];
};

static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                        {"scope", required_argument, NULL, 's'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"state", required_argument, NULL, 'd'},
                                        {"config", required_argument, NULL, 'c'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

static void write_time(struct cordon_json *json, const char *key, int64_t seconds)
{
    cordon_json_key(json, key);
    if (seconds)
        cordon_json_int(json, seconds);
    else
        cordon_json_null(json);
}

static void write_info(struct cordon_json *json, const struct cordon_key_info *info)
{
    cordon_json_key(json, "id");
    cordon_json_text(json, info->id);
    cordon_json_key(json, "name");
    cordon_json_text(json, info->name);
    cordon_json_key(json, "scope");
    cordon_json_text(json, cordon_key_scope_name(info->scope));
    write_time(json, "created_s", info->created_s);
    write_time(json, "revoked_s", info->revoked_s);
}

static int create(struct cordon_store *store, const struct arguments *arguments, struct cordon_error *err)
{
    char key[CORDON_KEY_TEXT];
    struct cordon_key_info info;
    int r = cordon_key_create(store, arguments->name, arguments->scope, key, &info, err);
    if (r < 0)
        return r;
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    if (arguments->json) {
        struct cordon_json json = {.buf = &text};
        cordon_json_object_begin(&json);
        write_info(&json, &info);
        cordon_json_key(&json, "key");
        cordon_json_text(&json, key);
        cordon_json_object_end(&json);
    } else {
        (void)cordon_buf_appends(&text, key); /* sticky, seen by print */
    }
    explicit_bzero(key, sizeof key);
    if (cordon_cli_print(&text) != 0)
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE,
                           "key %s was made but could not be written to stdout; revoke it", info.id);
    if (!arguments->json)
        (void)fprintf(stderr, "cordon: key %s, scope %s; it is not shown again\n", info.id,
                      cordon_key_scope_name(info.scope));
    return 0;
}

struct listing {
    bool as_json;
    struct cordon_buf text;
    struct cordon_json json;
};

static int list_one(void *context, const struct cordon_key_info *key)
{
    struct listing *listing = context;
    char created[32] = "?";
    struct tm when;
    time_t seconds = (time_t)key->created_s;
    if (listing->as_json) {
        cordon_json_object_begin(&listing->json);
        write_info(&listing->json, key);
        cordon_json_object_end(&listing->json);
        return 0;
    }
    if (gmtime_r(&seconds, &when))
        (void)strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &when); /* fits */
    return cordon_buf_appendf(&listing->text, "\n%s  %-5s  %s  %-7s  %s", key->id, cordon_key_scope_name(key->scope),
                              created, key->revoked_s ? "revoked" : "", key->name);
}

static int list(struct cordon_store *store, const struct arguments *arguments, struct cordon_error *err)
{
    struct listing listing = {.as_json = arguments->json, .text = CORDON_BUF_INIT(64u << 20)};
    listing.json.buf = &listing.text;
    if (arguments->json)
        cordon_json_array_begin(&listing.json);
    else
        (void)cordon_buf_appends(&listing.text, "id                scope  created               state    name");
    int r = cordon_key_list(store, list_one, &listing, err);
    if (r < 0) {
        cordon_buf_done(&listing.text);
        return r;
    }
    if (arguments->json)
        cordon_json_array_end(&listing.json);
    return cordon_cli_print(&listing.text) ? cordon_fail_errno(err, -EIO, "writing the list") : 0;
}

static int make_link(struct cordon_store *store, const struct cordon_settings *settings, struct cordon_error *err)
{
    char link[CORDON_LINK_TEXT];
    int r = cordon_link_create(store, link, err);
    if (r < 0)
        return r;
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    cordon_state_link(settings, link, &text);
    explicit_bzero(link, sizeof link);
    return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "writing the link") : 0;
}

/* The flags by which settings here have the address of the daemon that runs; 0 flags: none runs. */
struct address {
    char *flags[5]; /* the state folder's, three of these, NULL */
    size_t count;
};

static const char *const of_the_address[] = {"CORDON_LISTEN", "CORDON_TLS_CERT", "CORDON_TLS_KEY"};

static int take_setting(struct address *to, const struct cordon_value *row)
{
    struct cordon_value name, value;
    if (!cordon_value_member(row, "name", &name) || !cordon_value_member(row, "value", &value) ||
        value.kind != CORDON_VALUE_STRING)
        return 0;
    for (size_t i = 0; i < sizeof of_the_address / sizeof *of_the_address; i++) {
        if (!cordon_value_equals(&name, of_the_address[i]))
            continue;
        cordon_autofree char *text = calloc(1, value.size + 1);
        if (!text || cordon_value_string(&value, text) < 0 ||
            asprintf(&to->flags[to->count], "%s=%s", of_the_address[i], text) < 0) {
            to->flags[to->count] = NULL;
            return -ENOMEM;
        }
        to->count++;
    }
    return 0;
}

/* 1: a daemon runs, and to has what it says; 0: none can be asked. */
static int ask_address(const struct cordon_settings *settings, struct address *to, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(8u << 20);
    struct cordon_value object, list, key, row;
    cordon_autoclose int fd = cordon_daemon_connect_within(settings, CORDON_DAEMON_ANSWER_S, err);
    if (fd < 0)
        return 0; /* a link can be made without it */
    int r = cordon_daemon_get(fd, "/v1/admin/settings", &http, err);
    if (r == 0 && http.status != 200)
        r = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    if (r == 0)
        r = cordon_value_parse(http.body.data, http.body.size, &object, err);
    if (r == 0 && cordon_value_member(&object, "settings", &list) && list.kind == CORDON_VALUE_ARRAY) {
        struct cordon_value_walk walk = cordon_value_walk(&list);
        while (r == 0 && to->count < sizeof to->flags / sizeof *to->flags - 1 && cordon_value_next(&walk, &key, &row))
            r = row.kind == CORDON_VALUE_OBJECT ? take_setting(to, &row) : 0;
    }
    cordon_http_reader_done(&http);
    return r < 0 ? r : 1;
}

/* Where the link leads: to the daemon that runs, whatever is set here. Before privilege is given up, which hides it. */
static int settle_address(struct cordon_settings **settings, const char *file, const char *state,
                          struct cordon_error *err)
{
    struct cordon_settings *own = *settings;
    struct address address = {.count = 0};
    if (state && !(address.flags[address.count++] = strdup(state)))
        return cordon_fail_errno(err, -ENOMEM, "asking the daemon");
    int r = ask_address(own, &address, err);
    if (r == 0)
        (void)fputs("cordon: note: no daemon answers in the state folder: the address is that of the settings here\n",
                    stderr); /* nobody to tell */
    else if (r > 0 && (r = cordon_cli_settings(file, (const char *const *)address.flags, settings, err)) == 0)
        cordon_settings_free(own);
    for (size_t i = 0; i < address.count; i++)
        free(address.flags[i]);
    return r < 0 ? r : 0;
}

/* action is one of the four; id is set for revoke. */
static int act(const struct cordon_settings *settings, const char *action, const char *id,
               const struct arguments *arguments, struct cordon_error *err)
{
    struct cordon_state state = {.fd = -1};
    struct cordon_store *store = NULL;
    const char *path = NULL;
    int r = cordon_state_open(settings, &state, err);
    if (r == 0)
        r = cordon_state_confine(&state, &path, err);
    if (r == 0)
        r = cordon_store_open(path, &store, err);
    if (r < 0 && path)
        cordon_error_context(err, "%s/cordon.db", state.path);
    if (r == 0 && strcmp(action, "create") == 0)
        r = create(store, arguments, err);
    else if (r == 0 && strcmp(action, "list") == 0)
        r = list(store, arguments, err);
    else if (r == 0 && strcmp(action, "link") == 0)
        r = make_link(store, settings, err);
    else if (r == 0)
        r = cordon_key_revoke(store, id, err);
    cordon_store_close(store);
    cordon_state_close(&state);
    return r;
}

static int parse(int argc, char **argv, struct arguments *ret)
{
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option == 'n')
            ret->name = optarg;
        else if (option == 'j')
            ret->json = true;
        else if (option == 'c')
            ret->file = optarg;
        else if (option == 's' && !cordon_key_scope_parse(optarg, &ret->scope))
            return cordon_cli_usage("key", "--scope is run, admin or view, not \"%.40s\"", optarg);
        else if (option == 's')
            continue;
        else if (option == 'd') {
            free(ret->flags[0]);
            if (asprintf(&ret->flags[0], "CORDON_STATE=%s", optarg) < 0) {
                ret->flags[0] = NULL;
                return CORDON_EXIT_FAILURE;
            }
        } else
            return cordon_cli_bad_option("key", argv, option);
    }
    return -1;
}

static int run_command(const struct arguments *arguments, int argc, char **argv)
{
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    const char *action = argc ? argv[0] : "";
    bool plain =
        argc == 1 && (strcmp(action, "create") == 0 || strcmp(action, "list") == 0 || strcmp(action, "link") == 0);
    if (!plain && !(argc == 2 && strcmp(action, "revoke") == 0))
        return cordon_cli_usage("key", "give create, list, link, or revoke and one key's id");
    int r = cordon_cli_settings(arguments->file, (const char *const *)arguments->flags, &settings, &err);
    if (r == 0 && strcmp(action, "link") == 0)
        r = settle_address(&settings, arguments->file, arguments->flags[0], &err);
    if (r == 0)
        r = act(settings, action, argv[1], arguments, &err);
    cordon_settings_free(settings);
    return r < 0 ? cordon_cli_fail(&err) : 0;
}

int cordon_cli_key(int argc, char **argv)
{
    struct arguments arguments = {.name = "unnamed", .scope = CORDON_KEY_RUN};
    int status = parse(argc, argv, &arguments);
    if (status < 0)
        status = run_command(&arguments, argc - optind, argv + optind);
    free(arguments.flags[0]);
    return status;
}
