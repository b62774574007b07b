/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/head.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#define METHOD_MAX 16u

struct text {
    const char *at;
    size_t size;
};

static bool is_token_byte(unsigned char c)
{
    return isascii(c) && (isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c)));
}

static bool is(struct text text, const char *word)
{
    return text.size == strlen(word) && strncasecmp(text.at, word, text.size) == 0;
}

static struct text trim(struct text text)
{
    while (text.size && (*text.at == ' ' || *text.at == '\t'))
        text.at++, text.size--;
    while (text.size && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* The line at *at without its CRLF; false where there is none or it holds bytes that no line may. */
static bool next_line(const char *data, size_t size, size_t *at, struct text *ret)
{
    const char *end = memchr(data + *at, '\n', size - *at);
    if (!end || end == data + *at || end[-1] != '\r')
        return false;
    *ret = (struct text){data + *at, (size_t)(end - data) - *at - 1};
    *at = (size_t)(end - data) + 1;
    for (size_t i = 0; i < ret->size; i++)
        if (iscntrl((unsigned char)ret->at[i]) && ret->at[i] != '\t')
            return false;
    return true;
}

static bool split_header(struct text line, struct text *name, struct text *value)
{
    size_t length = 0;
    while (length < line.size && is_token_byte((unsigned char)line.at[length]))
        length++;
    if (!length || length == line.size || line.at[length] != ':')
        return false;
    *name = (struct text){line.at, length};
    *value = trim((struct text){line.at + length + 1, line.size - length - 1});
    return true;
}

/* name[:port] */
static bool read_authority(struct text text, char host[CORDON_EGRESS_NAME_SIZE], uint16_t *port)
{
    const char *colon = memchr(text.at, ':', text.size);
    size_t size = colon ? (size_t)(colon - text.at) : text.size;
    unsigned number = 0;
    for (size_t i = size + 1; colon && i < text.size; i++) {
        if (!isdigit((unsigned char)text.at[i]) || (number = number * 10 + (unsigned)(text.at[i] - '0')) > 65535)
            return false;
    }
    *port = (uint16_t)number;
    return (!colon || number) && cordon_egress_name_read(text.at, size, host) == 0;
}

/* method SP target SP HTTP/1.x */
static const char *read_request_line(struct text line, struct cordon_http_head *ret, struct text *authority)
{
    const char *space = memchr(line.at, ' ', line.size);
    size_t method = space ? (size_t)(space - line.at) : 0;
    if (!method || method > METHOD_MAX || line.size < method + 1 + 1 + 9)
        return "no request line of HTTP/1";
    for (size_t i = 0; i < method; i++)
        if (!is_token_byte((unsigned char)line.at[i]))
            return "no request line of HTTP/1";
    struct text version = {line.at + line.size - 9, 9};
    if (!is(version, " HTTP/1.1") && !is(version, " HTTP/1.0"))
        return "no request line of HTTP/1";
    struct text target = {space + 1, line.size - method - 1 - 9};
    if (!target.size || memchr(target.at, ' ', target.size))
        return "a request target with spaces";
    if (is((struct text){line.at, method}, "CONNECT"))
        return "the method CONNECT";
    ret->echo = is((struct text){line.at, method}, "TRACE");
    ret->origin = *target.at == '/' || is(target, "*");
    if (ret->origin)
        return NULL;
    if (target.size < 8 || strncasecmp(target.at, "http://", 7) != 0)
        return "a request target that is no path";
    *authority = (struct text){target.at + 7, strcspn(target.at + 7, "/? ")};
    return NULL;
}

struct seen {
    unsigned hosts, lengths, encodings;
    bool websocket, upgrade;
};

static bool has_word(struct text list, const char *word)
{
    while (list.size) {
        const char *comma = memchr(list.at, ',', list.size);
        size_t size = comma ? (size_t)(comma - list.at) : list.size;
        if (is(trim((struct text){list.at, size}), word))
            return true;
        list.at += size + (comma != NULL);
        list.size -= size + (comma != NULL);
    }
    return false;
}

static bool all_digits(struct text text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!isdigit((unsigned char)text.at[i]))
            return false;
    return text.size && text.size < 19;
}

static const char *read_header(struct text name, struct text value, struct cordon_http_head *ret, struct seen *seen)
{
    if (is(name, "Host")) {
        seen->hosts++;
        return read_authority(value, ret->host, &ret->port) ? NULL : "a Host that is no name";
    }
    if (is(name, "Content-Length")) {
        seen->lengths++;
        return all_digits(value) ? NULL : "a Content-Length that is no number";
    }
    if (is(name, "Transfer-Encoding")) {
        seen->encodings++;
        return is(value, "chunked") ? NULL : "a Transfer-Encoding other than chunked";
    }
    if (is(name, "Upgrade"))
        seen->websocket = is(value, "websocket");
    if (is(name, "Connection") && has_word(value, "upgrade"))
        seen->upgrade = true;
    return NULL;
}

static const char *judge(const struct seen *seen, struct text authority, struct cordon_http_head *ret)
{
    char host[CORDON_EGRESS_NAME_SIZE];
    uint16_t port;
    if (seen->hosts != 1)
        return seen->hosts ? "more than one Host" : "no Host";
    if (seen->lengths + seen->encodings > 1)
        return "more than one length of the body";
    if (!ret->origin && (!read_authority(authority, host, &port) || strcmp(host, ret->host) != 0 || port != ret->port))
        return "a request target for another host than Host";
    ret->websocket = seen->websocket && seen->upgrade;
    return NULL;
}

/* Where the head ends: behind its first empty line, 0 while that has not come. Bare line ends count, to be found. */
static size_t find_end(const char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const char *end = memchr(data + at, '\n', size - at);
        if (!end)
            return 0;
        size_t length = (size_t)(end - data) - at;
        if (length == 0 || (length == 1 && data[at] == '\r'))
            return (size_t)(end - data) + 1;
        at += length + 1;
    }
    return 0;
}

