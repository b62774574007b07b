/* SPDX-License-Identifier: Apache-2.0 */
/* The executor manager's door: what reads its clients' bytes and words its answers, and the limits by address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "door/executor_manager.h"
#include "door/rate_limit.h"

#define SECOND 1000000ull

static void rates_are_read(void **state)
{
    static const struct {
        const char *text;
        uint32_t count;
        uint64_t seconds;
    } good[] = {{"120/minute", 120, 60},
                {" 5 per second ", 5, 1},
                {"1/hour", 1, 3600},
                {"9/DAYS", 9, 86400},
                {"3/ 2 hours", 3, 7200},
                {"10 per 5 minutes", 10, 300},
                {"1000000000/day", 1000000000, 86400}};
    static const char *const bad[] = {"",
                                      "5",
                                      "5/",
                                      "/minute",
                                      "0/minute",
                                      "-1/minute",
                                      "5 minute",
                                      "5perminute",
                                      "5/minutex",
                                      "5/minute 1",
                                      "5/min",
                                      "1000000001/day",
                                      "5/0 hours",
                                      "5/101 days",
                                      "1/second;2/minute",
                                      "5//minute",
                                      "18446744073709551617/minute"};
    struct cordon_rate rate;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(cordon_rate_parse(good[i].text, &rate));
        assert_int_equal(rate.count, good[i].count);
        assert_int_equal(rate.period_us, good[i].seconds * SECOND);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (cordon_rate_parse(bad[i], &rate))
            fail_msg("\"%s\" was taken", bad[i]);
}

static struct cordon_rate_limit *limit_of(uint32_t count, uint64_t seconds)
{
    struct cordon_rate_limit *limit = cordon_rate_limit_new(&(struct cordon_rate){count, seconds * SECOND});
    assert_non_null(limit);
    return limit;
}

static void a_window_slides(void **state)
{
    struct cordon_rate_limit *limit = limit_of(3, 60);
    uint64_t now = 1000 * SECOND;
    bool first;
    for (int i = 0; i < 3; i++)
        assert_true(cordon_rate_limit_take(limit, "1.2.3.4:50", now + (uint64_t)i * 10 * SECOND, &first));
    now += 20 * SECOND;
    assert_false(cordon_rate_limit_take(limit, "1.2.3.4:51", now, &first));
    assert_true(first);
    assert_false(cordon_rate_limit_take(limit, "1.2.3.4:51", now + SECOND, &first));
    assert_false(first);                                                               /* told once a window */
    assert_true(cordon_rate_limit_full(limit, "1.2.3.4:51", now + 39 * SECOND, NULL)); /* 59 s after the first */
    assert_false(cordon_rate_limit_full(limit, "1.2.3.4:51", now + 42 * SECOND, NULL));
    assert_true(
        cordon_rate_limit_take(limit, "1.2.3.4:52", now + 42 * SECOND, NULL)); /* what was refused did not count */
    assert_false(cordon_rate_limit_take(limit, "1.2.3.4:52", now + 43 * SECOND, NULL));
    assert_true(cordon_rate_limit_take(limit, "1.2.3.4:52", now + 1000 * SECOND, NULL));
    cordon_rate_limit_free(limit);
}

static void never_more_than_the_rate_in_any_period(void **state)
{
    struct cordon_rate_limit *limit = limit_of(7, 10);
    uint64_t taken[512], now = 12345678;
    size_t count = 0;
    unsigned seed = 1;
    while (count < 512) {
        seed = seed * 1103515245u + 12345u;
        now += (seed >> 8) % (SECOND / 2);
        if (!cordon_rate_limit_take(limit, "a:1", now, NULL))
            continue;
        taken[count++] = now;
        if (count > 7)
            assert_true(now - taken[count - 8] >= 10 * SECOND);
    }
    /* And hardly less: 512 calls in little more than 512 / 7 periods. */
    assert_true(taken[511] - taken[0] < 10 * SECOND * 512 / 7 * 11 / 10);
    cordon_rate_limit_free(limit);
}

