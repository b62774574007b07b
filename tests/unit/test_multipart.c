/* SPDX-License-Identifier: Apache-2.0 */
/* multipart/form-data, in pieces of every size. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/multipart.h"

/* What came, as "name|filename|data;". */
static struct cordon_buf told = CORDON_BUF_INIT(1u << 20);

static int open_part(void *context, const char *name, const char *filename)
{
    return cordon_buf_appendf(&told, "%s|%s|", name, filename ? filename : "-");
}

static int part_data(void *context, const char *data, size_t size)
{
    assert_true(size > 0);
    return cordon_buf_append(&told, data, size);
}

static int close_part(void *context)
{
    return cordon_buf_append(&told, ";", 1);
}

static int refuse_part(void *context, const char *name, const char *filename)
{
    return -ENOSPC;
}

static const struct cordon_multipart_taker taker = {open_part, part_data, close_part};
static const struct cordon_multipart_taker refuser = {refuse_part, part_data, close_part};

static int read_all(const char *text, size_t size, size_t piece, const struct cordon_multipart_taker *by)
{
    struct cordon_multipart reader;
    told.size = 0;
    assert_int_equal(cordon_multipart_init(&reader, "multipart/form-data; boundary=XX", by, NULL), 0);
    int r = 0;
    for (size_t at = 0; r == 0 && at < size; at += piece)
        r = cordon_multipart_feed(&reader, text + at, size - at < piece ? size - at : piece);
    if (r == 0)
        r = cordon_multipart_end(&reader);
    cordon_multipart_done(&reader);
    return r;
}

static void expect(const char *text, const char *wanted)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        assert_int_equal(read_all(text, strlen(text), piece, &taker), 0);
        assert_int_equal(told.size, strlen(wanted));
        assert_memory_equal(told.data ? told.data : "", wanted, strlen(wanted));
    }
}

#define PART(disposition, data) "--XX\r\nContent-Disposition: " disposition "\r\n\r\n" data "\r\n"

static void whole_bodies(void **state)
{
    expect(PART("form-data; name=\"file\"; filename=\"a.txt\"", "hello") "--XX--\r\n", "file|a.txt|hello;");
    expect("--XX--", "");
    expect("preamble\r\n--XX--\r\nepilogue\r\n--XX\r\n", "");
    expect(PART("form-data; name=file", "") "--XX--", "file|-|;");
    expect(PART("form-data; name=\"a\"; filename=\"/x/y\"", "1")
               PART("FORM-DATA; filename=\"b\"; name=\"b\"", "2") "--XX--",
           "a|/x/y|1;b|b|2;");
    expect("--XX  \r\nX: y\r\ncontent-disposition:form-data; name=\"a\"\r\nContent-Type: text/plain\r\n\r\nz\r\n--XX--",
           "a|-|z;");
}

static void what_only_looks_like_a_delimiter_is_data(void **state)
{
    expect(PART("form-data; name=a", "\r\n-\r\n--\r\n--X\r\n--XY\r\n --XX\r") "--XX--",
           "a|-|\r\n-\r\n--\r\n--X\r\n--XY\r\n --XX\r;");
    expect(PART("form-data; name=a", "x\r\r\ny\r") "--XX--", "a|-|x\r\r\ny\r;");
    expect(PART("form-data; name=a", "--XX--") "--XX--", "a|-|--XX--;");
}

static void names_are_decoded(void **state)
{
    expect(PART("form-data; name=\"a\\\"b;c\\\\d\"; filename=\"x\\y\"", "") "--XX--", "a\"b;c\\d|x\\y|;");
    expect(PART("form-data; name=\"f\"; filename=\"old\"; filename*=utf-8''%C3%A4%20b", "") "--XX--", "f|\xc3\xa4 b|;");
    expect(PART("form-data; name=\"f\"; filename=\"a%22b\"", "") "--XX--", "f|a%22b|;");
}

static void broken_bodies(void **state)
{
    static const char *const bodies[] = {
        "",
        "--XX",
        "--XX\r\n",
        "--XXx\r\n",
        "--XX-x",
        PART("form-data; name=a", "b"),
        "--XX\r\n\r\nno disposition\r\n--XX--",
        "--XX\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--XX--",
        "--XX\r\nContent-Disposition: form-data\r\n\r\n\r\n--XX--",
        "--XX\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--XX--",
        "--XX\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--XX--",
        "--XX\r\nContent-Disposition: form-data; name=a; filename*=latin1''x\r\n\r\n\r\n--XX--",
        "--XX\r\nContent-Disposition: form-data; name=a; filename*=utf-8''%00\r\n\r\n\r\n--XX--",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (size_t piece = 1; piece <= 64; piece += 7)
            assert_int_equal(read_all(bodies[i], strlen(bodies[i]), piece, &taker), -EBADMSG);
    static const char nul[] = "--XX\r\nContent-Disposition: form-data; name=a\0b\r\n\r\n\r\n--XX--";
    assert_int_equal(read_all(nul, sizeof nul - 1, 5, &taker), -EBADMSG);
}

static void a_header_has_a_bound_and_so_have_parts(void **state)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    (void)cordon_buf_appends(&body, "--XX\r\nX: ");
    for (size_t i = 0; i < 20000; i++)
        (void)cordon_buf_append(&body, "x", 1);
    assert_int_equal(read_all(body.data, body.size, 1000, &taker), -EMSGSIZE);
    body.size = 0;
    for (size_t i = 0; i <= CORDON_MULTIPART_PARTS; i++)
        (void)cordon_buf_appends(&body, PART("form-data; name=a", ""));
    assert_int_equal(read_all(body.data, body.size, 1000, &taker), -EMSGSIZE);
    cordon_buf_done(&body);
}

static void the_takers_word_is_passed_on(void **state)
{
    static const char body[] = PART("form-data; name=a", "b") "--XX--";
    assert_int_equal(read_all(body, sizeof body - 1, 7, &refuser), -ENOSPC);
}

static void content_types(void **state)
{
    static const struct {
        const char *type;
        int code;
    } rows[] = {
        {"multipart/form-data; boundary=abc", 0},
        {"Multipart/Form-Data;charset=utf-8; BOUNDARY=\"a b c\"", 0},
        {"multipart/form-data", -EINVAL},
        {"multipart/form-data; boundary=", -EINVAL},
        {"multipart/form-data; boundary=\"a\r\nb\"", -EINVAL},
        {"multipart/form-data; boundary=\"a \"", -EINVAL},
        {"multipart/form-data; boundary=1234567890123456789012345678901234567890123456789012345678901234567890", 0},
        {"multipart/form-data; boundary=12345678901234567890123456789012345678901234567890123456789012345678901",
         -EINVAL},
        {"multipart/mixed; boundary=a", -EINVAL},
        {"text/plain; boundary=a", -EINVAL},
    };
    struct cordon_multipart reader;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(cordon_multipart_init(&reader, rows[i].type, &taker, NULL), rows[i].code);
        cordon_multipart_done(&reader);
    }
}

static int teardown(void **state)
{
    cordon_buf_done(&told);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies),
        cmocka_unit_test(what_only_looks_like_a_delimiter_is_data),
        cmocka_unit_test(names_are_decoded),
        cmocka_unit_test(broken_bodies),
        cmocka_unit_test(a_header_has_a_bound_and_so_have_parts),
        cmocka_unit_test(the_takers_word_is_passed_on),
        cmocka_unit_test(content_types),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
