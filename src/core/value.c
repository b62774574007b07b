/* SPDX-License-Identifier: Apache-2.0 */
#include "core/value.h"

#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static const char not_utf8[] = "is not UTF-8, which JSON must be";
static const char too_deep[] = "more arrays and objects in one another than the 64 allowed";

struct scan {
    const char *p, *end;
    const char *why;  /* the first fault, NULL while there is none */
    uint64_t objects; /* a bit a level: that container is an object */
    unsigned depth;
};
_Static_assert(CORDON_VALUE_DEPTH <= 64, "one bit a level");

static bool fault(struct scan *scan, const char *why)
{
    if (!scan->why)
        scan->why = why;
    return false;
}

static void skip_space(struct scan *scan)
{
    while (scan->p < scan->end && (*scan->p == ' ' || *scan->p == '\n' || *scan->p == '\r' || *scan->p == '\t'))
        scan->p++;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool skip_escape(struct scan *scan)
{
    if (scan->p == scan->end || !memchr("\"\\/bfnrtu", *scan->p, 9))
        return fault(scan, "an unknown escape");
    if (*scan->p++ != 'u')
        return true;
    for (int i = 0; i < 4; i++, scan->p++)
        if (scan->p == scan->end || hex_value(*scan->p) < 0)
            return fault(scan, "\\u without four hex digits");
    return true;
}

static bool skip_string(struct scan *scan)
{
    if (scan->p == scan->end || *scan->p != '"')
        return fault(scan, "no string where one must be");
    for (scan->p++; scan->p < scan->end;) {
        char c = *scan->p++;
        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20) {
            scan->p--;
            return fault(scan, "a control character in a string");
        }
        if (c == '\\' && !skip_escape(scan))
            return false;
    }
    return fault(scan, "a string without an end");
}

static bool skip_digits(struct scan *scan)
{
    const char *start = scan->p;
    while (scan->p < scan->end && is_digit(*scan->p))
        scan->p++;
    return scan->p > start || fault(scan, "a number without digits");
}

static bool skip_number(struct scan *scan)
{
    if (*scan->p == '-')
        scan->p++;
    if (scan->p < scan->end && *scan->p == '0')
        scan->p++;
    else if (!skip_digits(scan))
        return false;
    if (scan->p < scan->end && *scan->p == '.') {
        scan->p++;
        if (!skip_digits(scan))
            return false;
    }
    if (scan->p < scan->end && (*scan->p | 0x20) == 'e') {
        scan->p++;
        if (scan->p < scan->end && (*scan->p == '+' || *scan->p == '-'))
            scan->p++;
        return skip_digits(scan);
    }
    return true;
}

static bool skip_word(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(scan->end - scan->p) >= size && memcmp(scan->p, words[i], size) == 0) {
            scan->p += size;
            return true;
        }
    }
    return fault(scan, "no value where one must be");
}

static bool skip_key(struct scan *scan)
{
    skip_space(scan);
    if (!skip_string(scan))
        return false;
    skip_space(scan);
    if (scan->p == scan->end || *scan->p != ':')
        return fault(scan, "no colon behind a name");
    scan->p++;
    return true;
}

static bool in_object(const struct scan *scan)
{
    return scan->objects >> (scan->depth - 1) & 1;
}

/* Enters a container. *empty: it has no content and is left already. */
static bool skip_opening(struct scan *scan, bool *empty)
{
    bool object = *scan->p == '{';
    if (scan->depth == CORDON_VALUE_DEPTH)
        return fault(scan, too_deep);
    scan->p++;
    skip_space(scan);
    *empty = scan->p < scan->end && *scan->p == (object ? '}' : ']');
    if (*empty) {
        scan->p++;
        return true;
    }
    scan->objects = (scan->objects & ~(1ull << scan->depth)) | (uint64_t)object << scan->depth;
    scan->depth++;
    return !object || skip_key(scan);
}

