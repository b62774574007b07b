/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading JSON that strangers wrote. The whole text is checked once (RFC 8259, UTF-8, depth); then values are slices of
 * that text, walked in place: no tree is built, so a body of 32 MiB of `[],[],…` costs nothing beyond itself, and what
 * is passed on (big integers, escapes) is passed on as it was written. Pure, fuzzed. (json-c, the usual choice here,
 * spends about 100 bytes for each such byte.)
 */
#ifndef CORDON_CORE_VALUE_H
#define CORDON_CORE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define CORDON_VALUE_DEPTH 64 /* most arrays and objects in one another */

enum cordon_value_kind {
    CORDON_VALUE_NULL,
    CORDON_VALUE_BOOL,
    CORDON_VALUE_NUMBER,
    CORDON_VALUE_STRING,
    CORDON_VALUE_ARRAY,
    CORDON_VALUE_OBJECT
};

/* A slice of a checked text, without the white space around it; a string has its quotes. */
struct cordon_value {
    enum cordon_value_kind kind;
    const char *data;
    size_t size;
};

/* Checks a whole text: 0, or -EINVAL with kind INVALID and the place of the first fault. Borrows the text. */
int cordon_value_parse(const char *text, size_t size, struct cordon_value *ret, struct cordon_error *err);
/* The same for whoever words the fault himself: true, or false with what it is (a phrase, static) and its byte. */
bool cordon_value_check(const char *text, size_t size, struct cordon_value *ret, const char **why, size_t *at);

/* Walks an array's values or an object's members. */
struct cordon_value_walk {
    const char *p, *end;
    bool object;
};
struct cordon_value_walk cordon_value_walk(const struct cordon_value *container);
bool cordon_value_next(struct cordon_value_walk *walk, struct cordon_value *key, struct cordon_value *value);

/* Decodes a string into to, which has room for value->size bytes; may hold NULs. Its length, or -EILSEQ where an escape
 * is half a surrogate pair and so no character. */
ssize_t cordon_value_string(const struct cordon_value *value, char *to);
/* The object's member of that name (the last, where it is there twice); false: no object, or not there. */
bool cordon_value_member(const struct cordon_value *object, const char *name, struct cordon_value *ret);
/* The same for a string member, decoded into to; "" and false where there is none, it is no string, or it doesn't fit
 * or holds a NUL. */
bool cordon_value_text(const struct cordon_value *object, const char *name, char *to, size_t size);
/* A string, cut at size - 1 bytes and at a NUL, for showing; "" for what is no string. */
void cordon_value_copy(const struct cordon_value *value, char *to, size_t size);
bool cordon_value_equals(const struct cordon_value *string, const char *text);
bool cordon_value_true(const struct cordon_value *value);                  /* of a BOOL */
bool cordon_value_number(const struct cordon_value *value, double *ret);   /* false: no NUMBER, or not finite */
bool cordon_value_integer(const struct cordon_value *value, int64_t *ret); /* false: no whole number of that size */
const char *cordon_value_kind_name(enum cordon_value_kind kind);           /* "a string" */

#endif
