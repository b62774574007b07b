/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/headers.h"

const char cordon_run_help[] =
    "usage: cordon run [OPTIONS] [FILE | - | -c CODE]\n"
    "\n"
    "Runs a program in a fresh guest and ends with its exit status. The daemon of the state folder is asked where one\n"
    "answers; else everything is started for this run alone.\n"
    "\n"
    "  FILE                   the program; - reads it from stdin\n"
    "  -c, --code CODE        the program's text itself\n"
    "  -l, --language NAME    python, javascript or bash; else by FILE's ending or #! line; python for - and -c\n"
    "  -b, --backend NAME     where it runs (CORDON_BACKEND)\n"
    "      --template NAME    what it starts from (cordon template list); else the default\n"
    "  -t, --timeout SECONDS  wall-clock limit\n"
    "  -m, --memory MB        memory limit in MiB\n"
    "  -e, --env NAME=VALUE   in its environment; may come several times\n"
    "      --args JSON        an object: the program's main is called with it and its result printed\n"
    "      --stdin FILE       its stdin, - for our own; else it is empty\n"
    "      --put LOCAL:GUEST  a file for it to find; may come several times\n"
    "      --artifacts DIR    where to write the files that it makes\n"
    "      --network          with network; refused where policy or backend don't allow it\n"
    "      --allow-domain D   with network, to this name; may come several times\n"
    "      --policy NAME      native; or langflow: by the LANGFLOW_SANDBOX_ settings and Langflow's rules\n"
    "      --header H         \"HOST NAME: @FILE\" or \"HOST NAME: $VARIABLE\": put into its requests to that host\n"
    "                         without being in the guest; may come several times. Without --network and\n"
    "                         --allow-domain the network is that host\n"
    "      --fresh            a new interpreter, sharing no memory image with other runs\n"
    "      --json             one JSON object instead of the program's output, also when it failed\n"
    "      --state DIR        the daemon's state folder (CORDON_STATE)\n"
    "\n"
    "Exit status: the program's own (128 + signal where one ended it), 2 wrong usage, 124 a time or output limit "
    "ended\n"
    "it, 125 the sandbox failed, 126 refused by policy, 130 or 143 interrupted, 137 memory limit.\n";

enum {
    OPTION_ARGS = 1,
    OPTION_STDIN,
    OPTION_PUT,
    OPTION_ARTIFACTS,
    OPTION_NETWORK,
    OPTION_DOMAIN,
    OPTION_HEADER,
    OPTION_FRESH,
    OPTION_JSON,
    OPTION_STATE,
    OPTION_TEMPLATE,
    OPTION_GUEST,
    OPTION_POLICY
};

static const struct option options[] = {
    {"code", required_argument, NULL, 'c'},
    {"language", required_argument, NULL, 'l'},
    {"backend", required_argument, NULL, 'b'},
    {"template", required_argument, NULL, OPTION_TEMPLATE},
    {"timeout", required_argument, NULL, 't'},
    {"memory", required_argument, NULL, 'm'},
    {"env", required_argument, NULL, 'e'},
    {"args", required_argument, NULL, OPTION_ARGS},
    {"stdin", required_argument, NULL, OPTION_STDIN},
    {"put", required_argument, NULL, OPTION_PUT},
    {"artifacts", required_argument, NULL, OPTION_ARTIFACTS},
    {"network", no_argument, NULL, OPTION_NETWORK},
    {"allow-domain", required_argument, NULL, OPTION_DOMAIN},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"header", required_argument, NULL, OPTION_HEADER},
    {"fresh", no_argument, NULL, OPTION_FRESH},
    {"json", no_argument, NULL, OPTION_JSON},
    {"state", required_argument, NULL, OPTION_STATE},
    {"guest", required_argument, NULL, OPTION_GUEST},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int wrong(struct cordon_error *err, const char *option, const char *value, const char *want)
{
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s \"%.80s\": %s", option, value, want);
}

static int add_word(struct cordon_words *words, const char *option, const char *word, struct cordon_error *err)
{
    if (words->count == CORDON_RUN_OPTIONS_MAX)
        return wrong(err, option, word, "too many of these");
    words->items[words->count++] = word;
    return 0;
}

/* A name that is given again replaces the earlier value. */
static int add_env(struct cordon_words *env, const char *word, struct cordon_error *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return wrong(err, "-e", word, "give NAME=VALUE");
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], word, (size_t)(equals - word) + 1) == 0) {
            env->items[i] = word;
            return 0;
        }
    }
    return add_word(env, "-e", word, err);
}

