/* SPDX-License-Identifier: Apache-2.0 */
/* core/template, core/template_file: names, and files that are whole, changed, cut or somebody else's. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "core/template_file.h"

static struct cordon_error err;

static void names_are_safe_as_files(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "0", "data-2", "my_set.v1", "a12345678901234567890123456789012345678"};
    static const char *const bad[] = {
        "",    ".",   "..",       "-a", "_a",  "A",  "a/b",
        "a b", "a\n", "\xc3\xa4", "a*", "a:b", ".a", "a123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(cordon_template_name_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cordon_template_name_valid(bad[i]));
    assert_true(cordon_template_is_default("default") && cordon_template_is_default("python"));
    assert_false(cordon_template_is_default("python3"));
}

static struct cordon_template_header new_header(uint64_t payload)
{
    struct cordon_template_header header = {.magic = CORDON_TEMPLATE_MAGIC,
                                            .version = CORDON_TEMPLATE_VERSION,
                                            .kind = CORDON_TEMPLATE_LAYER,
                                            .payload_bytes = payload,
                                            .from = "python",
                                            .base = "x86_64",
                                            .recipe = "pip a\n"};
    return header;
}

/* A sealed file with an archive of so many bytes. */
static int new_file(size_t payload, struct cordon_template_header *header)
{
    int fd = memfd_create("template", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *header = new_header(payload);
    assert_int_equal(ftruncate(fd, (off_t)(CORDON_TEMPLATE_PAYLOAD + payload)), 0);
    for (size_t i = 0; i < payload; i += 4096)
        assert_int_equal(pwrite(fd, "archive", 7, (off_t)(CORDON_TEMPLATE_PAYLOAD + i)), 7);
    assert_int_equal(ftruncate(fd, (off_t)(CORDON_TEMPLATE_PAYLOAD + payload)), 0);
    assert_int_equal(cordon_template_file_seal(fd, header, &err), 0);
    return fd;
}

static int open_again(int fd)
{
    struct cordon_template_header header;
    int r = cordon_template_file_header(fd, &header, &err);
    return r < 0 ? r : cordon_template_file_verify(fd, &header, &err);
}

static void a_sealed_file_is_good(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 300000};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cordon_template_header header;
        cordon_autoclose int fd = new_file(sizes[i], &header);
        assert_int_equal(open_again(fd), 0);
    }
}

static void any_changed_byte_is_noticed(void **state)
{
    struct cordon_template_header header;
    cordon_autoclose int fd = new_file(9000, &header);
    (void)state;
    static const off_t places[] = {0,   8,    12,   16,   24,    32,    64,    96,   112,
                                   240, 9000, 8431, 8432, 16383, 16384, 20000, 25383};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, places[i]), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, places[i]), 1);
        assert_int_equal(open_again(fd), -EBADMSG);
        assert_true(err.message[0]);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, places[i]), 1);
        assert_int_equal(open_again(fd), 0);
    }
}

static void what_was_cut_or_grew_is_refused(void **state)
{
    struct cordon_template_header header;
    static const off_t sizes[] = {
        0, 10, 8432, 16383, 16384, CORDON_TEMPLATE_PAYLOAD + 99, CORDON_TEMPLATE_PAYLOAD + 101};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cordon_autoclose int fd = new_file(100, &header);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        assert_int_equal(open_again(fd), -EBADMSG);
    }
}

static void headers_that_lie_are_refused(void **state)
{
    struct cordon_template_header header = new_header(5);
    uint64_t size = CORDON_TEMPLATE_PAYLOAD + 5;
    (void)state;
    assert_int_equal(cordon_template_header_check(&header, size, &err), 0);
    header.kind = 3;
    assert_int_equal(cordon_template_header_check(&header, size, &err), -EBADMSG);
    header = new_header(5);
    header.version = 2;
    assert_int_equal(cordon_template_header_check(&header, size, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "version 2"));
    header = new_header(5);
    memset(header.recipe, 'x', sizeof header.recipe);
    assert_int_equal(cordon_template_header_check(&header, size, &err), -EBADMSG);
    header = new_header(5);
    memset(header.base, 'x', sizeof header.base);
    assert_int_equal(cordon_template_header_check(&header, size, &err), -EBADMSG);
    header = new_header(UINT64_MAX - CORDON_TEMPLATE_PAYLOAD + 1);
    assert_int_equal(cordon_template_header_check(&header, 0, &err), -EBADMSG);
}

static void the_key_is_of_what_it_is_made_from(void **state)
{
    struct cordon_template_header a = new_header(5), b = new_header(7);
    (void)state;
    b.created_s = 99;
    assert_int_equal(cordon_template_header_key(&a, &err), 0);
    assert_int_equal(cordon_template_header_key(&b, &err), 0);
    assert_memory_equal(a.key, b.key, sizeof a.key);
    (void)snprintf(b.base, sizeof b.base, "aarch64");
    assert_int_equal(cordon_template_header_key(&b, &err), 0);
    assert_memory_not_equal(a.key, b.key, sizeof a.key);
}

static void only_ours_is_trusted(void **state)
{
    char folder[] = "/tmp/cordon-test-template-XXXXXX", path[80];
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/x.template", folder);
    cordon_autoclose int made = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    cordon_autoclose int at = cordon_template_folder_open(AT_FDCWD, folder, &err);
    assert_true(made >= 0 && at >= 0);
    int fd = cordon_template_file_open(at, "x", &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(cordon_template_file_open(at, "y", &err), -ENOENT);
    assert_int_equal(chmod(path, 0664), 0);
    assert_int_equal(cordon_template_file_open(at, "x", &err), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_true(cordon_template_file_open(at, "x", &err) < 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cordon_template_file_open(at, "x", &err), -EPERM); /* and it does not wait for a writer */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(cordon_template_folder_open(AT_FDCWD, folder, &err), -EPERM);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_safe_as_files),      cmocka_unit_test(a_sealed_file_is_good),
        cmocka_unit_test(any_changed_byte_is_noticed),  cmocka_unit_test(what_was_cut_or_grew_is_refused),
        cmocka_unit_test(headers_that_lie_are_refused), cmocka_unit_test(the_key_is_of_what_it_is_made_from),
        cmocka_unit_test(only_ours_is_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