static void addresses_count_apart(void **state)
{
    struct cordon_rate_limit *limit = limit_of(1, 60);
    assert_true(cordon_rate_limit_take(limit, "10.0.0.1:1", SECOND, NULL));
    assert_true(cordon_rate_limit_take(limit, "10.0.0.2:1", SECOND, NULL));
    assert_false(cordon_rate_limit_take(limit, "10.0.0.1:2", SECOND, NULL));
    assert_false(cordon_rate_limit_take(limit, "::ffff:10.0.0.1:3", SECOND, NULL)); /* the same one */
    assert_true(cordon_rate_limit_take(limit, "2001:db8::1:80", SECOND, NULL));
    assert_false(cordon_rate_limit_take(limit, "2001:db8::ffff:1:81", SECOND, NULL)); /* of the same /64 */
    assert_true(cordon_rate_limit_take(limit, "2001:db8:0:1::1:80", SECOND, NULL));
    assert_true(cordon_rate_limit_take(limit, "unix:uid=5", SECOND, NULL));
    assert_true(cordon_rate_limit_take(limit, "?:0", SECOND, NULL));
    cordon_rate_limit_free(limit);
}

static void a_flood_of_addresses_pushes_out_the_oldest(void **state)
{
    struct cordon_rate_limit *limit = limit_of(1, 86400);
    char client[64];
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(client, sizeof client, "%u.%u.%u.7:1", i >> 16, i >> 8 & 255, i & 255);
        assert_true(cordon_rate_limit_take(limit, client, SECOND + i, NULL));
        assert_false(cordon_rate_limit_take(limit, client, SECOND + i, NULL));
    }
    cordon_rate_limit_free(limit);
}

