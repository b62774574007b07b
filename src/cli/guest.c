/* SPDX-License-Identifier: Apache-2.0 */
/* cordon guest: guests that are kept by the daemon. */
#include "cli/guest.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/headers.h"
#include "cli/run_events.h"

static const char help[] =
    "usage: cordon guest ACTION [OPTIONS] [ARGUMENTS]\n"
    "\n"
    "Guests that are kept: files, installed packages and processes stay. They live with the daemon of the state "
    "folder.\n"
    "GUEST is a guest's id or its name.\n"
    "\n"
    "  create [NAME]            makes one and prints its id (--template, -b, -m, --disk, -e, --meta, --network,\n"
    "                           --allow-domain, --header, --ttl, --idle, --auto-resume)\n"
    "  list                     those there are (--name PATTERN, --template, --idle DURATION, --all: also those that "
    "are\n"
    "                           gone, and why)\n"
    "  show GUEST               all that is known of it\n"
    "  log GUEST                what happened to it\n"
    "  exec GUEST COMMAND...    runs a command in it, ends with its exit status (-e, -u, -w, -t, --stdin, "
    "--background)\n"
    "  egress GUEST             what it reached and may reach; with --allow-domain, --header, --network or --off: "
    "sets\n"
    "                           that anew, at once\n"
    "  ps GUEST                 the programs that were started in it\n"
    "  cell GUEST -c CODE       runs a cell in a context that keeps its state (-l, --context ID, -t)\n"
    "  put GUEST LOCAL PATH     copies a file into it; - for stdin (--mode, -u)\n"
    "  get GUEST PATH [LOCAL]   copies a file out of it; to stdout without LOCAL\n"
    "  ls GUEST [PATH]          a directory's entries\n"
    "  pause GUEST...           freezes it; resume lets it go on (--ttl)\n"
    "  resume GUEST...\n"
    "  extend GUEST             sets how long it lives from now on (--ttl) and when it pauses (--idle)\n"
    "  rm GUEST...              ends it; or --name PATTERN [--idle DURATION]: all that fit; --forget: gives up what\n"
    "                           can't be ended\n"
    "\n"
    "  -b, --backend NAME       -m, --memory MB          -e, --env NAME=VALUE   -t, --timeout SECONDS\n"
    "  -u, --user NAME          -w, --cwd DIR            -l, --language NAME    -c, --code CODE\n"
    "      --template NAME      --disk MB                --meta KEY=VALUE       --ttl DURATION    --idle DURATION\n"
    "      --name PATTERN       --stdin FILE             --mode OCTAL           --context ID      --state DIR\n"
    "      --network            --allow-domain D         --auto-resume          --background      --all    --json\n"
    "      --off                --header \"HOST NAME: @FILE\" (or $VARIABLE): put into its requests to that host;\n"
    "                                                alone: the network is that host\n"
    "\n"
    "An option that means nothing to the action is refused.\n"
    "DURATION is a number of seconds, or one with m, h or d behind it: 90, 15m, 6h, 7d.\n";

static const struct {
    const char *name;
    cordon_guest_action *act;
    int least, most;       /* arguments; most -1: any number */
    const char *arguments; /* as the usage has them */
    const char *takes;     /* the options that mean something to it, besides --state and --json */
} actions[] = {
    {"create", cordon_guest_do_create, 0, 1, "[NAME]",
     "template backend memory disk env meta network allow-domain header ttl idle auto-resume"},
    {"list", cordon_guest_do_list, 0, 0, "", "name template idle all"},
    {"show", cordon_guest_do_show, 1, 1, "GUEST", ""},
    {"log", cordon_guest_do_log, 1, 1, "GUEST", ""},
    {"exec", cordon_guest_do_exec, 2, -1, "GUEST COMMAND...", "env user cwd timeout stdin background"},
    {"ps", cordon_guest_do_ps, 1, 1, "GUEST", ""},
    {"cell", cordon_guest_do_cell, 1, 1, "GUEST", "code language context env timeout"},
    {"put", cordon_guest_do_put, 3, 3, "GUEST LOCAL PATH", "mode user"},
    {"get", cordon_guest_do_get, 2, 3, "GUEST PATH [LOCAL]", "user"},
    {"ls", cordon_guest_do_ls, 1, 2, "GUEST [PATH]", "user"},
    {"pause", cordon_guest_do_pause, 1, -1, "GUEST...", ""},
    {"resume", cordon_guest_do_resume, 1, -1, "GUEST...", "ttl"},
    {"extend", cordon_guest_do_extend, 1, 1, "GUEST", "ttl idle"},
    {"rm", cordon_guest_do_rm, 0, -1, "GUEST...", "name template idle forget"},
    {"egress", cordon_guest_do_egress, 1, 1, "GUEST", "network allow-domain header off"},
};

