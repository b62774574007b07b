/* SPDX-License-Identifier: Apache-2.0 */
/*
 * E2B's network rules: {"HOST": [{"transform": {"headers": {"NAME": "VALUE"}}}]}. The values are secrets: core gets
 * them, and what is kept to be told again is the network object with *** in their place.
 */
#include <errno.h>
#include <string.h>

#include "core/egress.h"
#include "door/e2b/control.h"

#define RULES_MAX (1u << 20)
#define RAW(value) (int)(value).size, (value).data

struct writing {
    struct cordon_buf core;  /* {"HOST":{"NAME":"VALUE"},…}: what core reads; secret */
    struct cordon_buf shown; /* "HOST":[{"transform":{"headers":{"NAME":"***",…}}}],… */
    struct cordon_error *err;
};

static int malformed(struct cordon_error *err)
{
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "network.rules must be {\"HOST\": [{\"transform\": {\"headers\": {\"NAME\": \"VALUE\"}}}]}");
}

static int unknown(const struct cordon_value *key, struct cordon_error *err)
{
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                       "%.*s in network.rules is not implemented by this server: transform.headers is",
                       key->size < 60 ? (int)key->size : 60, key->data);
}

/* The object's one member of that name; 0 where it is empty. Another member would be believed to hold. */
static int only_member(const struct cordon_value *object, const char *name, struct cordon_value *ret,
                       struct cordon_error *err)
{
    struct cordon_value key, value;
    int found = 0;
    if (object->kind != CORDON_VALUE_OBJECT)
        return malformed(err);
    struct cordon_value_walk walk = cordon_value_walk(object);
    while (cordon_value_next(&walk, &key, &value)) {
        if (!cordon_value_equals(&key, name))
            return unknown(&key, err);
        if (value.kind != CORDON_VALUE_OBJECT)
            return malformed(err);
        *ret = value;
        found = 1;
    }
    return found;
}

static void write_headers(struct writing *to, const struct cordon_value *host, const struct cordon_value *headers,
                          bool *first)
{
    struct cordon_value name, value;
    struct cordon_value_walk walk = cordon_value_walk(headers);
    while (cordon_value_next(&walk, &name, &value)) { /* failures are sticky */
        (void)cordon_buf_appendf(&to->core, "%s%.*s:{%.*s:%.*s}", to->core.size > 1 ? "," : "", RAW(*host), RAW(name),
                                 RAW(value));
        (void)cordon_buf_appendf(&to->shown, "%s%.*s:\"***\"", *first ? "" : ",", RAW(name));
        *first = false;
    }
}

static int write_host(struct writing *to, const struct cordon_value *host, const struct cordon_value *rules)
{
    struct cordon_value rule, transform, headers;
    bool first = true;
    int r = 1;
    if (rules->kind != CORDON_VALUE_ARRAY)
        return malformed(to->err);
    (void)cordon_buf_appendf(&to->shown, "%s%.*s:[{\"transform\":{\"headers\":{", to->shown.size ? "," : "",
                             RAW(*host));
    struct cordon_value_walk walk = cordon_value_walk(rules);
    while (r >= 0 && cordon_value_next(&walk, NULL, &rule)) {
        r = only_member(&rule, "transform", &transform, to->err);
        if (r > 0)
            r = only_member(&transform, "headers", &headers, to->err);
        if (r > 0)
            write_headers(to, host, &headers, &first);
    }
    (void)cordon_buf_appends(&to->shown, "}}}]");
    return r;
}

static int write_rules(struct writing *to, const struct cordon_value *rules)
{
    struct cordon_value host, list;
    int r = 0;
    if (rules->kind != CORDON_VALUE_OBJECT)
        return malformed(to->err);
    (void)cordon_buf_appends(&to->core, "{");
    struct cordon_value_walk walk = cordon_value_walk(rules);
    while (r >= 0 && cordon_value_next(&walk, &host, &list))
        r = write_host(to, &host, &list);
    (void)cordon_buf_appends(&to->core, "}");
    if (r >= 0 && (to->core.failed || to->shown.failed))
        r = cordon_fail(to->err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "the network's rules are too many");
    return r < 0 ? r : 0;
}

static int redact(const struct cordon_value *network, const struct cordon_buf *rules, struct cordon_door_memory *memory,
                  struct cordon_value *ret, struct cordon_error *err)
{
    struct cordon_value key, value;
    struct cordon_buf text = CORDON_BUF_INIT(RULES_MAX);
    struct cordon_value_walk walk = cordon_value_walk(network);
    (void)cordon_buf_appendf(&text, "{\"rules\":{%.*s}", (int)rules->size, rules->data ? rules->data : "");
    while (cordon_value_next(&walk, &key, &value))
        if (!cordon_value_equals(&key, "rules"))
            (void)cordon_buf_appendf(&text, ",%.*s:%.*s", RAW(key), RAW(value));
    (void)cordon_buf_appends(&text, "}");
    char *copy = text.failed ? NULL : cordon_door_take(memory, text.size + 1);
    if (copy)
        memcpy(copy, text.data, text.size);
    *ret = (struct cordon_value){CORDON_VALUE_OBJECT, copy, text.size};
    cordon_buf_done(&text);
    return copy ? 0 : cordon_fail_errno(err, -ENOMEM, "reading the network's rules");
}

static void *take(void *memory, size_t size)
{
    return cordon_door_take(memory, size);
}

int cordon_e2b_rules_read(const struct cordon_value *network, struct cordon_door_memory *memory,
                          struct cordon_e2b_network *ret, struct cordon_error *err)
{
    struct writing writing = {.core = CORDON_BUF_INIT(RULES_MAX), .shown = CORDON_BUF_INIT(RULES_MAX), .err = err};
    struct cordon_value rules, headers;
    if (!cordon_field(network, "rules", &rules))
        return 0;
    int r = write_rules(&writing, &rules);
    if (r == 0)
        r = cordon_value_parse(writing.core.data, writing.core.size, &headers, err);
    if (r == 0)
        r = cordon_egress_headers_read(&headers, "network.rules", take, memory, &ret->headers, &ret->header_count, err);
    if (r == 0)
        r = redact(network, &writing.shown, memory, &ret->whole, err);
    cordon_buf_wipe(&writing.core);
    cordon_buf_done(&writing.shown);
    return r;
}
