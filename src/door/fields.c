/* SPDX-License-Identifier: Apache-2.0 */
#include "door/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

struct cordon_door_block {
    struct cordon_door_block *next;
    max_align_t data[];
};

void *cordon_door_take(struct cordon_door_memory *memory, size_t size)
{
    struct cordon_door_block *block = calloc(1, sizeof *block + size);
    if (!block)
        return NULL;
    block->next = memory->blocks;
    memory->blocks = block;
    return block->data;
}

void cordon_door_forget(struct cordon_door_memory *memory)
{
    for (struct cordon_door_block *block = memory->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    memory->blocks = NULL;
}

static int out_of_memory(struct cordon_error *err)
{
    return cordon_fail_errno(err, -ENOMEM, "reading the request");
}

static int wrong(struct cordon_error *err, const char *name, const char *needed, const struct cordon_value *found)
{
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s must be %s; it is %s", name, needed,
                       cordon_value_kind_name(found->kind));
}

int cordon_fields_parse(const struct cordon_buf *body, struct cordon_value *ret, struct cordon_error *err)
{
    int r = body->size ? cordon_value_parse(body->data, body->size, ret, err) : cordon_value_parse("{}", 2, ret, err);
    if (r == 0 && ret->kind != CORDON_VALUE_OBJECT)
        return wrong(err, "the request's body", "an object", ret);
    return r;
}

int cordon_field(const struct cordon_value *object, const char *name, struct cordon_value *ret)
{
    struct cordon_value key, value;
    int found = 0;
    struct cordon_value_walk walk = cordon_value_walk(object);
    while (cordon_value_next(&walk, &key, &value)) {
        if (!cordon_value_equals(&key, name))
            continue;
        found = value.kind != CORDON_VALUE_NULL;
        if (found)
            *ret = value;
    }
    return found;
}

static int find(const struct cordon_value *object, const char *name, enum cordon_value_kind kind, const char *needed,
                struct cordon_value *ret, struct cordon_error *err)
{
    struct cordon_value value;
    if (!cordon_field(object, name, &value))
        return 0;
    if (value.kind != kind)
        return wrong(err, name, needed, &value);
    *ret = value;
    return 1;
}

int cordon_field_object(const struct cordon_value *object, const char *name, struct cordon_value *ret,
                        struct cordon_error *err)
{
    return find(object, name, CORDON_VALUE_OBJECT, "an object", ret, err);
}

int cordon_field_bool(const struct cordon_value *object, const char *name, bool *ret, struct cordon_error *err)
{
    struct cordon_value value;
    int r = find(object, name, CORDON_VALUE_BOOL, "true or false", &value, err);
    if (r > 0)
        *ret = cordon_value_true(&value);
    return r;
}

static bool read_integer(struct cordon_value value, int64_t *ret)
{
    if (value.kind == CORDON_VALUE_STRING && value.size > 2) {
        value.kind = CORDON_VALUE_NUMBER;
        value.data++;
        value.size -= 2;
        if (strspn(value.data, "-0123456789") < value.size)
            return false;
    }
    return cordon_value_integer(&value, ret);
}

int cordon_field_int(const struct cordon_value *object, const char *name, int64_t min, int64_t max, int64_t *ret,
                     struct cordon_error *err)
{
    struct cordon_value value;
    int64_t number;
    if (!cordon_field(object, name, &value))
        return 0;
    if (!read_integer(value, &number) || number < min || number > max)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s must be a whole number from %" PRId64 " to %" PRId64 "; it is %.*s", name, min, max,
                           (int)(value.size < 32 ? value.size : 32), value.data);
    *ret = number;
    return 1;
}

static int copy_text(const struct cordon_value *value, const char *name, struct cordon_door_memory *memory,
                     const char **ret, struct cordon_error *err)
{
    if (value->kind != CORDON_VALUE_STRING)
        return wrong(err, name, "a string", value);
    char *text = cordon_door_take(memory, value->size + 1);
    if (!text)
        return out_of_memory(err);
    ssize_t size = cordon_value_string(value, text);
    if (size < 0 || memchr(text, '\0', (size_t)size))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s holds a character that can't stand there", name);
    text[size] = '\0';
    *ret = text;
    return 1;
}

