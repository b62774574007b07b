/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's DNS messages, the answers made to them, and what a name server says. */
#include <stdlib.h>
#include <string.h>

#include "egress/dns.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_dns_question question, again;
    enum cordon_dns_code code;
    const struct cordon_egress_address address = {{[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18}};
    uint8_t to[CORDON_DNS_QUESTION_MAX + 64], adopted[CORDON_DNS_MAX + CORDON_DNS_QUESTION_MAX + 64];
    int r = cordon_dns_read(data, size, &question, &code);
    if (r == -22)
        return 0;
    size_t n = cordon_dns_answer(&question, data, r < 0 ? code : CORDON_DNS_OK, r < 0 ? NULL : &address, 60, to);
    if (n < 12 || n > sizeof to)
        abort();
    if (cordon_dns_read(to, n, &again, &code) != -22) /* it is an answer, so nobody answers it */
        abort();
    if (r == 0 && strlen(question.name) >= CORDON_EGRESS_NAME_SIZE)
        abort();
    n = cordon_dns_adopt(&question, data, data, size, question.room, adopted);
    if (n > sizeof adopted)
        abort();
    return 0;
}
