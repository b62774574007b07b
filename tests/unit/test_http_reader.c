/* SPDX-License-Identifier: Apache-2.0 */
/* The client's reader of HTTP answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/reader.h"

/* Feeds text in pieces of that size; the first error, or that of the end. */
static int read_all(struct cordon_http_reader *reader, const char *text, size_t size, size_t piece)
{
    *reader = CORDON_HTTP_READER_INIT(1000);
    for (size_t at = 0; at < size; at += piece) {
        int r = cordon_http_reader_feed(reader, text + at, size - at < piece ? size - at : piece);
        if (r < 0)
            return r;
    }
    return cordon_http_reader_end(reader);
}

static void expect_good(const char *text, int status, const char *body)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct cordon_http_reader reader;
        assert_int_equal(read_all(&reader, text, strlen(text), piece), 0);
        assert_int_equal(reader.status, status);
        assert_int_equal(reader.body.size, strlen(body));
        assert_memory_equal(reader.body.data ? reader.body.data : "", body, strlen(body));
        cordon_http_reader_done(&reader);
    }
}

static void good_answers_in_any_pieces(void **state)
{
    expect_good("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    expect_good("HTTP/1.1 200 OK\r\ncontent-length:5\r\nX: y\r\n\r\nhello", 200, "hello");
    expect_good("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503, "");
    expect_good("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end");
    expect_good("HTTP/1.1 204 None\r\n\r\n", 204, "");
    expect_good("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x");
    expect_good("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
                200, "abc0123456789");
    expect_good("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\nTrailer: t\r\n\r\n", 200, "\n");
}

static void bad_answers(void **state)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        {"", -EPIPE},
        {"HTTP/1.1 200 OK\r\n", -EPIPE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", -EPIPE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", -EPIPE},
        {"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", -EBADMSG},
        {"HTTP/2 200 OK\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 20 OK\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 999 OK\r\n\r\n", -EBADMSG},
        {"\r\n\r\n", -EBADMSG},
        {"garbage\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", -EBADMSG},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", -EPIPE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_http_reader reader;
        int r = read_all(&reader, rows[i].text, strlen(rows[i].text), 7);
        if (r != rows[i].code)
            fail_msg("%s: %d", rows[i].text, r);
        cordon_http_reader_done(&reader);
    }
}

static void sizes_are_bounded(void **state)
{
    struct cordon_http_reader reader = CORDON_HTTP_READER_INIT(4);
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    assert_int_equal(cordon_http_reader_feed(&reader, head, sizeof head - 1), 0);
    assert_int_equal(cordon_http_reader_feed(&reader, "12345", 5), -EMSGSIZE);
    cordon_http_reader_done(&reader);
    reader = CORDON_HTTP_READER_INIT(4);
    int r = 0;
    for (int i = 0; i < 100000 && r == 0; i++)
        r = cordon_http_reader_feed(&reader, "X: y\r\n", 6);
    assert_int_equal(r, -EMSGSIZE);
    cordon_http_reader_done(&reader);
}

static void the_kind_of_answer_is_told(void **state)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n";
    struct cordon_http_reader reader;
    assert_int_equal(read_all(&reader, text, sizeof text - 1, 100), 0);
    assert_true(reader.ndjson);
    cordon_http_reader_done(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_answers_in_any_pieces),
        cmocka_unit_test(bad_answers),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(the_kind_of_answer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
