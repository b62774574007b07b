/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "door/executor_manager.h"

#define MARKER "__RAGFLOW_RESULT__:"

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static ssize_t base64_fault(char fault[160], const char *why)
{
    (void)snprintf(fault, 160, "%s", why); /* fits */
    return -EINVAL;
}

static ssize_t base64_end(unsigned in_quad, size_t size, char fault[160])
{
    if (in_quad == 0)
        return (ssize_t)size;
    if (in_quad > 1)
        return base64_fault(fault, "Incorrect padding");
    (void)snprintf(
        fault, 160,
        "Invalid base64-encoded string: number of data characters (%zu) cannot be 1 more than a multiple of 4",
        size / 3 * 4 + 1); /* fits */
    return -EINVAL;
}

ssize_t cordon_em_unbase64(const char *text, size_t size, char *to, char fault[160])
{
    size_t count = 0;
    unsigned in_quad = 0, padding = 0, bits = 0;
    if (size && text[0] == '=')
        return base64_fault(fault, "Leading padding not allowed");
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '=') {
            padding++;
            if (in_quad >= 2 && in_quad + padding >= 4)
                return i + 1 < size ? base64_fault(fault, "Excess data after padding") : (ssize_t)count;
            continue;
        }
        int digit = base64_digit((unsigned char)text[i]);
        if (digit < 0)
            return base64_fault(fault, (unsigned char)text[i] < 0x80
                                           ? "Only base64 data is allowed"
                                           : "string argument should contain only ASCII characters");
        if (padding)
            return base64_fault(fault, "Discontinuous padding not allowed");
        bits = bits << 6 | (unsigned)digit;
        if (in_quad++) {
            unsigned left = 6 - 2 * (in_quad - 1); /* bits that belong to the next byte: 4, 2, 0 */
            if (to)
                to[count] = (char)(bits >> left);
            count++;
        }
        in_quad %= 4;
    }
    return base64_end(in_quad, count, fault);
}

/* How many bytes a character that begins so has; 0: none does. */
static size_t utf8_length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

/* May this byte stand second? Excludes what is too long, half a surrogate pair, or beyond Unicode. */
static bool utf8_second(unsigned char lead, unsigned char second)
{
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high;
}

bool cordon_em_utf8(const char *data, size_t size, char fault[160])
{
    if (cordon_utf8_valid(data, size))
        return true;
    const unsigned char *bytes = (const unsigned char *)data;
    size_t at = 0, good = 0, length = 1;
    for (; at < size; at += length) {
        length = utf8_length(bytes[at]);
        good = 1;
        while (good < length && at + good < size &&
               (good == 1 ? utf8_second(bytes[at], bytes[at + 1]) : (bytes[at + good] & 0xC0) == 0x80))
            good++;
        if (good != length)
            break;
    }
    const char *why = !length             ? "invalid start byte"
                      : at + good == size ? "unexpected end of data"
                                          : "invalid continuation byte";
    if (good > 1)
        (void)snprintf(fault, 160, "'utf-8' codec can't decode bytes in position %zu-%zu: %s", at, at + good - 1, why);
    else
        (void)snprintf(fault, 160, "'utf-8' codec can't decode byte 0x%02x in position %zu: %s",
                       at < size ? bytes[at] : 0u, at, why);
    return false;
}

/* The bytes of the line end here; 0: there is none. */
static size_t line_end(const char *p, size_t left)
{
    unsigned char c = (unsigned char)*p;
    if (c == '\r')
        return left > 1 && p[1] == '\n' ? 2 : 1;
    if (c == '\n' || c == '\v' || c == '\f' || (c >= 0x1C && c <= 0x1E))
        return 1;
    if (c == 0xC2)
        return left > 1 && (unsigned char)p[1] == 0x85 ? 2 : 0;
    return c == 0xE2 && left > 2 && (unsigned char)p[1] == 0x80 && ((unsigned char)p[2] | 1) == 0xA9 ? 3 : 0;
}

/* {"present": a boolean, …} */
static bool is_envelope(const char *text, size_t size)
{
    struct cordon_value value, key, item;
    if (cordon_value_parse(text, size, &value, NULL) < 0 || value.kind != CORDON_VALUE_OBJECT)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(&value);
    while (cordon_value_next(&walk, &key, &item))
        if (cordon_value_equals(&key, "present"))
            return item.kind == CORDON_VALUE_BOOL;
    return false;
}

static bool is_marker(const char *line, size_t size)
{
    size_t prefix = sizeof MARKER - 1;
    char fault[160];
    if (size < prefix || memcmp(line, MARKER, prefix) != 0)
        return false;
    line += prefix;
    size -= prefix;
    while (size && (*line == ' ' || *line == '\t'))
        line++, size--;
    while (size && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    if (!size)
        return true;
    struct cordon_buf json = CORDON_BUF_INIT(size);
    char *to = cordon_buf_reserve(&json, size);
    ssize_t n = to ? cordon_em_unbase64(line, size, to, fault) : -ENOMEM;
    bool is = n > 0 && is_envelope(to, (size_t)n);
    cordon_buf_done(&json);
    return is;
}

void cordon_em_stdout(const char *data, size_t size, struct cordon_buf *to)
{
    size_t begin = to->size;
    bool any = false;
    for (size_t at = 0, end, ending; at < size; at = end + ending) {
        ending = 0;
        for (end = at; end < size && !ending; end += !ending)
            ending = line_end(data + end, size - end);
        if (is_marker(data + at, end - at))
            continue;
        if (any)
            (void)cordon_buf_append(to, "\n", 1); /* failures stick in to->failed */
        (void)cordon_buf_append(to, data + at, end - at);
        any = true;
    }
    if (to->size > begin && data[size - 1] == '\n')
        (void)cordon_buf_append(to, "\n", 1);
}
