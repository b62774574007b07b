/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to ports of a virtual machine: the gateway's relay on a channel of which the test has the other end and
 * plays the agent. Its clock stands still until the test moves it.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/kept.h"

static _Atomic uint64_t test_now = 1000000;

static uint64_t test_now_us(void)
{
    return test_now;
}

/* The clock is looked at again soon, however long it is to wait. */
static int test_poll(struct pollfd *fds, nfds_t count, int ms)
{
    return poll(fds, count, ms < 0 || ms > 20 ? 20 : ms);
}

#define cordon_now_us test_now_us
#define poll test_poll
#include "guest/kept_port.c"
#undef poll
#undef cordon_now_us

#define PATIENCE_MS 60000

struct bench {
    struct cordon_guest_handle *guest;
    int agent; /* the other end of its channel */
    struct cordon_buf in;
};

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct cordon_guest_handle *guest = calloc(1, sizeof *guest);
    int pair[2];
    assert_true(bench && guest);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    guest->refs = 1;
    guest->lease = CORDON_LEASE_NONE;
    guest->lease.channel = pair[0];
    guest->pending_fd = -1;
    guest->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guest->ready = guest->set_up = guest->machine = true;
    assert_int_equal(pthread_mutex_init(&guest->lock, NULL), 0);
    assert_int_equal(pthread_mutex_init(&guest->send_lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&guest->changed, NULL), 0);
    *bench = (struct bench){.guest = guest, .agent = pair[1], .in = CORDON_BUF_INIT(CORDON_FRAME_MAX)};
    *state = bench;
    return 0;
}

static unsigned relays(struct bench *bench)
{
    (void)pthread_mutex_lock(&bench->guest->lock);
    unsigned n = bench->guest->relays;
    (void)pthread_mutex_unlock(&bench->guest->lock);
    return n;
}

