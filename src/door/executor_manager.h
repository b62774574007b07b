/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the executor manager's door: the parts of one call of POST /run.
 *
 * The words of its answers are RAGFlow's (docs/ragflow.md): what its clients read is told byte by byte as its own
 * executor manager does, which is a program of FastAPI and pydantic.
 */
#ifndef CORDON_DOOR_EXECUTOR_MANAGER_H
#define CORDON_DOOR_EXECUTOR_MANAGER_H

#include "core/run.h"
#include "core/value.h"
#include "door/door.h"

/* --- executor_manager_auth.c: who may, and how often --- */

/* As the header comes. Passes everybody, so that a body that is no JSON is told first; a stranger's reason is kept in
 * the request's `stranger`, for _refusal. */
int cordon_em_admit(struct cordon_http_request *request, struct cordon_error *err);
/* NULL: it may. Else the answer's status in *ret_status, and its "detail", or NULL where it is the one of a flood. */
const char *cordon_em_refusal(struct cordon_http_request *request, int *ret_status);
/* Counts a run of this client. False: too many. */
bool cordon_em_may_run(struct cordon_http_request *request);

/* --- executor_manager_request.c: the body. Pure, fuzzed --- */

struct cordon_em_fields {
    struct cordon_value code_b64; /* decodes to code_size bytes */
    size_t code_size;
    const char *language;          /* "python", "javascript" */
    struct cordon_bytes arguments; /* a JSON object; a slice of the body, or of a constant */
};
/* Is the body of this Content-Type (NULL: none was given) read as JSON? */
bool cordon_em_is_json(const char *content_type);
/* Checks that a body is JSON: true; or false with the whole 422 body appended. An empty one is a value of size 0. */
bool cordon_em_parse(const char *body, size_t size, struct cordon_value *ret, struct cordon_buf *errors);
/* Reads the fields: true; or false with the whole 422 body appended. */
bool cordon_em_read(const struct cordon_value *body, struct cordon_em_fields *ret, struct cordon_buf *errors);
/* The 422 of a body that is not JSON by its Content-Type. */
void cordon_em_not_json(const char *body, size_t size, struct cordon_buf *errors);

/* --- executor_manager_text.c: Python's ways with text. Pure, fuzzed --- */

/* Decodes base64 as Python 3.11's b64decode(validate=True). to: room for size / 4 * 3 + 3 bytes, or NULL to check only.
 * The size; or -EINVAL with Python's words in fault. */
ssize_t cordon_em_unbase64(const char *text, size_t size, char *to, char fault[160]);
/* Is it UTF-8? Else Python's words in fault. */
bool cordon_em_utf8(const char *data, size_t size, char fault[160]);
/* A program's stdout as the answer has it: lines split and joined as by Python, lines that look like a result's marker
 * left out. (What main returned does not travel in stdout, so nothing that is printed can pass for it.) */
void cordon_em_stdout(const char *data, size_t size, struct cordon_buf *to);

/* --- executor_manager_answer.c: the result object --- */

struct cordon_em_verdict {
    const char *status;        /* "success", … */
    struct cordon_bytes error; /* its stderr; borrowed */
    int exit_code;
    const char *detail, *limit_type, *access_type, *error_type; /* NULL: null */
    bool timed;                                                 /* time_used_ms is told */
    bool good;                                                  /* stdout, artifacts and result are told */
};
#define CORDON_EM_CODE_UNSAFE (-999)

/* What a run's outcome is called. text: room for words of our own. */
void cordon_em_judge(const struct cordon_answer *answer, char text[512], struct cordon_em_verdict *ret);
/* What a run that could not take place is called. */
void cordon_em_judge_error(const struct cordon_error *err, struct cordon_em_verdict *ret);
/* answer may be NULL where the verdict is neither good nor timed. */
void cordon_em_write(const struct cordon_em_verdict *verdict, const struct cordon_answer *answer,
                     struct cordon_buf *to);

#define CORDON_EM_SUFFIXES "png,jpg,jpeg,svg,pdf,csv,json,html"
#define CORDON_EM_ARTIFACTS 10u
#define CORDON_EM_ARTIFACT_BYTES 10485760u

/* --- executor_manager_check.c: the check of the source, in a guest of its own --- */

/* 0: nothing was found; 1: *verdict is the answer, with its words in text; negative: err. */
int cordon_em_check(const struct cordon_settings *settings, const struct cordon_run_request *run,
                    struct cordon_buf *text, struct cordon_em_verdict *verdict, struct cordon_error *err);

#endif
