/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share. A command is one file with one function, a row in main.c's table. */
#ifndef CORDON_CLI_CLI_H
#define CORDON_CLI_CLI_H

#include "base/json.h"
#include "core/settings.h"

int cordon_cli_run(int argc, char **argv);
int cordon_cli_guest(int argc, char **argv);
int cordon_cli_backends(int argc, char **argv);
int cordon_cli_conformance(int argc, char **argv);
int cordon_cli_doctor(int argc, char **argv);
int cordon_cli_config(int argc, char **argv);
int cordon_cli_key(int argc, char **argv);
int cordon_cli_verify(int argc, char **argv);
int cordon_cli_probe_server(int argc, char **argv);
int cordon_cli_template(int argc, char **argv);
int cordon_cli_bench(int argc, char **argv);
int cordon_cli_image(int argc, char **argv);

/* Exit statuses besides the program's own. */
enum { CORDON_EXIT_USAGE = 2, CORDON_EXIT_FAILURE = 125 };

/* One sentence to stderr, "(see cordon COMMAND --help)" behind it; returns 2. */
int cordon_cli_usage(const char *command, const char *fmt, ...) CORDON_PRINTF(2, 3);
/* The error to stderr (message, then detail); returns its kind's exit status. */
int cordon_cli_fail(const struct cordon_error *err);
/* What getopt_long returned '?' or ':' for, said; returns 2. */
int cordon_cli_bad_option(const char *command, char **argv, int option);
/* The whole command line of a command that knows only --json and --help: -1 to go on, else its exit status. */
int cordon_cli_json_option(int argc, char **argv, const char *help, bool *ret_json);
/* Writes and wipes the buffer, with a newline behind it: 0, or 125 when stdout can't be written. */
int cordon_cli_print(struct cordon_buf *buf);

/* Settings from the environment, file (NULL: none) and flags (NULL: none), warnings on stderr. */
int cordon_cli_settings(const char *file, const char *const *flags, struct cordon_settings **ret,
                        struct cordon_error *err);

/* The backends of this process, remote ones and plugins included, for commands that run code without a daemon. */
int cordon_cli_backends_load(const struct cordon_settings *settings, struct cordon_error *err);
void cordon_cli_backends_drop(void);

#endif
