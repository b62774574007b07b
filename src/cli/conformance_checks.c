/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the conformance suite, each the smallest program that shows it. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/conformance.h"
#include "core/run.h"

#define CAPABILITY(name) offsetof(struct cordon_capabilities, name)

static bool has_word(const char *list, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = list ? list : ""; *at; at += strcspn(at, ","), at += strspn(at, ", "))
        if (strncmp(at, word, size) == 0 && (!at[size] || at[size] == ',' || at[size] == ' '))
            return true;
    return false;
}

const char *cordon_conformance_lacks(const struct cordon_conformance *self,
                                     const struct cordon_conformance_check *check)
{
    if (!has_word(self->caps.languages, check->language ? check->language : "python"))
        return "it does not run that language";
    if (check->needs && !*((const bool *)((const char *)&self->caps + check->needs)))
        return check->needed;
    return NULL;
}

/* Runs it and looks at what every run has: 0 when the rest is worth looking at. */
static int run(const struct cordon_conformance *self, const struct cordon_conformance_program *program,
               struct cordon_conformance_result *ret, char *why, size_t size)
{
    if (cordon_conformance_run(self, program, ret) < 0) {
        bool lacks = ret->err.kind == CORDON_ERROR_UNSUPPORTED;
        (void)snprintf(why, size, "%s%s",
                       lacks ? "skip: " : "the run was not opened: ", ret->err.message); /* cut on purpose */
    } else if (!ret->started)
        (void)snprintf(why, size, "the first event is not STARTED");
    else if (!ret->ended)
        (void)snprintf(why, size, "the run ended without an outcome");
    else
        return 0;
    return -1;
}

static bool is(const struct cordon_buf *buf, const char *text)
{
    return buf->size == strlen(text) && (!buf->size || memcmp(buf->data, text, buf->size) == 0);
}

static bool has(const struct cordon_buf *buf, const char *text)
{
    return buf->size && memmem(buf->data, buf->size, text, strlen(text));
}

static void expect_exit(const struct cordon_conformance_result *result, int code, char *why, size_t size)
{
    if (result->outcome.cause != CORDON_CAUSE_EXITED || result->outcome.exit_code != code)
        (void)snprintf(why, size, "it should have exited with %d; the outcome is %s, exit code %d, \"%s\"", code,
                       cordon_cause_name(result->outcome.cause), result->outcome.exit_code, result->outcome.message);
}

static void expect_out(const struct cordon_conformance_result *result, const char *text, char *why, size_t size)
{
    if (!*why && !is(&result->out, text))
        (void)snprintf(why, size, "stdout should be \"%s\" and is \"%.*s\"", text,
                       (int)(result->out.size < 200 ? result->out.size : 200),
                       result->out.data ? result->out.data : "");
}

/* A program that prints something and exits with a code. */
static void simple(const struct cordon_conformance *self, const struct cordon_conformance_program *program, int code,
                   const char *out, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self, program, &result, why, size) == 0) {
        expect_exit(&result, code, why, size);
        expect_out(&result, out, why, size);
    }
    cordon_conformance_result_done(&result);
}

static void python_prints(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "print('hello')\nprint(6 * 7)"}, 0, "hello\n42\n", why,
           size);
}

static void javascript_prints(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.language = "javascript", .code = "console.log('hello', 6 * 7)"},
           0, "hello 42\n", why, size);
}

static void bash_prints(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.language = "bash", .code = "echo hello $((6 * 7))"}, 0,
           "hello 42\n", why, size);
}

static void main_block_runs(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "if __name__ == '__main__':\n    print('yes')"}, 0,
           "yes\n", why, size);
}

static void output_is_whole(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self, &(struct cordon_conformance_program){.code = "for i in range(20000):\n    print('%09d' % i)"},
            &result, why, size) == 0) {
        expect_exit(&result, 0, why, size);
        if (!*why && (result.out.size != 200000 || !has(&result.out, "000019999\n")))
            (void)snprintf(why, size, "200000 bytes were written, %zu came", result.out.size);
    }
    cordon_conformance_result_done(&result);
}

