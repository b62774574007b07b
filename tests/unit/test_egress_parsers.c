/* SPDX-License-Identifier: Apache-2.0 */
/* egress/dns, hello and head: what guests send, and what is made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "egress/dns.h"
#include "egress/head.h"
#include "egress/hello.h"

/* --- DNS --- */

#define ID "\x12\x34"
#define ONE_QUESTION "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define EXAMPLE                                                                                                        \
    "\x07"                                                                                                             \
    "Example\x03"                                                                                                      \
    "com\x00"

static int read_dns(const char *data, size_t size, struct cordon_dns_question *ret, enum cordon_dns_code *code)
{
    return cordon_dns_read((const uint8_t *)data, size, ret, code);
}

static void a_question_is_read(void **state)
{
    static const char data[] = ID ONE_QUESTION EXAMPLE "\x00\x01\x00\x01";
    struct cordon_dns_question question;
    enum cordon_dns_code code;
    assert_int_equal(read_dns(data, sizeof data - 1, &question, &code), 0);
    assert_string_equal(question.name, "example.com");
    assert_int_equal(question.type, CORDON_DNS_A);
    assert_int_equal(question.id, 0x1234);
    assert_true(question.recursion && !question.extended);
    assert_int_equal(question.size, sizeof data - 1);
}

static void an_answer_has_the_address(void **state)
{
    static const char data[] = ID ONE_QUESTION EXAMPLE "\x00\x01\x00\x01";
    static const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 1, 1};
    const struct cordon_egress_address address = {{[10] = 0xff, [11] = 0xff, [12] = 198, 18, 1, 1}};
    struct cordon_dns_question question;
    enum cordon_dns_code code;
    uint8_t to[CORDON_DNS_QUESTION_MAX + 64];
    assert_int_equal(read_dns(data, sizeof data - 1, &question, &code), 0);
    size_t n = cordon_dns_answer(&question, (const uint8_t *)data, CORDON_DNS_OK, &address, 60, to);
    assert_int_equal(n, sizeof data - 1 + sizeof record);
    assert_memory_equal(to, ID "\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00", 12);
    assert_memory_equal(to + 12, EXAMPLE, sizeof EXAMPLE - 1); /* as it was written: some resolvers check the case */
    assert_memory_equal(to + sizeof data - 1, record, sizeof record);
    n = cordon_dns_answer(&question, (const uint8_t *)data, CORDON_DNS_NO_NAME, NULL, 0, to);
    assert_int_equal(n, sizeof data - 1);
    assert_int_equal(to[3] & 15, 3);
}

static void odd_messages_are_told_apart(void **state)
{
#define ROW(text, result, what)                                                                                        \
    {                                                                                                                  \
        text, sizeof text - 1, result, what                                                                            \
    }
    static const struct {
        const char *data;
        size_t size;
        int result;
        enum cordon_dns_code code;
    } rows[] = {
        ROW("\x12", -22, CORDON_DNS_MALFORMED),
        ROW(ID "\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" EXAMPLE "\x00\x01\x00\x01", -22, CORDON_DNS_MALFORMED),
        ROW(ID "\x28\x00\x00\x01\x00\x00\x00\x00\x00\x00" EXAMPLE "\x00\x06\x00\x01", -74, CORDON_DNS_NOT_DONE),
        ROW(ID "\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" EXAMPLE "\x00\x01\x00\x01", -74, CORDON_DNS_MALFORMED),
        ROW(ID "\x01\x00\x00\x01\x00\x01\x00\x00\x00\x00" EXAMPLE "\x00\x01\x00\x01", -74, CORDON_DNS_MALFORMED),
        ROW(ID ONE_QUESTION EXAMPLE "\x00\x01\x00\x03", -74, CORDON_DNS_NOT_DONE),  /* CHAOS */
        ROW(ID ONE_QUESTION "\xc0\x0c\x00\x01\x00\x01", -74, CORDON_DNS_MALFORMED), /* compression */
        ROW(ID ONE_QUESTION "\x3f"
                            "abc",
            -74, CORDON_DNS_MALFORMED),
        ROW(ID ONE_QUESTION EXAMPLE "\x00", -74, CORDON_DNS_MALFORMED),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_dns_question question;
        enum cordon_dns_code code;
        assert_int_equal(read_dns(rows[i].data, rows[i].size, &question, &code), rows[i].result);
        assert_int_equal(code, rows[i].code);
    }
}

