/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/headers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/egress.h"

/* The text from where it says "@FILE" or "$VARIABLE"; NULL: it is of another form. */
static const char *source_of(const char *word)
{
    const char *space = strchr(word, ' '), *colon = space ? strchr(space, ':') : NULL;
    const char *source = colon ? colon + 1 + strspn(colon + 1, " ") : NULL;
    return space && space != word && colon > space + 1 && source && (*source == '@' || *source == '$') && source[1]
               ? source
               : NULL;
}

bool cordon_cli_header_ok(const char *word)
{
    return source_of(word) != NULL;
}

/* One line: what ends it is not of the value. */
static int read_value(const char *source, char value[CORDON_EGRESS_HEADER_VALUE_MAX + 2], struct cordon_error *err)
{
    size_t size = 0;
    const char *variable = *source == '$' ? getenv(source + 1) : NULL;
    if (*source == '$' && !variable)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_INVALID, "--header: there is no variable %.80s", source + 1);
    cordon_autoclose int fd = variable ? -1 : open(source + 1, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (!variable && fd < 0)
        return cordon_fail(err, -errno, CORDON_ERROR_INVALID, "--header %.200s: %s", source, strerror(errno));
    ssize_t n = variable ? (ssize_t)strnlen(variable, CORDON_EGRESS_HEADER_VALUE_MAX + 1)
                         : read(fd, value, CORDON_EGRESS_HEADER_VALUE_MAX + 1);
    if (n < 0)
        return cordon_fail_errno(err, -errno, "reading --header %.200s", source);
    if (variable)
        memcpy(value, variable, (size_t)n);
    size = (size_t)n;
    while (size && (value[size - 1] == '\n' || value[size - 1] == '\r'))
        size--;
    value[size] = '\0';
    return size > CORDON_EGRESS_HEADER_VALUE_MAX || strlen(value) != size
               ? cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "--header: what %.200s has is no value of a header",
                             source)
               : 0;
}

static int write_one(const char *word, struct cordon_json *json, struct cordon_error *err)
{
    char value[CORDON_EGRESS_HEADER_VALUE_MAX + 2];
    const char *space = strchr(word, ' '), *colon = strchr(space, ':');
    cordon_autofree char *host = strndup(word, (size_t)(space - word));
    cordon_autofree char *name = strndup(space + 1, (size_t)(colon - space - 1));
    int r = host && name ? read_value(source_of(word), value, err) : -ENOMEM;
    if (r < 0)
        return r == -ENOMEM ? cordon_fail_errno(err, r, "reading --header") : r;
    cordon_json_key(json, host);
    cordon_json_object_begin(json);
    cordon_json_key(json, name);
    cordon_json_text(json, value);
    cordon_json_object_end(json);
    explicit_bzero(value, sizeof value);
    return 0;
}

static int write_headers(const struct cordon_words *words, struct cordon_json *json, struct cordon_error *err)
{
    int r = 0;
    if (!words->count)
        return 0;
    cordon_json_key(json, "egress_headers");
    cordon_json_object_begin(json);
    for (size_t i = 0; r == 0 && i < words->count; i++)
        r = write_one(words->items[i], json, err);
    cordon_json_object_end(json);
    return r;
}

int cordon_cli_network_write(bool network, const struct cordon_words *domains, const struct cordon_words *headers,
                             struct cordon_json *json, struct cordon_error *err)
{
    const struct cordon_words *hosts = domains->count || network ? domains : headers;
    if (!network && !hosts->count)
        return 0;
    cordon_json_key(json, "network");
    cordon_json_bool(json, true);
    if (hosts->count) {
        cordon_json_key(json, "allowed_domains");
        cordon_json_array_begin(json);
        for (size_t i = 0; i < hosts->count; i++)
            cordon_json_bytes(json, hosts->items[i], strcspn(hosts->items[i], " ")); /* where a header's host ends */
        cordon_json_array_end(json);
    }
    return write_headers(headers, json, err);
}
