/* SPDX-License-Identifier: Apache-2.0 */
/* cordon config show | explain NAME | document */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "store/admin.h"
#include "supervisor/state.h"

static const char help[] =
    "usage: cordon config show [--json] [--config FILE]\n"
    "       cordon config explain NAME [--config FILE]\n"
    "       cordon config unset NAME [--config FILE]\n"
    "       cordon config document\n"
    "\n"
    "Shows every setting with its value and where that came from, or explains one (any of its names),\n"
    "or prints the whole table as the manual has it. unset forgets what the admin page stored of one, also where\n"
    "the daemon can't start with it; a daemon that runs is asked by its admin page instead.\n"
    "\n"
    "  --json          one JSON object\n"
    "  --config FILE   settings, NAME=VALUE a line; the environment goes before it\n";

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

static int show(const struct cordon_settings *settings, bool json)
{
    struct cordon_state state;
    bool known = cordon_state_locate(settings, &state, NULL) == 0; /* without HOME there is none */
    cordon_settings_show(settings, known ? state.path : NULL, json, stdout);
    return fflush(stdout) == 0 ? 0 : CORDON_EXIT_FAILURE;
}

static int unset(const struct cordon_settings *settings, const char *name, struct cordon_error *err)
{
    struct cordon_state state = {.fd = -1};
    struct cordon_store *store = NULL;
    struct cordon_setting_change change = {.value = NULL};
    const char *path = NULL;
    if (!cordon_settings_row(name, &change.name, &change.secret))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "%.80s is no setting; `cordon config show` lists them",
                           name);
    int r = cordon_state_open(settings, &state, err);
    if (r == 0)
        r = cordon_state_confine(&state, &path, err);
    if (r == 0)
        r = cordon_store_open(path, &store, err);
    if (r == 0)
        r = cordon_stored_settings_write(store, &change, 1, CORDON_SETTINGS_ANY, "local", err);
    cordon_store_close(store);
    cordon_state_close(&state);
    return r;
}

static int act(const struct cordon_settings *settings, int argc, char **argv, bool json)
{
    if (argc == 1 && strcmp(argv[0], "show") == 0)
        return show(settings, json);
    if (argc == 2 && strcmp(argv[0], "explain") == 0)
        return explain(settings, argv[1]);
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
