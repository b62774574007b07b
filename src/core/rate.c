/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rate.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define COUNT_MAX 1000000000u
#define MULTIPLE_MAX 100u

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* A whole number from 1 to most; NULL: there is none. */
static const char *read_number(const char *p, uint32_t most, uint32_t *ret)
{
    uint64_t number = 0;
    const char *start = p;
    for (; isdigit((unsigned char)*p) && number <= most; p++)
        number = 10 * number + (uint64_t)(*p - '0');
    if (p == start || !number || number > most)
        return NULL;
    *ret = (uint32_t)number;
    return p;
}

static const char *read_per(const char *p)
{
    p = skip_blanks(p);
    if (*p == '/')
        return skip_blanks(p + 1);
    return strncasecmp(p, "per", 3) == 0 && isspace((unsigned char)p[3]) ? skip_blanks(p + 3) : NULL;
}

static const char *read_unit(const char *p, uint64_t *ret_us)
{
    static const struct {
        const char *name;
        uint32_t seconds;
    } units[] = {{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t size = strlen(units[i].name);
        if (strncasecmp(p, units[i].name, size) != 0)
            continue;
        *ret_us = 1000000ull * units[i].seconds;
        p += size;
        return *p == 's' || *p == 'S' ? p + 1 : p;
    }
    return NULL;
}

bool cordon_rate_parse(const char *text, struct cordon_rate *ret)
{
    struct cordon_rate rate = {0};
    uint32_t multiple = 1;
    const char *p = read_number(skip_blanks(text), COUNT_MAX, &rate.count);
    p = p ? read_per(p) : NULL;
    if (p && isdigit((unsigned char)*p)) {
        p = read_number(p, MULTIPLE_MAX, &multiple);
        p = p ? skip_blanks(p) : NULL;
    }
    p = p ? read_unit(p, &rate.period_us) : NULL;
    if (!p || *skip_blanks(p))
        return false;
    rate.period_us *= multiple;
    *ret = rate;
    return true;
}
