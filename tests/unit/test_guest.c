/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's end of a guest, against a warden of the test's own. Its guests are either real agents (see
 * agent_guest.h) or scripts of frames that an agent which was taken over might send.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_guest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/internal.h"

static const struct cordon_guest_backend backend = {.name = "local", .isolation = CORDON_ISOLATION_NAMESPACE};

static struct cordon_request request_of(const char *code)
{
    return (struct cordon_request){
        .struct_size = sizeof(struct cordon_request),
        .language = "python",
        .code = {code, strlen(code)},
        .limits = {.timeout_ms = 5000,
                   .memory_bytes = 256u << 20,
                   .stdout_bytes = 1u << 20,
                   .stderr_bytes = 1u << 20,
                   .artifact_bytes = 1u << 20,
                   .artifacts_bytes = 4u << 20,
                   .artifacts = 16,
                   .pids = 64,
                   .open_files = 256,
                   .cpu_percent = 100},
        .cancel_fd = -1,
    };
}

/* --- the warden --- */

/* What the fake warden does with the next request. */
struct fake {
    int main[2], lease;
    uint32_t start_ms; /* what its hello says; 0: the usual */
    int channel;       /* of the guest that it grants; -1: refuses with status and why */
    int status;
    const char *why;
    int files[3]; /* peak, events, usage; -1: none */
    struct cordon_warden_acquire asked;
    pthread_t thread;
};

static int text_file(const char *text)
{
    int fd = memfd_create("stat", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(cordon_write_full(fd, text, strlen(text)), 0);
    return fd;
}

static void *serve_one(void *data)
{
    struct fake *fake = data;
    struct cordon_warden_grant grant = {.version = CORDON_WARDEN_VERSION, .status = fake->status, .warm = 1};
    size_t nfds = 1, count = 0;
    int fds[4];
    if (cordon_recv_fds(fake->main[1], &fake->asked, sizeof fake->asked, &fake->lease, &nfds, 0) != sizeof fake->asked)
        return NULL;
    if (fake->why)
        (void)snprintf(grant.why, sizeof grant.why, "%s", fake->why);
    if (fake->status == 0) {
        fds[count++] = fake->channel;
        grant.fds = CORDON_GRANT_CHANNEL;
    }
    for (int i = 0; fake->status == 0 && i < 3; i++) {
        if (fake->files[i] < 0)
            continue;
        grant.fds |= (uint32_t)CORDON_GRANT_MEMORY_PEAK << i;
        fds[count++] = fake->files[i];
    }
    (void)cordon_send_fds(fake->lease, &grant, sizeof grant, fds, count, 0);
    return NULL;
}

static void fake_connect(struct fake *fake)
{
    const struct cordon_warden_hello hello = {
        .version = CORDON_WARDEN_VERSION, .languages = 31, .start_ms = fake->start_ms ? fake->start_ms : 10000};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fake->main), 0);
    assert_int_equal(cordon_send_fds(fake->main[1], &hello, sizeof hello, NULL, 0, 0), sizeof hello);
    assert_int_equal(cordon_warden_set(fake->main[0], NULL), 0);
}

static void fake_start(struct fake *fake, int channel)
{
    *fake = (struct fake){.channel = channel, .lease = -1, .files = {-1, -1, -1}};
    fake_connect(fake);
}

static void fake_serve(struct fake *fake)
{
    assert_int_equal(pthread_create(&fake->thread, NULL, serve_one, fake), 0);
}

static void fake_stop(struct fake *fake)
{
    (void)pthread_join(fake->thread, NULL);
    cordon_close(&fake->main[1]);
    cordon_close(&fake->lease);
    for (int i = 0; i < 3; i++)
        cordon_close(&fake->files[i]);
}

/* --- runs --- */

struct seen {
    struct cordon_buf out[2], result, files; /* files: "name=content;" and "name!reason;" */
    struct cordon_outcome outcome;
    int started, outcomes;
    uint64_t took_us;
};