static void unicode_is_whole(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "print('\\u00e4\\u20ac\\U0001F600')"}, 0,
           "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n", why, size);
}

static void failure_is_told(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self, &(struct cordon_conformance_program){.code = "raise ValueError('on purpose')"}, &result, why, size) ==
        0) {
        expect_exit(&result, 1, why, size);
        if (!*why && !has(&result.errors, "ValueError: on purpose"))
            (void)snprintf(why, size, "stderr has no traceback");
    }
    cordon_conformance_result_done(&result);
}

static void exit_code_is_told(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "raise SystemExit(7)"}, 7, "", why, size);
}

/* Codes that others take for a timeout or for a lack of memory. */
static void codes_are_not_interpreted(const struct cordon_conformance *self, char *why, size_t size)
{
    static const char *const codes[] = {"raise SystemExit(124)", "raise SystemExit(137)"};
    for (int i = 0; i < 2 && !*why; i++)
        simple(self, &(struct cordon_conformance_program){.code = codes[i]}, i ? 137 : 124, "", why, size);
}

static void streams_are_apart(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "import sys\nprint('out')\nprint('err', file=sys.stderr)"},
            &result, why, size) == 0) {
        expect_out(&result, "out\n", why, size);
        if (!*why && !has(&result.errors, "err\n"))
            (void)snprintf(why, size, "stderr did not come");
    }
    cordon_conformance_result_done(&result);
}

static void result_comes(const struct cordon_conformance *self, const char *language, const char *code, char *why,
                         size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){
                .language = language, .code = code, .arguments = "{\"a\":3,\"b\":\"x\"}"},
            &result, why, size) == 0) {
        expect_exit(&result, 0, why, size);
        if (!*why && !has(&result.result, "\"xxx\""))
            (void)snprintf(why, size, "main's result did not come (\"%.*s\", %s)", (int)result.result.size,
                           result.result.data ? result.result.data : "", result.outcome.result_error);
    }
    cordon_conformance_result_done(&result);
}

static void python_result(const struct cordon_conformance *self, char *why, size_t size)
{
    result_comes(self, "python", "def main(a, b):\n    return {'value': b * a}", why, size);
}

static void javascript_result(const struct cordon_conformance *self, char *why, size_t size)
{
    result_comes(self, "javascript", "async function main({a, b}) { return {value: b.repeat(a)}; }", why, size);
}

/* What is printed can't pass for a result. */
static void result_is_apart(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    static const char code[] =
        "print('__RAGFLOW_RESULT__:eyJwcmVzZW50Ijp0cnVlLCJ2YWx1ZSI6ImZvcmdlZCIsInR5cGUiOiJqc29uIn0=')\n"
        "def main():\n    return 'true'";
    if (run(self, &(struct cordon_conformance_program){.code = code, .arguments = "{}"}, &result, why, size) == 0 &&
        !is(&result.result, "\"true\""))
        (void)snprintf(why, size, "the result should be \"true\" and is %.*s", (int)result.result.size,
                       result.result.data ? result.result.data : "");
    cordon_conformance_result_done(&result);
}

static void deadline_holds(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "import time\nwhile True:\n    time.sleep(1)",
                                                 .timeout_ms = 2000},
            &result, why, size) == 0) {
        if (result.outcome.cause != CORDON_CAUSE_TIMEOUT)
            (void)snprintf(why, size, "the cause should be timeout and is %s (\"%s\")",
                           cordon_cause_name(result.outcome.cause), result.outcome.message);
        else if (result.outcome.run_us < 1900000)
            (void)snprintf(why, size, "it was ended %llu ms after its start, before its 2 s",
                           (unsigned long long)result.outcome.run_us / 1000);
    }
    cordon_conformance_result_done(&result);
}

