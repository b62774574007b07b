/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

/* Length of the UTF-8 character at data, 0 if it is bad, -1 if it is cut off by the end. Table 3-7 of Unicode. */
static int utf8_length(const unsigned char *p, size_t size)
{
    unsigned char low = 0x80, high = 0xBF;
    int length;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    if (p[0] < 0xE0) {
        length = 2;
    } else if (p[0] < 0xF0) {
        length = 3;
        low = p[0] == 0xE0 ? 0xA0 : low;
        high = p[0] == 0xED ? 0x9F : high;
    } else {
        length = 4;
        low = p[0] == 0xF0 ? 0x90 : low;
        high = p[0] == 0xF4 ? 0x8F : high;
    }
    for (int i = 1; i < length; i++, low = 0x80, high = 0xBF) {
        if ((size_t)i >= size)
            return -1;
        if (p[i] < low || p[i] > high)
            return 0;
    }
    return length;
}

/* How many bytes the bad part at p has: the longest prefix of a character, at least one byte. */
static size_t utf8_bad_length(const unsigned char *p, size_t size)
{
    size_t n = 1;
    while (n < size && n < 4 && utf8_length(p, n) < 0)
        n++;
    return n > 1 && utf8_length(p, n) >= 0 ? n - 1 : n;
}

size_t cordon_utf8_complete(const char *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data;
    for (size_t back = size < 3 ? size : 3; back > 0; back--)
        if (p[size - back] >= 0xC2 && utf8_length(p + size - back, back) < 0)
            return size - back;
    return size;
}

bool cordon_utf8_valid(const char *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data;
    while (size) {
        int n = utf8_length(p, size);
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static void put_escaped(struct cordon_buf *buf, unsigned char c)
{
    static const char escapes[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (size_t i = 0; i + 1 < sizeof escapes; i += 2) {
        if (escapes[i] == (char)c) {
            (void)cordon_buf_append(buf, (char[2]){'\\', escapes[i + 1]}, 2);
            return;
        }
    }
    (void)cordon_buf_appendf(buf, "\\u%04x", c);
}

void cordon_json_string(struct cordon_buf *buf, const char *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + size, *plain = p;
    (void)cordon_buf_append(buf, "\"", 1);
    while (p < end) {
        bool special = *p < 0x20 || *p == '"' || *p == '\\' || *p == 0x7F;
        int n = special ? 0 : utf8_length(p, (size_t)(end - p));
        if (n > 0) {
            p += n;
            continue;
        }
        (void)cordon_buf_append(buf, plain, (size_t)(p - plain));
        if (special) {
            put_escaped(buf, *p++);
        } else {
            (void)cordon_buf_append(buf, "\xEF\xBF\xBD", 3);
            p += utf8_bad_length(p, (size_t)(end - p));
        }
        plain = p;
    }
    (void)cordon_buf_append(buf, plain, (size_t)(p - plain));
    (void)cordon_buf_append(buf, "\"", 1);
}

static void comma(struct cordon_json *json)
{
    if (json->need_comma)
        (void)cordon_buf_append(json->buf, ",", 1);
    json->need_comma = true;
}

static void open_with(struct cordon_json *json, const char *bracket)
{
    comma(json);
    (void)cordon_buf_append(json->buf, bracket, 1);
    json->need_comma = false;
}

static void close_with(struct cordon_json *json, const char *bracket)
{
    (void)cordon_buf_append(json->buf, bracket, 1);
    json->need_comma = true;
}

void cordon_json_object_begin(struct cordon_json *json)
{
    open_with(json, "{");
}

void cordon_json_object_end(struct cordon_json *json)
{
    close_with(json, "}");
}

void cordon_json_array_begin(struct cordon_json *json)
{
    open_with(json, "[");
}

void cordon_json_array_end(struct cordon_json *json)
{
    close_with(json, "]");
}

void cordon_json_key(struct cordon_json *json, const char *key)
{
    comma(json);
    cordon_json_string(json->buf, key, strlen(key));
    (void)cordon_buf_append(json->buf, ":", 1);
    json->need_comma = false;
}

void cordon_json_bytes(struct cordon_json *json, const char *data, size_t size)
{
    comma(json);
    cordon_json_string(json->buf, data, size);
}

void cordon_json_text(struct cordon_json *json, const char *text)
{
    if (text)
        cordon_json_bytes(json, text, strlen(text));
    else
        cordon_json_null(json);
}

void cordon_json_int(struct cordon_json *json, int64_t value)
{
    comma(json);
    (void)cordon_buf_appendf(json->buf, "%" PRId64, value);
}

void cordon_json_uint(struct cordon_json *json, uint64_t value)
{
    comma(json);
    (void)cordon_buf_appendf(json->buf, "%" PRIu64, value);
}

void cordon_json_bool(struct cordon_json *json, bool value)
{
    cordon_json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void cordon_json_null(struct cordon_json *json)
{
    cordon_json_raw(json, "null", 4);
}

void cordon_json_ms(struct cordon_json *json, uint64_t us)
{
    comma(json);
    (void)cordon_buf_appendf(json->buf, "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));
}

void cordon_json_raw(struct cordon_json *json, const char *data, size_t size)
{
    comma(json);
    (void)cordon_buf_append(json->buf, data, size);
}

void cordon_json_base64(struct cordon_json *json, const void *data, size_t size)
{
    comma(json);
    (void)cordon_buf_append(json->buf, "\"", 1);
    (void)cordon_buf_base64(json->buf, data, size);
    (void)cordon_buf_append(json->buf, "\"", 1);
}

void cordon_json_pair_text(struct cordon_json *json, const char *key, const char *text)
{
    cordon_json_key(json, key);
    cordon_json_text(json, text);
}

void cordon_json_pair_uint(struct cordon_json *json, const char *key, uint64_t value)
{
    cordon_json_key(json, key);
    cordon_json_uint(json, value);
}

void cordon_json_pair_bool(struct cordon_json *json, const char *key, bool value)
{
    cordon_json_key(json, key);
    cordon_json_bool(json, value);
}

void cordon_json_pair_ms(struct cordon_json *json, const char *key, uint64_t us)
{
    cordon_json_key(json, key);
    cordon_json_ms(json, us);
}

void cordon_json_error(struct cordon_json *json, const struct cordon_error *err)
{
    cordon_json_key(json, "error");
    cordon_json_object_begin(json);
    cordon_json_key(json, "kind");
    cordon_json_text(json, cordon_error_name(err->kind));
    cordon_json_key(json, "message");
    cordon_json_text(json, err->message);
    cordon_json_object_end(json);
}