/* The agent's next frame of the gateway; its payload holds until the next call. */
static struct cordon_frame hear(struct bench *bench)
{
    static char payload[CORDON_FRAME_DATA_MAX];
    struct cordon_frame frame;
    int64_t n;
    while ((n = cordon_frame_parse(bench->in.data, bench->in.size, 0, &frame)) == 0) {
        struct pollfd ready = {.fd = bench->agent, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        char *to = cordon_buf_reserve(&bench->in, 65536);
        assert_non_null(to);
        ssize_t got = recv(bench->agent, to, 65536, 0);
        assert_true(got > 0);
        bench->in.size += (size_t)got;
    }
    assert_true(n > 0 && frame.length <= sizeof payload);
    if (frame.length)
        memcpy(payload, frame.payload, frame.length);
    frame.payload = payload;
    cordon_buf_consume(&bench->in, (size_t)n);
    return frame;
}

static void say(struct bench *bench, uint8_t type, uint16_t id, const char *payload, uint32_t size)
{
    const struct cordon_frame frame = {.type = type, .exec = id, .payload = payload, .length = size};
    (void)pthread_mutex_lock(&bench->guest->lock);
    const char *wrong = cordon_kept_take_frame(bench->guest, &frame);
    (void)pthread_mutex_unlock(&bench->guest->lock);
    assert_null(wrong);
}

static void say_taken(struct bench *bench, uint16_t id, uint32_t n)
{
    const char payload[5] = {CORDON_TO_STDIN, (char)n, (char)(n >> 8), (char)(n >> 16), (char)(n >> 24)};
    say(bench, CORDON_FRAME_TAKEN, id, payload, sizeof payload);
}

struct connecting {
    struct bench *bench;
    int fd, r;
};

static void *connect_port(void *object)
{
    struct connecting *connecting = object;
    struct cordon_error err = {0};
    connecting->r = cordon_kept_port_relay(connecting->bench->guest, 8000, -1, &connecting->fd, &err);
    return NULL;
}

/* A connection that stands: the caller's socket, and its number at the agent. */
static int connected(struct bench *bench, uint16_t *id)
{
    struct connecting connecting = {.bench = bench, .fd = -1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, connect_port, &connecting), 0);
    struct cordon_frame frame = hear(bench);
    assert_int_equal(frame.type, CORDON_FRAME_OPEN);
    *id = frame.exec;
    say(bench, CORDON_FRAME_PORT, *id, NULL, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(connecting.r, 0);
    return connecting.fd;
}

/* What the relay has passed on before it hears of the end, it asks for again. */
static void expect_close(struct bench *bench, uint16_t id)
{
    struct cordon_frame frame;
    do
        frame = hear(bench);
    while (frame.type == CORDON_FRAME_WINDOW);
    assert_int_equal(frame.type, CORDON_FRAME_CLOSE);
    assert_int_equal(frame.exec, id);
    say(bench, CORDON_FRAME_CLOSED, id, NULL, 0);
    assert_int_equal(relays(bench), 0);
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    unsigned refs = 2;
    for (int i = 0; i < PATIENCE_MS && refs > 1; i++) { /* a relay that ends has said so before it lets go */
        (void)pthread_mutex_lock(&bench->guest->lock);
        refs = bench->guest->refs;
        (void)pthread_mutex_unlock(&bench->guest->lock);
        (void)poll(NULL, 0, refs > 1);
    }
    cordon_close(&bench->agent);
    cordon_buf_done(&bench->in);
    cordon_kept_unref(bench->guest);
    free(bench);
    return refs == 1 ? 0 : -1;
}

/* --- the tests --- */

/* As a program that writes single bytes to a client that does not read. */
static void the_smallest_frames_fill_the_window_and_are_kept(void **state)
{
    static const char byte[2] = {CORDON_OUTPUT_STDOUT, 'x'};
    const unsigned most = CORDON_KEPT_WINDOW / (CORDON_FRAME_HEADER + sizeof byte) + 1;
    struct bench *bench = *state;
    struct cordon_stream *stream = NULL;
    struct cordon_stream_event event;
    struct cordon_error err = {0};
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_OPERATION, CORDON_OP_EXEC); /* failures stick in fields.failed */
    assert_int_equal(cordon_kept_open_fields(bench->guest, CORDON_OP_EXEC, &fields, -1, &stream, &err), 0);
    cordon_buf_done(&fields);
    uint16_t id = hear(bench).exec;
    const struct cordon_frame frame = {.type = CORDON_FRAME_OUTPUT, .exec = id, .payload = byte, .length = sizeof byte};
    for (unsigned i = 0; i < most; i++)
        say(bench, frame.type, id, byte, sizeof byte);
    (void)pthread_mutex_lock(&bench->guest->lock);
    assert_string_equal(cordon_kept_take_frame(bench->guest, &frame), "more than its window");
    (void)pthread_mutex_unlock(&bench->guest->lock);
    for (unsigned i = 0; i < most; i++)
        assert_int_equal(cordon_kept_stream_next(stream, 0, &event, &err), 1);
    for (uint32_t given = 0; given < CORDON_KEPT_WINDOW / 4 * 3;) {
        struct cordon_frame window = hear(bench);
        assert_int_equal(window.type, CORDON_FRAME_WINDOW);
        given += cordon_frame_u32(&window, 0);
    }
    cordon_kept_stream_close(stream);
    expect_close(bench, id);
}

static size_t hear_writes(struct bench *bench, size_t size)
{
    size_t heard = 0;
    while (heard < size) {
        struct cordon_frame frame = hear(bench);
        assert_int_equal(frame.type, CORDON_FRAME_WRITE);
        heard += frame.length - 1;
    }
    return heard;
}

static void send_all(int fd, const char *data, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        ssize_t n = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
    }
}

static void what_a_caller_wrote_who_left_goes_in_first(void **state)
{
    static char data[CORDON_KEPT_WRITE_MAX + 5000];
    struct bench *bench = *state;
    uint16_t id;
    int fd = connected(bench, &id);
    send_all(fd, data, sizeof data);
    cordon_close(&fd);
    assert_int_equal(hear_writes(bench, CORDON_KEPT_WRITE_MAX), CORDON_KEPT_WRITE_MAX);
    say_taken(bench, id, CORDON_KEPT_WRITE_MAX);
    assert_int_equal(hear_writes(bench, 5000), 5000);
    struct cordon_frame frame = hear(bench);
    assert_int_equal(frame.type, CORDON_FRAME_CONTROL);
    assert_int_equal(cordon_frame_u32(&frame, 0), CORDON_CONTROL_END);
    assert_int_equal(relays(bench), 1); /* its server may have read less than that */
    say_taken(bench, id, 5000);
    expect_close(bench, id);
}

