/* SPDX-License-Identifier: Apache-2.0 */
#include "core/egress_rule.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* --- names --- */

static bool label_byte(unsigned char c)
{
    return isascii(c) && (isalnum(c) || c == '-' || c == '_');
}

/* From start to the next dot or the end. Its length, or 0 where it is no label. */
static size_t read_label(const char *text, size_t size, bool *has_letter)
{
    size_t length = 0;
    *has_letter = false;
    for (; length < size && text[length] != '.'; length++) {
        unsigned char c = (unsigned char)text[length];
        if (!label_byte(c))
            return 0;
        *has_letter = *has_letter || isalpha(c);
    }
    bool hyphens = length && (text[0] == '-' || text[length - 1] == '-');
    return length > LABEL_MAX || hyphens ? 0 : length;
}

/* Resolvers of the C library take "0x7f" as a number, and a last label like that makes the whole an address. */
static bool hex_number(const char *label, size_t size)
{
    if (size < 2 || label[0] != '0' || (label[1] != 'x' && label[1] != 'X'))
        return false;
    for (size_t i = 2; i < size; i++)
        if (!isxdigit((unsigned char)label[i]))
            return false;
    return true;
}

int cordon_egress_name_read(const char *text, size_t size, char ret[CORDON_EGRESS_NAME_SIZE])
{
    bool letter = false, hex = false;
    if (size && text[size - 1] == '.')
        size--;
    if (!size || size >= CORDON_EGRESS_NAME_SIZE)
        return -EINVAL;
    for (size_t at = 0; at < size;) {
        size_t length = read_label(text + at, size - at, &letter);
        if (!length)
            return -EINVAL;
        hex = hex_number(text + at, length);
        at += length;
        if (at < size && ++at == size) /* a second dot at the end */
            return -EINVAL;
    }
    if (!letter || hex)
        return -EINVAL;
    for (size_t i = 0; i < size; i++)
        ret[i] = (char)tolower((unsigned char)text[i]);
    ret[size] = '\0';
    return 0;
}

/* --- addresses --- */

/* inet_pton takes no leading zeros, hexadecimal or short forms: each would be read otherwise by somebody else. */
int cordon_egress_address_read(const char *text, size_t size, struct cordon_egress_address *ret)
{
    char copy[CORDON_EGRESS_ADDRESS_TEXT];
    struct cordon_egress_address address;
    if (!size || size >= sizeof copy || memchr(text, '\0', size))
        return -EINVAL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (inet_pton(AF_INET6, copy, address.bytes) == 1) {
        *ret = address;
        return 0;
    }
    memcpy(address.bytes, v4_prefix, sizeof v4_prefix);
    if (inet_pton(AF_INET, copy, address.bytes + sizeof v4_prefix) != 1)
        return -EINVAL;
    *ret = address;
    return 0;
}

bool cordon_egress_address_is_v4(const struct cordon_egress_address *address)
{
    return memcmp(address->bytes, v4_prefix, sizeof v4_prefix) == 0;
}

