/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/role_args.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cordon_role_args_read(char **argv, struct cordon_settings_input *ret, struct cordon_error *err)
{
    struct cordon_settings_input input = {0};
    size_t i = 1;
    if (argv[0] && argv[i] && strcmp(argv[i], "--oneshot") == 0)
        i++;
    if (argv[i] && strcmp(argv[i], "--config") == 0 && argv[i + 1]) {
        input.file = argv[i + 1];
        i += 2;
    }
    input.flags = (const char *const *)(argv + i);
    for (; argv[i]; i++)
        if (!strchr(argv[i], '='))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a role is given NAME=VALUE, not \"%.64s\"",
                               argv[i]);
    *ret = input;
    return 0;
}

enum { OPTION_LISTEN = 1, OPTION_STATE, OPTION_CONFIG, OPTION_CERT, OPTION_KEY };

static const struct option options[] = {
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"state", required_argument, NULL, OPTION_STATE},
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"tls-cert", required_argument, NULL, OPTION_CERT},
    {"tls-key", required_argument, NULL, OPTION_KEY},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* The setting that an option stands for; --listen may come several times and is joined by commas. */
static const struct {
    int option;
    const char *setting;
} settings[] = {{OPTION_LISTEN, "CORDON_LISTEN"},
                {OPTION_STATE, "CORDON_STATE"},
                {OPTION_CERT, "CORDON_TLS_CERT"},
                {OPTION_KEY, "CORDON_TLS_KEY"}};

static char **find_flag(struct cordon_serve_options *to, const char *setting)
{
    size_t size = strlen(setting);
    for (size_t i = 0; i < to->flag_count; i++)
        if (strncmp(to->flags[i], setting, size) == 0 && to->flags[i][size] == '=')
            return &to->flags[i];
    return NULL;
}

static int add_flag(struct cordon_serve_options *to, int option, const char *value, struct cordon_error *err)
{
    const char *setting = NULL;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].option == option)
            setting = settings[i].setting;
    char **old = find_flag(to, setting);
    char *text = NULL;
    int size = old && option == OPTION_LISTEN ? asprintf(&text, "%s,%s", *old, value)
                                              : asprintf(&text, "%s=%s", setting, value);
    if (size < 0)
        return cordon_fail_errno(err, -ENOMEM, "reading the command line");
    if (old) {
        free(*old);
        *old = text;
    } else {
        to->flags[to->flag_count++] = text; /* at most one a setting: fits */
    }
    return 0;
}

int cordon_serve_options_parse(int argc, char **argv, struct cordon_serve_options *ret, struct cordon_error *err)
{
    *ret = (struct cordon_serve_options){0};
    optind = 0;
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, ":h", options, NULL);
        if (option == -1)
            break;
        if (option == '?' || option == ':')
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s %s", argv[optind - 1],
                               option == ':' ? "needs a value" : "is not an option of cordon serve");
        if (option == 'h')
            ret->help = true;
        else if (option == OPTION_CONFIG)
            ret->config = optarg;
        else if (add_flag(ret, option, optarg, err) < 0)
            return err ? err->code : -ENOMEM;
    }
    if (optind < argc)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "cordon serve takes no argument \"%.64s\"",
                           argv[optind]);
    return 0;
}

void cordon_serve_options_done(struct cordon_serve_options *options_)
{
    for (size_t i = 0; i < options_->flag_count; i++)
        free(options_->flags[i]);
    options_->flag_count = 0;
}
