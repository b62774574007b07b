/* SPDX-License-Identifier: Apache-2.0 */
/* Rules and policies: what is read must be written so that it reads back to the same. */
#include <stdlib.h>
#include <string.h>

#include "core/egress.h"
#include "fuzz.h"

static void rule(const char *text, size_t size)
{
    struct cordon_egress_rule first, second;
    char written[CORDON_EGRESS_RULE_TEXT];
    if (cordon_egress_rule_parse(text, size, &first, NULL) < 0)
        return;
    cordon_egress_rule_format(&first, written);
    if (cordon_egress_rule_parse(written, strlen(written), &second, NULL) < 0 || first.form != second.form ||
        first.port != second.port || first.bits != second.bits || strcmp(first.name, second.name) != 0 ||
        memcmp(&first.address, &second.address, sizeof first.address) != 0)
        abort();
    if (!cordon_egress_rule_within(&first, &second))
        abort();
}

static void policy(const char *text, size_t size)
{
    struct cordon_egress_policy first, second;
    struct cordon_buf one = CORDON_BUF_INIT(1u << 20), two = CORDON_BUF_INIT(1u << 20);
    const struct cordon_egress_rule *found;
    if (cordon_egress_policy_read(text, size, &first, NULL) < 0)
        return;
    if (cordon_egress_policy_write(&first, true, &one) < 0 ||
        cordon_egress_policy_read(one.data, one.size, &second, NULL) < 0 ||
        cordon_egress_policy_write(&second, true, &two) < 0 || one.size != two.size ||
        memcmp(one.data, two.data, one.size) != 0)
        abort();
    (void)cordon_egress_decide_name(&first, "a.example", 443, &found);
    for (size_t i = 0; i < first.rule_count; i++)
        (void)cordon_egress_decide_address(&first, &first.rules[i].address, 80, &found);
    cordon_egress_policy_done(&first);
    cordon_egress_policy_done(&second);
    cordon_buf_done(&one);
    cordon_buf_done(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rule((const char *)data, size);
    policy((const char *)data, size);
    return 0;
}