enum {
    OPTION_TEMPLATE = 1,
    OPTION_DISK,
    OPTION_META,
    OPTION_TTL,
    OPTION_IDLE,
    OPTION_NAME,
    OPTION_STDIN,
    OPTION_MODE,
    OPTION_CONTEXT,
    OPTION_STATE,
    OPTION_NETWORK,
    OPTION_DOMAIN,
    OPTION_HEADER,
    OPTION_OFF,
    OPTION_AUTO_RESUME,
    OPTION_BACKGROUND,
    OPTION_ALL,
    OPTION_FORGET,
    OPTION_JSON
};

static const struct option options[] = {
    {"backend", required_argument, NULL, 'b'},
    {"memory", required_argument, NULL, 'm'},
    {"env", required_argument, NULL, 'e'},
    {"timeout", required_argument, NULL, 't'},
    {"user", required_argument, NULL, 'u'},
    {"cwd", required_argument, NULL, 'w'},
    {"language", required_argument, NULL, 'l'},
    {"code", required_argument, NULL, 'c'},
    {"template", required_argument, NULL, OPTION_TEMPLATE},
    {"disk", required_argument, NULL, OPTION_DISK},
    {"meta", required_argument, NULL, OPTION_META},
    {"ttl", required_argument, NULL, OPTION_TTL},
    {"idle", required_argument, NULL, OPTION_IDLE},
    {"name", required_argument, NULL, OPTION_NAME},
    {"stdin", required_argument, NULL, OPTION_STDIN},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"state", required_argument, NULL, OPTION_STATE},
    {"network", no_argument, NULL, OPTION_NETWORK},
    {"allow-domain", required_argument, NULL, OPTION_DOMAIN},
    {"header", required_argument, NULL, OPTION_HEADER},
    {"off", no_argument, NULL, OPTION_OFF},
    {"auto-resume", no_argument, NULL, OPTION_AUTO_RESUME},
    {"background", no_argument, NULL, OPTION_BACKGROUND},
    {"all", no_argument, NULL, OPTION_ALL},
    {"forget", no_argument, NULL, OPTION_FORGET},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, 'h'},
    {0},
};

int cordon_guest_status;

static int add_word(struct cordon_words *words, const char *word)
{
    if (words->count == CORDON_RUN_OPTIONS_MAX)
        return cordon_cli_usage("guest", "too many of one option, at \"%.40s\"", word);
    words->items[words->count++] = word;
    return 0;
}

static int add_pair(struct cordon_words *words, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return cordon_cli_usage("guest", "give NAME=VALUE, not \"%.40s\"", word);
    return add_word(words, word);
}

/* Where the value of an option with one goes. */
static const char **place_of(struct cordon_guest_options *to, int option)
{
    const struct {
        int option;
        const char **to;
    } places[] = {{'b', &to->backend},
                  {'m', &to->memory_mb},
                  {'t', &to->timeout_s},
                  {'u', &to->user},
                  {'w', &to->cwd},
                  {'l', &to->language},
                  {'c', &to->code},
                  {OPTION_TEMPLATE, &to->template_name},
                  {OPTION_DISK, &to->disk_mb},
                  {OPTION_TTL, &to->ttl_s},
                  {OPTION_IDLE, &to->idle},
                  {OPTION_NAME, &to->name},
                  {OPTION_STDIN, &to->stdin_file},
                  {OPTION_MODE, &to->mode},
                  {OPTION_CONTEXT, &to->context},
                  {OPTION_STATE, &to->state}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].option == option)
            return places[i].to;
    return NULL;
}

