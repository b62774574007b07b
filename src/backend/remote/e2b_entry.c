/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/e2b_entry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* JSON's numbers of 64 bits are texts in protobuf's mapping; both are taken. */
static int64_t number(const struct cordon_value *from, const char *name)
{
    struct cordon_value value;
    char text[32] = "";
    int64_t found = 0;
    if (!cordon_value_member(from, name, &value))
        return 0;
    if (value.kind == CORDON_VALUE_STRING && cordon_value_text(from, name, text, sizeof text))
        found = strtoll(text, NULL, 10);
    else
        (void)cordon_value_integer(&value, &found); /* stays 0 */
    return found < 0 ? 0 : found;
}

/* "2026-01-02T03:04:05.123Z" */
static int64_t modified(const struct cordon_value *from)
{
    char text[64] = "";
    struct tm tm = {0};
    int64_t fraction = 0, scale = 1000000000;
    if (!cordon_value_text(from, "modifiedTime", text, sizeof text))
        return 0;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest)
        return 0;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9' && scale > 1; rest++) {
            fraction = fraction * 10 + (*rest - '0');
            scale /= 10;
        }
    return (int64_t)timegm(&tm) * 1000000000 + fraction * scale;
}

int cordon_e2b_entry_read(struct cordon_e2b_entry *to, const struct cordon_value *from)
{
    static const struct {
        const char *name;
        enum cordon_file_type type;
    } types[] = {{"FILE_TYPE_FILE", CORDON_FILE_REGULAR},
                 {"FILE_TYPE_DIRECTORY", CORDON_FILE_DIRECTORY},
                 {"FILE_TYPE_SYMLINK", CORDON_FILE_LINK}};
    char type[32] = "";
    memset(to, 0, sizeof *to);
    if (from->kind != CORDON_VALUE_OBJECT || !cordon_value_text(from, "name", to->name, sizeof to->name) ||
        !cordon_value_text(from, "path", to->path, sizeof to->path))
        return -EBADMSG;
    (void)cordon_value_text(from, "owner", to->owner, sizeof to->owner); /* these stay "" */
    (void)cordon_value_text(from, "group", to->group, sizeof to->group);
    (void)cordon_value_text(from, "type", type, sizeof type);
    bool link = cordon_value_text(from, "symlinkTarget", to->target, sizeof to->target) && *to->target;
    to->entry = (struct cordon_file_entry){.name = to->name,
                                           .path = to->path,
                                           .size = (uint64_t)number(from, "size"),
                                           .mode = (uint32_t)(number(from, "mode") & 07777),
                                           .owner = to->owner,
                                           .group = to->group,
                                           .modified_ns = modified(from),
                                           .target = link ? to->target : NULL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        to->entry.type = strcmp(types[i].name, type) == 0 ? types[i].type : to->entry.type;
    return 0;
}
