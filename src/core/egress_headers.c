/* SPDX-License-Identifier: Apache-2.0 */
/* Headers that the egress process puts into requests to a host. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "base/trust.h"
#include "core/egress.h"
#include "core/value.h"

#define HTTP_PORT 80
#define HTTPS_PORT 443

static void free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void cordon_egress_headers_done(struct cordon_egress_policy *policy)
{
    for (size_t i = 0; i < policy->header_count; i++) {
        free(policy->headers[i].name);
        free_secret(policy->headers[i].value);
    }
    free(policy->headers);
    policy->headers = NULL;
    policy->header_count = 0;
}

static bool is_token(const char *text)
{
    size_t size = strlen(text);
    for (const char *p = text; *p; p++)
        if (!isascii((unsigned char)*p) || (!isalnum((unsigned char)*p) && !strchr("!#$%&'*+-.^_`|~", *p)))
            return false;
    return size && size <= CORDON_EGRESS_HEADER_NAME_MAX;
}

static bool is_value(const char *text)
{
    size_t size = strlen(text);
    for (const char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p) && *p != '\t')
            return false;
    return size <= CORDON_EGRESS_HEADER_VALUE_MAX;
}

/* These say how a message is framed or whose it is: changing one would make two readers of it disagree. */
static bool is_framing(const char *name)
{
    static const char *const framing[] = {"Host",       "Content-Length",   "Transfer-Encoding",
                                          "Connection", "Keep-Alive",       "Upgrade",
                                          "TE",         "Trailer",          "Expect",
                                          "Via",        "Proxy-Connection", NULL};
    for (size_t i = 0; framing[i]; i++)
        if (strcasecmp(framing[i], name) == 0)
            return true;
    return false;
}

static int check(const struct cordon_egress_header *header, const char *host, const char *name, const char *value,
                 struct cordon_error *err)
{
    if (header->host.form == CORDON_EGRESS_RANGE || header->host.deny)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a header is added for a host's name, not for %.60s",
                           host);
    if (!is_token(name) || is_framing(name))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "\"%.100s\" is no name of a header that can be added",
                           name);
    if (!is_value(value))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the value of header %.100s has control bytes or is longer than %u bytes", name,
                           CORDON_EGRESS_HEADER_VALUE_MAX);
    return 0;
}

/* Room for one more: doubled now and then, so that the count alone tells the capacity. */
static int grow(struct cordon_egress_policy *policy)
{
    size_t count = policy->header_count;
    if (count & (count - 1))
        return 0;
    struct cordon_egress_header *room = reallocarray(policy->headers, count ? count * 2 : 1, sizeof *room);
    if (!room)
        return -ENOMEM;
    policy->headers = room;
    return 0;
}

int cordon_egress_policy_add_header(struct cordon_egress_policy *policy, const char *host, const char *name,
                                    const char *value, struct cordon_error *err)
{
    struct cordon_egress_header header = {0};
    int r = cordon_egress_rule_parse(host, strlen(host), &header.host, err);
    if (r == 0)
        r = check(&header, host, name, value, err);
    if (r < 0)
        return r;
    if (policy->header_count >= CORDON_EGRESS_HEADERS_MAX)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "more than %u headers to add", CORDON_EGRESS_HEADERS_MAX);
    header.name = strdup(name);
    header.value = strdup(value);
    if (!header.name || !header.value || grow(policy) < 0) {
        free(header.name);
        free_secret(header.value);
        return cordon_fail_errno(err, -ENOMEM, "keep a header");
    }
    policy->headers[policy->header_count++] = header;
    return 0;
}

bool cordon_egress_policy_has_header(const struct cordon_egress_policy *policy, const char *name, uint16_t port)
{
    for (size_t i = 0; i < policy->header_count; i++)
        if (cordon_egress_rule_has_name(&policy->headers[i].host, name, port))
            return true;
    return false;
}

/* --- as a request has them --- */