static void a_label_with_a_dot_is_no_other_name(void **state)
{
    static const char data[] = ID ONE_QUESTION "\x0b"
                                               "example.com\x00\x00\x01\x00\x01";
    struct cordon_dns_question question;
    enum cordon_dns_code code;
    assert_int_equal(read_dns(data, sizeof data - 1, &question, &code), 0);
    assert_string_equal(question.name, "");
}

/* --- TLS --- */

struct hello {
    uint8_t data[4096];
    size_t size;
};

static void put(struct hello *to, const void *data, size_t size)
{
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_number(struct hello *to, size_t number, size_t bytes)
{
    while (bytes--)
        to->data[to->size++] = (uint8_t)(number >> 8 * bytes);
}

static void put_name(struct hello *to, const char *name)
{
    size_t size = strlen(name);
    put_number(to, 0, 2);
    put_number(to, size + 5, 2);
    put_number(to, size + 3, 2);
    put_number(to, 0, 1);
    put_number(to, size, 2);
    put(to, name, size);
}

/* A hello with these extensions, in records of at most `record` bytes. */
static struct hello make(const struct hello *extensions, size_t record)
{
    struct hello body = {.size = 0}, made = {.size = 0};
    static const uint8_t random[32];
    put_number(&body, 1, 1);
    put_number(&body, 2 + 32 + 1 + 4 + 2 + 2 + extensions->size, 3);
    put_number(&body, 0x0303, 2);
    put(&body, random, 32);
    put_number(&body, 0, 1);
    put(&body, "\x00\x02\x13\x01\x01\x00", 6);
    put_number(&body, extensions->size, 2);
    put(&body, extensions->data, extensions->size);
    for (size_t at = 0; at < body.size; at += record) {
        size_t part = body.size - at < record ? body.size - at : record;
        put(&made, "\x16\x03\x01", 3);
        put_number(&made, part, 2);
        put(&made, body.data + at, part);
    }
    return made;
}

static enum cordon_hello judge(const struct hello *hello, const char *expected)
{
    char name[CORDON_EGRESS_NAME_SIZE];
    enum cordon_hello r = cordon_hello_read(hello->data, hello->size, name);
    if (r == CORDON_HELLO_NAMED)
        assert_string_equal(name, expected);
    return r;
}

static void the_server_name_is_found(void **state)
{
    struct hello extensions = {.size = 0};
    char name[CORDON_EGRESS_NAME_SIZE];
    put(&extensions, "\x00\x17\x00\x00", 4);
    put_name(&extensions, "WWW.example.com");
    static const size_t records[] = {4000, 100, 7, 1};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        struct hello hello = make(&extensions, records[i]);
        assert_int_equal(judge(&hello, "www.example.com"), CORDON_HELLO_NAMED);
        for (size_t size = 0; size < hello.size; size++)
            assert_int_equal(cordon_hello_read(hello.data, size, name), CORDON_HELLO_MORE);
        put(&hello, "\x17\x03\x03\x00\x01x", 6); /* early data behind it */
        assert_int_equal(judge(&hello, "www.example.com"), CORDON_HELLO_NAMED);
    }
}

