/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON: every value of an accepted text is walked and decoded, within its own bounds. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "core/value.h"

static void visit(const struct cordon_value *value, unsigned depth);

static void visit_string(const struct cordon_value *value)
{
    char *to = malloc(value->size);
    if (!to)
        abort();
    if (cordon_value_string(value, to) > (ssize_t)value->size - 2)
        abort();
    (void)cordon_value_equals(value, "code");
    free(to);
}

static void visit_members(const struct cordon_value *value, unsigned depth)
{
    struct cordon_value key, item;
    struct cordon_value_walk walk = cordon_value_walk(value);
    while (cordon_value_next(&walk, &key, &item)) {
        if (value->kind == CORDON_VALUE_OBJECT)
            visit_string(&key);
        visit(&item, depth + 1);
    }
}

static void visit(const struct cordon_value *value, unsigned depth)
{
    int64_t integer;
    double number;
    struct cordon_value again;
    if (depth > CORDON_VALUE_DEPTH)
        abort();
    /* Each slice is a JSON text by itself (checked near the top only: else it is quadratic). */
    if (depth < 3 && cordon_value_parse(value->data, value->size, &again, NULL) < 0)
        abort();
    switch (value->kind) {
    case CORDON_VALUE_STRING:
        visit_string(value);
        break;
    case CORDON_VALUE_ARRAY:
    case CORDON_VALUE_OBJECT:
        visit_members(value, depth);
        break;
    case CORDON_VALUE_NUMBER:
        (void)cordon_value_integer(value, &integer);
        (void)cordon_value_number(value, &number);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_value value;
    if (size < 8192 && cordon_value_parse((const char *)data, size, &value, NULL) == 0)
        visit(&value, 0);
    return 0;
}
