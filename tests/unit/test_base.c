/* SPDX-License-Identifier: Apache-2.0 */
/* base: buffers, base64, UTF-8 and JSON writing, errors, descriptors. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"

static void buf_grows_and_stops_at_its_maximum(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(10);
    assert_int_equal(cordon_buf_append(&buf, "12345", 5), 0);
    assert_int_equal(cordon_buf_append(&buf, "67890", 5), 0);
    assert_int_equal(cordon_buf_append(&buf, "x", 1), -EMSGSIZE);
    assert_true(buf.failed);
    assert_int_equal(buf.size, 10);
    assert_string_equal(buf.data, "1234567890");
    cordon_buf_consume(&buf, 4);
    assert_string_equal(buf.data, "567890");
    cordon_buf_consume(&buf, 100);
    assert_int_equal(buf.size, 0);
    cordon_buf_done(&buf);
    assert_int_equal(buf.max, 10);
    assert_false(buf.failed);
    assert_int_equal(cordon_buf_append(&buf, NULL, SIZE_MAX), -EMSGSIZE);
    cordon_buf_done(&buf);
}

static void buf_formats(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1000);
    assert_int_equal(cordon_buf_appendf(&buf, "%s-%d", "a", 7), 0);
    assert_int_equal(cordon_buf_appendf(&buf, "%*s", 300, "x"), 0);
    assert_int_equal(buf.size, 303);
    assert_int_equal(cordon_buf_appendf(&buf, "%*s", 3000, "x"), -EMSGSIZE);
    cordon_buf_wipe(&buf);
}

static void base64_round_trips(void **state)
{
    unsigned char bytes[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct cordon_buf text = CORDON_BUF_INIT(1000), back = CORDON_BUF_INIT(1000);
        assert_int_equal(cordon_buf_base64(&text, bytes, n), 0);
        assert_int_equal(cordon_buf_unbase64(&back, text.data, text.size), 0);
        assert_int_equal(back.size, n);
        assert_memory_equal(back.data ? back.data : "", bytes, n);
        cordon_buf_done(&text);
        cordon_buf_done(&back);
    }
}

static void base64_is_strict(void **state)
{
    static const char *const bad[] = {"QQ=",  "QQ",   "Q===",   "QQ==QQ==", "Q Q=", "QQ=\n",
                                      "Q-Q=", "====", "QUI=\n", "QR==",     "QUJ="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cordon_buf buf = CORDON_BUF_INIT(100);
        if (cordon_buf_unbase64(&buf, bad[i], strlen(bad[i])) != -EINVAL)
            fail_msg("accepted %s", bad[i]);
        cordon_buf_done(&buf);
    }
}

static void utf8_is_judged_as_unicode_says(void **state)
{
    static const struct {
        const char *text;
        size_t size, complete;
        bool valid;
    } cases[] = {
        {"abc", 3, 3, true},
        {"\xC3\xA4", 2, 2, true},
        {"\xC3", 1, 0, false},
        {"a\xE2\x82", 3, 1, false},
        {"a\xF0\x9F\x98", 4, 1, false},
        {"\xC0\x80", 2, 2, false},         /* overlong */
        {"\xED\xA0\x80", 3, 3, false},     /* surrogate */
        {"\xF4\x90\x80\x80", 4, 4, false}, /* beyond U+10FFFF */
        {"\xFF", 1, 1, false},
        {"\0", 1, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cordon_utf8_complete(cases[i].text, cases[i].size), cases[i].complete);
        assert_int_equal(cordon_utf8_valid(cases[i].text, cases[i].size), cases[i].valid);
    }
}

static void json_escapes_and_replaces(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1000);
    cordon_json_string(&buf, "a\"\\\n\0\x7F\xC3\xA4\xFFz\xE2\x82", 12);
    assert_string_equal(buf.data, "\"a\\\"\\\\\\n\\u0000\\u007f\xC3\xA4\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    cordon_buf_done(&buf);
}

