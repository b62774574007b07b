/* SPDX-License-Identifier: Apache-2.0 */
#include "door/createos/egress.h"

#include <errno.h>
#include <string.h>

#include "core/egress.h"

static int check_rule(const char *text, struct cordon_egress_rule *rule, struct cordon_error *err)
{
    int r = cordon_egress_rule_parse(text, strlen(text), rule, err);
    if (r < 0)
        return r;
    if (rule->form == CORDON_EGRESS_RANGE && !cordon_egress_address_is_v4(&rule->address))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the egress rule \"%.100s\" is of IPv6: this interface knows IPv4 addresses and names",
                           text);
    return 0;
}

/* 240.0.0.0/4 holds no address that anything could answer from. */
static bool reaches_nothing(const struct cordon_egress_rule *rule)
{
    struct cordon_egress_rule nowhere;
    return cordon_egress_rule_parse(CORDON_CREATEOS_DENY_ALL, sizeof CORDON_CREATEOS_DENY_ALL - 1, &nowhere, NULL) ==
               0 &&
           cordon_egress_rule_within(rule, &nowhere);
}

int cordon_createos_egress_read(const struct cordon_texts *list, struct cordon_createos_egress *ret,
                                struct cordon_error *err)
{
    *ret = (struct cordon_createos_egress){.named = list->count > 0, .rules = *list};
    ret->all = !ret->named;
    for (size_t i = 0; i < list->count; i++) {
        struct cordon_egress_rule rule;
        if (strcmp(list->items[i], "*") == 0) {
            ret->all = true;
            continue;
        }
        int r = check_rule(list->items[i], &rule, err);
        if (r < 0)
            return r;
        ret->on = ret->on || !reaches_nothing(&rule);
    }
    ret->on = ret->on || ret->all;
    return 0;
}