enum cordon_head cordon_head_read(const char *data, size_t size, struct cordon_http_head *ret, const char **why)
{
    struct text line, name, value, authority = {"", 0};
    struct seen seen = {0};
    size_t at = 0, end = find_end(data, size);
    *ret = (struct cordon_http_head){.size = end};
    if (!end && size < CORDON_HEAD_MAX)
        return CORDON_HEAD_MORE;
    *why = !end || end > CORDON_HEAD_MAX ? "a head longer than 32 KiB" : NULL;
    if (!*why)
        *why = next_line(data, end, &at, &line) ? read_request_line(line, ret, &authority) : "a malformed line";
    while (!*why) {
        if (!next_line(data, end, &at, &line))
            *why = "a malformed line";
        else if (!line.size)
            break;
        else
            *why = split_header(line, &name, &value) ? read_header(name, value, ret, &seen) : "a malformed line";
    }
    if (!*why)
        *why = judge(&seen, authority, ret);
    return *why ? CORDON_HEAD_BAD : CORDON_HEAD_READ;
}

static bool names_http(const char *line, size_t size)
{
    for (size_t i = 0; i + 5 <= size; i++)
        if (strncasecmp(line + i, "HTTP/", 5) == 0)
            return true;
    return false;
}

/* All that some server skips before a request or splits its line at: Python's do at every one of these. */
static bool is_blank(char c)
{
    return c && strchr(" \t\v\f\r\x1c\x1d\x1e\x1f\x85\xa0", c);
}

/* git's own protocol begins "0033git-upload-pack /path\0host=name\0", without an end of line. */
static bool is_git(struct text word, struct text rest)
{
    for (size_t i = 0; i < 4; i++)
        if (i >= word.size || !isxdigit((unsigned char)word.at[i]))
            return false;
    word = (struct text){word.at + 4, word.size - 4};
    return (is(word, "git-upload-pack") || is(word, "git-receive-pack") || is(word, "git-upload-archive")) &&
           memchr(rest.at, '\0', rest.size);
}