int cordon_field_text(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                      const char **ret, struct cordon_error *err)
{
    struct cordon_value value;
    return cordon_field(object, name, &value) ? copy_text(&value, name, memory, ret, err) : 0;
}

static size_t count_members(const struct cordon_value *container)
{
    struct cordon_value key, value;
    size_t count = 0;
    struct cordon_value_walk walk = cordon_value_walk(container);
    while (cordon_value_next(&walk, &key, &value))
        count++;
    return count;
}

int cordon_field_texts(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                       struct cordon_texts *ret, struct cordon_error *err)
{
    struct cordon_value list, key, value;
    int r = find(object, name, CORDON_VALUE_ARRAY, "a list of strings", &list, err);
    if (r <= 0)
        return r;
    const char **items = cordon_door_take(memory, (count_members(&list) + 1) * sizeof *items);
    size_t count = 0;
    if (!items)
        return out_of_memory(err);
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (r > 0 && cordon_value_next(&walk, &key, &value))
        r = copy_text(&value, name, memory, &items[count++], err);
    if (r < 0)
        return r;
    *ret = (struct cordon_texts){items, count};
    return 1;
}

int cordon_field_pairs(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                       struct cordon_pairs *ret, struct cordon_error *err)
{
    struct cordon_value map, key, value;
    int r = find(object, name, CORDON_VALUE_OBJECT, "an object of strings", &map, err);
    if (r <= 0)
        return r;
    struct cordon_pair *items = cordon_door_take(memory, (count_members(&map) + 1) * sizeof *items);
    size_t count = 0;
    if (!items)
        return out_of_memory(err);
    struct cordon_value_walk walk = cordon_value_walk(&map);
    for (; r > 0 && cordon_value_next(&walk, &key, &value); count++) {
        r = copy_text(&key, name, memory, &items[count].key, err);
        if (r > 0)
            r = copy_text(&value, name, memory, &items[count].value, err);
    }
    if (r < 0)
        return r;
    *ret = (struct cordon_pairs){items, count};
    return 1;
}

int cordon_field_env(const struct cordon_value *object, const char *name, struct cordon_door_memory *memory,
                     struct cordon_texts *ret, struct cordon_error *err)
{
    struct cordon_pairs pairs;
    int r = cordon_field_pairs(object, name, memory, &pairs, err);
    if (r <= 0)
        return r;
    const char **items = cordon_door_take(memory, (pairs.count + 1) * sizeof *items);
    if (!items)
        return out_of_memory(err);
    for (size_t i = 0; i < pairs.count; i++) {
        size_t key = strlen(pairs.items[i].key), value = strlen(pairs.items[i].value);
        if (!key || strchr(pairs.items[i].key, '='))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s: \"%.64s\" can't be a variable's name", name,
                               pairs.items[i].key);
        char *text = cordon_door_take(memory, key + value + 2);
        if (!text)
            return out_of_memory(err);
        memcpy(text, pairs.items[i].key, key);
        text[key] = '=';
        memcpy(text + key + 1, pairs.items[i].value, value);
        items[i] = text;
    }
    *ret = (struct cordon_texts){items, pairs.count};
    return 1;
}

int cordon_door_unbase64(struct cordon_buf *to, const char *text, size_t size)
{
    cordon_autofree char *plain = malloc(size + 4);
    if (!plain)
        return -ENOMEM;
    while (size && text[size - 1] == '=')
        size--;
    for (size_t i = 0; i < size; i++)
        plain[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    while (size % 4)
        plain[size++] = '=';
    return cordon_buf_unbase64(to, plain, size);
}

int cordon_field_bytes(const struct cordon_value *object, const char *name, struct cordon_buf *ret,
                       struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    const char *text;
    int r = cordon_field_text(object, name, &memory, &text, err);
    if (r <= 0)
        return r;
    r = cordon_door_unbase64(ret, text, strlen(text));
    if (r == -EINVAL)
        return cordon_fail(err, r, CORDON_ERROR_INVALID, "%s is not base64", name);
    return r < 0 ? cordon_fail_errno(err, r, "reading %s", name) : 1;
}
