/* SPDX-License-Identifier: Apache-2.0 */
/* `cordon run`'s command line, and the request that it makes: the JSON body of POST /v1/runs, whoever reads it then. */
#ifndef CORDON_CLI_RUN_OPTIONS_H
#define CORDON_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define CORDON_RUN_OPTIONS_MAX 256 /* of each option that may be repeated */

/* A word list; borrows from argv. */
struct cordon_words {
    const char *items[CORDON_RUN_OPTIONS_MAX];
    size_t count;
};

struct cordon_run_options {
    const char *file; /* path, or "-" for stdin; NULL: code is set */
    const char *code;
    const char *language; /* NULL: by file name or first line */
    const char *backend;
    const char *template_name;
    const char *policy;                /* whose settings and rules; NULL: the native ones */
    const char *timeout_s, *memory_mb; /* numbers, checked */
    const char *arguments;             /* JSON, not checked */
    const char *stdin_file;            /* path, or "-"; NULL: empty */
    const char *artifacts;             /* folder */
    const char *state;
    const char *guest; /* a kept one's id or name; NULL: a fresh one */
    struct cordon_words env, domains, headers, puts;
    bool network; /* as --network asks; domains and headers mean it, too */
    bool json, fresh, help;
};

/* 0; or INVALID with a sentence that names the option. */
int cordon_run_options_parse(int argc, char **argv, struct cordon_run_options *ret, struct cordon_error *err);
/* "python", … by the file's name, else by a #! line, else NULL. */
const char *cordon_language_guess(const char *path, const char *code, size_t size);
/* Appends the body; reads the files that the options name. */
int cordon_run_options_body(const struct cordon_run_options *options, struct cordon_buf *to, struct cordon_error *err);

extern const char cordon_run_help[];

#endif
