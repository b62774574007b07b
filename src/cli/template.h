/* SPDX-License-Identifier: Apache-2.0 */
/* `cordon template`: what is to be made, and how it is made. */
#ifndef CORDON_CLI_TEMPLATE_H
#define CORDON_CLI_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/settings.h"
#include "core/template_file.h"

#define CORDON_PACKAGES_MAX 50 /* of each kind */

struct cordon_packages {
    const char *items[CORDON_PACKAGES_MAX];
    size_t count;
};

struct cordon_template_plan {
    const char *name;
    const char *from;   /* language; NULL with import */
    const char *import; /* path of an archive, "-" for stdin; NULL: packages are installed */
    struct cordon_packages pip, npm;
    const char *index_url, *registry; /* NULL: by the environment, else the public ones */
    bool host_network;                /* the build may use the host's network */
    bool replace;
    const char *config; /* file of settings; NULL: none */
};

/* Makes the file in the state folder's folder of templates, which is made where it is missing. 1 when one that was made
 * of the same is there already. */
int cordon_template_create(const struct cordon_settings *settings, const struct cordon_template_plan *plan,
                           struct cordon_error *err);
/* template_build.c: fills the archive of an empty file from CORDON_TEMPLATE_PAYLOAD on; *bytes: how many. */
int cordon_template_build(const struct cordon_settings *settings, const struct cordon_template_plan *plan, int file,
                          uint64_t *bytes, struct cordon_error *err);
/* Starts a guest from the finished file in each language that it should have. */
int cordon_template_try(const struct cordon_settings *settings, const struct cordon_template_plan *plan, int file,
                        struct cordon_error *err);

#endif
