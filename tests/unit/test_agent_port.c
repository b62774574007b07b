/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's relay of a port of a virtual machine, turn by turn, against a server of the test on loopback. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/kept.h"
#include "agent/vm.h"
#include "base/fd.h"

#define ID 7
#define PATIENCE_MS 60000

struct cordon_vm cordon_vm = {.on = true};
static struct cordon_kept kept;

/* --- what the rest of the agent would do --- */

void cordon_kept_watch(struct cordon_kept *to, int fd, short events, cordon_kept_on_event *on_event, void *object)
{
    size_t i = to->sources++;
    to->poll[i] = (struct pollfd){.fd = fd, .events = events};
    to->source[i].on_event = on_event;
    to->source[i].object = object;
}

_Noreturn void cordon_kept_quit(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

bool cordon_kept_has_room(const struct cordon_kept *of)
{
    return of->out.size < CORDON_KEPT_OUT;
}

void cordon_kept_send(struct cordon_kept *to, uint8_t type, uint16_t id, const void *payload, uint32_t length)
{
    assert_int_equal(cordon_frame_put(&to->out, type, id, payload, length), 0);
}

void cordon_kept_fail(struct cordon_kept *to, struct cordon_kept_stream *stream, int code, const char *fmt, ...)
{
    (void)code;
    (void)fmt;
    cordon_kept_send(to, CORDON_FRAME_FAILED, stream->id, NULL, 0);
    stream->ended = true;
}

bool cordon_kept_flush(struct cordon_kept *of)
{
    return of->out.size == 0;
}

void cordon_kept_launch_done(struct cordon_launch *launch)
{
    (void)launch;
}

/* Of programs and workers, which no connection has. */
int cordon_kept_launch(struct cordon_kept *k, struct cordon_launch *launch, enum cordon_launch_kind kind,
                       const char *payload, size_t size, const int ends[4], bool pty)
{
    (void)k, (void)launch, (void)kind, (void)payload, (void)size, (void)ends, (void)pty;
    abort();
}
int cordon_kept_launched(struct cordon_kept *k, struct cordon_launch *launch, struct cordon_launched *ret,
                         int *listener)
{
    (void)k, (void)launch, (void)ret, (void)listener;
    abort();
}
struct cordon_kept_exec *cordon_kept_exec_find(struct cordon_kept *k, uint32_t pid)
{
    (void)k, (void)pid;
    abort();
}
int cordon_kept_exec_start(struct cordon_kept *k, struct cordon_kept_stream *stream, const struct cordon_open *open,
                           const struct cordon_frame *frame)
{
    (void)k, (void)stream, (void)open, (void)frame;
    abort();
}
void cordon_kept_execs_tell(struct cordon_kept *k, struct cordon_kept_stream *stream)
{
    (void)k, (void)stream;
    abort();
}
void cordon_kept_exec_signal(struct cordon_kept *k, struct cordon_kept_exec *exec, int signal)
{
    (void)k, (void)exec, (void)signal;
    abort();
}
void cordon_kept_exec_resize(struct cordon_kept_exec *exec, uint32_t size)
{
    (void)exec, (void)size;
    abort();
}
void cordon_kept_exec_kill(struct cordon_kept_exec *exec, uint32_t how)
{
    (void)exec, (void)how;
    abort();
}
struct cordon_ring_place cordon_ring_last(const struct cordon_ring *ring, size_t bytes)
{
    (void)ring, (void)bytes;
    abort();
}

/* --- the bench --- */

static void turn(void)
{
    kept.sources = 0;
    cordon_kept_streams_watch(&kept);
    (void)poll(kept.poll, kept.sources, 20);
    for (size_t i = 0; i < kept.sources; i++)
        if (kept.poll[i].revents)
            kept.source[i].on_event(&kept, kept.source[i].object, kept.poll[i].revents);
    cordon_kept_streams_step(&kept);
}

/* The first frame of a type among those that the agent sent, taking turns until there is one. */
static bool find(uint8_t type, struct cordon_frame *ret)
{
    size_t at = 0;
    int64_t n;
    while ((n = cordon_frame_parse(kept.out.data + at, kept.out.size - at, 1, ret)) > 0 && ret->type != type)
        at += (size_t)n;
    return n > 0;
}

static struct cordon_frame expect(uint8_t type)
{
    struct cordon_frame frame = {0};
    for (int i = 0; i < PATIENCE_MS / 20 && !find(type, &frame); i++)
        turn();
    assert_true(find(type, &frame));
    return frame;
}

static int listen_on(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The server's end of a connection that stands. */
static int connected(void)
{
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    uint16_t port;
    int listener = listen_on(&port);
    memset(&kept, 0, sizeof kept);
    kept.out.max = 16u << 20;
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++)
        kept.streams[i].fd = -1;
    assert_int_equal(cordon_field_put_u32(&fields, CORDON_FIELD_PORT, port), 0);
    assert_int_equal(cordon_field_put_u32(&fields, CORDON_FIELD_OPERATION, CORDON_KEPT_OP_PORT), 0);
    cordon_kept_stream_open(
        &kept, &(struct cordon_frame){.exec = ID, .payload = fields.data, .length = (uint32_t)fields.size});
    cordon_buf_done(&fields);
    (void)expect(CORDON_FRAME_PORT);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    cordon_close(&listener);
    return fd;
}

static void write_some(uint32_t size)
{
    static char bytes[1 + CORDON_KEPT_WRITE_MAX] = {CORDON_TO_STDIN};
    cordon_kept_stream_write(&kept, &(struct cordon_frame){.exec = ID, .payload = bytes, .length = 1 + size});
}

static uint32_t drain_taken(void)
{
    struct cordon_frame frame;
    size_t at = 0;
    uint32_t taken = 0;
    for (int64_t n; (n = cordon_frame_parse(kept.out.data + at, kept.out.size - at, 1, &frame)) > 0; at += (size_t)n)
        taken += frame.type == CORDON_FRAME_TAKEN ? cordon_frame_u32(&frame, 1) : 0;
    return taken;
}

/* --- the tests --- */

static void an_early_answer_is_read_to_its_end(void **state)
{
    static const char answer[] = "HTTP/1.1 413 Too large\r\n\r\n";
    int fd = connected();
    (void)state;
    kept.streams[0].window = 0; /* so that it is not read before the send has failed */
    write_some(1000);
    for (int i = 0; i < PATIENCE_MS / 20 && drain_taken() < 1000; i++)
        turn();
    assert_int_equal(send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL), (ssize_t)sizeof answer - 1);
    cordon_close(&fd); /* with bytes that it has not read: the connection is reset */
    uint32_t written = 1000;
    for (int i = 0; i < PATIENCE_MS / 20 && !kept.streams[0].deaf && !kept.streams[0].ended; i++) {
        write_some(1000);
        written += 1000;
        turn();
    }
    assert_true(kept.streams[0].deaf && !kept.streams[0].ended);
    write_some(500); /* counted, and dropped */
    kept.streams[0].window = CORDON_KEPT_WINDOW;
    struct cordon_frame frame = expect(CORDON_FRAME_OUTPUT);
    assert_int_equal(frame.length, sizeof answer);
    assert_memory_equal(frame.payload + 1, answer, sizeof answer - 1);
    (void)expect(CORDON_FRAME_DONE);
    assert_int_equal(drain_taken(), written + 500);
    cordon_kept_streams_drop(&kept);
    cordon_buf_done(&kept.out);
}

