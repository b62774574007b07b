/* SPDX-License-Identifier: Apache-2.0 */
/* A file as envd tells it. Pure; what it says is bounded and otherwise believed as little as any guest. */
#ifndef CORDON_BACKEND_REMOTE_E2B_ENTRY_H
#define CORDON_BACKEND_REMOTE_E2B_ENTRY_H

#include <cordon/backend.h>

#include "core/value.h"

struct cordon_e2b_entry {
    struct cordon_file_entry entry; /* points into this */
    char name[256], path[4096], owner[64], group[64], target[4096];
};

/* Of {"name","path","type","size","mode",…}: 0, or -EBADMSG when it is no such thing. */
int cordon_e2b_entry_read(struct cordon_e2b_entry *to, const struct cordon_value *from);

#endif