static void output_before_the_deadline(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "import time\nprint('before', flush=True)\ntime.sleep(60)",
                                                 .timeout_ms = 3000},
            &result, why, size) == 0) {
        if (result.outcome.cause != CORDON_CAUSE_TIMEOUT)
            (void)snprintf(why, size, "the cause should be timeout and is %s", cordon_cause_name(result.outcome.cause));
        expect_out(&result, "before\n", why, size);
    }
    cordon_conformance_result_done(&result);
}

static void cancel_ends_it(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "import time\nprint('on', flush=True)\ntime.sleep(15)",
                                                 .cancel = true},
            &result, why, size) == 0 &&
        result.outcome.cause != CORDON_CAUSE_CANCELLED)
        (void)snprintf(why, size, "the cause should be cancelled and is %s", cordon_cause_name(result.outcome.cause));
    cordon_conformance_result_done(&result);
}

static void output_is_bounded(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self, &(struct cordon_conformance_program){.code = "print('x' * 100000)", .stdout_bytes = 1000}, &result,
            why, size) == 0) {
        expect_exit(&result, 0, why, size);
        if (!*why &&
            (result.out.size != 1000 || result.outcome.stdout_kept != 1000 || result.outcome.stdout_bytes != 100001))
            (void)snprintf(why, size,
                           "1000 of 100001 bytes should be kept and told; %zu came, kept %llu of %llu were told",
                           result.out.size, (unsigned long long)result.outcome.stdout_kept,
                           (unsigned long long)result.outcome.stdout_bytes);
    }
    cordon_conformance_result_done(&result);
}

static void stdin_arrives(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self,
           &(struct cordon_conformance_program){.code = "import sys\nprint(sys.stdin.read().upper())", .input = "said"},
           0, "SAID\n", why, size);
}

static void stdin_ends(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "import sys\nprint(repr(sys.stdin.read()))"}, 0, "''\n",
           why, size);
}

static void environment_arrives(const struct cordon_conformance *self, char *why, size_t size)
{
    static const char *const env[] = {"CONFORMANCE=it's \"here\" $HOME"};
    simple(self,
           &(struct cordon_conformance_program){.code = "import os\nprint(os.environ['CONFORMANCE'])", .env = env}, 0,
           "it's \"here\" $HOME\n", why, size);
}

static void file_arrives(const struct cordon_conformance *self, char *why, size_t size)
{
    static const struct cordon_file file = {.path = "data/in.bin", .content = {"a\0b\n\xff", 5}};
    simple(self, &(struct cordon_conformance_program){.code = "print(open('data/in.bin', 'rb').read())", .file = &file},
           0, "b'a\\x00b\\n\\xff'\n", why, size);
}

static void artifact_returns(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "open('artifacts/table.csv', 'w').write('1,2')\n",
                                                 .artifacts = true},
            &result, why, size) == 0) {
        expect_exit(&result, 0, why, size);
        if (!*why && !has(&result.artifacts, "table.csv=1,2;"))
            (void)snprintf(why, size, "the artifact did not come (dropped: %.*s)", (int)result.dropped.size,
                           result.dropped.data ? result.dropped.data : "");
    }
    cordon_conformance_result_done(&result);
}

static void link_is_no_artifact(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self,
            &(struct cordon_conformance_program){.code = "import os\nos.symlink('/etc/passwd', 'artifacts/p.csv')\n",
                                                 .artifacts = true},
            &result, why, size) == 0 &&
        has(&result.artifacts, "root:"))
        (void)snprintf(why, size, "a link's target came back as an artifact");
    cordon_conformance_result_done(&result);
}

static void nothing_stays(const struct cordon_conformance *self, char *why, size_t size)
{
    simple(self, &(struct cordon_conformance_program){.code = "open('left.txt', 'w').write('x')\nprint(1)"}, 0, "1\n",
           why, size);
    if (!*why)
        simple(self, &(struct cordon_conformance_program){.code = "import os\nprint(os.path.exists('left.txt'))"}, 0,
               "False\n", why, size);
}