static int check_number(const char *option, const char *text, const char *unit, struct cordon_error *err)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool plain = *text && strspn(text, "0123456789.") == strlen(text);
    if (!plain || *end || errno || !isfinite(value) || value <= 0)
        return wrong(err, option, text, unit);
    return 0;
}

static int take(struct cordon_run_options *to, int option, struct cordon_error *err)
{
    switch (option) {
    case 'c':
        to->code = optarg;
        return 0;
    case 'l':
        to->language = optarg;
        return 0;
    case 'b':
        to->backend = optarg;
        return 0;
    case 't':
        to->timeout_s = optarg;
        return check_number("-t", optarg, "give a number of seconds above 0", err);
    case 'm':
        to->memory_mb = optarg;
        return check_number("-m", optarg, "give a number of MiB above 0", err);
    case 'e':
        return add_env(&to->env, optarg, err);
    case OPTION_ARGS:
        to->arguments = optarg;
        return 0;
    case OPTION_STDIN:
        to->stdin_file = optarg;
        return 0;
    case OPTION_PUT:
        return strchr(optarg, ':') ? add_word(&to->puts, "--put", optarg, err)
                                   : wrong(err, "--put", optarg, "give LOCAL:GUEST, two paths");
    case OPTION_ARTIFACTS:
        to->artifacts = optarg;
        return 0;
    case OPTION_NETWORK:
        to->network = true;
        return 0;
    case OPTION_DOMAIN:
        return add_word(&to->domains, "--allow-domain", optarg, err);
    case OPTION_HEADER:
        return cordon_cli_header_ok(optarg)
                   ? add_word(&to->headers, "--header", optarg, err)
                   : cordon_fail(
                         err, -EINVAL, CORDON_ERROR_INVALID,
                         "--header: give \"HOST NAME: @FILE\" or \"HOST NAME: $VARIABLE\"; a value itself would "
                         "be seen by whoever lists processes");
    case OPTION_FRESH:
        to->fresh = true;
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case OPTION_STATE:
        to->state = optarg;
        return 0;
    case OPTION_TEMPLATE:
        to->template_name = optarg;
        return 0;
    case OPTION_POLICY:
        to->policy = optarg;
        return 0;
    case OPTION_GUEST:
        to->guest = optarg;
        return 0;
    default:
        to->help = true;
        return 0;
    }
}

static int take_program(int argc, char **argv, struct cordon_run_options *to, struct cordon_error *err)
{
    if (to->help)
        return 0;
    if (argc - optind > 1 || (to->code && argc > optind))
        return wrong(err, "argument", argv[argc - 1], "one program is run; give FILE, - or -c CODE");
    if (argc > optind)
        to->file = argv[optind];
    if (!to->file && !to->code)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "no program: give FILE, - for stdin, or -c CODE");
    if (to->file && to->stdin_file && strcmp(to->file, "-") == 0 && strcmp(to->stdin_file, "-") == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "stdin can be the program or its input, not both");
    return 0;
}

int cordon_run_options_parse(int argc, char **argv, struct cordon_run_options *ret, struct cordon_error *err)
{
    *ret = (struct cordon_run_options){0};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":c:l:b:t:m:e:h", options, NULL)) != -1;) {
        if (option == '?' || option == ':')
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "option \"%.80s\" %s", argv[optind - 1],
                               option == '?' ? "is not known" : "needs a value");
        int r = take(ret, option, err);
        if (r < 0)
            return r;
    }
    return take_program(argc, argv, ret, err);
}

static const struct {
    const char *ending, *language;
} endings[] = {{".py", "python"},      {".js", "javascript"}, {".mjs", "javascript"},
               {".cjs", "javascript"}, {".sh", "bash"},       {".bash", "bash"}};

static const struct {
    const char *word, *language;
} interpreters[] = {{"python", "python"}, {"node", "javascript"}, {"bash", "bash"}, {"/sh", "bash"}};

const char *cordon_language_guess(const char *path, const char *code, size_t size)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i].ending) == 0)
            return endings[i].language;
    if (size < 2 || memcmp(code, "#!", 2) != 0)
        return NULL;
    const char *end = memchr(code, '\n', size);
    size_t line = end ? (size_t)(end - code) : size;
    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++)
        if (memmem(code, line, interpreters[i].word, strlen(interpreters[i].word)))
            return interpreters[i].language;
    return NULL;
}
