/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's end of a guest whose agent was taken over: scripts of the frames that it might send. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "fake_warden.h"

struct script {
    struct cordon_buf frames;
    int channel[2];
};

static void frame(struct script *script, uint8_t type, const void *payload, uint32_t size)
{
    assert_int_equal(cordon_frame_put(&script->frames, type, type == CORDON_FRAME_HELLO ? 0 : 1, payload, size), 0);
}

static void script_start(struct script *script)
{
    static const char version[4] = {CORDON_PROTO_VERSION};
    *script = (struct script){.frames = CORDON_BUF_INIT(1u << 20)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, script->channel), 0);
    frame(script, CORDON_FRAME_HELLO, version, 4);
}

/* Plays the script; the agent then ends, or stays silent. */
static void script_run(struct script *script, const struct cordon_request *request, bool ends, struct seen *seen)
{
    struct cordon_run *run;
    struct fake_warden fake;
    static const char *const stats[3] = {NULL, "oom_kill 0\n", NULL};
    assert_int_equal(cordon_write_full(script->channel[1], script->frames.data, script->frames.size), 0);
    if (ends)
        (void)shutdown(script->channel[1], SHUT_WR);
    fake_warden_start(&fake, script->channel[0]);
    fake.files[1] = text_file(stats[1]);
    fake_warden_serve(&fake);
    seen_init(seen);
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, request, &run, NULL), 0);
    run_all(run, seen);
    seen->took_us = cordon_now_us() - start;
    cordon_guest_run_close(run);
    fake_warden_stop(&fake);
    (void)close(script->channel[0]);
    (void)close(script->channel[1]);
    cordon_buf_done(&script->frames);
}

static void put_exit(struct script *script, int may_have_artifacts)
{
    const struct cordon_exit exit = {.stdout_bytes = 1, .may_have_artifacts = (uint32_t)may_have_artifacts};
    assert_int_equal(cordon_exit_put(&script->frames, 1, &exit), 0);
}

static void put_artifact(struct script *script, const char *name, uint64_t size)
{
    struct cordon_buf fields = CORDON_BUF_INIT(1024);
    (void)cordon_field_put(&fields, CORDON_FIELD_PATH, name, (uint32_t)strlen(name));
    (void)cordon_field_put_u64(&fields, CORDON_FIELD_SIZE, size);
    frame(script, CORDON_FRAME_ARTIFACT_OPEN, fields.data, (uint32_t)fields.size);
    cordon_buf_done(&fields);
}

static void expect_violation(struct script *script, const struct cordon_request *request, const char *what)
{
    struct seen seen;
    script_run(script, request, false, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_INFRASTRUCTURE);
    assert_non_null(strstr(seen.outcome.message, what));
    assert_true(seen.took_us < 20000000);
    seen_done(&seen);
}

static void violations_end_the_run(void **state)
{
    struct cordon_request request = request_of("x");
    struct script script;
    static char many[1000];
    request.limits.stdout_bytes = 100;
    script_start(&script);
    frame(&script, CORDON_FRAME_STDOUT, many, sizeof many);
    expect_violation(&script, &request, "more output came than its limit");
    script_start(&script);
    frame(&script, CORDON_FRAME_STARTED, NULL, 0);
    frame(&script, CORDON_FRAME_STARTED, NULL, 0);
    expect_violation(&script, &request, "started twice");
    script_start(&script);
    frame(&script, CORDON_FRAME_COLLECTED, NULL, 0);
    expect_violation(&script, &request, "out of order");
    script_start(&script);
    assert_int_equal(cordon_buf_append(&script.frames, "garbage!", 8), 0);
    expect_violation(&script, &request, "no frame");
    script_start(&script);
    frame(&script, CORDON_FRAME_STDIN_CREDIT, "\1\0\0\0", 4);
    expect_violation(&script, &request, "more stdin was asked for");
    script_start(&script);
    const struct cordon_exit strange = {.how = CORDON_EXIT_SIGNALLED, .status = 0x7fffffff};
    assert_int_equal(cordon_exit_put(&script.frames, 1, &strange), 0);
    expect_violation(&script, &request, "a signal that there is not");
    script_start(&script);
    script.frames.size = 0;
    frame(&script, CORDON_FRAME_STDOUT, many, 1);
    expect_violation(&script, &request, "out of order");
}

