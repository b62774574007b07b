/* SPDX-License-Identifier: Apache-2.0 */
#include "http/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void cordon_http_reader_done(struct cordon_http_reader *reader)
{
    cordon_buf_done(&reader->line);
    cordon_buf_done(&reader->fields);
    cordon_buf_done(&reader->body);
}

static bool parse_digits(const char *text, int base, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, base);
    if (end == text || text[0] == '-' || text[0] == '+' || text[0] == ' ' || errno || (*end && *end != ';'))
        return false;
    *ret = value;
    return true;
}

static int read_status(struct cordon_http_reader *reader, const char *line)
{
    if (strncmp(line, "HTTP/1.1 ", 9) != 0 && strncmp(line, "HTTP/1.0 ", 9) != 0)
        return -EBADMSG;
    uint64_t status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -EBADMSG;
        status = status * 10 + (uint64_t)(line[i] - '0');
    }
    if (status < 100 || status > 599)
        return -EBADMSG;
    reader->status = (int)status;
    return 0;
}

/* One field line of the header, NUL-terminated. */
static int read_field(struct cordon_http_reader *reader, char *line)
{
    char *value = strchr(line, ':');
    if (!value)
        return -EBADMSG;
    *value++ = '\0';
    value += strspn(value, " \t");
    if (reader->fields.max && (cordon_buf_append(&reader->fields, line, strlen(line) + 1) < 0 ||
                               cordon_buf_append(&reader->fields, value, strlen(value) + 1) < 0))
        return -EMSGSIZE;
    if (strcasecmp(line, "Content-Length") == 0) {
        reader->state = CORDON_READER_LENGTH;
        return parse_digits(value, 10, &reader->left) ? 0 : -EBADMSG;
    }
    if (strcasecmp(line, "Transfer-Encoding") == 0) {
        reader->state = CORDON_READER_SIZE;
        return strcasecmp(value, "chunked") == 0 ? 0 : -EBADMSG;
    }
    if (strcasecmp(line, "Content-Type") == 0)
        reader->ndjson = strncasecmp(value, "application/x-ndjson", 20) == 0;
    return 0;
}

/* The whole header is in line, each of its lines ended by CRLF, with the empty one. */
static int read_header(struct cordon_http_reader *reader)
{
    char *at = reader->line.data;
    if (memchr(at, '\0', reader->line.size))
        return -EBADMSG;
    reader->state = CORDON_READER_UNTIL_END;
    for (bool first = true;; first = false) {
        char *end = strstr(at, "\r\n");
        *end = '\0';
        if (end == at)
            break;
        int r = first ? read_status(reader, at) : read_field(reader, at);
        if (r < 0)
            return r;
        at = end + 2;
    }
    if (reader->status == 101) {
        if (!reader->upgrade)
            return -EBADMSG;
        reader->state = CORDON_READER_UNTIL_END;
    } else if (reader->status / 100 == 1) {
        reader->state = CORDON_READER_HEADER; /* an interim answer: the real one follows */
        reader->status = 0;
        reader->fields.size = 0;
    } else if (reader->no_body || reader->status == 204 || reader->status == 304 ||
               (reader->state == CORDON_READER_LENGTH && !reader->left)) {
        reader->state = CORDON_READER_DONE;
    }
    reader->line.size = 0;
    return reader->state == CORDON_READER_HEADER || reader->status ? 0 : -EBADMSG;
}

static int read_chunk_size(struct cordon_http_reader *reader)
{
    reader->line.data[reader->line.size - 2] = '\0';
    if (!parse_digits(reader->line.data, 16, &reader->left))
        return -EBADMSG;
    reader->state = reader->left ? CORDON_READER_CHUNK : CORDON_READER_TRAILER;
    reader->line.size = 0;
    return 0;
}

static int end_line(struct cordon_http_reader *reader)
{
    switch (reader->state) {
    case CORDON_READER_SIZE:
        return read_chunk_size(reader);
    case CORDON_READER_CHUNK_END:
        if (reader->line.size != 2)
            return -EBADMSG;
        reader->state = CORDON_READER_SIZE;
        break;
    case CORDON_READER_TRAILER:
        if (reader->line.size == 2)
            reader->state = CORDON_READER_DONE;
        break;
    default:
        return -EBADMSG;
    }
    reader->line.size = 0;
    return 0;
}

static bool ends_with(const struct cordon_buf *buf, const char *end, size_t size)
{
    return buf->size >= size && memcmp(buf->data + buf->size - size, end, size) == 0;
}

/* Takes bytes up to the end of a line. */
static int feed_line(struct cordon_http_reader *reader, const char **data, size_t *size)
{
    const char *newline = memchr(*data, '\n', *size);
    size_t take = newline ? (size_t)(newline - *data) + 1 : *size;
    int r = cordon_buf_append(&reader->line, *data, take);
    if (r < 0)
        return r;
    *data += take;
    *size -= take;
    if (!newline)
        return 0;
    if (!ends_with(&reader->line, "\r\n", 2))
        return -EBADMSG;
    if (reader->state != CORDON_READER_HEADER)
        return end_line(reader);
    return ends_with(&reader->line, "\r\n\r\n", 4) ? read_header(reader) : 0;
}

static int feed_body(struct cordon_http_reader *reader, const char **data, size_t *size)
{
    bool counted = reader->state != CORDON_READER_UNTIL_END;
    size_t take = counted && reader->left < *size ? (size_t)reader->left : *size;
    int r = cordon_buf_append(&reader->body, *data, take);
    if (r < 0)
        return r;
    *data += take;
    *size -= take;
    if (!counted)
        return 0;
    reader->left -= take;
    if (!reader->left)
        reader->state = reader->state == CORDON_READER_CHUNK ? CORDON_READER_CHUNK_END : CORDON_READER_DONE;
    return 0;
}

int cordon_http_reader_feed(struct cordon_http_reader *reader, const char *data, size_t size)
{
    while (size) {
        enum cordon_http_reader_state state = reader->state;
        if (state == CORDON_READER_DONE)
            return -EBADMSG;
        bool body = state == CORDON_READER_LENGTH || state == CORDON_READER_CHUNK || state == CORDON_READER_UNTIL_END;
        int r = body ? feed_body(reader, &data, &size) : feed_line(reader, &data, &size);
        if (r < 0)
            return r;
    }
    return 0;
}

int cordon_http_reader_end(struct cordon_http_reader *reader)
{
    if (reader->state == CORDON_READER_UNTIL_END)
        reader->state = CORDON_READER_DONE;
    return reader->state == CORDON_READER_DONE ? 0 : -EPIPE;
}