static void see(struct seen *seen, const struct cordon_event *event)
{
    if (event->type == CORDON_EVENT_STARTED)
        seen->started++;
    if (event->type == CORDON_EVENT_STDOUT || event->type == CORDON_EVENT_STDERR)
        (void)cordon_buf_append(&seen->out[event->type == CORDON_EVENT_STDERR], event->data.data, event->data.size);
    if (event->type == CORDON_EVENT_RESULT)
        (void)cordon_buf_append(&seen->result, event->data.data, event->data.size);
    if (event->type == CORDON_EVENT_ARTIFACT)
        (void)cordon_buf_appendf(&seen->files, "%s=%.*s;", event->name, (int)event->data.size,
                                 event->data.size ? event->data.data : "");
    if (event->type == CORDON_EVENT_DROPPED)
        (void)cordon_buf_appendf(&seen->files, "%s!%s;", event->name, event->reason);
    if (event->type == CORDON_EVENT_OUTCOME) {
        seen->outcome = *event->outcome;
        seen->outcomes++;
    }
}

static void run_all(struct cordon_run *run, struct seen *seen)
{
    struct cordon_event event;
    while (cordon_guest_run_next(run, &event) == 1)
        see(seen, &event);
    assert_int_equal(seen->outcomes, 1);
    assert_int_equal(cordon_guest_run_next(run, &event), 0); /* stays at its end */
}

static void seen_init(struct seen *seen)
{
    *seen = (struct seen){.outcomes = 0};
    seen->out[0].max = seen->out[1].max = seen->result.max = seen->files.max = 64u << 20;
    (void)cordon_buf_append(&seen->files, "", 0);
    (void)cordon_buf_append(&seen->out[0], "", 0);
}

static void seen_done(struct seen *seen)
{
    cordon_buf_done(&seen->out[0]);
    cordon_buf_done(&seen->out[1]);
    cordon_buf_done(&seen->result);
    cordon_buf_done(&seen->files);
}

/* With a real agent. files: peak, events, usage as the host would show them; NULL: not there. */
static void run_real(const struct cordon_request *request, const char *const stats[3], struct seen *seen)
{
    struct agent_options options = {.language = request->language};
    struct agent_guest guest;
    struct cordon_run *run;
    struct fake fake;
    agent_guest_start(&guest, &options);
    fake_start(&fake, guest.channel);
    for (int i = 0; stats && i < 3; i++)
        fake.files[i] = stats[i] ? text_file(stats[i]) : -1;
    fake_serve(&fake);
    seen_init(seen);
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, request, &run, NULL), 0);
    run_all(run, seen);
    seen->took_us = cordon_now_us() - start;
    cordon_guest_run_close(run);
    fake_stop(&fake);
    agent_guest_stop(&guest);
}

static void program_runs_and_is_told_of(void **state)
{
    struct cordon_request request = request_of("print('out'); print('err', file=sys.stderr); leave(3)");
    static const char *const stats[3] = {"12345\n", "oom_kill 0\n", NULL};
    struct seen seen;
    run_real(&request, stats, &seen);
    assert_int_equal(seen.started, 1);
    assert_string_equal(seen.out[0].data, "out\n");
    assert_string_equal(seen.out[1].data, "err\n");
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.outcome.exit_code, 3);
    assert_true(seen.outcome.memory_peak_bytes == 12345 && seen.outcome.warm && seen.outcome.run_us > 0);
    assert_string_equal(seen.outcome.backend, "local");
    assert_string_equal(seen.outcome.message, "");
    seen_done(&seen);
}

static void megabytes_of_output_flow(void **state)
{
    struct cordon_request request =
        request_of("for i in range(80): os.write(1, b'x' * 65536); os.write(2, b'y' * 1000)\nleave(0)");
    struct seen seen;
    request.limits.stdout_bytes = 8u << 20;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.out[0].size, 80 * 65536);
    assert_int_equal(seen.out[1].size, 80000);
    assert_true(seen.outcome.stdout_kept == 80 * 65536 && seen.outcome.stdout_bytes == 80 * 65536);
    seen_done(&seen);
}

static void output_is_cut_at_its_cap(void **state)
{
    struct cordon_request request = request_of("os.write(1, b'x' * 50000); leave(0)");
    struct seen seen;
    request.limits.stdout_bytes = 7;
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.out[0].data, "xxxxxxx");
    assert_true(seen.outcome.stdout_bytes == 50000 && seen.outcome.stdout_kept == 7);
    seen_done(&seen);
}

