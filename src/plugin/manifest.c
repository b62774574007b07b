/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    const char *key, *value;
    size_t key_size, value_size;
};

static void trim(const char **text, size_t *size)
{
    while (*size && isspace((unsigned char)**text))
        ++*text, --*size;
    while (*size && isspace((unsigned char)(*text)[*size - 1]))
        --*size;
}

static bool copy(const struct line *line, char *to, size_t size)
{
    if (*to || !line->value_size || line->value_size >= size)
        return false;
    for (size_t i = 0; i < line->value_size; i++)
        if ((unsigned char)line->value[i] < ' ' || line->value[i] == 127)
            return false;
    memcpy(to, line->value, line->value_size);
    to[line->value_size] = '\0';
    return true;
}

static bool is(const struct line *line, const char *key)
{
    return strlen(key) == line->key_size && memcmp(key, line->key, line->key_size) == 0;
}

static bool take(struct cordon_manifest *to, const struct line *line)
{
    char number[8] = "";
    if (is(line, "name"))
        return copy(line, to->name, sizeof to->name);
    if (is(line, "distribution"))
        return copy(line, to->distribution, sizeof to->distribution);
    if (is(line, "library"))
        return copy(line, to->library, sizeof to->library);
    if (!is(line, "abi") || to->abi || !copy(line, number, sizeof number) ||
        strspn(number, "0123456789") != strlen(number))
        return false;
    to->abi = (unsigned)strtoul(number, NULL, 10);
    return to->abi > 0;
}

static bool good_name(char *name)
{
    for (char *p = name; *p; p++) {
        *p = (char)tolower((unsigned char)*p);
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            return false;
    }
    return *name;
}

int cordon_manifest_parse(const char *text, size_t size, struct cordon_manifest *ret, char fault[160])
{
    size_t number = 0;
    *ret = (struct cordon_manifest){0};
    for (const char *at = text, *end = text + size; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        struct line line = {.key = at, .key_size = (size_t)(stop - at)};
        const char *equals = memchr(at, '=', line.key_size);
        if (equals) {
            line.key_size = (size_t)(equals - at);
            line.value = equals + 1;
            line.value_size = (size_t)(stop - line.value);
            trim(&line.value, &line.value_size);
        }
        trim(&line.key, &line.key_size);
        at = stop + 1;
        if (!line.key_size || *line.key == '#')
            continue;
        if (!equals || !take(ret, &line)) {
            (void)snprintf(fault, 160, "line %zu is none of name=, distribution=, abi=, library=, or it is there twice",
                           number + 1);
            return -EINVAL;
        }
    }
    if (*ret->name && *ret->distribution && *ret->library && ret->abi && good_name(ret->name))
        return 0;
    (void)snprintf(fault, 160, "name (letters, digits, . _ -), distribution, abi and library are needed");
    return -EINVAL;
}
