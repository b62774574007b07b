/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin's manifest: NAME=VALUE a line. Pure, fuzzed. */
#ifndef CORDON_PLUGIN_MANIFEST_H
#define CORDON_PLUGIN_MANIFEST_H

#include <stddef.h>

#define CORDON_MANIFEST_MAX 4096u

struct cordon_manifest {
    char name[64];          /* trimmed, lower-cased */
    char distribution[128]; /* the package that it came with */
    char library[512];      /* absolute, or relative to the manifest's folder */
    unsigned abi;
};

/* 0, or -EINVAL with a phrase in fault. The four lines name, distribution, abi and library are needed, once each. */
int cordon_manifest_parse(const char *text, size_t size, struct cordon_manifest *ret, char fault[160]);

#endif