static void megabytes_of_stdin_flow(void **state)
{
    struct cordon_request request =
        request_of("data = sys.stdin.buffer.read(); print(len(data), sum(data[:10])); leave(0)");
    struct seen seen;
    char *data = malloc(5000000);
    assert_non_null(data);
    memset(data, 1, 5000000);
    request.stdin_data = (struct cordon_bytes){data, 5000000};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.out[0].data, "5000000 10\n");
    free(data);
    seen_done(&seen);
}

static void files_go_in_and_artifacts_come_out(void **state)
{
    struct cordon_request request = request_of("open('artifacts/up', 'w').write(open('in/x').read().upper())\n"
                                               "os.symlink('/etc/passwd', 'artifacts/link'); leave(0)");
    const struct cordon_file files[] = {{"in/x", {"hey", 3}, 0}, {"empty", {NULL, 0}, 0600}};
    struct seen seen;
    request.files = files;
    request.file_count = 2;
    request.artifacts = true;
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.files.data, "link!it is a symbolic link;up=HEY;");
    assert_int_equal(seen.outcome.artifacts_dropped, 1);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    seen_done(&seen);
}

static void file_that_cannot_be_put_is_told(void **state)
{
    struct cordon_request request = request_of("leave(0)");
    const struct cordon_file files[] = {{"../x", {"hey", 3}, 0}};
    struct seen seen;
    request.files = files;
    request.file_count = 1;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_REFUSED);
    assert_non_null(strstr(seen.outcome.message, "'../x'"));
    assert_int_equal(seen.started, 0);
    seen_done(&seen);
}

static void result_is_given_once(void **state)
{
    struct cordon_request request = request_of("frame(64, b'[1,'); frame(64, b'2]'); leave(0)");
    struct seen seen;
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.result.data, "[1,2]");
    assert_string_equal(seen.outcome.result_error, "");
    seen_done(&seen);
}

static void missing_result_is_explained(void **state)
{
    struct cordon_request request = request_of("leave(0)");
    struct seen seen;
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.outcome.result_error, "the program ended before main returned");
    seen_done(&seen);
    request = request_of("frame(65, b'main returned a set'); leave(0)");
    request.arguments = (struct cordon_bytes){"{}", 2};
    run_real(&request, NULL, &seen);
    assert_string_equal(seen.outcome.result_error, "main returned a set");
    seen_done(&seen);
}

static void deadline_is_kept(void **state)
{
    struct cordon_request request = request_of("import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
                                               "os.write(1, b'before')\nwhile True: pass");
    struct seen seen;
    request.limits.timeout_ms = 1250;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.outcome.limit_hit, "timeout_s");
    assert_int_equal(seen.outcome.exit_code, -1);
    assert_non_null(strstr(seen.outcome.message, "1.250 s"));
    assert_string_equal(seen.out[0].data, "before");
    assert_true(seen.outcome.run_us >= 1250000 && seen.outcome.run_us < 2250000);
    seen_done(&seen);
}

static void artifacts_come_after_a_deadline_too(void **state)
{
    struct cordon_request request =
        request_of("open('artifacts/half', 'w').write('so far'); import time; time.sleep(60)");
    struct seen seen;
    request.limits.timeout_ms = 1250;
    request.artifacts = true;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.files.data, "half=so far;");
    seen_done(&seen);
}