static void hellos_that_hide_or_twist_the_name_are_bad(void **state)
{
    struct hello none = {.size = 0}, two = {.size = 0}, ech = {.size = 0}, dot = {.size = 0}, address = {.size = 0};
    struct hello nul = {.size = 0};
    put_name(&two, "a.com");
    put_name(&two, "b.com");
    put_name(&ech, "a.com");
    put(&ech, "\xfe\x0d\x00\x01\x00", 5);
    put_name(&dot, "a.com.");
    put_name(&address, "1.2.3.4");
    put_name(&nul, "a.com_evil.com");
    nul.data[nul.size - 9] = 0;
    const struct {
        const struct hello *extensions;
        enum cordon_hello result;
    } rows[] = {{&none, CORDON_HELLO_NAMELESS}, {&two, CORDON_HELLO_BAD},     {&ech, CORDON_HELLO_ENCRYPTED},
                {&dot, CORDON_HELLO_BAD},       {&address, CORDON_HELLO_BAD}, {&nul, CORDON_HELLO_BAD}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hello hello = make(rows[i].extensions, 4000);
        assert_int_equal(judge(&hello, ""), rows[i].result);
    }
    static uint8_t large[CORDON_HELLO_MAX + 8] = {22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff};
    char name[CORDON_EGRESS_NAME_SIZE];
    assert_int_equal(cordon_hello_read(large, sizeof large, name), CORDON_HELLO_BAD);
    assert_int_equal(cordon_hello_read((const uint8_t *)"\x80\x2e\x01", 3, name), CORDON_HELLO_BAD); /* SSLv2 */
    assert_int_equal(cordon_hello_read((const uint8_t *)"GET ", 4, name), CORDON_HELLO_BAD);
}

/* --- HTTP --- */

static enum cordon_head read_head(const char *text, struct cordon_http_head *ret)
{
    const char *why = NULL;
    enum cordon_head r = cordon_head_read(text, strlen(text), ret, &why);
    assert_int_equal(r == CORDON_HEAD_BAD, why != NULL);
    return r;
}

static void a_head_is_read(void **state)
{
    struct cordon_http_head head;
    static const char text[] = "GET /a?b HTTP/1.1\r\nHost: Example.com:8080\r\nX-A: b\r\n\r\nrest";
    assert_int_equal(read_head(text, &head), CORDON_HEAD_READ);
    assert_string_equal(head.host, "example.com");
    assert_int_equal(head.port, 8080);
    assert_int_equal(head.size, sizeof text - 1 - 4);
    assert_int_equal(read_head("GET / HTTP/1.1\r\nHost: a.com\r\n", &head), CORDON_HEAD_MORE);
    assert_int_equal(read_head("GET http://a.com/x HTTP/1.1\r\nHost: a.com\r\n\r\n", &head), CORDON_HEAD_READ);
}

static void ambiguous_heads_are_bad(void **state)
{
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\r\nHost: b.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.com\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\r\n b.com\r\n\r\n",
        "GET / HTTP/1.1\nHost: a.com\n\n",
        "GET / HTTP/1.1\r\nHost: a.com\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com\rX: y\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a.com\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "CONNECT a.com:443 HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET http://b.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET http://a.com@b.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET ftp://a.com/ HTTP/1.1\r\nHost: a.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 1.2.3.4\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.com/b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.com\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.com\r\nTransfer-Encoding: identity\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct cordon_http_head head;
        if (read_head(texts[i], &head) != CORDON_HEAD_BAD)
            fail_msg("taken: %s", texts[i]);
    }
}

static void a_head_goes_on_for_one_request(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a.com\r\nConnection: keep-alive\r\nAUTHORIZATION: mine\r\n"
                               "Upgrade: h2c\r\nX-A: b\r\n\r\nbody";
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_buf to = CORDON_BUF_INIT(4096);
    struct cordon_http_head head;
    unsigned added;
    assert_int_equal(cordon_egress_policy_add_header(&policy, "a.com:80", "Authorization", "Bearer s", NULL), 0);
    assert_int_equal(cordon_egress_policy_add_header(&policy, "b.com", "X-Other", "no", NULL), 0);
    assert_int_equal(read_head(text, &head), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_rewrite(text, &head, &policy, "a.com", 80, &to, &added), 0);
    assert_int_equal(added, 1);
    assert_string_equal(to.data, "GET / HTTP/1.1\r\nHost: a.com\r\nX-A: b\r\nAuthorization: Bearer s\r\n"
                                 "Connection: close\r\n\r\n");
    cordon_buf_done(&to);
    cordon_egress_policy_done(&policy);
}