/* -1 to go on, else the exit status. */
static int take(struct cordon_guest_options *to, int option)
{
    const char **place = place_of(to, option);
    int status = 0;
    if (place)
        *place = optarg;
    else if (option == 'e')
        status = add_pair(&to->env, optarg);
    else if (option == OPTION_META)
        status = add_pair(&to->metadata, optarg);
    else if (option == OPTION_DOMAIN)
        status = add_word(&to->domains, optarg);
    else if (option == OPTION_HEADER)
        status = cordon_cli_header_ok(optarg)
                     ? add_word(&to->headers, optarg)
                     : cordon_cli_usage("guest", "--header: give \"HOST NAME: @FILE\" or \"HOST NAME: $VARIABLE\"");
    to->network = to->network || option == OPTION_NETWORK;
    to->off = to->off || option == OPTION_OFF;
    to->auto_resume = to->auto_resume || option == OPTION_AUTO_RESUME;
    to->background = to->background || option == OPTION_BACKGROUND;
    to->all = to->all || option == OPTION_ALL;
    to->forget = to->forget || option == OPTION_FORGET;
    to->json = to->json || option == OPTION_JSON;
    return status ? status : -1;
}

/* Of what getopt_long returned. */
static const char *option_name(int option)
{
    size_t i = 0;
    while (options[i].name && options[i].val != option)
        i++;
    return options[i].name ? options[i].name : "";
}

static bool is_taken(size_t action, int option)
{
    const char *takes = actions[action].takes, *name = option_name(option);
    size_t size = strlen(name);
    for (const char *at = takes; (at = strstr(at, name)); at += size)
        if ((at == takes || at[-1] == ' ') && (at[size] == ' ' || !at[size]))
            return true;
    return option == OPTION_STATE || option == OPTION_JSON;
}

static int refuse_option(size_t action, int option)
{
    if (option == OPTION_NAME && strcmp(actions[action].name, "create") == 0)
        return cordon_cli_usage("guest", "create has no --name: the name is its argument, create %.80s", optarg);
    return cordon_cli_usage("guest", "--%s means nothing to %s", option_name(option), actions[action].name);
}

/* For exec the options end at the first argument behind the guest: what follows is the command's. */
static int parse(int argc, char **argv, size_t action, struct cordon_guest_options *ret)
{
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+:b:m:e:t:u:w:l:c:h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option == '?' || option == ':')
            return cordon_cli_bad_option("guest", argv, option);
        if (!is_taken(action, option))
            return refuse_option(action, option);
        int status = take(ret, option);
        if (status >= 0)
            return status;
    }
    return -1;
}

/* Options may stand before and between the arguments, but for exec's command. argv[0] is the action. */
static int parse_all(int argc, char **argv, size_t action, struct cordon_guest_options *ret)
{
    bool is_exec = strcmp(actions[action].name, "exec") == 0;
    char **found = calloc((size_t)argc + 1, sizeof *found);
    if (!found)
        return CORDON_EXIT_FAILURE;
    ret->argv = found;
    for (int status; argc > 1; argc -= optind, argv += optind) {
        status = parse(argc, argv, action, ret);
        if (status >= 0)
            return status;
        if (optind >= argc)
            break;
        found[ret->argc++] = argv[optind];
        for (int i = optind + 1; is_exec && ret->argc > 1 && i < argc; i++)
            found[ret->argc++] = argv[i];
        if (is_exec && ret->argc > 1)
            break;
    }
    return -1;
}

int cordon_guest_connect(struct cordon_guest_call *call, struct cordon_error *err)
{
    int fd = cordon_daemon_connect(call->settings, err);
    if (fd == -ENOENT)
        return cordon_fail(
            err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
            "no daemon answers in the state folder, and guests live with one: start cordon serve, or give "
            "its folder with --state");
    return fd;
}