static void cpu_limit_is_kept(void **state)
{
    struct cordon_request request = request_of("import time; time.sleep(60)");
    static const char *const stats[3] = {NULL, NULL, "5000000000\n"}; /* nanoseconds, as v1 shows them: all used up */
    struct seen seen;
    request.limits.cpu_ms = 2000;
    run_real(&request, stats, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_string_equal(seen.outcome.limit_hit, "cpu_s");
    assert_true(seen.took_us < 4000000);
    seen_done(&seen);
}

static void slow_reader_does_not_stretch_the_deadline(void **state)
{
    struct cordon_request request =
        request_of("import time\nfor i in range(600): os.write(1, b'z' * 4096); time.sleep(0.002)\n"
                   "open('late', 'w'); leave(0)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake fake;
    struct seen seen;
    char path[96];
    request.limits.timeout_ms = 300;
    request.limits.stdout_bytes = 100u << 20;
    agent_guest_start(&guest, &options);
    fake_start(&fake, guest.channel);
    fake_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    do
        assert_int_equal(cordon_guest_run_next(run, &event), 1);
    while (event.type != CORDON_EVENT_STDOUT);
    (void)usleep(2000000); /* a client that does not read */
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    (void)snprintf(path, sizeof path, "%s/home/late", guest.dir);
    assert_int_equal(access(path, F_OK), -1);
    cordon_guest_run_close(run);
    fake_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

static void ended_in_time_stays_so_for_a_slow_reader(void **state)
{
    struct cordon_request request = request_of("print('x' * 100000); leave(4)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake fake;
    struct seen seen;
    request.limits.timeout_ms = 2000;
    agent_guest_start(&guest, &options);
    fake_start(&fake, guest.channel);
    fake_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    assert_int_equal(cordon_guest_run_next(run, &event), 1);
    (void)usleep(2500000);
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED);
    assert_int_equal(seen.outcome.exit_code, 4);
    cordon_guest_run_close(run);
    fake_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

static void killed_for_memory_needs_the_kernels_word(void **state)
{
    static const char *const some[3] = {NULL, "oom_kill 2\n", NULL}, *const none[3] = {NULL, "oom_kill 0\n", NULL};
    struct cordon_request request = request_of("os.kill(os.getpid(), 9)");
    struct seen seen;
    run_real(&request, some, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_MEMORY);
    assert_int_equal(seen.outcome.exit_code, 137);
    assert_int_equal(seen.outcome.oom_kills, 2);
    seen_done(&seen);
    run_real(&request, none, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_SIGNALLED);
    assert_int_equal(seen.outcome.exit_code, 137);
    assert_int_equal(seen.outcome.signal, 9);
    assert_non_null(strstr(seen.outcome.message, "SIGKILL"));
    seen_done(&seen);
    request = request_of("leave(137)");
    run_real(&request, some, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_EXITED); /* a child was killed; the program itself was not */
    seen_done(&seen);
}

static void too_loud_program_is_ended(void **state)
{
    struct cordon_request request = request_of("while True: os.write(2, b'x' * 65536)");
    struct seen seen;
    request.limits.output_kill_bytes = 3000000;
    run_real(&request, NULL, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_OUTPUT_LIMIT);
    assert_string_equal(seen.outcome.limit_hit, "output_kill_mb");
    assert_non_null(strstr(seen.outcome.message, "stderr"));
    assert_int_equal(seen.out[1].size, 1u << 20);
    seen_done(&seen);
}

static void client_that_leaves_cancels(void **state)
{
    struct cordon_request request = request_of("import time; print('r'); sys.stdout.flush(); time.sleep(60)");
    struct agent_options options = {.language = "python"};
    struct agent_guest guest;
    struct cordon_run *run;
    struct cordon_event event;
    struct fake fake;
    struct seen seen;
    int client[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    request.cancel_fd = client[0];
    agent_guest_start(&guest, &options);
    fake_start(&fake, guest.channel);
    fake_serve(&fake);
    seen_init(&seen);
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, NULL), 0);
    do
        assert_int_equal(cordon_guest_run_next(run, &event), 1);
    while (event.type != CORDON_EVENT_STDOUT);
    (void)close(client[1]);
    uint64_t start = cordon_now_us();
    run_all(run, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_CANCELLED);
    assert_true(cordon_now_us() - start < 500000);
    (void)close(client[0]);
    struct pollfd lease = {.fd = fake.lease, .events = POLLRDHUP};
    assert_int_equal(poll(&lease, 1, 1000), 1); /* it was closed with the outcome: the warden ends the guest */
    cordon_guest_run_close(run);
    fake_stop(&fake);
    seen_done(&seen);
    agent_guest_stop(&guest);
}

/* --- an agent that was taken over --- */

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
    struct fake fake;
    static const char *const stats[3] = {NULL, "oom_kill 0\n", NULL};
    assert_int_equal(cordon_write_full(script->channel[1], script->frames.data, script->frames.size), 0);
    if (ends)
        (void)shutdown(script->channel[1], SHUT_WR);
    fake_start(&fake, script->channel[0]);
    fake.files[1] = text_file(stats[1]);
    fake_serve(&fake);
    seen_init(seen);
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, request, &run, NULL), 0);
    run_all(run, seen);
    seen->took_us = cordon_now_us() - start;
    cordon_guest_run_close(run);
    fake_stop(&fake);
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
    assert_true(seen.took_us < 4000000);
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
        assert_true(seen.took_us < 4000000);
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
    assert_true(seen.took_us < 4000000);
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
    assert_true(seen.took_us >= 200000 && seen.took_us < 1200000);
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
    assert_int_equal(pthread_create(&thread, NULL, chatter, &channel), 0);
    script_run(&script, &request, false, &seen);
    assert_int_equal(seen.outcome.cause, CORDON_CAUSE_TIMEOUT);
    assert_true(seen.took_us < 4000000);
    seen_done(&seen);
    (void)pthread_join(thread, NULL);
    (void)close(channel);
}

