/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/frame.h"

static void frame_goes_there_and_back(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1 << 20);
    assert_int_equal(cordon_frame_put(&buf, CORDON_FRAME_STDIN, 0x1234, "a\0b", 3), 0);
    assert_int_equal(cordon_frame_put(&buf, CORDON_FRAME_STDIN_EOF, 7, NULL, 0), 0);
    struct cordon_frame frame;
    assert_int_equal(cordon_frame_parse(buf.data, buf.size, 0, &frame), 11);
    assert_int_equal(frame.type, CORDON_FRAME_STDIN);
    assert_int_equal(frame.exec, 0x1234);
    assert_int_equal(frame.length, 3);
    assert_memory_equal(frame.payload, "a\0b", 3);
    assert_int_equal(cordon_frame_parse(buf.data + 11, buf.size - 11, 0, &frame), 8);
    assert_int_equal(frame.type, CORDON_FRAME_STDIN_EOF);
    assert_int_equal(frame.exec, 7);
    cordon_buf_done(&buf);
}

static void header_is_little_endian(void **state)
{
    char header[CORDON_FRAME_HEADER];
    cordon_frame_header(header, CORDON_FRAME_STDOUT, 0x0102, 0x00010000);
    assert_memory_equal(header, "\x42\0\x02\x01\0\0\x01\0", 8);
}

static void every_cut_asks_for_more(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1 << 20);
    assert_int_equal(cordon_frame_put(&buf, CORDON_FRAME_STDOUT, 1, "hello", 5), 0);
    struct cordon_frame frame = {.type = 99};
    for (size_t size = 0; size < buf.size; size++)
        assert_int_equal(cordon_frame_parse(buf.data, size, 1, &frame), 0);
    assert_int_equal(frame.type, 99);
    assert_int_equal(cordon_frame_parse(buf.data, buf.size, 1, &frame), 13);
    cordon_buf_done(&buf);
}

static void bad_headers_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        int from_guest;
    } bad[] = {
        {"\0\0\0\0\0\0\0\0", 0},           /* type 0 */
        {"\x0a\0\0\0\0\0\0\0", 0},         /* unknown type */
        {"\x42\0\0\0\x01\0\0\0", 0},       /* a guest's type from the host */
        {"\x02\0\0\0\x01\0\0\0", 1},       /* a host's type from the guest */
        {"\xff\0\0\0\x01\0\0\0", 1},       /* unknown type */
        {"\x42\x01\0\0\x01\0\0\0", 1},     /* reserved byte */
        {"\x42\0\0\0\x01\0\x01\0", 1},     /* one byte too long */
        {"\x42\0\0\0\0\0\0\0", 1},         /* data without data */
        {"\x42\0\0\0\xff\xff\xff\xff", 1}, /* enormous */
        {"\x01\0\0\0\x01\0\x80\x01", 0},   /* EXEC beyond 24 MiB */
        {"\x05\0\0\0\x05\0\0\0", 0},       /* KILL with five bytes */
        {"\x46\0\0\0\x43\0\0\0", 1},       /* EXIT one byte short */
    };
    struct cordon_frame frame;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cordon_frame_parse(bad[i].bytes, 8, bad[i].from_guest, &frame), -EBADMSG);
    assert_int_equal(cordon_frame_parse("\x01\0\0\0\0\0\x80\x01", 8, 0, &frame), 0); /* exactly 24 MiB */
}

static void put_beyond_the_buffer_fails_whole(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(12);
    assert_int_equal(cordon_frame_put(&buf, CORDON_FRAME_STDOUT, 1, "hello", 5), -EMSGSIZE);
    assert_true(buf.failed);
    assert_int_equal(buf.size, 0);
    cordon_buf_done(&buf);
}

static void driver_headers_are_checked(void **state)
{
    struct cordon_frame frame;
    assert_int_equal(cordon_driver_header_parse("\x40\0\0\0\0\0\0\x01", &frame), 0);
    assert_int_equal(frame.length, CORDON_DRIVER_RESULT_MAX);
    assert_null(frame.payload);
    assert_int_equal(cordon_driver_header_parse("\x40\0\0\0\x01\0\0\x01", &frame), -EBADMSG);
    assert_int_equal(cordon_driver_header_parse("\x43\0\0\0\x04\0\0\0", &frame), 0);
    assert_int_equal(cordon_driver_header_parse("\x43\0\0\0\x03\0\0\0", &frame), -EBADMSG);
    assert_int_equal(cordon_driver_header_parse("\x01\0\0\0\x04\0\0\0", &frame), -EBADMSG); /* JOB is not a driver's */
    assert_int_equal(cordon_driver_header_parse("\x44\0\0\0\0\0\0\0", &frame), 0);
    assert_int_equal(cordon_driver_header_parse("\x44\0\0\0\x01\0\0\0", &frame), -EBADMSG);
    assert_int_equal(cordon_driver_header_parse("\x45\0\0\0\0\0\0\0", &frame), -EBADMSG);
}

