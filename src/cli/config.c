/* SPDX-License-Identifier: Apache-2.0 */
/* cordon config show | explain NAME | document */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/run_events.h"
#include "store/admin.h"
#include "supervisor/state.h"

static const char help[] =
    "usage: cordon config show [--json] [--config FILE]\n"
    "       cordon config explain NAME [--config FILE]\n"
    "       cordon config unset NAME [--config FILE]\n"
    "       cordon config document\n"
    "\n"
    "Shows every setting with its value and where that came from, or explains one (any of its names), or prints the\n"
    "whole table as the manual has it: of a daemon that is started here and now, by this environment, FILE and what "
    "an\n"
    "admin stored in the state folder (CORDON_STATE). unset forgets what was stored of one: the daemon that runs there "
    "is\n"
    "told; without one the state folder is changed, which also helps where a daemon can't start with it.\n"
    "\n"
    "  --json          one JSON object\n"
    "  --config FILE   settings, NAME=VALUE a line; what was stored goes before it, the environment before both\n";

static const struct option options[] = {
    {"json", no_argument, NULL, 'j'}, {"config", required_argument, NULL, 'c'}, {"help", no_argument, NULL, 'h'}, {0}};

static int explain(const struct cordon_settings *settings, const char *name)
{
    struct cordon_error err = {0};
    if (cordon_settings_explain(settings, name, stdout, &err) == 0)
        return fflush(stdout) == 0 ? 0 : CORDON_EXIT_FAILURE;
    (void)cordon_cli_fail(&err);
    return CORDON_EXIT_USAGE;
}

static int show(const struct cordon_settings *settings, const char *state, bool json)
{
    cordon_settings_show(settings, state, json, stdout);
    return fflush(stdout) == 0 ? 0 : CORDON_EXIT_FAILURE;
}

/* --- what is stored --- */

/* The store of the state folder, opened as its user for good; 0 and NULL where there is none: nothing is made. */
static int open_store(const struct cordon_settings *settings, struct cordon_state *state, struct cordon_store **ret,
                      struct cordon_error *err)
{
    char path[sizeof state->path + sizeof "/cordon.db"];
    const char *place = NULL;
    int r = cordon_state_locate(settings, state, err);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "%s/cordon.db", state->path); /* fits */
    if (access(path, F_OK) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : cordon_fail_errno(err, -errno, "%.400s", path);
    r = cordon_state_open(settings, state, err);
    if (r == 0)
        r = cordon_state_confine(state, &place, err);
    if (r == 0)
        r = cordon_store_open(place, ret, err);
    if (r == 0 &&
        cordon_store_use_key(*ret, cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY)) < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "CORDON_SECRET_KEY is no key"); /* closed by the caller */
    return r;
}

struct stored {
    char **pairs; /* ends with NULL */
    size_t count;
};

static int add_stored(void *context, const struct cordon_stored_setting *setting)
{
    struct stored *to = context;
    char **pairs = reallocarray(to->pairs, to->count + 2, sizeof *pairs);
    if (!pairs)
        return -ENOMEM;
    to->pairs = pairs;
    pairs[to->count] = pairs[to->count + 1] = NULL;
    if (asprintf(&pairs[to->count], "%s=%s", setting->name, setting->value) < 0) {
        pairs[to->count] = NULL;
        return -ENOMEM;
    }
    to->count++;
    return 0;
}

static void free_stored(struct stored *stored)
{
    for (size_t i = 0; i < stored->count; i++) {
        explicit_bzero(stored->pairs[i], strlen(stored->pairs[i])); /* there may be secrets among them */
        free(stored->pairs[i]);
    }
    free(stored->pairs);
}

/* What an admin stored counts as it does for the daemon. Where it can't be read that is told, and the rest shown. */
static void take_stored(struct cordon_settings *settings)
{
    struct cordon_state state = {.fd = -1};
    struct cordon_store *store = NULL;
    struct stored stored = {0};
    struct cordon_error err = {0};
    int r = open_store(settings, &state, &store, &err);
    if (r == 0 && store)
        r = cordon_stored_settings_list(store, add_stored, &stored, &err);
    if (r == 0 && stored.count)
        r = cordon_settings_store(settings, (const char *const *)stored.pairs, &err);
    if (r < 0)
        (void)fprintf(stderr, "cordon: note: shown without what is stored in the state folder: %s\n",
                      err.message); /* nobody to tell */
    free_stored(&stored);
    cordon_store_close(store);
    cordon_state_close(&state);
}