/* --- the warden --- */

static void refusal_is_passed_on(void **state)
{
    static const struct {
        int status;
        enum cordon_error_kind kind;
    } rows[] = {{-EAGAIN, CORDON_ERROR_BUSY}, {-EPERM, CORDON_ERROR_UNAVAILABLE}};
    struct cordon_request request = request_of("x");
    for (size_t i = 0; i < 2; i++) {
        struct cordon_run *run;
        struct cordon_error err = {0};
        struct fake fake;
        fake_start(&fake, -1);
        fake.status = rows[i].status;
        fake.why = "no memory left on this host";
        fake_serve(&fake);
        assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
        assert_int_equal(err.kind, rows[i].kind);
        assert_non_null(strstr(err.message, "no memory left"));
        fake_stop(&fake);
    }
}

static void kind_follows_the_request(void **state)
{
    static const struct {
        const char *language, *code;
        bool fresh;
        enum cordon_guest_kind kind;
    } rows[] = {
        {"python", "print(1)", false, CORDON_GUEST_PYTHON},
        {"python", "import numpy", false, CORDON_GUEST_PYTHON_DATA},
        {"python", "import numpy", true, CORDON_GUEST_PYTHON_FRESH},
        {"javascript", "import numpy", false, CORDON_GUEST_JAVASCRIPT},
        {"bash", "", true, CORDON_GUEST_BASH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_request request = request_of(rows[i].code);
        struct cordon_run *run;
        struct fake fake;
        request.language = rows[i].language;
        request.fresh_interpreter = rows[i].fresh;
        fake_start(&fake, -1);
        fake.status = -EAGAIN;
        fake_serve(&fake);
        assert_true(cordon_guest_run_open(&backend, &request, &run, NULL) < 0);
        fake_stop(&fake);
        assert_int_equal(fake.asked.kind, rows[i].kind);
        assert_true(fake.asked.memory_bytes == 256u << 20 && fake.asked.pids == 64 &&
                    fake.asked.version == CORDON_WARDEN_VERSION);
    }
}

static void *connect_later(void *data)
{
    (void)usleep(200000);
    fake_connect(data);
    serve_one(data);
    return NULL;
}

static void lost_warden_is_waited_for(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_warden_hello hello;
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake fake;
    fake_start(&fake, -1);
    cordon_close(&fake.main[1]); /* it dies */
    assert_int_equal(cordon_warden_hello(&hello, &err), -ENOTCONN);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    fake.status = -EAGAIN;
    assert_int_equal(pthread_create(&fake.thread, NULL, connect_later, &fake), 0);
    uint64_t start = cordon_now_us();
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY); /* the new one's word */
    assert_true(cordon_now_us() - start < 2000000);
    fake_stop(&fake);
}

/* As a warden without descriptors: closes each lease, 40 times; then it refuses. */
static void *lose_leases(void *data)
{
    struct fake *fake = data;
    for (int i = 0; i < 40; i++) {
        int lease = -1;
        size_t nfds = 1;
        (void)cordon_recv_fds(fake->main[1], &fake->asked, sizeof fake->asked, &lease, &nfds, 0);
        cordon_close(&lease);
    }
    return serve_one(fake);
}

static void a_warden_without_descriptors_is_not_stormed(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake fake;
    fake_start(&fake, -1);
    fake.status = -EAGAIN;
    assert_int_equal(pthread_create(&fake.thread, NULL, lose_leases, &fake), 0);
    uint64_t start = cordon_now_us();
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    assert_true(cordon_now_us() - start >= 40 * 5000);
    fake_stop(&fake);
}

