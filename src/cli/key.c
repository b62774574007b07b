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

#include "cli/cli.h"
#include "store/store.h"
#include "supervisor/state.h"

static const char help[] =
    "usage: cordon key create [--name NAME] [--scope run|admin|view] [--json] [--state DIR] [--config FILE]\n"
    "       cordon key link [--state DIR] [--config FILE]\n"
    "       cordon key list [--json] [--state DIR] [--config FILE]\n"
    "       cordon key revoke ID [--state DIR] [--config FILE]\n"
    "\n"
    "Keys open the daemon's doors; a running daemon knows of a change at once. A key is shown only when\n"
    "it is created: what is kept is its hash.\n"
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
