/* SPDX-License-Identifier: Apache-2.0 */
/* Events through their NDJSON lines and back; artifacts into a folder. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_events.h"
#include "cli/run_show.h"

static const struct cordon_outcome full = {
    .struct_size = sizeof full,
    .cause = CORDON_CAUSE_TIMEOUT,
    .exit_code = -1,
    .signal = 9,
    .limit_hit = "timeout_s",
    .message = "the time limit of 1 s ended it",
    .queue_us = 1001,
    .start_us = 2002,
    .run_us = 1000003,
    .total_us = 1003006,
    .cpu_us = 999000,
    .memory_peak_bytes = 123456789,
    .oom_kills = 3,
    .processes_left = 4,
    .stdout_bytes = 5000,
    .stderr_bytes = 6,
    .stdout_kept = 4000,
    .stderr_kept = 6,
    .artifacts_dropped = 7,
    .syscalls_denied = 8,
    .blocked_syscall = "mount",
    .warm = true,
    .backend = "local",
    .isolation = CORDON_ISOLATION_NAMESPACE,
    .result_error = "none came",
};

/* Writes one event and reads its one line back. */
static void round_trip(struct cordon_event_reader *reader, const struct cordon_event *event, struct cordon_event *ret)
{
    static struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    struct cordon_event_writer writer = {.carried = {0}};
    struct cordon_error err = {0};
    text.size = 0;
    cordon_event_write(&writer, event, &text);
    assert_true(text.size > 1 && text.data[text.size - 1] == '\n');
    if (cordon_event_read(reader, text.data, text.size - 1, ret, &err) != 1)
        fail_msg("%s: %s", text.data, err.message);
    assert_int_equal(ret->type, event->type);
}

static void every_event_survives(void **state)
{
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_event got;
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_STARTED}, &got);
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_STDOUT, .data = {"a\0\"\n", 4}}, &got);
    assert_int_equal(got.data.size, 4);
    assert_memory_equal(got.data.data, "a\0\"\n", 4);
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_STDERR, .data = {"\xff\xfe!", 3}}, &got);
    assert_int_equal(got.data.size, 3);
    assert_memory_equal(got.data.data, "\xff\xfe!", 3);
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_RESULT, .data = {"{\"a\":[1,null]}", 14}}, &got);
    assert_int_equal(got.data.size, 14);
    assert_memory_equal(got.data.data, "{\"a\":[1,null]}", 14);
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_ARTIFACT, .name = "d/\"x\"", .data = {"\0\1", 2}},
               &got);
    assert_string_equal(got.name, "d/\"x\"");
    assert_memory_equal(got.data.data, "\0\1", 2);
    round_trip(
        &reader,
        &(struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = "big", .reason = "too large", .size = 1u << 31},
        &got);
    assert_string_equal(got.reason, "too large");
    assert_int_equal(got.size, 1u << 31);
    cordon_event_reader_done(&reader);
}

static void every_member_of_an_outcome_survives(void **state)
{
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_event got;
    round_trip(&reader, &(struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &full}, &got);
    struct cordon_outcome cleared = *got.outcome;
    assert_int_equal(cleared.cause, full.cause);
    assert_int_equal(cleared.queue_us, full.queue_us);
    assert_int_equal(cleared.total_us, full.total_us);
    assert_memory_equal(&cleared, &full, sizeof full);
    cordon_event_reader_done(&reader);
}

