/* SPDX-License-Identifier: Apache-2.0 */
#include "http/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/request.h"

#define HEADER_MAX 16384u

/* Where the parameter behind the semicolon at `at` ends: at the next one that no quotes hold. */
static const char *parameter_end(const char *at)
{
    bool quoted = false;
    for (; *at && (quoted || *at != ';'); at++) {
        if (*at == '"')
            quoted = !quoted;
        else if (quoted && *at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at++;
    }
    return at;
}

static int copy_quoted(const char *value, const char *end, char *to)
{
    for (value++; value < end && *value != '"'; value++) {
        if (*value == '\\' && value + 1 < end && (value[1] == '"' || value[1] == '\\'))
            value++;
        *to++ = *value;
    }
    *to = '\0';
    return value < end ? 1 : -EINVAL;
}

static int copy_plain(const char *value, const char *end, char *to)
{
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    memcpy(to, value, (size_t)(end - value));
    to[end - value] = '\0';
    return 1;
}

/* utf-8'language'escaped */
static int copy_extended(const char *value, const char *end, char *to)
{
    const char *quote = memchr(value, '\'', (size_t)(end - value));
    const char *second = quote ? memchr(quote + 1, '\'', (size_t)(end - quote - 1)) : NULL;
    if (!second || strncasecmp(value, "utf-8", 5) != 0 || quote != value + 5)
        return -EINVAL;
    second++;
    while (end > second && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    ssize_t n = cordon_http_unescape(second, (size_t)(end - second), false, to);
    if (n < 0 || memchr(to, '\0', (size_t)n))
        return -EINVAL;
    to[n] = '\0';
    return 1;
}

int cordon_multipart_parameter(const char *value, const char *name, char *to)
{
    size_t size = strlen(name);
    int found = 0;
    for (const char *at = value + strcspn(value, ";"), *end; *at == ';'; at = end) {
        at++;
        end = parameter_end(at);
        at += strspn(at, " \t");
        if (strncasecmp(at, name, size) != 0)
            continue;
        bool extended = at[size] == '*';
        const char *text = at + size + extended;
        if (*text++ != '=' || (found && !extended))
            continue;
        found = extended       ? copy_extended(text, end, to)
                : *text == '"' ? copy_quoted(text, end, to)
                               : copy_plain(text, end, to);
        if (found < 0 || extended)
            return found;
    }
    return found;
}

/* RFC 2046's boundary characters; without them a delimiter could hold a line's end. */
static bool boundary_ok(const char *boundary)
{
    size_t size = strlen(boundary);
    return size && size <= CORDON_MULTIPART_BOUNDARY && boundary[size - 1] != ' ' &&
           strspn(boundary, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'()+_,-./:=? ") == size;
}

int cordon_multipart_init(struct cordon_multipart *reader, const char *content_type,
                          const struct cordon_multipart_taker *taker, void *context)
{
    static const char type[] = "multipart/form-data";
    char boundary[1024];
    *reader = (struct cordon_multipart){.line = CORDON_BUF_INIT(HEADER_MAX), .taker = taker, .context = context};
    if (strncasecmp(content_type, type, sizeof type - 1) != 0 || strlen(content_type) >= sizeof boundary ||
        cordon_multipart_parameter(content_type, "boundary", boundary) != 1 || !boundary_ok(boundary))
        return -EINVAL;
    reader->delimiter_size = (size_t)snprintf(reader->delimiter, sizeof reader->delimiter, "\r\n--%s",
                                              boundary); /* fits: its length is checked */
    reader->matched = 2;                                 /* at the body's start, the line before counts as ended */
    return 0;
}

/* One field of a part's header, NUL-terminated, is what it is about? Then its value. */
static const char *field_value(const char *line, const char *name)
{
    size_t size = strlen(name);
    if (strncasecmp(line, name, size) != 0 || line[size] != ':')
        return NULL;
    return line + size + 1 + strspn(line + size + 1, " \t");
}

static int open_part(struct cordon_multipart *reader, const char *disposition)
{
    char name[HEADER_MAX], filename[HEADER_MAX];
    if (!disposition || strncasecmp(disposition, "form-data", 9) != 0)
        return -EBADMSG;
    int has_name = cordon_multipart_parameter(disposition, "name", name);
    int has_filename = cordon_multipart_parameter(disposition, "filename", filename);
    if (has_name < 1 || has_filename < 0)
        return -EBADMSG;
    if (++reader->parts > CORDON_MULTIPART_PARTS)
        return -EMSGSIZE;
    return reader->taker->open(reader->context, name, has_filename ? filename : NULL);
}

/* The whole header of a part is in line. */
static int read_header(struct cordon_multipart *reader)
{
    const char *disposition = NULL;
    if (memchr(reader->line.data, '\0', reader->line.size))
        return -EBADMSG;
    for (char *at = reader->line.data, *end; (end = strstr(at, "\r\n")); at = end + 2) {
        *end = '\0';
        const char *value = field_value(at, "Content-Disposition");
        if (value && disposition)
            return -EBADMSG;
        disposition = value ? value : disposition;
    }
    int r = open_part(reader, disposition);
    reader->line.size = 0;
    reader->state = CORDON_MULTIPART_DATA;
    reader->matched = 0;
    return r < 0 ? r : 0;
}

static bool ends_with(const struct cordon_buf *buf, const char *end, size_t size)
{
    return buf->size >= size && memcmp(buf->data + buf->size - size, end, size) == 0;
}

static int feed_header(struct cordon_multipart *reader, char c)
{
    int r = cordon_buf_append(&reader->line, &c, 1);
    if (r < 0)
        return r;
    bool empty = reader->line.size == 2 && ends_with(&reader->line, "\r\n", 2);
    return empty || ends_with(&reader->line, "\r\n\r\n", 4) ? read_header(reader) : 0;
}

/* Behind a delimiter: "--", or blanks and the line's end. */
static int feed_delimited(struct cordon_multipart *reader, char c)
{
    struct cordon_buf *line = &reader->line;
    if (line->size == 0 && (c == ' ' || c == '\t'))
        return 0;
    int r = cordon_buf_append(line, &c, 1);
    if (r < 0 || line->size < 2)
        return r;
    bool last = memcmp(line->data, "--", 2) == 0;
    if (!last && memcmp(line->data, "\r\n", 2) != 0)
        return -EBADMSG;
    line->size = 0;
    reader->state = last ? CORDON_MULTIPART_EPILOGUE : CORDON_MULTIPART_HEADER;
    return 0;
}

static int give(struct cordon_multipart *reader, const char *data, size_t size)
{
    if (!size || reader->state == CORDON_MULTIPART_PREAMBLE)
        return 0;
    return reader->taker->data(reader->context, data, size);
}

static int end_part(struct cordon_multipart *reader)
{
    int r = reader->state == CORDON_MULTIPART_DATA ? reader->taker->close(reader->context) : 0;
    reader->state = CORDON_MULTIPART_DELIMITED;
    reader->matched = 0;
    return r;
}

/* A carriage return stands only at a delimiter's start, so what was matched in vain can hold no other start. Returns
 * how much was taken. */
static ssize_t feed_data(struct cordon_multipart *reader, const char *data, size_t size)
{
    if (reader->matched) {
        if (*data == reader->delimiter[reader->matched]) {
            int r = ++reader->matched == reader->delimiter_size ? end_part(reader) : 0;
            return r < 0 ? r : 1;
        }
        /* What the preamble starts with was never sent. */
        int r = give(reader, reader->delimiter, reader->matched);
        reader->matched = 0;
        return r; /* takes nothing: the byte may be a start itself */
    }
    const char *start = memchr(data, '\r', size);
    size_t plain = start ? (size_t)(start - data) : size;
    int r = give(reader, data, plain);
    if (r < 0)
        return r;
    reader->matched = start ? 1 : 0;
    return (ssize_t)(plain + reader->matched);
}

static ssize_t feed_some(struct cordon_multipart *reader, const char *data, size_t size)
{
    switch (reader->state) {
    case CORDON_MULTIPART_PREAMBLE:
    case CORDON_MULTIPART_DATA:
        return feed_data(reader, data, size);
    case CORDON_MULTIPART_HEADER: {
        int r = feed_header(reader, *data);
        return r < 0 ? r : 1;
    }
    case CORDON_MULTIPART_DELIMITED: {
        int r = feed_delimited(reader, *data);
        return r < 0 ? r : 1;
    }
    case CORDON_MULTIPART_EPILOGUE:
        break;
    }
    return (ssize_t)size;
}

int cordon_multipart_feed(struct cordon_multipart *reader, const char *data, size_t size)
{
    while (size) {
        ssize_t taken = feed_some(reader, data, size);
        if (taken < 0)
            return (int)taken;
        data += taken;
        size -= (size_t)taken;
    }
    return 0;
}

int cordon_multipart_end(const struct cordon_multipart *reader)
{
    return reader->state == CORDON_MULTIPART_EPILOGUE ? 0 : -EBADMSG;
}

void cordon_multipart_done(struct cordon_multipart *reader)
{
    cordon_buf_done(&reader->line);
}