static void json_places_commas(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1000);
    struct cordon_json json = {.buf = &buf};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "a");
    cordon_json_array_begin(&json);
    cordon_json_int(&json, INT64_MIN);
    cordon_json_uint(&json, UINT64_MAX);
    cordon_json_bool(&json, true);
    cordon_json_null(&json);
    cordon_json_array_end(&json);
    cordon_json_key(&json, "b");
    cordon_json_object_begin(&json);
    cordon_json_object_end(&json);
    cordon_json_pair_ms(&json, "c", 1234567);
    cordon_json_key(&json, "d");
    cordon_json_base64(&json, "hi", 2);
    cordon_json_pair_text(&json, "e", NULL);
    cordon_json_pair_text(&json, "f", "g");
    cordon_json_pair_uint(&json, "h", 7);
    cordon_json_pair_bool(&json, "i", false);
    cordon_json_object_end(&json);
    assert_string_equal(buf.data, "{\"a\":[-9223372036854775808,18446744073709551615,true,null],\"b\":{},"
                                  "\"c\":1234.567,\"d\":\"aGk=\",\"e\":null,\"f\":\"g\",\"h\":7,\"i\":false}");
    cordon_buf_done(&buf);
}

static void descriptors_travel_and_overflow_is_refused(void **state)
{
    int pair[2], got[2];
    char data[8];
    size_t count = 2;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    int pass[3] = {pair[0], pair[1], pair[0]};
    assert_int_equal(cordon_send_fds(pair[0], "hi", 2, pass, 2, 0), 2);
    assert_int_equal(cordon_recv_fds(pair[1], data, sizeof data, got, &count, 0), 2);
    assert_int_equal(count, 2);
    cordon_close(&got[0]);
    cordon_close(&got[1]);
    assert_int_equal(cordon_send_fds(pair[0], "hi", 2, pass, 3, 0), 2);
    count = 2;
    assert_int_equal(cordon_recv_fds(pair[1], data, sizeof data, got, &count, 0), -EMSGSIZE);
    assert_int_equal(count, 0);
    assert_int_equal(cordon_send_fds(pair[0], "0123456789", 10, NULL, 0, 0), 10);
    assert_int_equal(cordon_recv_fds(pair[1], data, sizeof data, NULL, NULL, 0), -EMSGSIZE);
    cordon_close(&pair[0]);
    assert_int_equal(cordon_recv_fds(pair[1], data, sizeof data, NULL, NULL, 0), 0);
    cordon_close(&pair[1]);
    assert_int_equal(pair[1], -1);
}

static void memfds_are_sealed(void **state)
{
    int fd = cordon_sealed_memfd("test", "hello", 5);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), -1);
    char text[8];
    assert_int_equal(pread(fd, text, sizeof text, 0), 5);
    cordon_close(&fd);
}

static void small_files_are_read(void **state)
{
    char text[8];
    assert_true(cordon_read_file(-100 /* AT_FDCWD */, "/proc/self/comm", text, sizeof text) > 0);
    assert_int_equal(strlen(text), sizeof text - 1);
    assert_int_equal(cordon_read_file(-100, "/nowhere", text, sizeof text), -ENOENT);
    assert_int_equal(cordon_write_file(-100, "/nowhere", "1"), -ENOENT);
}

static void log_levels_have_names(void **state)
{
    enum cordon_log_level level = CORDON_LOG_ERROR;
    assert_true(cordon_log_level_parse("debug", &level));
    assert_int_equal(level, CORDON_LOG_DEBUG);
    assert_false(cordon_log_level_parse("loud", &level));
}

static void the_clock_goes_forward(void **state)
{
    uint64_t first = cordon_now_us();
    assert_true(first > 0 && cordon_now_us() >= first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_grows_and_stops_at_its_maximum),
        cmocka_unit_test(buf_formats),
        cmocka_unit_test(base64_round_trips),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(utf8_is_judged_as_unicode_says),
        cmocka_unit_test(json_escapes_and_replaces),
        cmocka_unit_test(json_places_commas),
        cmocka_unit_test(descriptors_travel_and_overflow_is_refused),
        cmocka_unit_test(memfds_are_sealed),
        cmocka_unit_test(small_files_are_read),
        cmocka_unit_test(log_levels_have_names),
        cmocka_unit_test(the_clock_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
