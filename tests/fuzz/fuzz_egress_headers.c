/* SPDX-License-Identifier: Apache-2.0 */
/* Which headers a client wants put into requests, and E2B's whole network object. The first byte chooses the reader. */
#include "fuzz.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/egress.h"
#include "core/settings.h"
#include "door/e2b/control.h"
#include "door/fields.h"

static void need(bool truth)
{
    if (!truth)
        abort();
}

static void *take(void *memory, size_t size)
{
    return cordon_door_take(memory, size);
}

/* What becomes a header of somebody else's request is one line. */
static void check_headers(const char *const *headers, size_t count)
{
    need(count <= CORDON_EGRESS_HEADERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
        struct cordon_error err = {0};
        const char *name = strchr(headers[i], ' ');
        const char *value = name ? strstr(name, ": ") : NULL;
        need(value);
        char *host = strndup(headers[i], (size_t)(name - headers[i]));
        char *key = strndup(name + 1, (size_t)(value - name) - 1);
        int r = host && key ? cordon_egress_policy_add_header(&policy, host, key, value + 2, &err) : -1;
        need(r == 0 || !host || !key || err.kind != CORDON_ERROR_NONE);
        for (const char *at = headers[i]; r == 0 && *at; at++)
            need(!iscntrl((unsigned char)*at) || *at == '\t');
        free(host);
        free(key);
        cordon_egress_policy_done(&policy);
    }
}

static void headers(const struct cordon_value *body, struct cordon_door_memory *memory)
{
    struct cordon_error err = {0};
    const char *const *found = NULL;
    size_t count = 0;
    int r = cordon_egress_headers_read(body, "egress_headers", take, memory, &found, &count, &err);
    need(r == 0 || err.kind != CORDON_ERROR_NONE);
    if (r == 0)
        check_headers(found, count);
}

/* What is told again is the object that was read, and does not have the values. */
static void check_told(const struct cordon_value *told)
{
    struct cordon_value again, rules, host, list;
    if (!told->data)
        return;
    need(cordon_value_parse(told->data, told->size, &again, NULL) == 0 && again.kind == CORDON_VALUE_OBJECT);
    if (!cordon_field(&again, "rules", &rules))
        return;
    struct cordon_value_walk walk = cordon_value_walk(&rules);
    while (cordon_value_next(&walk, &host, &list)) {
        struct cordon_value rule, transform, set, name, value;
        struct cordon_value_walk each = cordon_value_walk(&list);
        while (cordon_value_next(&each, NULL, &rule)) {
            need(cordon_field(&rule, "transform", &transform) && cordon_field(&transform, "headers", &set));
            struct cordon_value_walk values = cordon_value_walk(&set);
            while (cordon_value_next(&values, &name, &value))
                need(cordon_value_equals(&value, "***"));
        }
    }
}

static void network(const struct cordon_value *body, struct cordon_door_memory *memory)
{
    static struct cordon_settings *settings;
    struct cordon_e2b_network found;
    struct cordon_error err = {0};
    if (!settings) {
        static const char *const nothing[] = {NULL};
        const struct cordon_settings_input none = {.environ = nothing};
        need(cordon_settings_load(&none, &settings, NULL) == 0);
    }
    int r = cordon_e2b_network_read(settings, body, body, memory, &found, &err);
    need(r == 0 || err.kind != CORDON_ERROR_NONE);
    if (r < 0)
        return;
    check_headers(found.headers, found.header_count);
    check_told(&found.whole);
    for (size_t i = 0; i < found.entries.count; i++) {
        struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
        (void)cordon_egress_policy_add(&policy, found.entries.items[i], &err); /* good or not, it must not go astray */
        cordon_egress_policy_done(&policy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_door_memory memory = {0};
    struct cordon_value body;
    if (!size)
        return 0;
    char *text = malloc(size); /* one byte less, so that reading beyond it shows */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    const struct cordon_buf whole = {.data = text, .size = size - 1};
    if (cordon_fields_parse(&whole, &body, NULL) == 0)
        (data[0] % 2 ? network : headers)(&body, &memory);
    cordon_door_forget(&memory);
    free(text);
    return 0;
}