/* "HOST NAME: VALUE", cut into its three parts in place. False: it is none. */
static bool split(char *text, char **name, char **value)
{
    *name = strchr(text, ' ');
    *value = *name ? strchr(*name, ':') : NULL;
    if (!*value)
        return false;
    *(*name)++ = '\0';
    *(*value)++ = '\0';
    *value += strspn(*value, " \t");
    return true;
}

/* Where everything is allowed a name is known only from what is said, which is read on these two ports alone. */
static int check_port(const struct cordon_egress_policy *policy, uint16_t port, const char *host, const char *name,
                      struct cordon_error *err)
{
    if (policy->mode != CORDON_EGRESS_OPEN || !port || port == HTTP_PORT || port == HTTPS_PORT)
        return 0;
    return cordon_fail(
        err, -EINVAL, CORDON_ERROR_INVALID,
        "the header %.100s for %.200s can not be put in: where every host is allowed, requests are read "
        "on the ports %u and %u alone; allow this host by its name (allowed_domains), and those that are "
        "needed besides",
        name, host, HTTP_PORT, HTTPS_PORT);
}

/* Where the header is to hold: the rules must allow it, and it must be possible there. */
static int check_place(const struct cordon_egress_policy *policy, const struct cordon_settings *settings,
                       enum cordon_door door, const char *host, const char *name, struct cordon_error *err)
{
    const struct cordon_egress_rule *rule = &policy->headers[policy->header_count - 1].host, *found;
    bool allowed = rule->form == CORDON_EGRESS_NAME
                       ? cordon_egress_decide_name(policy, rule->name, rule->port, &found) == CORDON_EGRESS_ALLOW
                       : cordon_egress_policy_covers(policy, host);
    if (!allowed)
        return cordon_fail(
            err, -EINVAL, CORDON_ERROR_INVALID,
            "the header %.100s is for %.200s, which the network's rules do not allow: allow it, or leave "
            "the header out",
            name, host);
    int r = check_port(policy, rule->port, host, name, err);
    if (r < 0)
        return r;
    if ((rule->port && rule->port != HTTPS_PORT) || cordon_settings_bool(settings, door, CORDON_SET_EGRESS_CA))
        return 0;
    return cordon_fail(err, -EPERM, CORDON_ERROR_REFUSED,
                       "the header %.100s for %.200s would have to be put into TLS, for which %s must be true, and it "
                       "is false; a host with the port of plain HTTP (NAME:80) would be accepted",
                       name, host, cordon_settings_name(door, CORDON_SET_EGRESS_CA));
}

static int add_text(struct cordon_egress_policy *policy, const struct cordon_settings *settings, enum cordon_door door,
                    char *text, struct cordon_error *err)
{
    char *name, *value;
    if (!split(text, &name, &value))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a header to add is \"HOST NAME: VALUE\"");
    int r = cordon_egress_policy_add_header(policy, text, name, value, err);
    return r < 0 ? r : check_place(policy, settings, door, text, name, err);
}

int cordon_egress_policy_add_headers(struct cordon_egress_policy *policy, const struct cordon_settings *settings,
                                     enum cordon_door door, const char *const *headers, size_t count,
                                     struct cordon_error *err)
{
    int r = 0;
    if (count && policy->mode == CORDON_EGRESS_OFF)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "headers are added to requests, and the network is off");
    for (size_t i = 0; r == 0 && i < count; i++) {
        char *text = strdup(headers[i]);
        size_t size = text ? strlen(text) : 0;
        r = text ? add_text(policy, settings, door, text, err) : cordon_fail_errno(err, -ENOMEM, "keep a header");
        if (text)
            explicit_bzero(text, size);
        free(text);
    }
    return r;
}

/* --- as JSON --- */

struct reading {
    const char *field;
    void *(*take)(void *memory, size_t size);
    void *memory;
    const char **items;
    size_t count;
    struct cordon_error *err;
};

static int malformed(const struct reading *reading)
{
    return cordon_fail(reading->err, -EINVAL, CORDON_ERROR_INVALID,
                       "%s must be an object of hosts, each an object of headers and their values as strings: "
                       "{\"api.example.com:443\": {\"Authorization\": \"…\"}}",
                       reading->field);
}

