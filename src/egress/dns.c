/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns.h"

#include <errno.h>
#include <string.h>

#define HEADER 12u
#define CLASS_IN 1
#define TYPE_OPT 41
#define FLAG_RESPONSE 0x8000u
#define FLAG_TRUNCATED 0x0200u
#define FLAG_RECURSION 0x0100u
#define FLAG_RECURSION_THERE 0x0080u
#define OPT_SIZE 11u

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint8_t *put16(uint8_t *to, unsigned value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
    return to + 2;
}

/* The question's labels as dotted text: the offset behind them, or 0. A question has no compression, and none is
 * followed. What is in the labels is judged later, as a name. */
static size_t read_labels(const uint8_t *data, size_t size, char text[CORDON_EGRESS_NAME_SIZE], size_t *text_size)
{
    size_t at = HEADER, used = 0;
    for (;;) {
        if (at >= size)
            return 0;
        size_t length = data[at++];
        if (!length)
            break;
        if (length > 63 || length > size - at || used + length + 1 >= CORDON_EGRESS_NAME_SIZE)
            return 0;
        memcpy(text + used, data + at, length);
        if (memchr(text + used, '.', length)) /* a dot within a label would make another name of it */
            text[used] = '\0';
        used += length;
        text[used++] = '.';
        at += length;
    }
    *text_size = used;
    return at;
}

/* An OPT record, the only thing that may follow a question. Its owner is the root. */
static bool read_opt(const uint8_t *data, size_t size, size_t at, struct cordon_dns_question *ret)
{
    if (size - at < OPT_SIZE || data[at] != 0 || get16(data + at + 1) != TYPE_OPT)
        return false;
    uint16_t room = get16(data + at + 3);
    ret->extended = true;
    ret->room = room < 512 ? 512 : room > CORDON_DNS_MAX ? CORDON_DNS_MAX : room;
    return get16(data + at + 9) <= size - at - OPT_SIZE;
}

int cordon_dns_read(const uint8_t *data, size_t size, struct cordon_dns_question *ret, enum cordon_dns_code *code)
{
    char text[CORDON_EGRESS_NAME_SIZE];
    size_t text_size = 0;
    *ret = (struct cordon_dns_question){.room = 512, .size = HEADER};
    *code = CORDON_DNS_MALFORMED;
    if (size < HEADER || size > CORDON_DNS_QUESTION_MAX)
        return -EINVAL;
    unsigned flags = get16(data + 2);
    if (flags & FLAG_RESPONSE)
        return -EINVAL;
    ret->id = get16(data);
    ret->recursion = flags & FLAG_RECURSION;
    if (flags & 0x7800) { /* no plain question */
        *code = CORDON_DNS_NOT_DONE;
        return -EBADMSG;
    }
    unsigned additional = get16(data + 10);
    if (get16(data + 4) != 1 || get16(data + 6) || get16(data + 8) || additional > 1)
        return -EBADMSG;
    size_t at = read_labels(data, size, text, &text_size);
    if (!at || size - at < 4)
        return -EBADMSG;
    ret->type = get16(data + at);
    unsigned class = get16(data + at + 2);
    at += 4;
    if (additional && !read_opt(data, size, at, ret))
        return -EBADMSG;
    if (class != CLASS_IN) {
        *code = CORDON_DNS_NOT_DONE;
        return -EBADMSG;
    }
    ret->size = at;
    if (cordon_egress_name_read(text, text_size, ret->name) < 0)
        ret->name[0] = '\0';
    *code = CORDON_DNS_OK;
    return 0;
}

static uint8_t *put_address(uint8_t *to, const struct cordon_egress_address *address, uint32_t ttl_s)
{
    to = put16(to, 0xc000 | HEADER); /* the name of the question */
    to = put16(to, CORDON_DNS_A);
    to = put16(to, CLASS_IN);
    to = put16(to, ttl_s >> 16);
    to = put16(to, ttl_s & 0xffff);
    to = put16(to, 4);
    memcpy(to, address->bytes + 12, 4);
    return to + 4;
}

static uint8_t *put_opt(uint8_t *to)
{
    *to++ = 0;
    to = put16(to, TYPE_OPT);
    to = put16(to, CORDON_DNS_MAX);
    memset(to, 0, 6); /* no extended code, version 0, no flags, no options */
    return to + 6;
}

size_t cordon_dns_answer(const struct cordon_dns_question *question, const uint8_t *query, enum cordon_dns_code code,
                         const struct cordon_egress_address *address, uint32_t ttl_s, uint8_t *to)
{
    bool repeats = question->size > HEADER;
    memcpy(to, query, question->size);
    unsigned flags = FLAG_RESPONSE | FLAG_RECURSION_THERE | (question->recursion ? FLAG_RECURSION : 0) | (unsigned)code;
    (void)put16(to, question->id);
    (void)put16(to + 2, flags);
    (void)put16(to + 4, repeats);
    (void)put16(to + 6, address != NULL);
    (void)put16(to + 8, 0);
    (void)put16(to + 10, question->extended && repeats);
    uint8_t *at = to + question->size;
    if (address)
        at = put_address(at, address, ttl_s);
    if (question->extended && repeats)
        at = put_opt(at);
    return (size_t)(at - to);
}

size_t cordon_dns_adopt(const struct cordon_dns_question *question, const uint8_t *query, const uint8_t *answer,
                        size_t size, size_t room, uint8_t *to)
{
    if (size < HEADER || !(get16(answer + 2) & FLAG_RESPONSE))
        return 0;
    if (size > room) {
        size_t cut = cordon_dns_answer(question, query, (enum cordon_dns_code)(answer[3] & 15), NULL, 0, to);
        (void)put16(to + 2, get16(to + 2) | FLAG_TRUNCATED);
        return cut;
    }
    memcpy(to, answer, size);
    (void)put16(to, question->id);
    return size;
}