/* After a value: leaves the containers that end here. Then either all is read (depth 0) or a value must follow. */
static bool skip_closings(struct scan *scan)
{
    while (scan->depth) {
        skip_space(scan);
        if (scan->p == scan->end)
            return fault(scan, "the end of the text inside an array or object");
        char c = *scan->p++;
        if (c == ',')
            return !in_object(scan) || skip_key(scan);
        if (c != (in_object(scan) ? '}' : ']')) {
            scan->p--;
            return fault(scan, "neither a comma nor the end of the array or object");
        }
        scan->depth--;
    }
    return true;
}

/* One whole value, however deep, without recursion. */
static bool skip_value(struct scan *scan)
{
    do {
        bool done = true;
        skip_space(scan);
        if (scan->p == scan->end)
            return fault(scan, "the end of the text where a value must be");
        char c = *scan->p;
        bool good = c == '{' || c == '['      ? skip_opening(scan, &done)
                    : c == '"'                ? skip_string(scan)
                    : c == '-' || is_digit(c) ? skip_number(scan)
                                              : skip_word(scan);
        if (!good || (done && !skip_closings(scan)))
            return false;
        if (done && !scan->depth)
            return true;
    } while (true);
}

static enum cordon_value_kind kind_of(char first)
{
    switch (first) {
    case '{':
        return CORDON_VALUE_OBJECT;
    case '[':
        return CORDON_VALUE_ARRAY;
    case '"':
        return CORDON_VALUE_STRING;
    case 't':
    case 'f':
        return CORDON_VALUE_BOOL;
    case 'n':
        return CORDON_VALUE_NULL;
    default:
        return CORDON_VALUE_NUMBER;
    }
}

/* The value at scan->p; false where there is none. */
static bool take_value(struct scan *scan, struct cordon_value *ret)
{
    skip_space(scan);
    const char *start = scan->p;
    if (!skip_value(scan))
        return false;
    *ret = (struct cordon_value){kind_of(*start), start, (size_t)(scan->p - start)};
    return true;
}

bool cordon_value_check(const char *text, size_t size, struct cordon_value *ret, const char **why, size_t *at)
{
    struct scan scan = {.p = text, .end = text + size};
    struct cordon_value value;
    bool good = cordon_utf8_valid(text, size) ? take_value(&scan, &value) : fault(&scan, not_utf8);
    skip_space(&scan);
    if (good && scan.p < scan.end)
        good = fault(&scan, "more text behind the value");
    if (good)
        *ret = value;
    *why = scan.why;
    *at = (size_t)(scan.p - text);
    return good;
}

int cordon_value_parse(const char *text, size_t size, struct cordon_value *ret, struct cordon_error *err)
{
    const char *why;
    size_t at;
    if (cordon_value_check(text, size, ret, &why, &at))
        return 0;
    if (why == not_utf8)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the text %s", not_utf8);
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the text %s %s at byte %zu",
                       why == too_deep ? "has" : "is not JSON:", why, at);
}

struct cordon_value_walk cordon_value_walk(const struct cordon_value *container)
{
    assert(container->kind == CORDON_VALUE_ARRAY || container->kind == CORDON_VALUE_OBJECT);
    return (struct cordon_value_walk){.p = container->data + 1,
                                      .end = container->data + container->size - 1,
                                      .object = container->kind == CORDON_VALUE_OBJECT};
}

bool cordon_value_next(struct cordon_value_walk *walk, struct cordon_value *key, struct cordon_value *value)
{
    struct scan scan = {.p = walk->p, .end = walk->end};
    skip_space(&scan);
    if (scan.p < scan.end && *scan.p == ',')
        scan.p++;
    skip_space(&scan);
    if (scan.p == scan.end)
        return false;
    if (walk->object) {
        const char *start = scan.p;
        bool good = skip_string(&scan);
        *key = (struct cordon_value){CORDON_VALUE_STRING, start, (size_t)(scan.p - start)};
        skip_space(&scan);
        assert(good && *scan.p == ':'); /* the text was checked */
        scan.p++;
    }
    bool good = take_value(&scan, value);
    assert(good);
    walk->p = scan.p;
    return good;
}