/* Appends the string's text at *at; false: it is none, or has bytes that would be read as something else. */
static bool put(const struct cordon_value *string, char *text, size_t *at, const char *without)
{
    ssize_t n = string->kind == CORDON_VALUE_STRING ? cordon_value_string(string, text + *at) : -1;
    if (n < 0 || memchr(text + *at, '\0', (size_t)n))
        return false;
    text[*at + (size_t)n] = '\0';
    bool plain = !strpbrk(text + *at, without);
    *at += (size_t)n;
    return plain;
}

static int read_header(struct reading *reading, const struct cordon_value *host, const struct cordon_value *name,
                       const struct cordon_value *value)
{
    size_t at = 0;
    if (reading->count == CORDON_EGRESS_HEADERS_MAX)
        return cordon_fail(reading->err, -E2BIG, CORDON_ERROR_INVALID, "%s: more than %u headers", reading->field,
                           CORDON_EGRESS_HEADERS_MAX);
    char *text = reading->take(reading->memory, host->size + name->size + value->size + 4);
    if (!text)
        return cordon_fail_errno(reading->err, -ENOMEM, "read %s", reading->field);
    if (!put(host, text, &at, " "))
        return malformed(reading);
    text[at++] = ' ';
    if (!put(name, text, &at, " :"))
        return malformed(reading);
    text[at++] = ':';
    text[at++] = ' ';
    if (!put(value, text, &at, ""))
        return malformed(reading);
    reading->items[reading->count++] = text;
    return 0;
}

int cordon_egress_headers_read(const struct cordon_value *object, const char *field,
                               void *(*take)(void *memory, size_t size), void *memory, const char *const **ret,
                               size_t *count, struct cordon_error *err)
{
    struct reading reading = {.field = field, .take = take, .memory = memory, .err = err};
    struct cordon_value host, headers, name, value;
    int r = 0;
    if (object->kind != CORDON_VALUE_OBJECT)
        return malformed(&reading);
    reading.items = take(memory, (CORDON_EGRESS_HEADERS_MAX + 1) * sizeof *reading.items);
    if (!reading.items)
        return cordon_fail_errno(err, -ENOMEM, "read %s", field);
    struct cordon_value_walk hosts = cordon_value_walk(object);
    while (r == 0 && cordon_value_next(&hosts, &host, &headers)) {
        if (headers.kind != CORDON_VALUE_OBJECT)
            return malformed(&reading);
        struct cordon_value_walk walk = cordon_value_walk(&headers);
        while (r == 0 && cordon_value_next(&walk, &name, &value))
            r = read_header(&reading, &host, &name, &value);
    }
    *ret = reading.items;
    *count = reading.count;
    return r;
}

/* --- what makes programs trust the authority --- */

static const char *const trust[] = {
    "SSL_CERT_FILE=" CORDON_TRUST_FOLDER CORDON_TRUST_BUNDLE,
    "CURL_CA_BUNDLE=" CORDON_TRUST_FOLDER CORDON_TRUST_BUNDLE,
    "REQUESTS_CA_BUNDLE=" CORDON_TRUST_FOLDER CORDON_TRUST_BUNDLE,
    "GIT_SSL_CAINFO=" CORDON_TRUST_FOLDER CORDON_TRUST_BUNDLE,
    "NODE_EXTRA_CA_CERTS=" CORDON_TRUST_FOLDER CORDON_TRUST_AUTHORITY,
};

static bool has_name(const char *const *env, size_t count, const char *pair)
{
    size_t size = strcspn(pair, "=") + 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(env[i], pair, size) == 0)
            return true;
    return false;
}

const char **cordon_egress_trust(const char *const *env, size_t count, size_t *ret)
{
    size_t most = sizeof trust / sizeof *trust;
    const char **both = calloc(count + most + 1, sizeof *both);
    if (!both)
        return NULL;
    for (*ret = 0; *ret < count; (*ret)++)
        both[*ret] = env[*ret];
    for (size_t i = 0; i < most; i++)
        if (!has_name(env, count, trust[i]))
            both[(*ret)++] = trust[i];
    return both;
}
