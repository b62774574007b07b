/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "cli/cli.h"
#include "plugin/plugin.h"
#include "supervisor/roles.h"
#include "warden/unpack.h"

static const struct command {
    const char *name;
    int (*function)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", cordon_cli_run, "run a program in the sandbox"},
    {"guest", cordon_cli_guest, "guests that are kept: make, use and end them"},
    {"serve", cordon_supervisor_main, "serve the sandbox over HTTP"},
    {"backends", cordon_cli_backends, "list the backends and what each can enforce"},
    {"conformance", cordon_cli_conformance, "run the conformance suite against a backend"},
    {"verify", cordon_cli_verify, "measure what a backend enforces"},
    {"probe-server", cordon_cli_probe_server, "answer the probes of verify"},
    {"doctor", cordon_cli_doctor, "tell what this host lacks and how to mend it"},
    {"config", cordon_cli_config, "show or explain the settings"},
    {"key", cordon_cli_key, "create, list or revoke keys"},
    {"template", cordon_cli_template, "make, list or remove what guests start from"},
    {"bench", cordon_cli_bench, "measure how fast a backend's guests start"},
    {"image", cordon_cli_image, "make or show what virtual machines start from"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command roles[] = {
    {"warden", cordon_warden_main, ""},      {"gateway", cordon_gateway_main, ""},
    {"unpack", cordon_unpack_main, ""},      {"egress", cordon_egress_main, ""},
    {"doctor", cordon_doctor_main, ""},      {"plugins", cordon_plugin_launcher_main, ""},
    {"plugin", cordon_plugin_host_main, ""}, {"vmm", cordon_vmm_main, ""},
};

int cordon_cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("cordon: ", stderr); /* nobody to tell */
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, " (see cordon %s%s--help)\n", command, *command ? " " : "");
    return CORDON_EXIT_USAGE;
}

int cordon_cli_fail(const struct cordon_error *err)
{
    (void)fprintf(stderr, "cordon: %s\n", err->message); /* nobody to tell */
    if (err->detail[0])
        (void)fprintf(stderr, "cordon: %s\n", err->detail);
    return cordon_error_exit(err->kind);
}

int cordon_cli_bad_option(const char *command, char **argv, int option)
{
    char letter[3] = {'-', (char)optopt, '\0'};
    const char *word = argv[optind - 1];
    /* For a letter in a cluster getopt has not moved on. */
    if (optopt > 32 && optopt < 127 && strncmp(word, "--", 2) != 0)
        word = letter;
    return cordon_cli_usage(command, option == ':' ? "%s needs a value" : "%s is no option of this command", word);
}

int cordon_cli_json_option(int argc, char **argv, const char *help, bool *ret_json)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option != 'j')
            return cordon_cli_bad_option(argv[0], argv, option);
        *ret_json = true;
    }
    return optind < argc ? cordon_cli_usage(argv[0], "no argument \"%.40s\" is known", argv[optind]) : -1;
}

int cordon_cli_print(struct cordon_buf *buf)
{
    (void)cordon_buf_append(buf, "\n", 1); /* sticky in failed */
    bool ok = !buf->failed && fwrite(buf->data, 1, buf->size, stdout) == buf->size && fflush(stdout) == 0;
    cordon_buf_wipe(buf);
    return ok ? 0 : CORDON_EXIT_FAILURE;
}

int cordon_cli_settings(const char *file, const char *const *flags, struct cordon_settings **ret,
                        struct cordon_error *err)
{
    struct cordon_settings_input input = {.file = file, .flags = flags};
    const char *warning;
    int r = cordon_settings_load(&input, ret, err);
    if (r < 0)
        return r;
    for (size_t i = 0; (warning = cordon_settings_warning(*ret, i)); i++)
        (void)fprintf(stderr, "cordon: warning: %s\n", warning);
    return 0;
}

static void print_help(FILE *to)
{
    (void)fputs("usage: cordon COMMAND [OPTIONS]\n\nRuns code that nobody has read, isolated.\n\n", to);
    for (size_t i = 0; i < COMMANDS; i++)
        (void)fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].help);
    (void)fputs("\ncordon COMMAND --help tells each one's options; cordon --version the version.\n", to);
}

static const struct command *find(const struct command *table, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static int run_role(int argc, char **argv)
{
    const struct command *role = argc > 2 ? find(roles, sizeof roles / sizeof *roles, argv[2]) : NULL;
    if (!role)
        return cordon_cli_usage("", "--role is for the daemon's own use");
    return role->function(argc - 2, argv + 2);
}

static int help_command(int argc, char **argv)
{
    char option[] = "--help";
    const struct command *command = argc > 2 ? find(commands, COMMANDS, argv[2]) : NULL;
    if (argc > 2 && !command)
        return cordon_cli_usage("", "\"%.40s\" is no command", argv[2]);
    if (!command) {
        print_help(stdout);
        return 0;
    }
    char *arguments[] = {argv[2], option, NULL};
    return command->function(2, arguments);
}

#ifdef CORDON_SANITIZED
/* What gives up its privileges can't be examined at its end: there is no /proc, and the filter refuses ptrace. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:abort_on_error=1";
}
#endif

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        print_help(stderr);
        return CORDON_EXIT_USAGE;
    }
    if (strcmp(word, "--role") == 0)
        return run_role(argc, argv);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return printf("cordon %s\n", CORDON_VERSION) > 0 ? 0 : CORDON_EXIT_FAILURE;
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return help_command(argc, argv);
    const struct command *command = find(commands, COMMANDS, word);
    if (!command)
        return cordon_cli_usage("", "\"%.40s\" is no command", word);
    return command->function(argc - 1, argv + 1);
}
