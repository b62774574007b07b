/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result object of POST /run. What ended a run is known from its outcome, never guessed from an exit code: a
 * program that exits with 124 or 137 itself is a program that failed. On every failure stdout is empty and what helps
 * is in stderr, which is where RAGFlow looks.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "door/executor_manager.h"

#define RUNNER_ERROR "program_runner_error"
#define LIMIT_EXCEEDED "resource_limit_exceeded"

enum { CODE_BUSY = -10, CODE_INTERNAL = -3, CODE_TIME = -124, CODE_MEMORY = -137, CODE_OUTPUT = -153 };

static struct cordon_bytes bytes_of(const char *text)
{
    return (struct cordon_bytes){text, strlen(text)};
}

static struct cordon_em_verdict internal_error(const char *text)
{
    return (struct cordon_em_verdict){
        .status = RUNNER_ERROR, .error = bytes_of(text), .exit_code = CODE_INTERNAL, .detail = "internal_error"};
}

static struct cordon_em_verdict over_limit(int code, const char *type, const char *text)
{
    return (struct cordon_em_verdict){
        .status = LIMIT_EXCEEDED, .error = bytes_of(text), .exit_code = code, .limit_type = type, .timed = true};
}

static bool says(const struct cordon_bytes *text, const char *words)
{
    return text->size && memmem(text->data, text->size, words, strlen(words));
}

/* A program that ended by itself, and not well. */
static struct cordon_em_verdict judge_failed(int code, const struct cordon_bytes *error)
{
    struct cordon_em_verdict verdict = {.error = *error, .exit_code = code};
    if (says(error, "Permission denied")) {
        verdict.status = "unauthorized_access";
        verdict.access_type = "file_access";
    } else if (says(error, "Operation not permitted")) {
        verdict.status = "unauthorized_access";
        verdict.access_type = "disallowed_syscall";
    } else if (says(error, "MemoryError")) {
        verdict.status = LIMIT_EXCEEDED;
        verdict.limit_type = "memory";
    } else {
        verdict.status = "program_error";
        verdict.error_type = "nonzero_exit";
    }
    return verdict;
}

/* Of a stream that was cut, the start of a character at its end does not count. */
static bool readable(const struct cordon_bytes *stream, bool cut, char fault[160])
{
    if (!stream->size)
        return true;
    return cordon_em_utf8(stream->data, cut ? cordon_utf8_complete(stream->data, stream->size) : stream->size, fault);
}

static void tell_cut(const struct cordon_outcome *outcome, char text[512], struct cordon_em_verdict *verdict)
{
    if (outcome->stdout_bytes <= outcome->stdout_kept)
        return;
    (void)snprintf(text, 512, "stdout was cut: %llu bytes were written and %llu are kept (CORDON_STDOUT_KB)",
                   (unsigned long long)outcome->stdout_bytes, (unsigned long long)outcome->stdout_kept); /* fits */
    verdict->detail = text;
}

static struct cordon_em_verdict judge_ended(const struct cordon_answer *answer, char text[512])
{
    const struct cordon_outcome *outcome = cordon_answer_outcome(answer);
    struct cordon_bytes out = cordon_answer_stdout(answer), error = cordon_answer_stderr(answer);
    if (!readable(&out, outcome->stdout_bytes > outcome->stdout_kept, text) ||
        !readable(&error, outcome->stderr_bytes > outcome->stderr_kept, text))
        return internal_error(text);
    if (outcome->cause == CORDON_CAUSE_SIGNALLED)
        return judge_failed(128 + outcome->signal, &error);
    if (outcome->exit_code)
        return judge_failed(outcome->exit_code, &error);
    struct cordon_em_verdict verdict = {.status = "success", .error = error, .timed = true, .good = true};
    tell_cut(outcome, text, &verdict);
    return verdict;
}

void cordon_em_judge(const struct cordon_answer *answer, char text[512], struct cordon_em_verdict *ret)
{
    const struct cordon_outcome *outcome = cordon_answer_outcome(answer);
    switch (outcome->cause) {
    case CORDON_CAUSE_EXITED:
    case CORDON_CAUSE_SIGNALLED:
        *ret = judge_ended(answer, text);
        return;
    case CORDON_CAUSE_TIMEOUT:
        *ret = over_limit(CODE_TIME, "time", "Execution timeout");
        return;
    case CORDON_CAUSE_MEMORY:
        *ret = over_limit(CODE_MEMORY, "memory", "Memory limit exceeded (killed by OOM)");
        return;
    case CORDON_CAUSE_OUTPUT_LIMIT:
        *ret = over_limit(CODE_OUTPUT, "output", outcome->message);
        return;
    default:
        *ret = internal_error(outcome->message);
        return;
    }
}

