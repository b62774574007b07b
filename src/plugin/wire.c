/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 4096u /* of environment, domains, files */

enum {
    TAG_LANGUAGE = 1,
    TAG_CODE,
    TAG_ARGUMENTS,
    TAG_STDIN,
    TAG_ENV,
    TAG_FILE_PATH, /* followed by TAG_FILE_MODE and TAG_FILE_CONTENT */
    TAG_FILE_MODE,
    TAG_FILE_CONTENT,
    TAG_LIMITS,
    TAG_FLAGS,
    TAG_DOMAIN,
    TAG_TYPE,
    TAG_DATA,
    TAG_NAME,
    TAG_REASON,
    TAG_SIZE,
    TAG_OUTCOME,
    TAG_KIND,
    TAG_ERRNO,
    TAG_MESSAGE,
    TAG_CAPABILITIES,
    TAG_EXCEPTIONS
};

enum { FLAG_ARTIFACTS = 1, FLAG_NETWORK = 2, FLAG_FRESH = 4 };

/* --- frames and fields --- */

static uint32_t u32(const char *data)
{
    const unsigned char *p = (const unsigned char *)data;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set_u32(char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(number >> (8 * i));
}

int cordon_wire_next(const struct cordon_buf *in, size_t max, struct cordon_wire_frame *ret, size_t *used)
{
    if (in->size < CORDON_WIRE_HEADER)
        return 0;
    unsigned type = (unsigned char)in->data[0];
    size_t size = u32(in->data + 1);
    if (type == 0 || type >= CORDON_WIRE__COUNT)
        return -EBADMSG;
    if (size > max)
        return -EMSGSIZE;
    if (in->size - CORDON_WIRE_HEADER < size)
        return 0;
    *ret = (struct cordon_wire_frame){(enum cordon_wire_type)type, in->data + CORDON_WIRE_HEADER, size};
    *used = CORDON_WIRE_HEADER + size;
    return 1;
}

size_t cordon_wire_begin(struct cordon_buf *to, enum cordon_wire_type type)
{
    char head[CORDON_WIRE_HEADER] = {(char)type};
    size_t at = to->size;
    (void)cordon_buf_append(to, head, sizeof head); /* sticky */
    return at;
}

void cordon_wire_end(struct cordon_buf *to, size_t begun)
{
    if (!to->failed)
        set_u32(to->data + begun + 1, (uint32_t)(to->size - begun - CORDON_WIRE_HEADER));
}

void cordon_wire_put(struct cordon_buf *to, unsigned tag, const void *data, size_t size)
{
    char head[5] = {(char)tag};
    if (size > UINT32_MAX)
        to->failed = true;
    set_u32(head + 1, (uint32_t)size);
    (void)cordon_buf_append(to, head, sizeof head); /* sticky */
    if (size)
        (void)cordon_buf_append(to, data, size);
}

static void put_text(struct cordon_buf *to, unsigned tag, const char *text)
{
    if (text)
        cordon_wire_put(to, tag, text, strlen(text));
}

struct field {
    unsigned tag;
    const char *data;
    size_t size;
};

/* 1, 0 at the end, -EBADMSG. */
static int next_field(const struct cordon_wire_frame *frame, size_t *at, struct field *ret)
{
    size_t left = frame->size - *at;
    if (!left)
        return 0;
    if (left < 5)
        return -EBADMSG;
    size_t size = u32(frame->data + *at + 1);
    if (size > left - 5)
        return -EBADMSG;
    *ret = (struct field){(unsigned char)frame->data[*at], frame->data + *at + 5, size};
    *at += 5 + size;
    return 1;
}

static bool copy_text(const struct field *field, char *to, size_t size)
{
    if (field->size >= size || memchr(field->data, '\0', field->size))
        return false;
    memcpy(to, field->data, field->size);
    to[field->size] = '\0';
    return true;
}

/* Numbers of fixed size, copied as far as both sides know them: they are processes of one program on one machine. */
static void copy_struct(const struct field *field, void *to, size_t size)
{
    memcpy(to, field->data, field->size < size ? field->size : size);
}

/* --- requests --- */

void cordon_wire_put_request(struct cordon_buf *to, const struct cordon_request *request)
{
    unsigned char flags =
        (unsigned char)((request->artifacts ? FLAG_ARTIFACTS : 0) | (request->network ? FLAG_NETWORK : 0) |
                        (request->fresh_interpreter ? FLAG_FRESH : 0));
    size_t begun = cordon_wire_begin(to, CORDON_WIRE_REQUEST);
    put_text(to, TAG_LANGUAGE, request->language);
    cordon_wire_put(to, TAG_CODE, request->code.data, request->code.size);
    if (request->arguments.data)
        cordon_wire_put(to, TAG_ARGUMENTS, request->arguments.data, request->arguments.size);
    cordon_wire_put(to, TAG_STDIN, request->stdin_data.data, request->stdin_data.size);
    cordon_wire_put(to, TAG_LIMITS, &request->limits, sizeof request->limits);
    cordon_wire_put(to, TAG_FLAGS, &flags, 1);
    for (size_t i = 0; i < request->env_count; i++)
        put_text(to, TAG_ENV, request->env[i]);
    for (size_t i = 0; i < request->allowed_domain_count; i++)
        put_text(to, TAG_DOMAIN, request->allowed_domains[i]);
    for (size_t i = 0; i < request->file_count; i++) {
        put_text(to, TAG_FILE_PATH, request->files[i].path);
        cordon_wire_put(to, TAG_FILE_MODE, &request->files[i].mode, sizeof request->files[i].mode);
        cordon_wire_put(to, TAG_FILE_CONTENT, request->files[i].content.data, request->files[i].content.size);
    }
    cordon_wire_end(to, begun);
}

/* A copy in the arena, whose memory was reserved and does not move. */
static const char *keep(struct cordon_wire_request *to, const struct field *field)
{
    size_t at = to->arena.size;
    if (memchr(field->data, '\0', field->size) || cordon_buf_append(&to->arena, field->data, field->size) < 0 ||
        cordon_buf_append(&to->arena, "", 1) < 0)
        return NULL;
    return to->arena.data + at;
}

static int take_field(struct cordon_wire_request *to, const struct field *field)
{
    struct cordon_request *request = &to->request;
    struct cordon_bytes bytes = {field->data, field->size};
    struct cordon_file *file = request->file_count ? &to->files[request->file_count - 1] : NULL;
    switch (field->tag) {
    case TAG_LANGUAGE:
        return (request->language = keep(to, field)) ? 0 : -EBADMSG;
    case TAG_CODE:
        request->code = bytes;
        return 0;
    case TAG_ARGUMENTS:
        request->arguments = bytes;
        return 0;
    case TAG_STDIN:
        request->stdin_data = bytes;
        return 0;
    case TAG_LIMITS:
        copy_struct(field, &request->limits, sizeof request->limits);
        return 0;
    case TAG_FLAGS:
        if (field->size != 1)
            return -EBADMSG;
        request->artifacts = field->data[0] & FLAG_ARTIFACTS;
        request->network = field->data[0] & FLAG_NETWORK;
        request->fresh_interpreter = field->data[0] & FLAG_FRESH;
        return 0;
    case TAG_ENV:
        return (to->env[request->env_count++] = keep(to, field)) ? 0 : -EBADMSG;
    case TAG_DOMAIN:
        return (to->domains[request->allowed_domain_count++] = keep(to, field)) ? 0 : -EBADMSG;
    case TAG_FILE_PATH:
        return (to->files[request->file_count++].path = keep(to, field)) ? 0 : -EBADMSG;
    case TAG_FILE_MODE:
        if (!file || field->size != sizeof file->mode)
            return -EBADMSG;
        memcpy(&file->mode, field->data, sizeof file->mode);
        return 0;
    case TAG_FILE_CONTENT:
        if (!file)
            return -EBADMSG;
        file->content = bytes;
        return 0;
    default:
        return 0; /* a newer side's */
    }
}

int cordon_wire_get_request(const struct cordon_wire_frame *frame, struct cordon_wire_request *ret)
{
    struct field field;
    size_t at = 0, counts[256] = {0};
    int r;
    *ret = (struct cordon_wire_request){.request = {.struct_size = sizeof ret->request, .cancel_fd = -1}};
    while ((r = next_field(frame, &at, &field)) > 0)
        if (++counts[field.tag] > ENTRIES_MAX)
            return -EBADMSG;
    ret->env = calloc(counts[TAG_ENV] + 1, sizeof *ret->env);
    ret->domains = calloc(counts[TAG_DOMAIN] + 1, sizeof *ret->domains);
    ret->files = calloc(counts[TAG_FILE_PATH] + 1, sizeof *ret->files);
    ret->arena = CORDON_BUF_INIT(frame->size * 2 + 1024);
    if (!ret->env || !ret->domains || !ret->files || !cordon_buf_reserve(&ret->arena, frame->size * 2 + 512))
        r = -ENOMEM;
    for (at = 0; r == 0 && next_field(frame, &at, &field) > 0;)
        r = take_field(ret, &field);
    ret->request.env = ret->env;
    ret->request.allowed_domains = ret->domains;
    ret->request.files = ret->files;
    if (r == 0 && !ret->request.language)
        r = -EBADMSG;
    if (r < 0)
        cordon_wire_request_done(ret);
    return r;
}

void cordon_wire_request_done(struct cordon_wire_request *request)
{
    free(request->env);
    free(request->domains);
    free(request->files);
    cordon_buf_done(&request->arena);
    *request = (struct cordon_wire_request){0};
}

/* --- events --- */

void cordon_wire_put_event(struct cordon_buf *to, const struct cordon_event *event)
{
    unsigned char type = (unsigned char)event->type;
    size_t begun = cordon_wire_begin(to, CORDON_WIRE_EVENT);
    cordon_wire_put(to, TAG_TYPE, &type, 1);
    if (event->data.size)
        cordon_wire_put(to, TAG_DATA, event->data.data, event->data.size);
    put_text(to, TAG_NAME, event->name);
    put_text(to, TAG_REASON, event->reason);
    cordon_wire_put(to, TAG_SIZE, &event->size, sizeof event->size);
    if (event->outcome)
        cordon_wire_put(to, TAG_OUTCOME, event->outcome,
                        event->outcome->struct_size && event->outcome->struct_size < sizeof *event->outcome
                            ? event->outcome->struct_size
                            : sizeof *event->outcome);
    cordon_wire_end(to, begun);
}

/* What of an outcome must be looked at before it is one: texts of fixed room and bools, which another process filled
 * in. */
#define TEXT(member) (offsetof(struct cordon_outcome, member) + sizeof((struct cordon_outcome *)0)->member)
static const size_t text_ends[] = {TEXT(limit_hit),   TEXT(message),      TEXT(blocked_syscall),
                                   TEXT(backend),     TEXT(result_error), TEXT(egress.first_refused),
                                   TEXT(accelerator), TEXT(start)};
static const size_t outcome_bools[] = {offsetof(struct cordon_outcome, warm), offsetof(struct cordon_outcome, network)};
_Static_assert((TEXT(start) + 7) / 8 * 8 == sizeof(struct cordon_outcome), "a new member: is it in the tables above?");

/* A bool or an enum that is none is undefined behaviour to look at: seen as bytes before. */
static int take_outcome(const struct field *field, struct cordon_outcome *to)
{
    char raw[sizeof *to] = {0};
    uint32_t cause, isolation;
    copy_struct(field, raw, sizeof raw);
    memcpy(&cause, raw + offsetof(struct cordon_outcome, cause), sizeof cause);
    memcpy(&isolation, raw + offsetof(struct cordon_outcome, isolation), sizeof isolation);
    if (cause >= CORDON_CAUSE__COUNT || isolation >= CORDON_ISOLATION__COUNT)
        return -EBADMSG;
    for (size_t i = 0; i < sizeof outcome_bools / sizeof *outcome_bools; i++)
        if ((unsigned char)raw[outcome_bools[i]] > 1)
            return -EBADMSG;
    for (size_t i = 0; i < sizeof text_ends / sizeof *text_ends; i++)
        raw[text_ends[i] - 1] = '\0';
    memcpy(to, raw, sizeof *to);
    to->struct_size = sizeof *to;
    return 0;
}

int cordon_wire_get_event(const struct cordon_wire_frame *frame, struct cordon_wire_event *ret)
{
    struct field field;
    size_t at = 0;
    int r;
    struct cordon_event *event = &ret->event;
    bool outcome = false;
    *event = (struct cordon_event){0};
    while ((r = next_field(frame, &at, &field)) > 0) {
        if (field.tag == TAG_TYPE && field.size == 1)
            event->type = (enum cordon_event_type)(unsigned char)field.data[0];
        else if (field.tag == TAG_DATA)
            event->data = (struct cordon_bytes){field.data, field.size};
        else if (field.tag == TAG_NAME && copy_text(&field, ret->name, sizeof ret->name))
            event->name = ret->name;
        else if (field.tag == TAG_REASON && copy_text(&field, ret->reason, sizeof ret->reason))
            event->reason = ret->reason;
        else if (field.tag == TAG_SIZE && field.size == sizeof event->size)
            memcpy(&event->size, field.data, sizeof event->size);
        else if (field.tag == TAG_OUTCOME && take_outcome(&field, &ret->outcome) == 0)
            outcome = true;
        else
            return -EBADMSG;
    }
    if (r < 0 || event->type < CORDON_EVENT_STARTED || event->type > CORDON_EVENT_OUTCOME)
        return -EBADMSG;
    bool named = event->type == CORDON_EVENT_ARTIFACT || event->type == CORDON_EVENT_DROPPED;
    if ((named && !event->name) || (event->type == CORDON_EVENT_DROPPED && !event->reason) ||
        (event->type == CORDON_EVENT_OUTCOME) != outcome)
        return -EBADMSG;
    event->outcome = outcome ? &ret->outcome : NULL;
    if (!event->data.data)
        event->data.data = "";
    return 0;
}

/* --- errors and the hello --- */

void cordon_wire_put_error(struct cordon_buf *to, const struct cordon_error *err)
{
    uint32_t kind = (uint32_t)err->kind;
    int32_t code = err->code;
    size_t begun = cordon_wire_begin(to, CORDON_WIRE_ERROR);
    cordon_wire_put(to, TAG_KIND, &kind, sizeof kind);
    cordon_wire_put(to, TAG_ERRNO, &code, sizeof code);
    put_text(to, TAG_MESSAGE, err->message);
    cordon_wire_end(to, begun);
}

int cordon_wire_get_error(const struct cordon_wire_frame *frame, struct cordon_error *ret)
{
    struct field field;
    size_t at = 0;
    uint32_t kind = 0;
    int32_t code = 0;
    int r;
    *ret = (struct cordon_error){0};
    while ((r = next_field(frame, &at, &field)) > 0) {
        if (field.tag == TAG_KIND && field.size == sizeof kind)
            memcpy(&kind, field.data, sizeof kind);
        else if (field.tag == TAG_ERRNO && field.size == sizeof code)
            memcpy(&code, field.data, sizeof code);
        else if (field.tag != TAG_MESSAGE || !copy_text(&field, ret->message, sizeof ret->message))
            return -EBADMSG;
    }
    if (r < 0 || kind == CORDON_ERROR_NONE || kind >= CORDON_ERROR__COUNT)
        return -EBADMSG;
    ret->kind = (enum cordon_error_kind)kind;
    ret->code = code < 0 && code > -4096 ? code : -EIO;
    return 0;
}

/* Booleans by bits, so that none comes in as anything else. */
static const size_t booleans[] = {
    offsetof(struct cordon_capabilities, deny_all_egress), offsetof(struct cordon_capabilities, domain_allowlist),
    offsetof(struct cordon_capabilities, files),           offsetof(struct cordon_capabilities, artifacts),
    offsetof(struct cordon_capabilities, streaming),       offsetof(struct cordon_capabilities, memory_limit),
    offsetof(struct cordon_capabilities, pids_limit),      offsetof(struct cordon_capabilities, cpu_limit),
    offsetof(struct cordon_capabilities, agent_protected), offsetof(struct cordon_capabilities, network),
};
enum { BOOLEANS = sizeof booleans / sizeof *booleans };

void cordon_wire_put_hello(struct cordon_buf *to, const struct cordon_capabilities *capabilities)
{
    uint32_t numbers[3] = {(uint32_t)capabilities->isolation, capabilities->max_timeout_s, 0};
    for (size_t i = 0; i < BOOLEANS; i++)
        numbers[2] |= (uint32_t) * ((const bool *)((const char *)capabilities + booleans[i])) << i;
    size_t begun = cordon_wire_begin(to, CORDON_WIRE_HELLO);
    cordon_wire_put(to, TAG_CAPABILITIES, numbers, sizeof numbers);
    put_text(to, TAG_LANGUAGE, capabilities->languages);
    put_text(to, TAG_EXCEPTIONS, capabilities->egress_exceptions);
    cordon_wire_end(to, begun);
}

int cordon_wire_get_hello(const struct cordon_wire_frame *frame, struct cordon_wire_hello *ret)
{
    struct field field;
    size_t at = 0;
    uint32_t numbers[3] = {CORDON_ISOLATION__COUNT};
    int r;
    *ret = (struct cordon_wire_hello){.capabilities = {.struct_size = sizeof ret->capabilities}};
    while ((r = next_field(frame, &at, &field)) > 0) {
        if (field.tag == TAG_CAPABILITIES && field.size == sizeof numbers)
            memcpy(numbers, field.data, sizeof numbers);
        else if (!(field.tag == TAG_LANGUAGE && copy_text(&field, ret->languages, sizeof ret->languages)) &&
                 !(field.tag == TAG_EXCEPTIONS &&
                   copy_text(&field, ret->egress_exceptions, sizeof ret->egress_exceptions)))
            return -EBADMSG;
    }
    if (r < 0 || numbers[0] >= CORDON_ISOLATION__COUNT)
        return -EBADMSG;
    ret->capabilities.isolation = (enum cordon_isolation)numbers[0];
    ret->capabilities.max_timeout_s = numbers[1];
    for (size_t i = 0; i < BOOLEANS; i++)
        *((bool *)((char *)&ret->capabilities + booleans[i])) = numbers[2] >> i & 1;
    ret->capabilities.languages = ret->languages;
    ret->capabilities.egress_exceptions = ret->egress_exceptions;
    return 0;
}
