/* SPDX-License-Identifier: Apache-2.0 */
/* A role's argv (see roles.h), and `cordon serve`'s options turned into one. */
#ifndef CORDON_SUPERVISOR_ROLE_ARGS_H
#define CORDON_SUPERVISOR_ROLE_ARGS_H

#include <stdbool.h>

#include "core/settings.h"

/* Reads what roles.h describes. *ret borrows from argv. */
int cordon_role_args_read(char **argv, struct cordon_settings_input *ret, struct cordon_error *err);

#define CORDON_SERVE_FLAGS 8

/* `cordon serve`'s command line. */
struct cordon_serve_options {
    const char *config;              /* borrowed from argv; NULL: none */
    char *flags[CORDON_SERVE_FLAGS]; /* NAME=VALUE, NULL-terminated */
    size_t flag_count;
    bool help;
};

/* INVALID with one sentence when the command line is wrong. Free with _done in any case. */
int cordon_serve_options_parse(int argc, char **argv, struct cordon_serve_options *ret, struct cordon_error *err);
void cordon_serve_options_done(struct cordon_serve_options *options);

#endif
