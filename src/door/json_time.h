/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_DOOR_JSON_TIME_H
#define CORDON_DOOR_JSON_TIME_H

#include <stdbool.h>

#include "base/json.h"

#define CORDON_TIME_TEXT 40

/* Microseconds since 1970 as RFC 3339 in UTC, with milliseconds: "2026-01-02T03:04:05.123Z". */
void cordon_time_format(int64_t us, char to[CORDON_TIME_TEXT]);
void cordon_json_time(struct cordon_json *json, int64_t us);
/* Reads such a text, with any fraction and offset. */
bool cordon_time_parse(const char *text, int64_t *ret_us);

int64_t cordon_time_now_us(void); /* the wall clock */

#endif