/* --- unset --- */

/* 1: a daemon runs, and has forgotten it; 0: none answers. */
static int unset_by_daemon(const struct cordon_settings *settings, const char *name, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(4u << 20);
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_autoclose int fd = cordon_daemon_connect_within(settings, CORDON_DAEMON_ANSWER_S, err);
    if (fd < 0)
        return fd == -ENOENT || fd == -ECONNREFUSED ? 0 : fd; /* one that can't start leaves its socket */
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "values");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, name);
    cordon_json_null(&json);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    int r = cordon_daemon_send(fd, "PUT", "/v1/admin/settings", "application/json", &body, err);
    while (r == 0 && (r = cordon_daemon_read(fd, &http, err)) > 0)
        r = 0;
    if (r == 0 && http.status >= 300)
        r = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    cordon_buf_done(&body);
    cordon_http_reader_done(&http);
    return r < 0 ? r : 1;
}

/* A daemon that can't do it, for want of its key, say, or does not answer, is the one that this is for. */
static bool must_do_without(int r, const struct cordon_error *err)
{
    if (r < 0 && err->kind == CORDON_ERROR_INFRASTRUCTURE)
        (void)fprintf(
            stderr,
            "cordon: note: the daemon did not forget it (%s): it is forgotten in the state folder, which counts "
            "for the daemon from its next start on\n",
            err->message); /* nobody to tell */
    return r == 0 || err->kind == CORDON_ERROR_INFRASTRUCTURE;
}

static int unset_here(const struct cordon_settings *settings, const struct cordon_setting_change *change,
                      struct cordon_error *err)
{
    struct cordon_state state = {.fd = -1};
    struct cordon_store *store = NULL;
    int r = open_store(settings, &state, &store, err);
    if (r == 0 && store)
        r = cordon_stored_settings_write(store, change, 1, CORDON_SETTINGS_ANY, "local", err);
    if (r == 0 && !store)
        (void)fprintf(stderr, "cordon: nothing is stored in %s\n", state.path); /* nobody to tell */
    cordon_store_close(store);
    cordon_state_close(&state);
    return r;
}

static int unset(const struct cordon_settings *settings, const char *name, struct cordon_error *err)
{
    struct cordon_setting_change change = {.value = NULL};
    if (!cordon_settings_row(name, &change.name, &change.secret))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "%.80s is no setting; `cordon config show` lists them",
                           name);
    int r = unset_by_daemon(settings, change.name, err);
    return r > 0 || !must_do_without(r, err) ? r : unset_here(settings, &change, err);
}

static int act(struct cordon_settings *settings, int argc, char **argv, bool json)
{
    bool shows = argc == 1 && strcmp(argv[0], "show") == 0, explains = argc == 2 && strcmp(argv[0], "explain") == 0;
    if (shows || explains) {
        struct cordon_state state;
        bool known = cordon_state_locate(settings, &state, NULL) == 0; /* without HOME there is none */
        take_stored(settings); /* as root: we are another user from here on, and see that folder alone */
        return shows ? show(settings, known ? state.path : NULL, json) : explain(settings, argv[1]);
    }
    if (argc == 2 && strcmp(argv[0], "unset") == 0) {
        struct cordon_error err = {0};
        return unset(settings, argv[1], &err) < 0 ? cordon_cli_fail(&err) : 0;
    }
    if (argc == 1 && strcmp(argv[0], "document") == 0) {
        cordon_settings_document(stdout);
        return fflush(stdout) == 0 ? 0 : CORDON_EXIT_FAILURE;
    }
    return cordon_cli_usage("config", "give show, document, or explain or unset and one setting's name");
}

int cordon_cli_config(int argc, char **argv)
{
    const char *file = NULL;
    bool json = false;
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option == 'j')
            json = true;
        else if (option == 'c')
            file = optarg;
        else
            return cordon_cli_bad_option("config", argv, option);
    }
    if (cordon_cli_settings(file, NULL, &settings, &err) < 0)
        return cordon_cli_fail(&err);
    int status = act(settings, argc - optind, argv + optind, json);
    cordon_settings_free(settings);
    return status;
}