static void violations_while_collecting_lose_no_outcome(void **state)
{
    static const struct {
        const char *name;
        uint64_t size;
    } rows[] = {{"../up", 1}, {"/abs", 1},      {"a//b", 1}, {"a/./b", 1},
                {"", 1},      {"new\nline", 1}, {"\xff", 1}, {"big", 2u << 20}};
    struct cordon_request request = request_of("x");
    request.artifacts = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct script script;
        struct seen seen;
        script_start(&script);
        put_exit(&script, 1);
        put_artifact(&script, "good", 0);
        frame(&script, CORDON_FRAME_ARTIFACT_CLOSE, NULL, 0);
        put_artifact(&script, rows[i].name, rows[i].size);
        script_run(&script, &request, false, &seen);
        assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
        assert_string_equal(seen.files.data, "good=;(all others)!the guest violated its protocol;");
        assert_true(seen.took_us < 20000000);
        seen_done(&seen);
    }
}

static void artifact_beyond_its_size_is_no_artifact(void **state)
{
    struct cordon_request request = request_of("x");
    struct script script;
    struct seen seen;
    request.artifacts = true;
    script_start(&script);
    put_exit(&script, 1);
    put_artifact(&script, "a", 2);
    frame(&script, CORDON_FRAME_ARTIFACT_DATA, "abc", 3);
    script_run(&script, &request, false, &seen);
    assert_string_equal(seen.files.data, "(all others)!the guest violated its protocol;");
    seen_done(&seen);
}

static void lost_agent_is_no_timeout(void **state)
{
    struct cordon_request request = request_of("x");
    struct script script;
    struct seen seen;
    script_start(&script);
    frame(&script, CORDON_FRAME_STDOUT, "partial", 7);
    script_run(&script, &request, true, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_INFRASTRUCTURE);
    assert_string_equal(seen.out[0].data, "partial");
    assert_non_null(strstr(seen.outcome.message, "guest ended before"));
    assert_true(seen.took_us < 20000000);
    seen_done(&seen);
}

static void silent_agent_is_a_timeout_all_the_same(void **state)
{
    struct cordon_request request = request_of("x");
    struct script script;
    struct seen seen;
    request.limits.timeout_ms = 200;
    request.artifacts = true;
    script_start(&script);
    frame(&script, CORDON_FRAME_STDOUT, "partial", 7);
    script_run(&script, &request, false, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.out[0].data, "partial");
    assert_string_equal(seen.files.data, "(all others)!the guest's agent did not answer in time;");
    assert_true(seen.took_us >= 200000 && seen.took_us < 20000000);
    seen_done(&seen);
}

static void *chatter(void *data)
{
    int channel = *(int *)data;
    char bytes[CORDON_FRAME_HEADER + 1];
    cordon_frame_header(bytes, CORDON_FRAME_RESULT_ERROR, 1, 1);
    bytes[CORDON_FRAME_HEADER] = 'x';
    while (cordon_write_full(channel, bytes, sizeof bytes) == 0)
        (void)usleep(1000);
    return NULL;
}

static void chattering_agent_is_a_timeout_all_the_same(void **state)
{
    struct cordon_request request = request_of("x");
    struct script script;
    struct seen seen;
    pthread_t thread;
    request.limits.timeout_ms = 200;
    (void)signal(SIGPIPE, SIG_IGN);
    script_start(&script);
    int channel = dup(script.channel[1]);
    assert_int_equal(cordon_write_full(channel, script.frames.data, script.frames.size), 0); /* the hello comes first */
    script.frames.size = 0;
    assert_int_equal(pthread_create(&thread, NULL, chatter, &channel), 0);
    script_run(&script, &request, false, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_true(seen.took_us < 20000000);
    seen_done(&seen);
    (void)pthread_join(thread, NULL);
    (void)close(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(violations_end_the_run),
        cmocka_unit_test(violations_while_collecting_lose_no_outcome),
        cmocka_unit_test(artifact_beyond_its_size_is_no_artifact),
        cmocka_unit_test(lost_agent_is_no_timeout),
        cmocka_unit_test(silent_agent_is_a_timeout_all_the_same),
        cmocka_unit_test(chattering_agent_is_a_timeout_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