/*
 * The line tells, not the method: servers take nearly any word for one, and SMTP's "EHLO name" begins like a request,
 * too. Only a first word that no method can be ends the wait for the line's end, so the answer is the same however
 * the line is cut into segments.
 */
enum cordon_head cordon_head_guess(const char *data, size_t size)
{
    size_t at = 0, length = 0;
    while (at < size && (is_blank(data[at]) || data[at] == '\n'))
        at++;
    const char *word = data + at;
    size -= at;
    while (length < size && is_token_byte((unsigned char)word[length]))
        length++;
    if (length < size && (!length || (!is_blank(word[length]) && word[length] != '\n')))
        return CORDON_HEAD_BAD;
    const char *end = size ? memchr(word, '\n', size) : NULL;
    struct text rest = {word + length, (end ? (size_t)(end - word) : size) - length};
    if (is_git((struct text){word, length}, rest))
        return CORDON_HEAD_BAD;
    if (end)
        return names_http(rest.at, rest.size) ? CORDON_HEAD_READ : CORDON_HEAD_BAD;
    return at + size < CORDON_HEAD_MAX ? CORDON_HEAD_MORE : CORDON_HEAD_READ;
}

/* An exact name is closer than any *.name, and of those the longer one; 0: not of that host. */
static size_t closeness(const struct cordon_egress_rule *rule, const char *host, uint16_t port)
{
    if (!cordon_egress_rule_has_name(rule, host, port))
        return 0;
    return rule->form == CORDON_EGRESS_NAME ? SIZE_MAX : strlen(rule->name);
}

/* The next header of the closest rule: what is for *.name is not for the host that has headers of its own. */
static const struct cordon_egress_header *header_of(const struct cordon_egress_policy *policy, size_t *i,
                                                    const char *host, uint16_t port)
{
    size_t closest = 1;
    for (size_t k = 0; k < policy->header_count; k++) {
        size_t now = closeness(&policy->headers[k].host, host, port);
        closest = now > closest ? now : closest;
    }
    for (; *i < policy->header_count; ++*i)
        if (closeness(&policy->headers[*i].host, host, port) == closest)
            return &policy->headers[(*i)++];
    return NULL;
}

static bool is_replaced(const struct cordon_egress_policy *policy, struct text name, const char *host, uint16_t port)
{
    const struct cordon_egress_header *header;
    for (size_t i = 0; (header = header_of(policy, &i, host, port));)
        if (is(name, header->name))
            return true;
    return false;
}

static bool is_dropped(struct text name, const struct cordon_http_head *head)
{
    return is(name, "Connection") || is(name, "Keep-Alive") || is(name, "Proxy-Connection") ||
           (!head->websocket && (is(name, "Upgrade") || is(name, "HTTP2-Settings")));
}

int cordon_head_rewrite(const char *data, const struct cordon_http_head *head,
                        const struct cordon_egress_policy *policy, const char *host, uint16_t port,
                        struct cordon_buf *to, unsigned *added)
{
    struct text line, name, value;
    size_t at = 0;
    const struct cordon_egress_header *header;
    *added = 0;
    if (next_line(data, head->size, &at, &line))
        (void)cordon_buf_append(to, line.at, line.size + 2); /* failures are sticky, here and below */
    while (next_line(data, head->size, &at, &line) && line.size)
        if (split_header(line, &name, &value) && !is_dropped(name, head) && !is_replaced(policy, name, host, port))
            (void)cordon_buf_append(to, line.at, line.size + 2);
    for (size_t i = 0; (header = header_of(policy, &i, host, port)); ++*added)
        (void)cordon_buf_appendf(to, "%s: %s\r\n", header->name, header->value);
    (void)cordon_buf_appends(to, head->websocket ? "Connection: Upgrade\r\n\r\n" : "Connection: close\r\n\r\n");
    return to->failed ? -EMSGSIZE : 0;
}
