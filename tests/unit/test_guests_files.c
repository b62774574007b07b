/* SPDX-License-Identifier: Apache-2.0 */
/* Kept guests: their files, from end to end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guests_service.h"

static void files(void **state)
{
    struct cordon_file_entry entry = {0};
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *big = malloc(9 << 20);
    for (size_t i = 0; i < 9 << 20; i++)
        big[i] = (char)(i * 7 + i / 256);
    put(id, "a/b/c.txt", "hello", 5);
    put(id, "/tmp/big", big, 9 << 20);
    struct cordon_buf got = CORDON_BUF_INIT(16 << 20);
    ok(get(id, "/tmp/big", &got));
    assert_int_equal(got.size, 9 << 20);
    assert_memory_equal(got.data, big, got.size);
    cordon_buf_done(&got);
    ok(get(id, "a/b/c.txt", &got));
    assert_string_equal(got.data, "hello");
    cordon_buf_done(&got);
    assert_int_equal(get(id, "a/none", &got), -ENOENT);
    assert_int_equal(get(id, "a", &got), -EISDIR);
    assert_int_equal(get(id, "/dev/zero", &got), -EINVAL);
    ok(file(id, CORDON_OP_STAT, "a/b/c.txt", NULL, &entry));
    assert_int_equal(entry.size, 5);
    assert_int_equal(entry.type, CORDON_FILE_REGULAR);
    assert_int_equal(entry.mode, 0644);
    ok(file(id, CORDON_OP_MKDIR, "/home/user/x/y", NULL, &entry));
    assert_int_equal(file(id, CORDON_OP_MKDIR, "/home/user/x/y", NULL, NULL), -EEXIST);
    assert_int_equal(err.kind, CORDON_ERROR_CONFLICT);
    ok(file(id, CORDON_OP_MOVE, "/tmp/big", "moved/over", &entry)); /* over a mount */
    assert_int_equal(entry.size, 9 << 20);
    assert_int_equal(file(id, CORDON_OP_STAT, "/tmp/big", NULL, NULL), -ENOENT);
    ok(file(id, CORDON_OP_REMOVE, "a", NULL, NULL));
    ok(file(id, CORDON_OP_REMOVE, "a", NULL, NULL));
    assert_int_equal(file(id, CORDON_OP_STAT, "a", NULL, NULL), -ENOENT);
    assert_int_equal(file(id, CORDON_OP_REMOVE, "/usr/bin/env", NULL, NULL), -EROFS);
    free(big);
    destroy(id);
}

static void trees(void **state)
{
    const char *argv[4];
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    struct cordon_operation list = {
        .struct_size = sizeof list, .kind = CORDON_OP_LIST, .path = "t", .depth = 2, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    size_t count = 0;
    int r;
    struct cordon_operation make =
        shell(argv, "mkdir -p t/d/e/f && ln -s .. t/loop && touch t/1 t/d/2 t/d/e/3 && mkdir w && cd w && "
                    "python3 -c 'import os\nfor i in range(20000): open(str(i),\"w\").close()\nfor i in range(3000): "
                    "os.mkdir(\"d\"); os.chdir(\"d\")'");
    struct result result = run_operation(id, &make);
    assert_int_equal(result.exit.exit_code, 0);
    ok(cordon_guests_open(tenant, id, &list, &stream, &err));
    while ((r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1)
        count += event.type == CORDON_STREAM_ENTRY;
    ok(r);
    assert_int_equal(count, 5); /* d, loop, 1, d/e, d/2 */
    cordon_guests_close(stream);
    list.path = "w";
    list.entries = 1000;
    ok(cordon_guests_open(tenant, id, &list, &stream, &err));
    for (count = 0; (r = cordon_guests_next(stream, 60000, &event, &ended, &err)) == 1;)
        count += event.type == CORDON_STREAM_ENTRY;
    assert_int_equal(r, -E2BIG);
    assert_int_equal(count, 1000);
    cordon_guests_close(stream);
    ok(file(id, CORDON_OP_REMOVE, "w", NULL, NULL)); /* 20,000 files, 3,000 folders in one another */
    ok(file(id, CORDON_OP_REMOVE, "t", NULL, NULL));
    destroy(id);
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create(), *chunk = calloc(1, 1 << 20);
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WRITE, .path = "big", .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = 0;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    for (int i = 0; i < 100 && r == 0; i++)
        r = cordon_guests_write(stream, CORDON_TO_FILE, chunk, 1 << 20, &err);
    if (r == 0)
        r = cordon_guests_next(stream, 60000, &event, &ended, &err);
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(err.kind, CORDON_ERROR_TOO_LARGE);
    cordon_guests_close(stream);
    assert_int_equal(file(id, CORDON_OP_STAT, "big", NULL, NULL), -ENOENT);
    free(chunk);
    destroy(id);
}

static void watches(void **state)
{
    (void)state;
    if (unavailable())
        skip();
    char *id = create();
    ok(file(id, CORDON_OP_MKDIR, "seen/d", NULL, NULL));
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_WATCH, .path = "seen", .recursive = true, .cancel_fd = -1};
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended, created = false, written = false, removed = false;
    ok(cordon_guests_open(tenant, id, &operation, &stream, &err));
    assert_int_equal(cordon_guests_next(stream, 60000, &event, &ended, &err), 1);
    assert_int_equal(event.type, CORDON_STREAM_WATCHING);
    (void)run(id, "echo x > seen/d/f; rm seen/d/f; mkdir seen/end");
    while (cordon_guests_next(stream, 60000, &event, &ended, &err) == 1) {
        created = created || (event.change == CORDON_CHANGE_CREATE && strcmp(event.name, "d/f") == 0);
        written = written || (event.change == CORDON_CHANGE_WRITE && strcmp(event.name, "d/f") == 0);
        removed = removed || (event.change == CORDON_CHANGE_REMOVE && strcmp(event.name, "d/f") == 0);
        if (event.change == CORDON_CHANGE_CREATE && strcmp(event.name, "end") == 0)
            break;
    }
    assert_true(created && written && removed);
    cordon_guests_close(stream);
    destroy(id);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(trees),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(watches),
    };
    return cmocka_run_group_tests(tests, start_service, stop_service);
}