static unsigned hex4(const char *p)
{
    return (unsigned)(hex_value(p[0]) << 12 | hex_value(p[1]) << 8 | hex_value(p[2]) << 4 | hex_value(p[3]));
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* p is behind the \u; returns behind the escape (and its second half), NULL for half a pair. */
static const char *decode_unicode(const char *p, const char *end, char **to)
{
    unsigned c = hex4(p);
    p += 4;
    if (c >= 0xDC00 && c <= 0xDFFF)
        return NULL;
    if (c >= 0xD800 && c <= 0xDBFF) {
        unsigned low = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2) : 0;
        if (low < 0xDC00 || low > 0xDFFF)
            return NULL;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        p += 6;
    }
    *to = put_utf8(*to, c);
    return p;
}

ssize_t cordon_value_string(const struct cordon_value *value, char *to)
{
    static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    assert(value->kind == CORDON_VALUE_STRING);
    const char *p = value->data + 1, *end = value->data + value->size - 1;
    char *start = to;
    while (p < end) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((escape ? escape : end) - p);
        memcpy(to, p, plain);
        to += plain;
        if (!escape)
            break;
        p = escape + 2;
        if (escape[1] == 'u')
            p = decode_unicode(p, end, &to);
        else
            *to++ = meant[strchr(from, escape[1]) - from];
        if (!p)
            return -EILSEQ;
    }
    return to - start;
}

bool cordon_value_equals(const struct cordon_value *string, const char *text)
{
    size_t size = strlen(text);
    const char *raw = string->data + 1;
    size_t raw_size = string->size - 2;
    if (!memchr(raw, '\\', raw_size))
        return raw_size == size && memcmp(raw, text, size) == 0;
    char decoded[512];
    if (string->size > sizeof decoded)
        return false; /* longer than any name it is compared with, even if all was escaped */
    return cordon_value_string(string, decoded) == (ssize_t)size && memcmp(decoded, text, size) == 0;
}

bool cordon_value_true(const struct cordon_value *value)
{
    return *value->data == 't';
}

bool cordon_value_number(const struct cordon_value *value, double *ret)
{
    char text[64];
    if (value->kind != CORDON_VALUE_NUMBER || value->size >= sizeof text)
        return false;
    memcpy(text, value->data, value->size);
    text[value->size] = '\0';
    double number = strtod(text, NULL);
    if (!isfinite(number))
        return false;
    *ret = number;
    return true;
}

bool cordon_value_integer(const struct cordon_value *value, int64_t *ret)
{
    double number;
    if (!cordon_value_number(value, &number) || number != floor(number) || fabs(number) > 9007199254740992.0)
        return false;
    *ret = (int64_t)number;
    return true;
}

const char *cordon_value_kind_name(enum cordon_value_kind kind)
{
    static const char *const names[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
    return names[kind];
}

bool cordon_value_member(const struct cordon_value *object, const char *name, struct cordon_value *ret)
{
    struct cordon_value key, value;
    bool found = false;
    if (object->kind != CORDON_VALUE_OBJECT)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(object);
    while (cordon_value_next(&walk, &key, &value)) {
        if (!cordon_value_equals(&key, name))
            continue;
        *ret = value;
        found = true;
    }
    return found;
}

bool cordon_value_text(const struct cordon_value *object, const char *name, char *to, size_t size)
{
    struct cordon_value value;
    *to = '\0';
    if (!cordon_value_member(object, name, &value) || value.kind != CORDON_VALUE_STRING || value.size > 65536)
        return false;
    char *text = malloc(value.size + 1);
    ssize_t length = text ? cordon_value_string(&value, text) : -ENOMEM;
    bool good = length >= 0 && (size_t)length < size && !memchr(text, '\0', (size_t)length);
    if (good) {
        memcpy(to, text, (size_t)length);
        to[length] = '\0';
    }
    free(text);
    return good;
}

void cordon_value_copy(const struct cordon_value *value, char *to, size_t size)
{
    cordon_autofree char *text = value->kind == CORDON_VALUE_STRING ? malloc(value->size + 1) : NULL;
    ssize_t length = text ? cordon_value_string(value, text) : 0;
    if (text)
        text[length > 0 ? length : 0] = '\0';
    (void)snprintf(to, size, "%s", text ? text : ""); /* cut at its size */
}
