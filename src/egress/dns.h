/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages: a guest's question is read, an answer of ours is written. Pure, fuzzed. */
#ifndef CORDON_EGRESS_DNS_H
#define CORDON_EGRESS_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/egress_rule.h"

#define CORDON_DNS_MAX 1232 /* of an answer over UDP, whatever more the guest offers */
#define CORDON_DNS_QUESTION_MAX 512

enum cordon_dns_type { CORDON_DNS_A = 1, CORDON_DNS_AAAA = 28, CORDON_DNS_ANY = 255 };

enum cordon_dns_code {
    CORDON_DNS_OK = 0,
    CORDON_DNS_MALFORMED = 1,
    CORDON_DNS_FAILED = 2,
    CORDON_DNS_NO_NAME = 3,
    CORDON_DNS_NOT_DONE = 4,
    CORDON_DNS_REFUSED = 5
};

struct cordon_dns_question {
    uint16_t id, type;
    bool recursion, extended;           /* RD; has an OPT record */
    uint16_t room;                      /* of an answer over UDP: 512 to CORDON_DNS_MAX */
    size_t size;                        /* of header and question, as far as an answer repeats them */
    char name[CORDON_EGRESS_NAME_SIZE]; /* lower case; "" for what is no host name of ours (the root, odd bytes) */
};

/* 0; -EBADMSG: a message that is answered with MALFORMED or NOT_DONE (*code); -EINVAL: not worth an answer (too short,
 * or itself an answer). */
int cordon_dns_read(const uint8_t *data, size_t size, struct cordon_dns_question *ret, enum cordon_dns_code *code);

/* An answer to the message `query` (of question->size bytes at least, but for MALFORMED, where 12 do): with one A
 * record where address (IPv4) is given. Its size; to has room for CORDON_DNS_QUESTION_MAX + 64. */
size_t cordon_dns_answer(const struct cordon_dns_question *question, const uint8_t *query, enum cordon_dns_code code,
                         const struct cordon_egress_address *address, uint32_t ttl_s, uint8_t *to);

/* Makes what a name server answered the answer to the question: its id; cut to room with TC set where it is longer.
 * Its size, or 0 where it is no answer. */
size_t cordon_dns_adopt(const struct cordon_dns_question *question, const uint8_t *query, const uint8_t *answer,
                        size_t size, size_t room, uint8_t *to);

#endif