static void a_server_that_does_not_read_is_given_up_when_its_caller_left(void **state)
{
    static const char data[CORDON_KEPT_WRITE_MAX + 5000];
    struct bench *bench = *state;
    uint16_t id;
    int fd = connected(bench, &id);
    send_all(fd, data, sizeof data);
    assert_int_equal(hear_writes(bench, CORDON_KEPT_WRITE_MAX), CORDON_KEPT_WRITE_MAX);
    cordon_close(&fd);
    struct pollfd silent = {.fd = bench->agent, .events = POLLIN};
    for (int i = 0; i < PATIENCE_MS / 20 && poll(&silent, 1, 20) == 0; i++)
        test_now += LEFT_MS * UINT64_C(1000); /* again: when it is told of the close is not known */
    expect_close(bench, id);
}

/* More than the caller's socket holds: the relay still has some of it when the machine refuses what the caller writes.
 */
static void an_early_answer_reaches_the_caller_whose_bytes_nobody_takes(void **state)
{
    static char answer[60000] = {CORDON_OUTPUT_STDOUT}, text[65536];
    struct bench *bench = *state;
    uint16_t id;
    int fd = connected(bench, &id), unread = 1;
    for (int i = 0; i < 4; i++)
        say(bench, CORDON_FRAME_OUTPUT, id, answer, sizeof answer);
    say(bench, CORDON_FRAME_DONE, id, NULL, 0);
    assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), 4);
    for (int i = 0; i < PATIENCE_MS && unread; i++) {
        assert_int_equal(ioctl(fd, SIOCOUTQ, &unread), 0);
        (void)poll(NULL, 0, unread != 0);
    }
    assert_int_equal(unread, 0);
    size_t got = 0;
    for (ssize_t n = 1; n > 0;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        n = recv(fd, text, sizeof text, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(got, 4 * (sizeof answer - 1));
    expect_close(bench, id);
    cordon_close(&fd);
}

static ssize_t get(int fd, char *to, size_t size)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    return recv(fd, to, size, MSG_DONTWAIT);
}

static void a_caller_may_write_when_its_server_sends_no_more(void **state)
{
    static const char payload[] = {CORDON_OUTPUT_STDOUT, 'a', 'b', 'c'};
    const struct cordon_frame late = {.type = CORDON_FRAME_OUTPUT, .payload = payload, .length = sizeof payload};
    struct bench *bench = *state;
    char text[16];
    uint16_t id;
    int fd = connected(bench, &id);
    say(bench, CORDON_FRAME_OUTPUT, id, payload, sizeof payload);
    say(bench, CORDON_FRAME_HALF, id, NULL, 0);
    assert_int_equal(get(fd, text, sizeof text), 3);
    assert_int_equal(get(fd, text, sizeof text), 0);
    for (int i = 0; i < 2; i++) {
        send_all(fd, "more", 4);
        assert_int_equal(hear_writes(bench, 4), 4);
        say_taken(bench, id, 4);
    }
    assert_int_equal(relays(bench), 1);
    struct cordon_frame behind = late;
    behind.exec = id;
    (void)pthread_mutex_lock(&bench->guest->lock);
    assert_non_null(cordon_kept_take_frame(bench->guest, &behind));
    (void)pthread_mutex_unlock(&bench->guest->lock);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_int_equal(hear(bench).type, CORDON_FRAME_CONTROL);
    expect_close(bench, id);
    cordon_close(&fd);
}

static void connections_leave_streams_to_others(void **state)
{
    struct bench *bench = *state;
    struct cordon_error err = {0};
    uint64_t changed_us;
    uint16_t ids[CORDON_KEPT_RELAYS];
    int fds[CORDON_KEPT_RELAYS], fd = -1;
    for (size_t i = 0; i < CORDON_KEPT_RELAYS; i++)
        fds[i] = connected(bench, &ids[i]);
    assert_int_equal(cordon_kept_running(bench->guest, &changed_us), CORDON_KEPT_RELAYS);
    assert_int_equal(cordon_kept_port_relay(bench->guest, 8000, -1, &fd, &err), -EAGAIN);
    assert_int_equal(err.kind, CORDON_ERROR_QUOTA);
    assert_int_equal(fd, -1);
    for (size_t i = 0; i < CORDON_KEPT_RELAYS; i++) {
        cordon_close(&fds[i]);
        assert_int_equal(hear(bench).type, CORDON_FRAME_CONTROL);
        assert_int_equal(hear(bench).type, CORDON_FRAME_CLOSE);
        say(bench, CORDON_FRAME_CLOSED, ids[i], NULL, 0);
    }
    assert_int_equal(cordon_kept_running(bench->guest, &changed_us), 0);
    fd = connected(bench, &ids[0]);
    cordon_close(&fd);
    assert_int_equal(hear(bench).type, CORDON_FRAME_CONTROL);
    expect_close(bench, ids[0]);
}