void cordon_egress_address_format(const struct cordon_egress_address *address, char text[CORDON_EGRESS_ADDRESS_TEXT])
{
    bool v4 = cordon_egress_address_is_v4(address);
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, address->bytes + (v4 ? sizeof v4_prefix : 0), text,
                   CORDON_EGRESS_ADDRESS_TEXT))
        *text = '\0'; /* the room is enough for each */
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    if (memcmp(a, b, bits / 8) != 0)
        return false;
    unsigned rest = bits % 8;
    return !rest || (uint8_t)((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

static bool beyond_prefix_is_zero(const struct cordon_egress_rule *rule)
{
    for (unsigned bit = rule->bits; bit < 128; bit++)
        if (rule->address.bytes[bit / 8] & 0x80u >> bit % 8)
            return false;
    return true;
}

struct special {
    const char *range, *what;
};

static const struct special specials[] = {
    {"0.0.0.0/8", "this network"},
    {"10.0.0.0/8", "private"},
    {"100.64.0.0/10", "carrier NAT"},
    {"127.0.0.0/8", "loopback"},
    {"169.254.0.0/16", "link-local and metadata"},
    {"172.16.0.0/12", "private"},
    {"192.0.0.0/24", "protocol assignments"},
    {"192.0.2.0/24", "documentation"},
    {"192.88.99.0/24", "6to4 relays"},
    {"192.168.0.0/16", "private"},
    {"198.18.0.0/15", "benchmarks and Cordon's own names"},
    {"198.51.100.0/24", "documentation"},
    {"203.0.113.0/24", "documentation"},
    {"224.0.0.0/4", "multicast"},
    {"240.0.0.0/4", "reserved and broadcast"},
    {"2001::/23", "protocol assignments and Teredo"},
    {"2001:db8::/32", "documentation"},
    {"2002::/16", "6to4"},
    {"3fff::/20", "documentation"},
};
#define SPECIALS (sizeof specials / sizeof *specials)

/* What is outside of 2000::/3 is not global unicast at all; the best known have a name. */
static const struct special not_global[] = {
    {"::1", "loopback"},         {"fc00::/7", "private and metadata"},
    {"fe80::/10", "link-local"}, {"ff00::/8", "multicast"},
    {"64:ff9b::/96", "NAT64"},   {"::/0", "not global"},
};

static const char *find_special(const struct special *list, size_t count, const struct cordon_egress_address *address)
{
    struct cordon_egress_rule rule;
    for (size_t i = 0; i < count; i++)
        if (cordon_egress_rule_parse(list[i].range, strlen(list[i].range), &rule, NULL) == 0 &&
            cordon_egress_rule_has_address(&rule, address, 0))
            return list[i].what;
    return NULL;
}

/* In whatever network: an IPv4 address behind a router that tunnels to it. */
static bool is_isatap(const struct cordon_egress_address *address)
{
    const uint8_t *id = address->bytes + 8;
    return !cordon_egress_address_is_v4(address) && (id[0] & 0xfd) == 0 && id[1] == 0 && id[2] == 0x5e && id[3] == 0xfe;
}

const char *cordon_egress_address_special(const struct cordon_egress_address *address)
{
#ifdef CORDON_WEAKEN_SPECIAL
    return NULL;
#endif
    if (!cordon_egress_address_is_v4(address) && (address->bytes[0] & 0xe0) != 0x20)
        return find_special(not_global, sizeof not_global / sizeof *not_global, address);
    if (is_isatap(address))
        return "ISATAP";
    return find_special(specials, SPECIALS, address);
}

/* --- rules --- */

static int bad(struct cordon_error *err, const char *text, size_t size, const char *why)
{
    return cordon_fail(
        err, -EINVAL, CORDON_ERROR_INVALID,
        "egress rule \"%.*s\": %s; a name, *.name, address or CIDR is needed, each with :port or without",
        (int)(size < 100 ? size : 100), text, why);
}

static bool read_decimal(const char *text, size_t size, unsigned max, unsigned *ret)
{
    unsigned value = 0;
    if (!size || size > 5 || (size > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    *ret = value;
    return value <= max;
}

/* Takes ":port" off the end, and the brackets that an IPv6 address with a port has. */
static const char *take_port(const char **text, size_t *size, struct cordon_egress_rule *rule)
{
    const char *end = *text + *size, *at;
    unsigned port = 0;
    bool bracketed = *size && **text == '[';
    if (bracketed) {
        at = memchr(*text, ']', *size);
        if (!at)
            return "it has [ without ]";
        *size = (size_t)(at - *text) - 1;
        ++*text;
        at++;
        if (at == end)
            return NULL;
    } else {
        at = memchr(*text, ':', *size);
        if (!at || memchr(at + 1, ':', (size_t)(end - at) - 1)) /* none, or an IPv6 address without port */
            return NULL;
        *size = (size_t)(at - *text);
    }
    if (*at != ':' || !read_decimal(at + 1, (size_t)(end - at) - 1, 65535, &port) || !port)
        return *at == ':' && at + 3 <= end && memcmp(at + 1, "//", 2) == 0
                   ? "give a host, not a URL: without the scheme and the path"
                   : "the port is no number from 1 to 65535";
    rule->port = (uint16_t)port;
    return NULL;
}

static const char *read_range(const char *text, size_t size, struct cordon_egress_rule *rule)
{
    const char *slash = memchr(text, '/', size);
    size_t address_size = slash ? (size_t)(slash - text) : size;
    if (cordon_egress_address_read(text, address_size, &rule->address) < 0)
        return slash ? "what stands before / is no address" : "it is neither a name nor an address";
    bool v4 = !memchr(text, ':', address_size);
    unsigned most = v4 ? 32 : 128, bits = most;
    if (slash && !read_decimal(slash + 1, size - address_size - 1, most, &bits))
        return v4 ? "the prefix is no number from 0 to 32" : "the prefix is no number from 0 to 128";
    rule->bits = (uint8_t)(v4 ? bits + 96 : bits);
    rule->form = CORDON_EGRESS_RANGE;
    return beyond_prefix_is_zero(rule) ? NULL : "bits beyond the prefix are set";
}

int cordon_egress_rule_parse(const char *text, size_t size, struct cordon_egress_rule *ret, struct cordon_error *err)
{
    struct cordon_egress_rule rule = {0};
    const char *at = text;
    size_t left = size;
    bool bracketed = size && *text == '[';
    const char *why = take_port(&at, &left, &rule);
    if (why)
        return bad(err, text, size, why);
    bool below = !bracketed && left > 2 && at[0] == '*' && at[1] == '.';
    if (!bracketed && cordon_egress_name_read(at + (below ? 2 : 0), left - (below ? 2 : 0), rule.name) == 0)
        rule.form = below ? CORDON_EGRESS_BELOW : CORDON_EGRESS_NAME;
    else
        why = read_range(at, left, &rule);
    if (!why && bracketed && !memchr(at, ':', left))
        why = "brackets are for IPv6 addresses";
    if (why)
        return bad(err, text, size, why);
    *ret = rule;
    return 0;
}

void cordon_egress_rule_format(const struct cordon_egress_rule *rule, char text[CORDON_EGRESS_RULE_TEXT])
{
    char address[CORDON_EGRESS_ADDRESS_TEXT], port[8] = "", bits[8] = "";
    if (rule->port)
        (void)snprintf(port, sizeof port, ":%u", rule->port);
    if (rule->form != CORDON_EGRESS_RANGE) {
        (void)snprintf(text, CORDON_EGRESS_RULE_TEXT, "%s%s%s", rule->form == CORDON_EGRESS_BELOW ? "*." : "",
                       rule->name, port);
        return;
    }
    bool v4 = cordon_egress_address_is_v4(&rule->address) && rule->bits >= 96;
    cordon_egress_address_format(&rule->address, address);
    if (rule->bits < 128)
        (void)snprintf(bits, sizeof bits, "/%u", v4 ? rule->bits - 96u : rule->bits);
    bool brackets = !v4 && rule->port;
    (void)snprintf(text, CORDON_EGRESS_RULE_TEXT, "%s%s%s%s%s", brackets ? "[" : "", address, bits, brackets ? "]" : "",
                   port);
}

static bool port_fits(const struct cordon_egress_rule *rule, uint16_t port)
{
    return !rule->port || rule->port == port;
}

static bool is_below(const char *name, const char *domain)
{
    size_t size = strlen(name), end = strlen(domain);
    return size > end + 1 && name[size - end - 1] == '.' && strcmp(name + size - end, domain) == 0;
}

bool cordon_egress_rule_has_name(const struct cordon_egress_rule *rule, const char *name, uint16_t port)
{
    if (!port_fits(rule, port))
        return false;
    if (rule->form == CORDON_EGRESS_NAME)
        return strcmp(rule->name, name) == 0;
    return rule->form == CORDON_EGRESS_BELOW && is_below(name, rule->name);
}

/* ::/0 is all of IPv6 and none of IPv4, though the latter lies in it here. */
static bool in_range(const struct cordon_egress_rule *rule, const struct cordon_egress_address *address)
{
    bool v4_rule = rule->bits >= 96 && cordon_egress_address_is_v4(&rule->address);
    return v4_rule == cordon_egress_address_is_v4(address) &&
           same_bits(rule->address.bytes, address->bytes, rule->bits);
}

bool cordon_egress_rule_has_address(const struct cordon_egress_rule *rule, const struct cordon_egress_address *address,
                                    uint16_t port)
{
    return rule->form == CORDON_EGRESS_RANGE && port_fits(rule, port) && in_range(rule, address);
}

bool cordon_egress_rule_within(const struct cordon_egress_rule *inner, const struct cordon_egress_rule *outer)
{
    if (outer->port && outer->port != inner->port)
        return false;
    if (inner->form == CORDON_EGRESS_RANGE)
        return outer->form == CORDON_EGRESS_RANGE && outer->bits <= inner->bits && in_range(outer, &inner->address);
    if (outer->form == CORDON_EGRESS_NAME)
        return inner->form == CORDON_EGRESS_NAME && strcmp(inner->name, outer->name) == 0;
    if (outer->form != CORDON_EGRESS_BELOW)
        return false;
    return is_below(inner->name, outer->name) ||
           (inner->form == CORDON_EGRESS_BELOW && strcmp(inner->name, outer->name) == 0);
}