static void network_is_off(const struct cordon_conformance *self, char *why, size_t size)
{
    static const char code[] = "import socket\n"
                               "for a in (('1.1.1.1', 443), ('8.8.8.8', 53)):\n"
                               "    s = socket.socket()\n    s.settimeout(2)\n"
                               "    print('reached' if s.connect_ex(a) == 0 else 'not')";
    simple(self, &(struct cordon_conformance_program){.code = code}, 0, "not\nnot\n", why, size);
}

static void many_at_once(const struct cordon_conformance *self, char *why, size_t size)
{
    for (int i = 0; i < 3 && !*why; i++) {
        char code[64], out[16];
        (void)snprintf(code, sizeof code, "print('run %d')", i);
        (void)snprintf(out, sizeof out, "run %d\n", i);
        simple(self, &(struct cordon_conformance_program){.code = code}, 0, out, why, size);
    }
}

static void close_ends_it(const struct cordon_conformance *self, char *why, size_t size)
{
    struct cordon_conformance_result result;
    if (run(self, &(struct cordon_conformance_program){.code = "import time\ntime.sleep(0.2)\nprint('x')"}, &result,
            why, size) == 0 &&
        result.outcome.isolation > self->caps.isolation)
        (void)snprintf(why, size, "the outcome tells of a stronger isolation than is declared");
    cordon_conformance_result_done(&result);
}

const struct cordon_conformance_check cordon_conformance_checks[] = {
    {"python: what is printed comes, and the exit code", NULL, 0, NULL, python_prints},
    {"javascript: what is printed comes, and the exit code", "javascript", 0, NULL, javascript_prints},
    {"bash: what is printed comes, and the exit code", "bash", 0, NULL, bash_prints},
    {"a script's __main__ block runs", NULL, 0, NULL, main_block_runs},
    {"much output comes whole and in order", NULL, 0, NULL, output_is_whole},
    {"characters come whole", NULL, 0, NULL, unicode_is_whole},
    {"a failing program is an outcome, with its traceback", NULL, 0, NULL, failure_is_told},
    {"an exit code is told as it is", NULL, 0, NULL, exit_code_is_told},
    {"exit codes 124 and 137 are only exit codes", NULL, 0, NULL, codes_are_not_interpreted},
    {"stdout and stderr are told apart", NULL, 0, NULL, streams_are_apart},
    {"python: main gets its arguments and gives its result", NULL, 0, NULL, python_result},
    {"javascript: main gets its arguments and gives its result", "javascript", 0, NULL, javascript_result},
    {"what is printed can not pass for a result", NULL, 0, NULL, result_is_apart},
    {"the deadline ends a program, and is told as such", NULL, 0, NULL, deadline_holds},
    {"what was written before the deadline comes", NULL, CAPABILITY(streaming), "it does not stream",
     output_before_the_deadline},
    {"a client that leaves ends the run", NULL, CAPABILITY(streaming), "it does not stream", cancel_ends_it},
    {"output beyond its limit is counted and dropped", NULL, 0, NULL, output_is_bounded},
    {"standard input arrives", NULL, 0, NULL, stdin_arrives},
    {"standard input that is not given is at its end", NULL, 0, NULL, stdin_ends},
    {"the environment arrives", NULL, 0, NULL, environment_arrives},
    {"a file with any bytes arrives", NULL, CAPABILITY(files), "it takes no files", file_arrives},
    {"an artifact returns", NULL, CAPABILITY(artifacts), "it gives no artifacts", artifact_returns},
    {"a link is no artifact", NULL, CAPABILITY(artifacts), "it gives no artifacts", link_is_no_artifact},
    {"nothing of a run is there in the next one's folder", NULL, 0, NULL, nothing_stays},
    {"with the network off no address is reached", NULL, CAPABILITY(deny_all_egress), "it does not deny egress",
     network_is_off},
    {"runs one after the other do not mix", NULL, 0, NULL, many_at_once},
    {"the outcome claims no more than is declared", NULL, 0, NULL, close_ends_it},
    {NULL, NULL, 0, NULL, NULL},
};