static void nothing_is_written_to_a_paused_machine(void **state)
{
    struct bench *bench = *state;
    struct cordon_stream *stream, *none;
    struct cordon_error err = {0};
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    struct pollfd silent = {.fd = bench->agent, .events = POLLIN};
    eventfd_t count;
    assert_int_equal(cordon_field_put_u32(&fields, CORDON_FIELD_OPERATION, CORDON_OP_EXEC), 0);
    assert_int_equal(cordon_kept_open_fields(bench->guest, CORDON_OP_EXEC, &fields, -1, &stream, NULL), 0);
    assert_int_equal(hear(bench).type, CORDON_FRAME_OPEN);
    for (int paused = 0; paused < 2; paused++) {
        cordon_kept_set_paused(bench->guest, true, paused);
        assert_int_equal(cordon_kept_stream_offer(stream, CORDON_TO_STDIN, "x", 1, NULL), 0);
        assert_int_equal(poll(&silent, 1, 0), 0);
        assert_int_equal(eventfd_read(stream->event_fd, &count), -1);
        assert_int_equal(cordon_kept_open_fields(bench->guest, CORDON_OP_EXEC, &fields, -1, &none, &err), -EBUSY);
        assert_int_equal(err.kind, CORDON_ERROR_PAUSED);
    }
    cordon_buf_done(&fields);
    cordon_kept_set_paused(bench->guest, false, false);
    assert_int_equal(eventfd_read(stream->event_fd, &count), 0);
    assert_int_equal(cordon_kept_stream_offer(stream, CORDON_TO_STDIN, "x", 1, NULL), 1);
    assert_int_equal(hear(bench).type, CORDON_FRAME_WRITE);
    cordon_kept_stream_close(stream);
    assert_int_equal(hear(bench).type, CORDON_FRAME_CLOSE);
}

/* And in their order, however many have passed. */
static void small_frames_are_taken_out_without_a_move_of_all(void **state)
{
    struct bench *bench = *state;
    struct cordon_stream *stream;
    struct cordon_stream_event event;
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    unsigned said = 0, heard = 0;
    assert_int_equal(cordon_field_put_u32(&fields, CORDON_FIELD_OPERATION, CORDON_OP_EXEC), 0);
    assert_int_equal(cordon_kept_open_fields(bench->guest, CORDON_OP_EXEC, &fields, -1, &stream, NULL), 0);
    cordon_buf_done(&fields);
    while (heard < 300000) {
        while (said < heard + 1000) {
            const char payload[] = {CORDON_OUTPUT_STDOUT, (char)said, (char)(said >> 8), (char)(said >> 16)};
            say(bench, CORDON_FRAME_OUTPUT, stream->id, payload, sizeof payload);
            said++;
        }
        const char *front = stream->queue.data;
        size_t size = stream->queue.size;
        for (int i = 0; i < 700; i++) {
            assert_int_equal(cordon_kept_stream_next(stream, 0, &event, NULL), 1);
            assert_int_equal(event.data.size, 3);
            const unsigned char *bytes = (const unsigned char *)event.data.data;
            assert_int_equal(bytes[0] | bytes[1] << 8 | bytes[2] << 16, heard);
            heard++;
            if (i == 0 && stream->queue_at)
                assert_true(stream->queue.size == size && stream->queue.data == front);
            assert_true(stream->queue_at <= stream->queue.size / 2);
        }
        assert_true(stream->queue.size <= 2 * 1000 * (CORDON_FRAME_HEADER + 4));
    }
    cordon_kept_stream_close(stream);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(the_smallest_frames_fill_the_window_and_are_kept),
        ROW(what_a_caller_wrote_who_left_goes_in_first),
        ROW(a_server_that_does_not_read_is_given_up_when_its_caller_left),
        ROW(an_early_answer_reaches_the_caller_whose_bytes_nobody_takes),
        ROW(a_caller_may_write_when_its_server_sends_no_more),
        ROW(connections_leave_streams_to_others),
        ROW(nothing_is_written_to_a_paused_machine),
        ROW(small_frames_are_taken_out_without_a_move_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