static void what_is_not_an_event(void **state)
{
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_event event;
    struct cordon_error err = {0};
    static const char *const bad[] = {"",
                                      "x",
                                      "[]",
                                      "5",
                                      "\"outcome\"",
                                      "{}",
                                      "{\"type\":5}",
                                      "{\"type\":\"stdout\"}",
                                      "{\"type\":\"stdout\",\"data\":5}",
                                      "{\"type\":\"stdout\",\"data_b64\":\"*\"}",
                                      "{\"type\":\"outcome\"}",
                                      "{\"type\":\"outcome\",\"outcome\":[]}",
                                      "{\"type\":\"artifact\",\"name\":\"a\\u0000b\",\"content_b64\":\"\"}",
                                      "{\"type\":\"artifact\",\"content_b64\":\"\"}",
                                      "{\"type\":\"result\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (cordon_event_read(&reader, bad[i], strlen(bad[i]), &event, &err) >= 0)
            fail_msg("%s was read", bad[i]);
    assert_int_equal(cordon_event_read(&reader, "{\"type\":\"queued\"}", 17, &event, &err), 0);
    assert_int_equal(cordon_event_read(&reader, "{\"type\":\"of the future\"}", 24, &event, &err), 0);
    static const char odd[] =
        "{\"type\":\"outcome\",\"outcome\":{\"cause\":\"of the future\",\"exit_code\":1e99,\"oom_kills\":-5}}";
    assert_int_equal(cordon_event_read(&reader, odd, sizeof odd - 1, &event, &err), 1);
    assert_int_equal(event.outcome->cause, CORDON_CAUSE_INFRASTRUCTURE);
    assert_int_equal(event.outcome->oom_kills, 0);
    cordon_event_reader_done(&reader);
}

static void errors_keep_their_kind(void **state)
{
    struct cordon_event_reader reader = {.name = NULL};
    struct cordon_event event;
    struct cordon_error err = {0};
    static const char line[] = "{\"type\":\"error\",\"error\":{\"kind\":\"busy\",\"message\":\"try later\"}}";
    assert_true(cordon_event_read(&reader, line, sizeof line - 1, &event, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    assert_string_equal(err.message, "try later");
    assert_true(cordon_error_read("not json", 8, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INFRASTRUCTURE);
    assert_true(cordon_error_read("{\"error\":5}", 11, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INFRASTRUCTURE);
    cordon_event_reader_done(&reader);
}

static char root[64];

static int make_root(void **state)
{
    char name[] = "/tmp/cordon-unit-XXXXXX";
    if (!mkdtemp(name))
        return -1;
    (void)snprintf(root, sizeof root, "%s/", name); /* fits */
    return 0;
}

static int remove_root(void **state)
{
    static const char *const names[] = {"in/sub/a", "in/sub", "in/plain", "in/link", "in/dlink",
                                        "in/fifo",  "in/dir", "in",       "victim"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s%s", root, names[i]);
        (void)remove(path);
    }
    return rmdir(root);
}

static int open_folder(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%sin", root);
    (void)mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void artifacts_go_where_they_belong(void **state)
{
    int folder = open_folder();
    struct cordon_error err = {0};
    char text[16] = "";
    assert_int_equal(cordon_artifact_write(folder, "sub/a", "one", 3, &err), 0);
    assert_int_equal(cordon_artifact_write(folder, "sub/a", "second", 6, &err), 0);
    int fd = openat(folder, "sub/a", O_RDONLY);
    assert_int_equal(read(fd, text, sizeof text), 6);
    assert_string_equal(text, "second");
    struct stat found;
    assert_int_equal(fstat(fd, &found), 0);
    assert_int_equal(found.st_mode & 07133, 0);
    (void)close(fd);
    assert_int_equal(cordon_artifact_write(folder, "plain", "", 0, &err), 0);
    (void)close(folder);
}

static void artifacts_go_nowhere_else(void **state)
{
    static const char *const names[] = {"",       "/",    "/etc/x", "..",   "../x",    "a/../../x", ".",   "./x",
                                        "sub//x", "sub/", "sub/..", "link", "dlink/x", "fifo",      "dir", "plain/x"};
    int folder = open_folder(), victim;
    struct cordon_error err = {0};
    char path[128], long_name[400];
    (void)snprintf(path, sizeof path, "%svictim", root);
    victim = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(victim, "untouched", 9), 9);
    assert_int_equal(symlinkat("../victim", folder, "link"), 0);
    assert_int_equal(symlinkat("..", folder, "dlink"), 0);
    assert_int_equal(mkfifoat(folder, "fifo", 0600), 0);
    assert_int_equal(mkdirat(folder, "dir", 0700), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cordon_artifact_write(folder, names[i], "evil", 4, &err) == 0)
            fail_msg("\"%s\" was written", names[i]);
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_true(cordon_artifact_write(folder, long_name, "evil", 4, &err) < 0);
    char text[16] = "";
    assert_int_equal(pread(victim, text, sizeof text, 0), 9);
    assert_string_equal(text, "untouched");
    (void)close(victim);
    (void)close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_survives),           cmocka_unit_test(every_member_of_an_outcome_survives),
        cmocka_unit_test(what_is_not_an_event),           cmocka_unit_test(errors_keep_their_kind),
        cmocka_unit_test(artifacts_go_where_they_belong), cmocka_unit_test(artifacts_go_nowhere_else),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
