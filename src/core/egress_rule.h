/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one grammar of egress rules, for all doors. Pure, fuzzed.
 *
 *     name[:port]          pypi.org, pypi.org:443: this name alone
 *     *.name[:port]        every name below it, at any depth, but not the name itself
 *     address[/bits][:port]    192.0.2.7, 192.0.2.0/24:8443
 *     v6[/bits], [v6[/bits]]:port    2001:db8::/32, [2001:db8::7]:443
 *
 * Without a port any port is meant. Names are of letters, digits, "-" and "_", case does not matter, a dot at the end
 * is dropped; the last label has a letter, so that no way of writing an address ("2130706433", "0x7f.1", "1.2.3")
 * passes for a name. Other alphabets are written as xn--. Bits beyond the prefix must be zero.
 */
#ifndef CORDON_CORE_EGRESS_RULE_H
#define CORDON_CORE_EGRESS_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define CORDON_EGRESS_NAME_SIZE 254 /* of the longest name, with its NUL */
#define CORDON_EGRESS_RULE_TEXT 272 /* of the longest rule's text, with its NUL */
#define CORDON_EGRESS_ADDRESS_TEXT 46

enum cordon_egress_form {
    CORDON_EGRESS_NAME = 0, /* exactly this one */
    CORDON_EGRESS_BELOW,    /* those below it */
    CORDON_EGRESS_RANGE     /* addresses */
};

/* An IPv4 address is held as ::ffff:a.b.c.d, so that one written that way is the same. */
struct cordon_egress_address {
    uint8_t bytes[16];
};

struct cordon_egress_rule {
    enum cordon_egress_form form;
    bool deny;
    uint16_t port;                        /* 0: any */
    uint8_t bits;                         /* RANGE: of the 128; IPv4's /n is 96+n */
    struct cordon_egress_address address; /* RANGE */
    char name[CORDON_EGRESS_NAME_SIZE];   /* NAME, BELOW: lower case, without "*." */
};

/* 0, or -EINVAL with err (INVALID), which shows what is wrong with the text. */
int cordon_egress_rule_parse(const char *text, size_t size, struct cordon_egress_rule *ret, struct cordon_error *err);
/* The rule as it would be written: parse takes it back to the same rule. */
void cordon_egress_rule_format(const struct cordon_egress_rule *rule, char text[CORDON_EGRESS_RULE_TEXT]);

/* name is as cordon_egress_name_read made it. */
bool cordon_egress_rule_has_name(const struct cordon_egress_rule *rule, const char *name, uint16_t port);
bool cordon_egress_rule_has_address(const struct cordon_egress_rule *rule, const struct cordon_egress_address *address,
                                    uint16_t port);
/* Does every target of inner fit outer? */
bool cordon_egress_rule_within(const struct cordon_egress_rule *inner, const struct cordon_egress_rule *outer);

/* Lower-cases a host name into ret and checks it: 0 or -EINVAL. Addresses in any spelling are no names. */
int cordon_egress_name_read(const char *text, size_t size, char ret[CORDON_EGRESS_NAME_SIZE]);

/* Dotted IPv4 (four decimal numbers, nothing else) or IPv6 without zone: 0 or -EINVAL. */
int cordon_egress_address_read(const char *text, size_t size, struct cordon_egress_address *ret);
bool cordon_egress_address_is_v4(const struct cordon_egress_address *address);
void cordon_egress_address_format(const struct cordon_egress_address *address, char text[CORDON_EGRESS_ADDRESS_TEXT]);

/* Ranges that no guest reaches unless the operator's own list (CORDON_EGRESS_RANGES) has the address: loopback,
 * private, link-local and metadata, carrier NAT, multicast, documentation, translations that hide an IPv4 address in
 * an IPv6 one, and all that is not global. What the range is called, or NULL. The host's own addresses are not known
 * here (egress/host.h). */
const char *cordon_egress_address_special(const struct cordon_egress_address *address);

#endif