static void a_guest_is_waited_for_as_long_as_its_warden_says(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake fake;
    fake_start(&fake, -1); /* the usual, until there is another warden */
    cordon_close(&fake.main[1]);
    fake.start_ms = 1000;
    fake_connect(&fake); /* and nobody answers */
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, &err), -ETIMEDOUT);
    assert_true(cordon_now_us() - start >= 1000000);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "within 1 s"));
    assert_non_null(strstr(err.message, "CORDON_GUEST_START_S"));
    fake_serve(&fake);
    fake_stop(&fake);
}

static void waiting_for_a_guest_can_be_cancelled(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake fake;
    int client[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    (void)close(client[1]);
    request.cancel_fd = client[0];
    fake_start(&fake, -1); /* and nobody answers */
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_CANCELLED);
    (void)close(client[0]);
    fake_serve(&fake);
    fake_stop(&fake);
}

static void imports_are_found(void **state)
{
    static const struct {
        const char *code;
        bool data;
    } rows[] = {
        {"import numpy", true},
        {"import numpy as np", true},
        {"from pandas import DataFrame", true},
        {"import os, numpy", true},
        {"  import matplotlib.pyplot as plt", true},
        {"x = 1; import scipy", true},
        {"try: import numpy\nexcept: pass", true},
        {"import importlib\nimportlib.import_module('pandas.io')", true},
        {"__import__(\"numpy\")", true},
        {"\r\n\timport\tnumpy\r\n", true},
        {"if 1:\n    from numpy.linalg import inv", true},
        {"import numpyish", false},
        {"important numpy", false},
        {"print('numpy')", false},
        {"# numpy", false},
        {"from os import path", false},
        {"import", false},
        {"from", false},
        {"", false},
        {"import os as numpy2", false},
        {"fromnumpy", false},
        {"import_module(", false},
        {"import ,", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (cordon_imports_data(rows[i].code, strlen(rows[i].code)) != rows[i].data)
            fail_msg("wrong about: %s", rows[i].code);
    }
    assert_false(cordon_imports_data("\0import", 7));
}

static void too_much_to_send_is_said_at_once(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    request.code.size = CORDON_FRAME_MAX; /* not read: only its size is looked at */
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_TOO_LARGE);
    request = request_of("x");
    request.language = "cobol";
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(imports_are_found),
        cmocka_unit_test(too_much_to_send_is_said_at_once),
        cmocka_unit_test(program_runs_and_is_told_of),
        cmocka_unit_test(megabytes_of_output_flow),
        cmocka_unit_test(output_is_cut_at_its_cap),
        cmocka_unit_test(megabytes_of_stdin_flow),
        cmocka_unit_test(files_go_in_and_artifacts_come_out),
        cmocka_unit_test(file_that_cannot_be_put_is_told),
        cmocka_unit_test(result_is_given_once),
        cmocka_unit_test(missing_result_is_explained),
        cmocka_unit_test(deadline_is_kept),
        cmocka_unit_test(artifacts_come_after_a_deadline_too),
        cmocka_unit_test(cpu_limit_is_kept),
        cmocka_unit_test(slow_reader_does_not_stretch_the_deadline),
        cmocka_unit_test(ended_in_time_stays_so_for_a_slow_reader),
        cmocka_unit_test(killed_for_memory_needs_the_kernels_word),
        cmocka_unit_test(too_loud_program_is_ended),
        cmocka_unit_test(client_that_leaves_cancels),
        cmocka_unit_test(violations_end_the_run),
        cmocka_unit_test(violations_while_collecting_lose_no_outcome),
        cmocka_unit_test(artifact_beyond_its_size_is_no_artifact),
        cmocka_unit_test(lost_agent_is_no_timeout),
        cmocka_unit_test(silent_agent_is_a_timeout_all_the_same),
        cmocka_unit_test(chattering_agent_is_a_timeout_all_the_same),
        cmocka_unit_test(refusal_is_passed_on),
        cmocka_unit_test(kind_follows_the_request),
        cmocka_unit_test(lost_warden_is_waited_for),
        cmocka_unit_test(a_warden_without_descriptors_is_not_stormed),
        cmocka_unit_test(waiting_for_a_guest_can_be_cancelled),
        cmocka_unit_test(a_guest_is_waited_for_as_long_as_its_warden_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
