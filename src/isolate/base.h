/* SPDX-License-Identifier: Apache-2.0 */
/* What packages that were installed on this host depend on: asked of the interpreters themselves. */
#ifndef CORDON_ISOLATE_BASE_H
#define CORDON_ISOLATE_BASE_H

#include <stddef.h>

#include "base/error.h"

struct cordon_base_question {
    const char *python, *node;     /* NULL: not asked */
    int (*drop)(const void *data); /* in the child that becomes the interpreter; negative errno ends it */
    const void *data;
};

/* "x86_64 glibc-2.36 cpython-311 node-115": machine and C library, then what Python's and Node's binary modules are
 * built for. Starts each interpreter once, with fixed arguments and at most 10 s. */
int cordon_base_describe(const struct cordon_base_question *question, char *to, size_t size, struct cordon_error *err);

#endif