/* A key for all of a domain is not for the host that has one of its own. */
static void the_closest_host_has_the_headers(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a.b.com\r\nX-Key: mine\r\n\r\n";
    static const struct {
        const char *host, *key;
    } expected[] = {{"a.b.com", "exact"}, {"x.b.com", "near"}, {"x.com", "far"}, {"b.org", "mine"}};
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_http_head head;
    const char *why;
    assert_int_equal(cordon_egress_policy_add_header(&policy, "*.com", "X-Key", "far", NULL), 0);
    assert_int_equal(cordon_egress_policy_add_header(&policy, "a.b.com", "X-Key", "exact", NULL), 0);
    assert_int_equal(cordon_egress_policy_add_header(&policy, "*.b.com", "X-Key", "near", NULL), 0);
    assert_int_equal(cordon_head_read(text, sizeof text - 1, &head, &why), CORDON_HEAD_READ);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct cordon_buf to = CORDON_BUF_INIT(4096);
        unsigned added;
        assert_int_equal(cordon_head_rewrite(text, &head, &policy, expected[i].host, 443, &to, &added), 0);
        assert_int_equal(cordon_buf_append(&to, "", 1), 0);
        const char *key = strstr(to.data, "X-Key: ");
        assert_non_null(key);
        assert_memory_equal(key + 7, expected[i].key, strlen(expected[i].key));
        assert_null(strstr(key + 1, "X-Key: "));
        cordon_buf_done(&to);
    }
    cordon_egress_policy_done(&policy);
}

static void guesses_wait_for_what_may_be_a_method(void **state)
{
    assert_int_equal(cordon_head_guess("GE", 2), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("GET ", 4), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("GET / HTTP/1.1\r\n", 16), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_guess("\r\n\nGET / HTTP/1.1\r\n", 19), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_guess("\r\n", 2), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("ge", 2), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("get\t/\thttp/1.1\n", 15), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_guess("PRI * HTTP/2.0\r\n", 16), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_guess("M-SEARCH * HTTP/1.1\r\n", 21), CORDON_HEAD_READ);
    assert_int_equal(cordon_head_guess("EHLO me\r\n", 9), CORDON_HEAD_BAD);
    assert_int_equal(cordon_head_guess("AB \x01", 4), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("AB\x01", 3), CORDON_HEAD_BAD);
    assert_int_equal(cordon_head_guess("propf", 5), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("\x00\x00", 2), CORDON_HEAD_BAD);
    assert_int_equal(cordon_head_guess(" GET", 4), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess(" ", 1), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess("", 0), CORDON_HEAD_MORE);
    static char endless[CORDON_HEAD_MAX];
    memset(endless, 'A', sizeof endless);
    assert_int_equal(cordon_head_guess(endless, sizeof endless - 1), CORDON_HEAD_MORE);
    assert_int_equal(cordon_head_guess(endless, sizeof endless), CORDON_HEAD_READ); /* and then is too long */
}

struct said {
    const char *data;
    size_t size;
};
#define SAID(text)                                                                                                     \
    {                                                                                                                  \
        text, sizeof text - 1                                                                                          \
    }

