/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP heads: a decision stays the same when more comes, and what is passed on reads as the same request. */
#include <stdlib.h>
#include <string.h>

#include "egress/head.h"
#include "fuzz.h"

static void rewrite(const char *text, const struct cordon_http_head *head)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_http_head again;
    struct cordon_buf to = CORDON_BUF_INIT(1u << 20);
    const char *why = NULL;
    unsigned added;
    if (cordon_egress_policy_add_header(&policy, head->host, "X-Secret", "value", NULL) < 0 ||
        cordon_head_rewrite(text, head, &policy, head->host, 80, &to, &added) < 0 || added != 1)
        abort();
    enum cordon_head r = cordon_head_read(to.data, to.size, &again, &why);
    if (to.size <= CORDON_HEAD_MAX &&
        (r != CORDON_HEAD_READ || again.size != to.size || strcmp(again.host, head->host) != 0 ||
         again.port != head->port || again.websocket != head->websocket))
        abort();
    cordon_buf_done(&to);
    cordon_egress_policy_done(&policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_http_head head, early;
    const char *why = NULL, *text = (const char *)data;
    enum cordon_head whole = cordon_head_read(text, size, &head, &why);
    enum cordon_head guess = cordon_head_guess(text, size);
    if (whole == CORDON_HEAD_READ)
        rewrite(text, &head);
    for (size_t part = 1; part < size; part = part * 2 + 1) {
        enum cordon_head r = cordon_head_read(text, part, &early, &why);
        if (r != CORDON_HEAD_MORE && (r != whole || early.size != head.size))
            abort();
        r = cordon_head_guess(text, part);
        if (part < CORDON_HEAD_MAX && r != CORDON_HEAD_MORE && r != guess)
            abort(); /* else a request could be hidden by where it is cut */
    }
    return 0;
}
