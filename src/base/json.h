/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON straight into a buffer. (Reading: core/value.h.) Commas are placed by the writer, so calls
 * read like the document: object_begin, key, value, …, object_end. Errors are sticky in buf->failed.
 */
#ifndef CORDON_BASE_JSON_H
#define CORDON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct cordon_json {
    struct cordon_buf *buf;
    bool need_comma;
};

/* A bare JSON string; bytes that are not UTF-8 become U+FFFD, each maximal bad part once. */
void cordon_json_string(struct cordon_buf *buf, const char *data, size_t size);
/* How many leading bytes of data form whole UTF-8 characters or are bad for sure; the rest (at most 3 bytes) may be
 * the start of a character whose end comes in the next chunk. */
size_t cordon_utf8_complete(const char *data, size_t size);
bool cordon_utf8_valid(const char *data, size_t size);

void cordon_json_object_begin(struct cordon_json *json);
void cordon_json_object_end(struct cordon_json *json);
void cordon_json_array_begin(struct cordon_json *json);
void cordon_json_array_end(struct cordon_json *json);
void cordon_json_key(struct cordon_json *json, const char *key);
void cordon_json_bytes(struct cordon_json *json, const char *data, size_t size);
void cordon_json_text(struct cordon_json *json, const char *text); /* NULL writes null */
void cordon_json_int(struct cordon_json *json, int64_t value);
void cordon_json_uint(struct cordon_json *json, uint64_t value);
void cordon_json_bool(struct cordon_json *json, bool value);
void cordon_json_null(struct cordon_json *json);
void cordon_json_ms(struct cordon_json *json, uint64_t us); /* microseconds as milliseconds with three decimals */
void cordon_json_raw(struct cordon_json *json, const char *data, size_t size); /* already JSON */
void cordon_json_base64(struct cordon_json *json, const void *data, size_t size);
/* A key and its value. */
void cordon_json_pair_text(struct cordon_json *json, const char *key, const char *text); /* NULL writes null */
void cordon_json_pair_uint(struct cordon_json *json, const char *key, uint64_t value);
void cordon_json_pair_bool(struct cordon_json *json, const char *key, bool value);
void cordon_json_pair_ms(struct cordon_json *json, const char *key, uint64_t us);
/* Within an object: "error":{"kind","message"}. */
void cordon_json_error(struct cordon_json *json, const struct cordon_error *err);

#endif