static void base64_is_pythons(void **state)
{
    static const struct {
        const char *text, *data, *fault;
    } cases[] = {
        {"", "", NULL},
        {"QQ==", "A", NULL},
        {"QUI=", "AB", NULL},
        {"QUJD", "ABC", NULL},
        {"QR==", "A", NULL},
        {"+/+/", "\xfb\xff\xbf", NULL},
        {"*", NULL, "Only base64 data is allowed"},
        {"QQ", NULL, "Incorrect padding"},
        {"QQ=", NULL, "Incorrect padding"},
        {"Q", NULL,
         "Invalid base64-encoded string: number of data characters (1) cannot be 1 more than a multiple of 4"},
        {"QUJDQ", NULL,
         "Invalid base64-encoded string: number of data characters (5) cannot be 1 more than a multiple of 4"},
        {"=QQ=", NULL, "Leading padding not allowed"},
        {"QQ==x", NULL, "Excess data after padding"},
        {"QQ=Q", NULL, "Discontinuous padding not allowed"},
        {"QQ==\n", NULL, "Excess data after padding"},
        {"Q Q=", NULL, "Only base64 data is allowed"},
        {"\xc3\xa9", NULL, "string argument should contain only ASCII characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char to[64], fault[160] = "";
        ssize_t size = cordon_em_unbase64(cases[i].text, strlen(cases[i].text), to, fault);
        assert_int_equal(size, cordon_em_unbase64(cases[i].text, strlen(cases[i].text), NULL, fault));
        if (cases[i].fault) {
            assert_true(size < 0);
            assert_string_equal(fault, cases[i].fault);
        } else {
            assert_int_equal(size, strlen(cases[i].data));
            assert_memory_equal(to, cases[i].data, (size_t)size);
        }
    }
}

static void faults_of_utf8_are_pythons(void **state)
{
#define NO_DECODE "'utf-8' codec can't decode byte"
    static const char *const cases[][2] = {
        {"a\xff", NO_DECODE " 0xff in position 1: invalid start byte"},
        {"\x80", NO_DECODE " 0x80 in position 0: invalid start byte"},
        {"\xc0\x80", NO_DECODE " 0xc0 in position 0: invalid start byte"},
        {"\xe4", NO_DECODE " 0xe4 in position 0: unexpected end of data"},
        {"\xe4\xbd", NO_DECODE "s in position 0-1: unexpected end of data"},
        {"\xe4\xbdx", NO_DECODE "s in position 0-1: invalid continuation byte"},
        {"\xe4x", NO_DECODE " 0xe4 in position 0: invalid continuation byte"},
        {"\xed\xa0\x80", NO_DECODE " 0xed in position 0: invalid continuation byte"},
        {"\xf4\x90\x80\x80", NO_DECODE " 0xf4 in position 0: invalid continuation byte"},
        {"\xf0\x9f\x98", NO_DECODE "s in position 0-2: unexpected end of data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char fault[160] = "";
        assert_false(cordon_em_utf8(cases[i][0], strlen(cases[i][0]), fault));
        assert_string_equal(fault, cases[i][1]);
    }
    assert_true(cordon_em_utf8("\xc3\xa9\xf0\x9f\x98\x80", 6, NULL));
}

static void check_lines(const char *text, const char *expected)
{
    struct cordon_buf to = CORDON_BUF_INIT(4096);
    cordon_em_stdout(text, strlen(text), &to);
    assert_string_equal(to.data ? to.data : "", expected);
    cordon_buf_done(&to);
}

static void lines_and_markers(void **state)
{
#define M "__RAGFLOW_RESULT__:"
#define GOOD M "eyJwcmVzZW50Ijp0cnVlfQ==" /* {"present":true} */
    check_lines("", "");
    check_lines("\n", "");
    check_lines("\n\n", "\n\n");
    check_lines("a", "a");
    check_lines("a\n", "a\n");
    check_lines("a\r\nb\rc\vd\fe\x1c"
                "f\x1e"
                "g\xc2\x85h\xe2\x80\xa8i\xe2\x80\xa9j",
                "a\nb\nc\nd\ne\nf\ng\nh\ni\nj");
    check_lines("a\r", "a");
    check_lines("\xc2\xe2\x80\xa7\xe2\x80", "\xc2\xe2\x80\xa7\xe2\x80");
    check_lines(GOOD "\n", "");
    check_lines(M "eyJwcmVzZW50IjoxfQ==\n", M "eyJwcmVzZW50IjoxfQ==\n"); /* {"present":1} */
    check_lines("a\n" GOOD "\nb\n" M "\n" M "  \t\nc", "a\nb\nc");
    check_lines("a\n" GOOD, "a");
    check_lines(M "e30=\n" M "*\n" M "W10=\n x" GOOD "\n", M "e30=\n" M "*\n" M "W10=\n x" GOOD "\n");
}

static void check_body(const char *body, const char *expected)
{
    struct cordon_buf errors = CORDON_BUF_INIT(4096);
    struct cordon_value value;
    struct cordon_em_fields fields;
    bool good = cordon_em_parse(body, strlen(body), &value, &errors) && cordon_em_read(&value, &fields, &errors);
    assert_int_equal(good, !expected);
    assert_string_equal(errors.size ? errors.data : "", expected ? expected : "");
    cordon_buf_done(&errors);
}

static void bodies(void **state)
{
    check_body("{\"code_b64\":\"\"}", NULL);
    check_body("{\"code_b64\":\"QUJD\",\"language\":\"nodejs\",\"arguments\":null,\"x\":1}", NULL);
    check_body("",
               "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\"],\"msg\":\"Field required\",\"input\":null}]}");
    check_body("{ \"a\" : [ 1 , \"\\u00e9\\n\" , { } ] }", "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\","
                                                           "\"code_b64\"],\"msg\":\"Field required\",\"input\":{\"a\":"
                                                           "[1,\"\xc3\xa9\\n\",{}]}}]}");
    check_body(
        "{\"code_b64\":\"QQ\"}",
        "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"body\",\"code_b64\"],\"msg\":\"Value error, Invalid base64 "
        "encoding: Incorrect padding\",\"input\":\"QQ\",\"ctx\":{\"error\":{}}}]}");
    check_body(
        "{\"code_b64\":\"\\ud800\"}",
        "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"body\",\"code_b64\"],\"msg\":\"Value error, Invalid base64 "
        "encoding: string argument should contain only ASCII "
        "characters\",\"input\":\"\\ud800\",\"ctx\":{\"error\":{}}}]}");
    check_body(
        "[", "{\"detail\":[{\"type\":\"json_invalid\",\"loc\":[\"body\",1],\"msg\":\"JSON decode error\",\"input\":{},"
             "\"ctx\":{\"error\":\"Expecting value\"}}]}");
}

static void content_types(void **state)
{
    static const char *const json[] = {
        NULL, "", "application/json", "Application/JSON;x", "application/json ; charset=utf-8", "application/a+json"};
    static const char *const others[] = {"text/json",
                                         "application/jsonp",
                                         "application/",
                                         "application/+json",
                                         "x",
                                         "*/*",
                                         "text/plain;application/json",
                                         "multipart/form-data; boundary=+json"};
    for (size_t i = 0; i < sizeof json / sizeof *json; i++)
        assert_true(cordon_em_is_json(json[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(cordon_em_is_json(others[i]));
}

static void artifacts_of_a_lying_guest_are_left_out(void **state)
{
    static const struct cordon_limits limits = {.artifact_bytes = 1000, .artifacts_bytes = 100000, .artifacts = 64};
    static const char *const names[] = {"",      "../a.png", "a/b.png", ".a.png",  "a\x01.png",
                                        "a.txt", "a\\b.csv", "a..csv",  "good.CSV"};
    struct cordon_outcome outcome = {.struct_size = sizeof outcome, .cause = CORDON_CAUSE_EXITED, .run_us = 1500};
    struct cordon_answer *answer;
    struct cordon_em_verdict verdict;
    struct cordon_buf to = CORDON_BUF_INIT(65536);
    char text[512];
    assert_int_equal(cordon_answer_new(&limits, &answer), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)cordon_answer_add(
            answer, &(struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = names[i], .data = {"x", 1}});
    (void)cordon_answer_add(answer, &(struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "empty.png"});
    (void)cordon_answer_add(answer, &(struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
    cordon_em_judge(answer, text, &verdict);
    cordon_em_write(&verdict, answer, &to);
    assert_string_equal(
        to.data,
        "{\"status\":\"success\",\"stdout\":\"\",\"stderr\":\"\",\"exit_code\":0,\"detail\":null,\"time_used_ms\":1."
        "500,"
        "\"memory_used_kb\":null,\"resource_limit_type\":null,\"unauthorized_access_type\":null,"
        "\"runtime_error_type\":null,\"artifacts\":[{\"name\":\"good.CSV\",\"mime_type\":\"text/csv\",\"size\":1,"
        "\"content_b64\":\"eA==\"}],\"result\":null}");
    cordon_answer_free(answer);
    cordon_buf_done(&to);
}

static void every_cause_has_its_words(void **state)
{
    static const struct {
        enum cordon_cause cause;
        int code;
        const char *status, *limit;
    } cases[] = {
        {CORDON_CAUSE_EXITED, 0, "success", NULL},
        {CORDON_CAUSE_SIGNALLED, 137, "program_error", NULL},
        {CORDON_CAUSE_TIMEOUT, -124, "resource_limit_exceeded", "time"},
        {CORDON_CAUSE_MEMORY, -137, "resource_limit_exceeded", "memory"},
        {CORDON_CAUSE_OUTPUT_LIMIT, -153, "resource_limit_exceeded", "output"},
        {CORDON_CAUSE_CANCELLED, -3, "program_runner_error", NULL},
        {CORDON_CAUSE_REFUSED, -3, "program_runner_error", NULL},
        {CORDON_CAUSE_UNAVAILABLE, -3, "program_runner_error", NULL},
        {CORDON_CAUSE_INFRASTRUCTURE, -3, "program_runner_error", NULL},
    };
    assert_int_equal(sizeof cases / sizeof *cases, CORDON_CAUSE__COUNT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cordon_outcome outcome = {
            .struct_size = sizeof outcome, .cause = cases[i].cause, .signal = 9, .exit_code = 0, .message = "why"};
        struct cordon_answer *answer;
        struct cordon_em_verdict verdict;
        char text[512];
        assert_int_equal(cordon_answer_new(&(struct cordon_limits){0}, &answer), 0);
        (void)cordon_answer_add(answer, &(struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &outcome});
        cordon_em_judge(answer, text, &verdict);
        assert_string_equal(verdict.status, cases[i].status);
        assert_int_equal(verdict.exit_code, cases[i].code);
        assert_true(cases[i].limit ? verdict.limit_type && strcmp(verdict.limit_type, cases[i].limit) == 0
                                   : !verdict.limit_type);
        cordon_answer_free(answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_read),
        cmocka_unit_test(a_window_slides),
        cmocka_unit_test(never_more_than_the_rate_in_any_period),
        cmocka_unit_test(addresses_count_apart),
        cmocka_unit_test(a_flood_of_addresses_pushes_out_the_oldest),
        cmocka_unit_test(base64_is_pythons),
        cmocka_unit_test(faults_of_utf8_are_pythons),
        cmocka_unit_test(lines_and_markers),
        cmocka_unit_test(bodies),
        cmocka_unit_test(content_types),
        cmocka_unit_test(artifacts_of_a_lying_guest_are_left_out),
        cmocka_unit_test(every_cause_has_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