/* What some server takes for a request is seen as one, and never passed on before its line has ended. */
static void requests_are_seen_however_they_are_written_and_cut(void **state)
{
    static const struct said lines[] = {
        SAID("GET / HTTP/1.1\r\n"),
        SAID("get / http/1.0\n"),
        SAID("GE_T / HTTP/1.1\r\n"),
        SAID("G3T / HTTP/1.1\r\n"),
        SAID("3 / HTTP/1.1\r\n"),
        SAID("propfind / HTTP/1.1\r\n"),
        SAID("hello / HTTP/1.1\r\n"),
        SAID("!#$%&'*+-.^_`|~ / HTTP/1.1\r\n"),
        SAID("ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n"),
        SAID(" GET / HTTP/1.1\r\n"),
        SAID("\t \r\n \x0b\x0cGET / HTTP/1.1\r\n"),
        SAID("\xa0GET / HTTP/1.1\r\n"),
        SAID("GET\x0b/ HTTP/1.1\r\n"),
        SAID("GET\x0c/\x0cHTTP/1.1\r\n"),
        SAID("GET\r/\rHTTP/1.1\n"),
        SAID("GET\x1c/\x85HTTP/1.1\r\n"),
        SAID("GET /\x01 HTTP/1.1\r\n"),
        SAID("GET /\x00 HTTP/1.1\r\n"),
        SAID("0033git-upload /\x00 HTTP/1.1\r\n"),
        SAID("git-upload-pack /\x00 HTTP/1.1\r\n"),
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        for (size_t size = 0; size < lines[i].size; size++)
            if (cordon_head_guess(lines[i].data, size) != CORDON_HEAD_MORE)
                fail_msg("line %zu is judged after %zu bytes: %.*s", i, size, (int)size, lines[i].data);
        if (cordon_head_guess(lines[i].data, lines[i].size) != CORDON_HEAD_READ)
            fail_msg("line %zu is not seen: %s", i, lines[i].data);
    }
}

/* As their clients send them first; none waits for anything. */
static void other_protocols_are_passed_at_once(void **state)
{
    static const struct said firsts[] = {
        SAID("EHLO me\r\n"),
        SAID("SSH-2.0-OpenSSH_9.6\r\n"),
        SAID("*1\r\n$4\r\nPING\r\n"),
        SAID("PING\r\n"),
        SAID("get key\r\n"),
        SAID("NICK me\r\nUSER me 0 * :me\r\n"),
        SAID("CONNECT {\"verbose\":false}\r\nPING\r\n"),
        SAID("\x00\x00\x00\x08\x04\xd2\x16\x2f"),                  /* PostgreSQL */
        SAID("\x55\x00\x00\x01\x85\xa6\xff\x01"),                  /* MySQL */
        SAID("\x1f\x00\x00\x00\x01\x00\x00\x00"),                  /* MongoDB */
        SAID("AMQP\x00\x00\x09\x01"),                              /* AMQP */
        SAID("\x10\x0c\x00\x04MQTT"),                              /* MQTT */
        SAID("\x60\x60\xb0\x17"),                                  /* Bolt */
        SAID("{\"id\":1}"),                                        /* JSON */
        SAID("\x01\x01\x00\x01\x0f\x08SERVER_PROTOCOLHTTP/1.1\n"), /* FastCGI */
        SAID("0033git-upload-pack /project.git\x00host=a.com\x00"),
    };
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
        if (cordon_head_guess(firsts[i].data, firsts[i].size) != CORDON_HEAD_BAD)
            fail_msg("held back: %zu %s", i, firsts[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_read),
        cmocka_unit_test(an_answer_has_the_address),
        cmocka_unit_test(odd_messages_are_told_apart),
        cmocka_unit_test(a_label_with_a_dot_is_no_other_name),
        cmocka_unit_test(the_server_name_is_found),
        cmocka_unit_test(hellos_that_hide_or_twist_the_name_are_bad),
        cmocka_unit_test(a_head_is_read),
        cmocka_unit_test(ambiguous_heads_are_bad),
        cmocka_unit_test(a_head_goes_on_for_one_request),
        cmocka_unit_test(the_closest_host_has_the_headers),
        cmocka_unit_test(guesses_wait_for_what_may_be_a_method),
        cmocka_unit_test(requests_are_seen_however_they_are_written_and_cut),
        cmocka_unit_test(other_protocols_are_passed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