int cordon_guest_ask(struct cordon_guest_call *call, const char *method, const char *path,
                     const struct cordon_buf *body, struct cordon_buf *reply, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(256u << 20);
    cordon_autoclose int fd = cordon_guest_connect(call, err);
    int r = fd < 0 ? fd : cordon_daemon_send(fd, method, path, "application/json", body, err);
    while (r == 0 && (r = cordon_daemon_read(fd, &http, err)) > 0)
        r = 0;
    const char *text = http.body.data ? http.body.data : "";
    if (r == 0 && http.status >= 300)
        r = cordon_error_read(text, http.body.size, err);
    else if (r == 0 && reply && cordon_buf_append(reply, text, http.body.size) < 0)
        r = cordon_fail_errno(err, -ENOMEM, "reading the daemon's answer");
    cordon_http_reader_done(&http);
    return r;
}

int cordon_guest_path(struct cordon_buf *to, const char *name, const char *rest, struct cordon_error *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (!*name || strspn(name, letters) != strlen(name))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "\"%.80s\" is no guest's id or name: those have letters, digits and ._- only", name);
    (void)cordon_buf_appendf(to, "/v1/guests/%s%s", name, rest); /* sticky */
    return to->failed ? cordon_fail_errno(err, -ENOMEM, "asking the daemon") : 0;
}

void cordon_guest_escape(struct cordon_buf *to, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("-_.~/", c);
        if (plain)
            (void)cordon_buf_append(to, text, 1); /* sticky, as the next */
        else
            (void)cordon_buf_appendf(to, "%%%02X", c);
    }
}

void cordon_guest_write_text(struct cordon_json *json, const char *name, const char *text)
{
    if (!text)
        return;
    cordon_json_key(json, name);
    cordon_json_text(json, text);
}

void cordon_guest_write_pairs(struct cordon_json *json, const char *name, const struct cordon_words *words)
{
    if (!words->count)
        return;
    cordon_json_key(json, name);
    cordon_json_object_begin(json);
    for (size_t i = 0; i < words->count; i++) {
        char key[512];
        const char *equals = strchr(words->items[i], '=');
        (void)snprintf(key, sizeof key, "%.*s", (int)(equals - words->items[i]), words->items[i]); /* cut: refused */
        cordon_json_key(json, key);
        cordon_json_text(json, equals + 1);
    }
    cordon_json_object_end(json);
}

int cordon_guest_duration(const char *text, const char *option, double *ret, struct cordon_error *err)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    char *end;
    double value = strtod(text, &end);
    bool plain = *text >= '0' && *text <= '9' && end != text;
    for (size_t i = 0; plain && i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) != 0)
            continue;
        *ret = value * units[i].seconds;
        return 0;
    }
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s \"%.40s\": give seconds, or a number with m, h or d",
                       option, text);
}

static int run_action(size_t i, const struct cordon_guest_options *asked)
{
    struct cordon_error err = {0};
    struct cordon_guest_call call = {.options = asked};
    cordon_autofree char *state = NULL;
    const char *flags[] = {NULL, NULL};
    if (asked->argc < actions[i].least || (actions[i].most >= 0 && asked->argc > actions[i].most))
        return cordon_cli_usage("guest", "usage: cordon guest %s %s%s", actions[i].name,
                                *actions[i].takes ? "[OPTIONS] " : "", actions[i].arguments);
    if (asked->state && asprintf(&state, "CORDON_STATE=%s", asked->state) < 0)
        return CORDON_EXIT_FAILURE;
    flags[0] = state;
    int r = cordon_cli_settings(NULL, flags, &call.settings, &err);
    if (r == 0)
        r = actions[i].act(&call, &err);
    cordon_settings_free(call.settings);
    return r < 0 ? cordon_cli_fail(&err) : cordon_guest_status;
}

int cordon_cli_guest(int argc, char **argv)
{
    struct cordon_guest_options asked = {0};
    const char *name = argc > 1 ? argv[1] : "";
    if (!*name || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        (void)fputs(help, *name ? stdout : stderr); /* nobody to tell */
        return *name ? 0 : CORDON_EXIT_USAGE;
    }
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, name) != 0)
            continue;
        int status = parse_all(argc - 1, argv + 1, i, &asked);
        if (status < 0)
            status = run_action(i, &asked);
        free(asked.argv);
        return status;
    }
    return cordon_cli_usage("guest", "\"%.40s\" is no action", name);
}