void cordon_em_judge_error(const struct cordon_error *err, struct cordon_em_verdict *ret)
{
    *ret = internal_error(err->message);
    if (err->kind == CORDON_ERROR_BUSY) {
        ret->error = bytes_of("Container pool is busy");
        ret->exit_code = CODE_BUSY;
        ret->detail = "no_available_container";
    } else if (err->kind == CORDON_ERROR_INVALID || err->kind == CORDON_ERROR_TOO_LARGE) {
        ret->exit_code = CORDON_EM_CODE_UNSAFE;
        ret->detail = "unhandled_exception";
    }
}

/* --- artifacts --- */

static const char *mime_type_of(const char *name)
{
    static const struct {
        const char *suffix, *type;
    } types[] = {{"png", "image/png"},         {"jpg", "image/jpeg"},      {"jpeg", "image/jpeg"},
                 {"svg", "image/svg+xml"},     {"pdf", "application/pdf"}, {"csv", "text/csv"},
                 {"json", "application/json"}, {"html", "text/html"}};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcasecmp(dot + 1, types[i].suffix) == 0)
            return types[i].type;
    return NULL;
}

static bool name_allowed(const char *name)
{
    if (!*name || *name == '.' || strpbrk(name, "/\\") || strstr(name, ".."))
        return false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 32 || *p == 127)
            return false;
    return true;
}

/* The guest was asked for nothing else; but it is a guest. */
static void write_artifacts(const struct cordon_answer *answer, struct cordon_json *json)
{
    struct cordon_artifact artifact;
    unsigned count = 0;
    for (size_t i = 0; count < CORDON_EM_ARTIFACTS && cordon_answer_artifact(answer, i, &artifact); i++) {
        const char *type = mime_type_of(artifact.name);
        if (artifact.reason || !type || !artifact.content.size || artifact.content.size > CORDON_EM_ARTIFACT_BYTES ||
            !name_allowed(artifact.name))
            continue;
        count++;
        cordon_json_object_begin(json);
        cordon_json_key(json, "name");
        cordon_json_text(json, artifact.name);
        cordon_json_key(json, "mime_type");
        cordon_json_text(json, type);
        cordon_json_key(json, "size");
        cordon_json_uint(json, artifact.content.size);
        cordon_json_key(json, "content_b64");
        cordon_json_base64(json, artifact.content.data, artifact.content.size);
        cordon_json_object_end(json);
    }
}

/* --- the object --- */

static void write_stdout(const struct cordon_em_verdict *verdict, const struct cordon_answer *answer,
                         struct cordon_json *json)
{
    struct cordon_bytes out = verdict->good ? cordon_answer_stdout(answer) : (struct cordon_bytes){NULL, 0};
    struct cordon_buf text = CORDON_BUF_INIT(out.size + 1);
    cordon_em_stdout(out.data, out.size, &text);
    json->buf->failed = json->buf->failed || text.failed;
    cordon_json_key(json, "stdout");
    cordon_json_bytes(json, text.data ? text.data : "", text.size);
    cordon_buf_done(&text);
}

static void write_result(const struct cordon_em_verdict *verdict, const struct cordon_answer *answer,
                         struct cordon_json *json)
{
    struct cordon_bytes result = verdict->good ? cordon_answer_result(answer) : (struct cordon_bytes){NULL, 0};
    cordon_json_key(json, "result");
    if (!result.data) {
        cordon_json_null(json);
        return;
    }
    cordon_json_object_begin(json);
    cordon_json_key(json, "present");
    cordon_json_bool(json, true);
    cordon_json_key(json, "value");
    cordon_json_raw(json, result.data, result.size);
    cordon_json_pair_text(json, "type", "json");
    cordon_json_object_end(json);
}

void cordon_em_write(const struct cordon_em_verdict *verdict, const struct cordon_answer *answer, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_pair_text(&json, "status", verdict->status);
    write_stdout(verdict, answer, &json);
    cordon_json_key(&json, "stderr");
    cordon_json_bytes(&json, verdict->error.data ? verdict->error.data : "", verdict->error.size);
    cordon_json_key(&json, "exit_code");
    cordon_json_int(&json, verdict->exit_code);
    cordon_json_pair_text(&json, "detail", verdict->detail);
    cordon_json_key(&json, "time_used_ms");
    if (verdict->timed)
        cordon_json_ms(&json, cordon_answer_outcome(answer)->run_us);
    else
        cordon_json_null(&json);
    cordon_json_pair_text(&json, "memory_used_kb", NULL);
    cordon_json_pair_text(&json, "resource_limit_type", verdict->limit_type);
    cordon_json_pair_text(&json, "unauthorized_access_type", verdict->access_type);
    cordon_json_pair_text(&json, "runtime_error_type", verdict->error_type);
    cordon_json_key(&json, "artifacts");
    cordon_json_array_begin(&json);
    if (verdict->good)
        write_artifacts(answer, &json);
    cordon_json_array_end(&json);
    write_result(verdict, answer, &json);
    cordon_json_object_end(&json);
}
