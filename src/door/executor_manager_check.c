/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of the source: a program of ours (source_check.py, source_check.js) run in a guest of its own with the
 * source as its argument, since parsers of source are no place for what nobody has read. Its result is the list of
 * findings; when it has none, because the source was too much for it, the program is refused as well.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "door/executor_manager.h"

#define CORDON_X(name)                                                                                                 \
    extern const char cordon_asset_##name[];                                                                           \
    extern const uint64_t cordon_asset_##name##_size;
CORDON_X(source_check_py)
CORDON_X(source_check_js)
#undef CORDON_X

static void write_arguments(const struct cordon_bytes *source, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "source");
    cordon_json_bytes(&json, source->data, source->size);
    cordon_json_object_end(&json);
}

/* Appends the findings, a line each: how many, or -EBADMSG when that is no list of strings. */
static int read_findings(struct cordon_bytes result, struct cordon_buf *text)
{
    struct cordon_value list, key, item;
    int count = 0;
    if (!result.size || cordon_value_parse(result.data, result.size, &list, NULL) < 0 ||
        list.kind != CORDON_VALUE_ARRAY)
        return -EBADMSG;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    for (; cordon_value_next(&walk, &key, &item) && !text->failed; count++) {
        cordon_autofree char *line = item.kind == CORDON_VALUE_STRING ? malloc(item.size) : NULL;
        ssize_t size = line ? cordon_value_string(&item, line) : -1;
        if (size < 0)
            return -EBADMSG;
        if (count)
            (void)cordon_buf_append(text, "\n", 1); /* failures stick in text->failed: the rest is left out */
        (void)cordon_buf_append(text, line, (size_t)size);
    }
    return count;
}

static int judge(const struct cordon_answer *answer, struct cordon_buf *text, struct cordon_em_verdict *verdict)
{
    const struct cordon_outcome *outcome = cordon_answer_outcome(answer);
    bool ended = outcome->cause == CORDON_CAUSE_EXITED && outcome->exit_code == 0;
    int count = ended ? read_findings(cordon_answer_result(answer), text) : -EBADMSG;
    if (count == 0)
        return 0;
    *verdict = (struct cordon_em_verdict){
        .status = "program_runner_error", .exit_code = CORDON_EM_CODE_UNSAFE, .detail = "Code is unsafe"};
    if (count < 0) {
        text->size = 0;
        (void)cordon_buf_appendf(text, "the check of the source (CORDON_EXECUTOR_CHECK) gave no answer: %s%s",
                                 cordon_cause_name(outcome->cause), *outcome->message ? ", " : "");
        (void)cordon_buf_appends(text, outcome->message); /* failures stick, and leave what there is */
    }
    verdict->error = (struct cordon_bytes){text->data, text->size};
    return 1;
}

int cordon_em_check(const struct cordon_settings *settings, const struct cordon_run_request *run,
                    struct cordon_buf *text, struct cordon_em_verdict *verdict, struct cordon_error *err)
{
    struct cordon_run_request check;
    struct cordon_live *live = NULL;
    struct cordon_answer *answer = NULL;
    struct cordon_buf arguments = CORDON_BUF_INIT(SIZE_MAX / 2); /* bounded by the body */
    bool javascript = strcmp(run->request.language, "javascript") == 0;
    cordon_run_request_init(settings, run->door, &check);
    write_arguments(&run->request.code, &arguments);
    check.request.language = run->request.language;
    check.request.code =
        javascript ? (struct cordon_bytes){cordon_asset_source_check_js, (size_t)cordon_asset_source_check_js_size}
                   : (struct cordon_bytes){cordon_asset_source_check_py, (size_t)cordon_asset_source_check_py_size};
    check.request.arguments = (struct cordon_bytes){arguments.data, arguments.size};
    check.request.cancel_fd = run->request.cancel_fd;
    int r = arguments.failed || cordon_answer_new(&check.request.limits, &answer) < 0
                ? cordon_fail_errno(err, -ENOMEM, "checking the source")
                : 0;
    if (r == 0)
        r = cordon_live_open(settings, &check, &live, err);
    if (r == 0)
        r = cordon_answer_collect(answer, live, err);
    if (r == 0)
        r = judge(answer, text, verdict);
    cordon_answer_free(answer);
    cordon_live_close(live);
    cordon_run_request_done(&check);
    cordon_buf_done(&arguments);
    return r;
}