static void fields_go_there_and_back(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(1 << 20);
    assert_int_equal(cordon_field_put(&buf, CORDON_FIELD_CODE, "x\0y", 3), 0);
    assert_int_equal(cordon_field_put_u32(&buf, CORDON_FIELD_MODE, 0755), 0);
    assert_int_equal(cordon_field_put_u64(&buf, CORDON_FIELD_SIZE, 0x123456789abcull), 0);
    assert_int_equal(cordon_field_put(&buf, CORDON_FIELD_ENV, NULL, 0), 0);
    struct cordon_field field;
    size_t at = 0;
    uint32_t u32;
    uint64_t u64;
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 1);
    assert_int_equal(field.tag, CORDON_FIELD_CODE);
    assert_memory_equal(field.data, "x\0y", 3);
    assert_int_equal(cordon_field_u32(&field, &u32), -EBADMSG);
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 1);
    assert_int_equal(cordon_field_u32(&field, &u32), 0);
    assert_int_equal(u32, 0755);
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 1);
    assert_int_equal(cordon_field_u64(&field, &u64), 0);
    assert_true(u64 == 0x123456789abcull);
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 1);
    assert_int_equal(field.length, 0);
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 0);
    cordon_buf_done(&buf);
}

static void cut_fields_are_refused(void **state)
{
    struct cordon_field field;
    size_t at = 0;
    assert_int_equal(cordon_field_next("\x01\x05\0\0", 4, &at, &field), -EBADMSG);
    assert_int_equal(cordon_field_next("\x01\x05\0\0\0abcd", 9, &at, &field), -EBADMSG);
    assert_int_equal(cordon_field_next("\x01\xff\xff\xff\xff", 5, &at, &field), -EBADMSG);
    assert_int_equal(at, 0);
    at = 9;
    assert_int_equal(cordon_field_next("\x01", 1, &at, &field), -EBADMSG);
}

static void limits_go_there_and_back(void **state)
{
    struct cordon_exec_limits limits = {1, 2, 1ull << 40, 4, 5, 6, 7, 8, 9, 10, 11}, found;
    struct cordon_buf buf = CORDON_BUF_INIT(1 << 10);
    struct cordon_field field;
    size_t at = 0;
    assert_int_equal(cordon_exec_limits_put(&buf, &limits), 0);
    assert_int_equal(cordon_field_next(buf.data, buf.size, &at, &field), 1);
    memset(&found, 0, sizeof found);
    assert_int_equal(cordon_exec_limits_parse(&field, &found), 0);
    assert_true(found.memory_bytes == 1ull << 40 && found.disk_bytes == 1 && found.artifacts_bytes == 8);
    assert_true(found.artifacts == 9 && found.open_files == 10 && found.cpu_percent == 11);
    field.length--;
    assert_int_equal(cordon_exec_limits_parse(&field, &found), -EBADMSG);
    cordon_buf_done(&buf);
}

static void exit_goes_there_and_back(void **state)
{
    struct cordon_exit exit = {.how = CORDON_EXIT_SIGNALLED,
                               .status = -9,
                               .stdout_bytes = 1ull << 33,
                               .stderr_bytes = 3,
                               .processes_left = 4,
                               .syscalls_denied = 5,
                               .blocked_syscall = "mount",
                               .may_have_artifacts = 1,
                               .oom_kills = 6,
                               .cpu_us = 1ull << 34,
                               .memory_peak_bytes = 1ull << 35};
    struct cordon_exit found;
    struct cordon_frame frame;
    struct cordon_buf buf = CORDON_BUF_INIT(1 << 10);
    assert_int_equal(cordon_exit_put(&buf, 3, &exit), 0);
    assert_int_equal(cordon_frame_parse(buf.data, buf.size, 1, &frame), (int64_t)buf.size);
    assert_int_equal(frame.exec, 3);
    assert_int_equal(cordon_exit_parse(&frame, &found), 0);
    assert_int_equal(found.status, -9);
    assert_true(found.stdout_bytes == 1ull << 33);
    assert_string_equal(found.blocked_syscall, "mount");
    assert_int_equal(found.may_have_artifacts, 1);
    assert_true(found.oom_kills == 6 && found.cpu_us == 1ull << 34 && found.memory_peak_bytes == 1ull << 35);
    memset(buf.data + CORDON_FRAME_HEADER + 32, 'x', 32); /* a name without its end */
    assert_int_equal(cordon_exit_parse(&frame, &found), -EBADMSG);
    buf.data[CORDON_FRAME_HEADER + 63] = '\0';
    assert_int_equal(cordon_exit_parse(&frame, &found), 0);
    buf.data[CORDON_FRAME_HEADER] = 4; /* an end that is none */
    assert_int_equal(cordon_exit_parse(&frame, &found), -EBADMSG);
    cordon_buf_done(&buf);
}

/* Seeded, so that a failure can be repeated: whatever is parsed lies inside what was given. */
static void noise_stays_inside_its_bounds(void **state)
{
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char data[64];
        size_t size = (size_t)rand() % sizeof data;
        for (size_t i = 0; i < size; i++)
            data[i] = (char)(rand() % 4 ? rand() % 80 : rand());
        struct cordon_frame frame;
        int64_t n = cordon_frame_parse(data, size, round & 1, &frame);
        assert_true(n == -EBADMSG || (n >= 0 && (size_t)n <= size));
        size_t at = 0;
        struct cordon_field field;
        while (cordon_field_next(data, size, &at, &field) == 1)
            assert_true(field.data >= data && field.data + field.length <= data + size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_goes_there_and_back),         cmocka_unit_test(header_is_little_endian),
        cmocka_unit_test(every_cut_asks_for_more),           cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(put_beyond_the_buffer_fails_whole), cmocka_unit_test(driver_headers_are_checked),
        cmocka_unit_test(fields_go_there_and_back),          cmocka_unit_test(cut_fields_are_refused),
        cmocka_unit_test(limits_go_there_and_back),          cmocka_unit_test(exit_goes_there_and_back),
        cmocka_unit_test(noise_stays_inside_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
