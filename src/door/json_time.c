/* SPDX-License-Identifier: Apache-2.0 */
#include "door/json_time.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void cordon_time_format(int64_t us, char to[CORDON_TIME_TEXT])
{
    time_t seconds = (time_t)(us / 1000000);
    int milliseconds = (int)(us % 1000000 / 1000);
    struct tm tm;
    if (us < 0 || !gmtime_r(&seconds, &tm)) {
        (void)snprintf(to, CORDON_TIME_TEXT, "1970-01-01T00:00:00.000Z"); /* fits */
        return;
    }
    size_t size = strftime(to, CORDON_TIME_TEXT, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(to + size, CORDON_TIME_TEXT - size, ".%03dZ", milliseconds); /* fits */
}

void cordon_json_time(struct cordon_json *json, int64_t us)
{
    char text[CORDON_TIME_TEXT];
    cordon_time_format(us, text);
    cordon_json_text(json, text);
}

static bool parse_offset(const char *text, int64_t *ret_s)
{
    unsigned hours, minutes;
    char end;
    *ret_s = 0;
    if ((*text == 'Z' || *text == 'z') && !text[1])
        return true;
    if ((*text != '+' && *text != '-') || sscanf(text + 1, "%2u:%2u%c", &hours, &minutes, &end) != 2)
        return false;
    *ret_s = (int64_t)(hours * 3600 + minutes * 60) * (*text == '-' ? -1 : 1);
    return hours < 24 && minutes < 60;
}

bool cordon_time_parse(const char *text, int64_t *ret_us)
{
    struct tm tm = {0};
    int64_t fraction = 0, offset;
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest)
        return false;
    if (*rest == '.') {
        int64_t unit = 100000;
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            fraction += (*rest - '0') * unit;
    }
    if (!parse_offset(rest, &offset))
        return false;
    *ret_us = ((int64_t)timegm(&tm) - offset) * 1000000 + fraction;
    return true;
}

int64_t cordon_time_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