static void a_close_does_not_wait_for_a_server_that_does_not_read(void **state)
{
    int fd = connected();
    (void)state;
    for (int i = 0; i < PATIENCE_MS / 20 && kept.streams[0].in[0].size < CORDON_KEPT_WRITE_MAX; i++) {
        write_some(CORDON_KEPT_WRITE_MAX);
        turn();
    }
    assert_true(kept.streams[0].in[0].size > 0);
    cordon_kept_stream_close(&kept, &kept.streams[0]);
    (void)expect(CORDON_FRAME_CLOSED);
    assert_int_equal(kept.streams[0].kind, CORDON_KEPT_FREE);
    cordon_close(&fd);
    cordon_buf_done(&kept.out);
}

/* --- ends of one direction --- */

static void end_writing(void)
{
    static const char payload[8] = {CORDON_CONTROL_END, 0, 0, 0, CORDON_TO_STDIN};
    cordon_kept_stream_control(&kept, &(struct cordon_frame){.exec = ID, .payload = payload, .length = sizeof payload});
}

static void hear(int fd, size_t size)
{
    char bytes[1000];
    ssize_t n = 1;
    for (int i = 0; i < PATIENCE_MS / 20 && size && n != 0; i++) {
        turn();
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        size -= n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(size, 0);
}

static bool hears_the_end(int fd)
{
    char byte;
    ssize_t n = -1;
    for (int i = 0; i < PATIENCE_MS / 20 && n < 0; i++) {
        turn();
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
    }
    return n == 0;
}

static void a_server_that_sends_no_more_reads_on(void **state)
{
    struct cordon_frame frame;
    int fd = connected();
    (void)state;
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    (void)expect(CORDON_FRAME_HALF);
    write_some(1000);
    hear(fd, 1000);
    assert_false(find(CORDON_FRAME_DONE, &frame));
    assert_int_equal(drain_taken(), 1000);
    end_writing();
    assert_true(hears_the_end(fd));
    (void)expect(CORDON_FRAME_DONE);
    cordon_close(&fd);
    cordon_kept_streams_drop(&kept);
    cordon_buf_done(&kept.out);
}

static void a_caller_that_sends_no_more_reads_on(void **state)
{
    struct cordon_frame frame;
    int fd = connected();
    (void)state;
    end_writing();
    assert_true(hears_the_end(fd));
    assert_int_equal(send(fd, "answer", 6, MSG_NOSIGNAL), 6);
    (void)expect(CORDON_FRAME_OUTPUT);
    assert_false(find(CORDON_FRAME_DONE, &frame));
    cordon_close(&fd);
    (void)expect(CORDON_FRAME_DONE);
    assert_false(find(CORDON_FRAME_HALF, &frame));
    cordon_kept_streams_drop(&kept);
    cordon_buf_done(&kept.out);
}

/* Nobody writes to it any more, so that only its reset tells. */
static void a_server_that_sent_no_more_and_went_is_told(void **state)
{
    int fd = connected();
    (void)state;
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    (void)expect(CORDON_FRAME_HALF);
    write_some(1000);
    for (int i = 0; i < PATIENCE_MS / 20 && drain_taken() < 1000; i++)
        turn();
    cordon_close(&fd); /* with bytes that it has not read */
    (void)expect(CORDON_FRAME_DONE);
    cordon_kept_streams_drop(&kept);
    cordon_buf_done(&kept.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_early_answer_is_read_to_its_end),
        cmocka_unit_test(a_close_does_not_wait_for_a_server_that_does_not_read),
        cmocka_unit_test(a_server_that_sends_no_more_reads_on),
        cmocka_unit_test(a_caller_that_sends_no_more_reads_on),
        cmocka_unit_test(a_server_that_sent_no_more_and_went_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
