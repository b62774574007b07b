/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and events as JSON: truth, bounds, cut characters, and nothing that a guest sends can break a line. */
#include "core_helper.h"

#include <stdio.h>

static const struct cordon_limits limits = {
    .stdout_bytes = 10, .stderr_bytes = 5, .artifact_bytes = 4, .artifacts_bytes = 6, .artifacts = 3};

static struct cordon_event data_event(enum cordon_event_type type, const char *data, size_t size)
{
    return (struct cordon_event){.type = type, .data = {data, size}};
}

static void add(struct cordon_answer *answer, struct cordon_event event)
{
    assert_int_equal(cordon_answer_add(answer, &event), 0);
}

static char *written(const struct cordon_answer *answer)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &buf};
    cordon_answer_write(answer, &json);
    assert_false(buf.failed);
    return buf.data;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s is not in %s", part, text);
}

static struct cordon_answer *new_answer(void)
{
    struct cordon_answer *answer = NULL;
    assert_int_equal(cordon_answer_new(&limits, &answer), 0);
    return answer;
}

static void a_whole_run_is_one_object(void **state)
{
    struct cordon_answer *answer = new_answer();
    struct cordon_outcome outcome = {.struct_size = sizeof outcome,
                                     .exit_code = 3,
                                     .queue_us = 1,
                                     .start_us = 2000,
                                     .run_us = 3000,
                                     .total_us = 5001,
                                     .cpu_us = 2500,
                                     .memory_peak_bytes = 4096,
                                     .stdout_bytes = 4,
                                     .stderr_bytes = 3,
                                     .warm = true,
                                     .backend = "local",
                                     .isolation = CORDON_ISOLATION_NAMESPACE};
    add(answer, (struct cordon_event){.type = CORDON_EVENT_STARTED});
    add(answer, data_event(CORDON_EVENT_STDOUT, "a\xC3", 2));
    add(answer, data_event(CORDON_EVENT_STDERR, "x\xFFy", 3));
    add(answer, data_event(CORDON_EVENT_STDOUT, "\xA4\n", 2));
    add(answer, data_event(CORDON_EVENT_RESULT, " {\"a\":1}\n", 9));
    add(answer, (struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "p\"\xFF", .data = {"hi", 2}});
    add(answer, (struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = "big", .reason = "too large", .size = 99});
    add(answer, (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
    char *text = written(answer);
    assert_string_equal(
        text,
        "{\"stdout\":\"a\xC3\xA4\\n\",\"stderr\":\"x\xEF\xBF\xBDy\",\"stderr_b64\":\"eP95\",\"exit_code\":3,"
        "\"outcome\":{\"cause\":"
        "\"exited\",\"exit_code\":3,\"signal\":null,\"limit_hit\":null,\"message\":\"\",\"backend\":\"local\","
        "\"isolation\":"
        "\"namespace\",\"warm\":true,\"accelerator\":null,\"start\":null,\"cpu_ms\":2.500,\"memory_peak_bytes\":4096,"
        "\"oom_kills\":0,\"processes_left\":0,"
        "\"stdout\":{\"bytes\":4,\"kept\":4,\"truncated\":false},\"stderr\":{\"bytes\":3,\"kept\":3,\"truncated\":"
        "false},"
        "\"artifacts_dropped\":1,\"syscalls_denied\":0,\"blocked_syscall\":null,\"result_error\":null,\"network\":null}"
        ",\"result\":{"
        "\"a\":1},"
        "\"artifacts\":[{\"name\":\"p\\\"\xEF\xBF\xBD\",\"size\":2,\"content_b64\":\"aGk=\"},{\"name\":\"big\","
        "\"size\":99,"
        "\"dropped\":\"too "
        "large\"}],\"backend\":\"local\",\"timing\":{\"queue_ms\":0.001,\"start_ms\":2.000,\"run_ms\":3.000,"
        "\"total_ms\":5.001}}");
    free(text);
    struct cordon_artifact artifact;
    assert_true(cordon_answer_artifact(answer, 1, &artifact));
    assert_string_equal(artifact.reason, "too large");
    assert_false(cordon_answer_artifact(answer, 2, &artifact));
    cordon_answer_free(answer);
}

static void what_is_beyond_the_limits_is_not_kept_and_told(void **state)
{
    struct cordon_answer *answer = new_answer();
    struct cordon_outcome outcome = {.struct_size = sizeof outcome, .stdout_bytes = 1000, .stdout_kept = 1000};
    for (int i = 0; i < 100; i++) {
        add(answer, data_event(CORDON_EVENT_STDOUT, "0123456", 7));
        add(answer, data_event(CORDON_EVENT_STDERR, "0123456", 7));
        add(answer,
            (struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "n", .data = {"12345", (size_t)i % 6}});
    }
    for (int i = 0; i < 5000; i++)
        add(answer, (struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = NULL, .reason = NULL});
    add(answer, (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
    assert_int_equal(cordon_answer_stdout(answer).size, 10);
    assert_memory_equal(cordon_answer_stdout(answer).data, "0123456012", 10);
    assert_int_equal(cordon_answer_stderr(answer).size, 5);
    char *text = written(answer);
    assert_has(text, "\"stdout\":{\"bytes\":1000,\"kept\":10,\"truncated\":true}");
    struct cordon_artifact artifact;
    size_t count = 0, kept = 0, bytes = 0;
    for (; cordon_answer_artifact(answer, count, &artifact); count++) {
        kept += !artifact.reason;
        bytes += artifact.content.size;
    }
    assert_int_equal(kept, 3);
    assert_true(bytes <= 6);
    assert_true(count < 300);
    assert_int_equal(cordon_answer_outcome(answer)->artifacts_dropped, 5097);
    free(text);
    cordon_answer_free(answer);
}

static void artifacts_together_are_bounded(void **state)
{
    struct cordon_answer *answer = new_answer();
    struct cordon_artifact artifact;
    for (int i = 0; i < 2; i++)
        add(answer, (struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "n", .data = {"1234", 4}});
    add(answer, (struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "n", .data = {"12", 2}});
    for (size_t i = 0; i < 3; i++) {
        assert_true(cordon_answer_artifact(answer, i, &artifact));
        assert_int_equal(artifact.reason != NULL, i == 1); /* 4 and 2 of the 6 bytes are kept, 4 more in between not */
        assert_int_equal(artifact.size, i == 2 ? 2 : 4);
    }
    cordon_answer_free(answer);
}

static void forged_results_are_not_json(void **state)
{
    static const char *const bad[] = {"{\"a\":1},\"cause\":\"exited\"", "", "NaN", "\"", "1}"};
    struct cordon_outcome outcome = {.struct_size = sizeof outcome};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cordon_answer *answer = new_answer();
        add(answer, data_event(CORDON_EVENT_RESULT, bad[i], strlen(bad[i])));
        add(answer, (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
        assert_null(cordon_answer_result(answer).data);
        char *text = written(answer);
        assert_has(text, "\"result\":null");
        assert_has(text, "\"result_error\":\"the result can not be returned: the text is not JSON: ");
        free(text);
        cordon_answer_free(answer);
        struct cordon_event_writer writer = {0};
        struct cordon_event event = data_event(CORDON_EVENT_RESULT, bad[i], strlen(bad[i]));
        struct cordon_buf line = CORDON_BUF_INIT(1000);
        cordon_event_write(&writer, &event, &line);
        assert_has(line.data, "{\"type\":\"result\",\"result\":null,\"result_error\":");
        cordon_buf_done(&line);
    }
    struct cordon_answer *answer = new_answer();
    char deep[131];
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    add(answer, data_event(CORDON_EVENT_RESULT, deep, 130));
    add(answer, (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
    assert_string_equal(cordon_answer_outcome(answer)->result_error, /* JSON it is, only too deep */
                        "the result can not be returned: the text has more arrays and objects in one another than the "
                        "64 allowed at byte 64");
    cordon_answer_free(answer);
    answer = new_answer();
    add(answer, data_event(CORDON_EVENT_RESULT, "1", 1));
    add(answer, data_event(CORDON_EVENT_RESULT, "2", 1));
    assert_memory_equal(cordon_answer_result(answer).data, "1", 1);
    cordon_answer_free(answer);
}

static void an_error_gives_the_same_object(void **state)
{
    struct cordon_error err = {.kind = CORDON_ERROR_REFUSED, .code = -1, .message = "no \"way\""};
    struct cordon_answer *answer = new_answer();
    char *text = written(answer);
    assert_has(text, "\"cause\":\"infrastructure\""); /* nothing came at all */
    free(text);
    cordon_answer_fail(answer, &err);
    text = written(answer);
    assert_has(text, "\"exit_code\":-1,\"outcome\":{\"cause\":\"refused\"");
    assert_has(text, "\"error\":{\"kind\":\"refused\",\"message\":\"no \\\"way\\\"\"}}");
    free(text);
    static const struct {
        enum cordon_error_kind kind;
        enum cordon_cause cause;
    } causes[] = {{CORDON_ERROR_BUSY, CORDON_CAUSE_UNAVAILABLE},
                  {CORDON_ERROR_CANCELLED, CORDON_CAUSE_CANCELLED},
                  {CORDON_ERROR_INFRASTRUCTURE, CORDON_CAUSE_INFRASTRUCTURE},
                  {CORDON_ERROR_INVALID, CORDON_CAUSE_REFUSED}};
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        err.kind = causes[i].kind;
        cordon_answer_fail(answer, &err);
        assert_int_equal(cordon_answer_outcome(answer)->cause, causes[i].cause);
    }
    cordon_answer_free(answer);
    cordon_answer_free(NULL);
}

static void cut_characters_wait_for_their_end(void **state)
{
    static const char text[] = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";
    for (size_t step = 1; step < sizeof text; step++) {
        struct cordon_event_writer writer = {0};
        struct cordon_outcome outcome = {.struct_size = sizeof outcome};
        struct cordon_buf lines = CORDON_BUF_INIT(100000);
        for (size_t at = 0; at < sizeof text - 1; at += step) {
            size_t size = sizeof text - 1 - at < step ? sizeof text - 1 - at : step;
            struct cordon_event out = data_event(CORDON_EVENT_STDOUT, text + at, size), err = out;
            err.type = CORDON_EVENT_STDERR; /* each stream has its own state */
            cordon_event_write(&writer, &out, &lines);
            cordon_event_write(&writer, &err, &lines);
        }
        struct cordon_event end = {.type = CORDON_EVENT_OUTCOME, .outcome = &outcome};
        cordon_event_write(&writer, &end, &lines);
        assert_false(lines.failed);
        assert_null(strstr(lines.data, "data_b64"));
        assert_null(strstr(lines.data, "\xEF\xBF\xBD"));
        char joined[64] = "";
        for (const char *p = lines.data; (p = strstr(p, "\"stdout\",\"data\":\"")); p += 17)
            (void)strncat(joined, p + 17, strcspn(p + 17, "\""));
        assert_string_equal(joined, text);
        cordon_buf_done(&lines);
    }
}

static void what_is_no_text_is_base64_and_nothing_is_lost(void **state)
{
    struct cordon_event_writer writer = {0};
    struct cordon_outcome outcome = {.struct_size = sizeof outcome};
    struct cordon_buf lines = CORDON_BUF_INIT(10000);
    struct cordon_event event = data_event(CORDON_EVENT_STDOUT, "a\xE2\x82", 3);
    cordon_event_write(&writer, &event, &lines);
    assert_string_equal(lines.data, "{\"type\":\"stdout\",\"data\":\"a\"}\n");
    cordon_buf_consume(&lines, lines.size);
    event = data_event(CORDON_EVENT_STDOUT, "b\n", 2); /* the character never ends */
    cordon_event_write(&writer, &event, &lines);
    assert_string_equal(lines.data, "{\"type\":\"stdout\",\"data_b64\":\"4oJiCg==\"}\n");
    cordon_buf_consume(&lines, lines.size);
    event = data_event(CORDON_EVENT_STDERR, "\xF0\x9F", 2);
    cordon_event_write(&writer, &event, &lines);
    assert_int_equal(lines.size, 0);
    event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome};
    cordon_event_write(&writer, &event, &lines);
    assert_int_equal(strncmp(lines.data, "{\"type\":\"stderr\",\"data_b64\":\"8J8=\"}\n{\"type\":\"outcome\",", 54), 0);
    cordon_buf_done(&lines);
}

static void every_event_is_one_line(void **state)
{
    struct cordon_event_writer writer = {0};
    const struct cordon_event events[] = {
        {.type = CORDON_EVENT_STARTED},
        {.type = CORDON_EVENT_STDOUT, .data = {"a\nb\r\n", 5}},
        {.type = CORDON_EVENT_RESULT, .data = {"[1,\n\"x\\n\",\r2]", 13}},
        {.type = CORDON_EVENT_ARTIFACT, .name = "a\nb", .data = {NULL, 0}},
        {.type = CORDON_EVENT_DROPPED, .name = "c\nd", .reason = "r\n", .size = 1},
    };
    struct cordon_error err = {.kind = CORDON_ERROR_BUSY, .message = "m\n"};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct cordon_buf line = CORDON_BUF_INIT(1000);
        cordon_event_write(&writer, &events[i], &line);
        assert_ptr_equal(strpbrk(line.data, "\r\n"), line.data + line.size - 1);
        cordon_buf_done(&line);
    }
    struct cordon_buf line = CORDON_BUF_INIT(1000);
    cordon_event_write_error(&err, &line);
    assert_string_equal(line.data, "{\"type\":\"error\",\"error\":{\"kind\":\"busy\",\"message\":\"m\\n\"}}\n");
    cordon_buf_done(&line);
}

static void exit_statuses_are_the_command_lines(void **state)
{
    static const struct {
        struct cordon_outcome outcome;
        int status;
    } cases[] = {
        {{.cause = CORDON_CAUSE_EXITED, .exit_code = 7}, 7},
        {{.cause = CORDON_CAUSE_SIGNALLED, .signal = 11}, 139},
        {{.cause = CORDON_CAUSE_TIMEOUT, .exit_code = -1}, 124},
        {{.cause = CORDON_CAUSE_MEMORY, .exit_code = 137}, 137},
        {{.cause = CORDON_CAUSE_REFUSED}, 126},
        {{.cause = CORDON_CAUSE_INFRASTRUCTURE}, 125},
        {{.cause = CORDON_CAUSE_UNAVAILABLE}, 125},
        {{.cause = CORDON_CAUSE_CANCELLED}, 125},
        {{.cause = CORDON_CAUSE_OUTPUT_LIMIT, .exit_code = -1}, 124},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cordon_outcome_exit_status(&cases[i].outcome), cases[i].status);
}

static void names_round_trip(void **state)
{
    enum cordon_isolation isolation;
    for (int i = 0; i < CORDON_ISOLATION__COUNT; i++) {
        assert_int_equal(cordon_isolation_parse(cordon_isolation_name((enum cordon_isolation)i), &isolation), 0);
        assert_int_equal(isolation, i);
    }
    assert_true(cordon_isolation_parse("Namespace", &isolation) < 0);
    assert_string_equal(cordon_cause_name((enum cordon_cause)99), "unknown");
    assert_string_equal(cordon_isolation_name((enum cordon_isolation) - 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_run_is_one_object),
        cmocka_unit_test(what_is_beyond_the_limits_is_not_kept_and_told),
        cmocka_unit_test(artifacts_together_are_bounded),
        cmocka_unit_test(forged_results_are_not_json),
        cmocka_unit_test(an_error_gives_the_same_object),
        cmocka_unit_test(cut_characters_wait_for_their_end),
        cmocka_unit_test(what_is_no_text_is_base64_and_nothing_is_lost),
        cmocka_unit_test(every_event_is_one_line),
        cmocka_unit_test(exit_statuses_are_the_command_lines),
        cmocka_unit_test(names_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
