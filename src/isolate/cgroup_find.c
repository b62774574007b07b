/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/cgroup_find.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_ 4096
#define FIELDS 64

static const struct controller {
    const char *name;
    unsigned bit;
} names[] = {
    {"memory", CORDON_CGROUP_MEMORY},   {"pids", CORDON_CGROUP_PIDS},       {"cpu", CORDON_CGROUP_CPU},
    {"cpuacct", CORDON_CGROUP_CPUACCT}, {"freezer", CORDON_CGROUP_FREEZER},
};

unsigned cordon_cgroup_controllers(const char *list, char separator)
{
    unsigned found = 0;
    while (*list) {
        size_t size = 0;
        while (list[size] && list[size] != separator && list[size] != '\n')
            size++;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            if (strlen(names[i].name) == size && memcmp(names[i].name, list, size) == 0)
                found |= names[i].bit;
        }
        list += size + (list[size] != '\0');
    }
    return found;
}

/* Copies the next line without its end; returns what follows it, or NULL after the last. Lines too long are cut. */
static const char *next_line(const char *text, char line[LINE_MAX_])
{
    if (!*text)
        return NULL;
    size_t size = strcspn(text, "\n");
    size_t kept = size < LINE_MAX_ - 1 ? size : LINE_MAX_ - 1;
    memcpy(line, text, kept);
    line[kept] = '\0';
    return text + size + (text[size] == '\n');
}

static size_t split(char *line, char *fields[FIELDS])
{
    size_t count = 0;
    char *rest = line, *field;
    while (count < FIELDS && (field = strsep(&rest, " ")))
        fields[count++] = field;
    return count;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned octal;
        if (*from == '\\' && sscanf(from + 1, "%3o", &octal) == 1 && octal < 256) {
            *to = (char)octal;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* The path of this process in the hierarchy with these controllers (0: v2), out of /proc/self/cgroup. */
static bool own_path(const char *self, unsigned controllers, char path[CORDON_CGROUP_PATH])
{
    char line[LINE_MAX_];
    while ((self = next_line(self, line))) {
        char *list = strchr(line, ':');
        char *own = list ? strchr(list + 1, ':') : NULL;
        if (!own)
            continue;
        *own++ = '\0';
        bool v2 = strncmp(line, "0:", 2) == 0 && list[1] == '\0';
        if (controllers ? (cordon_cgroup_controllers(list + 1, ',') & controllers) == 0 : !v2)
            continue;
        return snprintf(path, CORDON_CGROUP_PATH, "%s", own) < CORDON_CGROUP_PATH;
    }
    return false;
}

/* Where the group `own` is below a mount that shows the hierarchy from `root` on. */
static bool locate(const char *mount_point, const char *root, const char *own, struct cordon_cgroup_place *place)
{
    size_t size = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, size) != 0 || (own[size] != '/' && own[size] != '\0'))
        return false;
    const char *below = own + size;
    if (strcmp(below, "/") == 0)
        below = "";
    if (strstr(below, "/..")) /* the group is outside of what this cgroup namespace may name */
        return false;
    place->top = *below == '\0';
    return snprintf(place->path, sizeof place->path, "%s%s", mount_point, below) < (int)sizeof place->path;
}

/* id parent dev ROOT MOUNT_POINT options… - TYPE source OPTIONS */
static bool read_mount(char *line, const char *self, struct cordon_cgroup_place *place)
{
    char *fields[FIELDS];
    size_t count = split(line, fields), dash = 6;
    while (dash < count && strcmp(fields[dash], "-") != 0)
        dash++;
    if (dash + 3 >= count)
        return false;
    memset(place, 0, sizeof *place);
    place->v2 = strcmp(fields[dash + 1], "cgroup2") == 0;
    if (!place->v2 && strcmp(fields[dash + 1], "cgroup") != 0)
        return false;
    if (!place->v2)
        place->controllers = cordon_cgroup_controllers(fields[dash + 3], ',');
    if (!place->v2 && place->controllers == 0)
        return false;
    unescape(fields[3]);
    unescape(fields[4]);
    char own[CORDON_CGROUP_PATH];
    return own_path(self, place->controllers, own) && locate(fields[4], fields[3], own, place);
}

static bool is_new(const struct cordon_cgroup_place *places, size_t count, const struct cordon_cgroup_place *place)
{
    for (size_t i = 0; i < count; i++) {
        if (places[i].v2 == place->v2 && (place->v2 || (places[i].controllers & place->controllers)))
            return false; /* the same hierarchy, mounted twice */
    }
    return true;
}

size_t cordon_cgroup_find(const char *mountinfo, const char *self,
                          struct cordon_cgroup_place places[CORDON_CGROUP_PLACES])
{
    size_t count = 0;
    char line[LINE_MAX_];
    struct cordon_cgroup_place place;
    while (count < CORDON_CGROUP_PLACES && (mountinfo = next_line(mountinfo, line))) {
        if (!read_mount(line, self, &place) || place.controllers == CORDON_CGROUP_FREEZER)
            continue;
        place.controllers &= ~(unsigned)CORDON_CGROUP_FREEZER;
        if (is_new(places, count, &place))
            places[count++] = place;
    }
    return count;
}

int cordon_cgroup_find_freezer(const char *mountinfo, const char *self, struct cordon_cgroup_place *place)
{
    char line[LINE_MAX_];
    struct cordon_cgroup_place found;
    int r = -ENOENT;
    while ((mountinfo = next_line(mountinfo, line))) {
        if (!read_mount(line, self, &found) || (!found.v2 && !(found.controllers & CORDON_CGROUP_FREEZER)))
            continue;
        if (found.v2 || r < 0) /* v2 freezes five times as fast, and what is frozen there can be killed */
            *place = found;
        r = 0;
        if (found.v2)
            break;
    }
    return r;
}
