/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the one table is whole and consistent; filling, context, the part for the log only. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "core/run.h"

static void every_kind_has_its_columns(void **state)
{
    static const int exits[] = {2, 125, 126};
    for (int kind = CORDON_ERROR_NONE + 1; kind < CORDON_ERROR__COUNT; kind++) {
        enum cordon_error_kind k = (enum cordon_error_kind)kind;
        int http = cordon_error_http(k), exit = cordon_error_exit(k);
        assert_true(http >= 400 && http < 600);
        assert_true(exit == exits[0] || exit == exits[1] || exit == exits[2]);
        assert_true(strlen(cordon_error_name(k)) && strlen(cordon_error_connect(k)) && strlen(cordon_error_doc(k)));
        for (int other = CORDON_ERROR_NONE + 1; other < kind; other++)
            assert_string_not_equal(cordon_error_name(k), cordon_error_name((enum cordon_error_kind)other));
    }
    assert_int_equal(cordon_error_exit(CORDON_ERROR_INVALID), 2);
    assert_int_equal(cordon_error_exit(CORDON_ERROR_TOO_LARGE), 2);
    assert_int_equal(cordon_error_exit(CORDON_ERROR_NOT_FOUND), 2);
    assert_int_equal(cordon_error_exit(CORDON_ERROR_REFUSED), 126);
    assert_int_equal(cordon_error_http(CORDON_ERROR_BUSY), 503);
}

static void filling_and_context(void **state)
{
    struct cordon_error err = {0};
    assert_int_equal(cordon_fail(&err, -EINVAL, CORDON_ERROR_INVALID, "%s is %d", "x", 3), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.message, "x is 3");
    cordon_error_context(&err, "read %s", "y");
    assert_string_equal(err.message, "read y: x is 3");
    cordon_error_detail(&err, "/etc/%s", "z");
    assert_string_equal(err.detail, "/etc/z");
    assert_int_equal(cordon_fail_errno(&err, -ENOENT, "open it"), -ENOENT);
    assert_string_equal(err.message, "open it: No such file or directory");
    assert_string_equal(err.detail, ""); /* of the last one, not of this */
    assert_int_equal(err.kind, CORDON_ERROR_INFRASTRUCTURE);
}

static void long_texts_are_cut_and_null_is_allowed(void **state)
{
    struct cordon_error err = {0};
    (void)cordon_fail(&err, -EINVAL, CORDON_ERROR_INVALID, "%*s", 2000, "x");
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    cordon_error_context(&err, "%*s", 2000, "y");
    assert_true(strlen(err.message) < sizeof err.message);
    assert_int_equal(cordon_fail(NULL, -EINVAL, CORDON_ERROR_INVALID, "x"), -EINVAL);
    cordon_error_context(NULL, "x");
    cordon_error_detail(NULL, "x");
}

static void the_log_only_part_is_never_written(void **state)
{
    struct cordon_error err = {0};
    struct cordon_buf buf = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &buf};
    (void)cordon_fail(&err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "it broke");
    cordon_error_detail(&err, "/secret/path");
    cordon_json_object_begin(&json);
    cordon_json_error(&json, &err);
    cordon_json_object_end(&json);
    cordon_event_write_error(&err, &buf);
    assert_null(strstr(buf.data, "secret"));
    assert_int_equal(strncmp(buf.data, "{\"error\":{\"kind\":\"infrastructure\",\"message\":\"it broke\"}}", 56), 0);
    cordon_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_its_columns),
        cmocka_unit_test(filling_and_context),
        cmocka_unit_test(long_texts_are_cut_and_null_is_allowed),
        cmocka_unit_test(the_log_only_part_is_never_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
