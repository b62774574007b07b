/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets a place when all connections are taken, and who gives his up: a real server with eight of them. */
#include <arpa/inet.h>
#include <errno.h>
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

#include "http/internal.h"

#define PLACES 8
#define PATIENCE_S 60

static struct cordon_http_server *server;
static uint16_t port;
static atomic_int waited;

static int reply_ok(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16);
    (void)cordon_buf_appends(&body, "ok");
    int r = cordon_http_reply(request, 200, "text/plain", &body);
    return r < 0 ? cordon_fail_errno(err, r, "answering") : 0;
}

/* Until the client has left. */
static int reply_late(struct cordon_http_request *request, struct cordon_error *err)
{
    struct pollfd client = {.fd = request->fd, .events = POLLRDHUP};
    (void)poll(&client, 1, PATIENCE_S * 1000);
    waited++;
    return reply_ok(request, err);
}

static int reply_refused_header(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16);
    cordon_http_reply_header(request, "X-Odd", "a\rb");
    int r = cordon_http_reply(request, 200, "text/plain", &body);
    return cordon_fail(err, r, r == -EINVAL ? CORDON_ERROR_INVALID : CORDON_ERROR_INFRASTRUCTURE, "answering");
}

static bool shows(const struct cordon_http_request *request, const char *key)
{
    const char *shown = cordon_http_header(request, "Key");
    return shown && strcmp(shown, key) == 0;
}

static int authorize(struct cordon_http_request *request, enum cordon_http_scope scope, struct cordon_error *err)
{
    request->by_admin = shows(request, "admin");
    return request->by_admin || shows(request, "run") ? 0
                                                      : cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "no");
}

static int admit(struct cordon_http_request *request, struct cordon_error *err)
{
    request->keyless = true;
    return 0;
}

static void dismiss(void *context)
{
    (void)context;
}

static const struct cordon_http_route routes[] = {
    {.method = "GET", .pattern = "/run", .handle = reply_ok, .scope = CORDON_HTTP_RUN},
    {.method = "GET", .pattern = "/run-late", .handle = reply_late, .scope = CORDON_HTTP_RUN},
    {.method = "GET", .pattern = "/public", .handle = reply_ok, .scope = CORDON_HTTP_OWN},
    {.method = "GET", .pattern = "/public-late", .handle = reply_late, .scope = CORDON_HTTP_OWN},
    {.method = "GET", .pattern = "/odd", .handle = reply_refused_header, .scope = CORDON_HTTP_OPEN},
};
static const struct cordon_http_door door = {.name = "door",
                                             .routes = routes,
                                             .route_count = sizeof routes / sizeof *routes,
                                             .admit = admit,
                                             .dismiss = dismiss};
static const struct cordon_http_door *const doors[] = {&door, NULL};

static int start(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 128), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    port = ntohs(address.sin_port);
    const struct cordon_http_config config = {.doors = doors,
                                              .authorize = authorize,
                                              .listen_fds = &fd,
                                              .listen_count = 1,
                                              .body_max = 1000,
                                              .connections_max = PLACES,
                                              .idle_timeout_s = 600};
    struct cordon_error err = {0};
    waited = 0;
    int r = cordon_http_server_start(&config, &server, &err);
    if (r == 0)
        server->seed = 1; /* with which the addresses of these tests have queues of their own */
    return r;
}

static int stop(void **state)
{
    cordon_http_server_stop(server, 1000);
    return 0;
}

static int connect_from(uint32_t from)
{
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const struct timeval limit = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&source, sizeof source), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static int connect_client(void)
{
    return connect_from(INADDR_LOOPBACK);
}

static void send_request(int fd, const char *path, const char *key)
{
    char request[256];
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nKey: %s\r\n\r\n", path, key);
    assert_int_equal(send(fd, request, (size_t)size, MSG_NOSIGNAL), size);
}

/* The status of the answer, which is read to its end; 0: closed without one. */
static int ask(int fd, const char *path, const char *key)
{
    char answer[4096] = "";
    size_t size = 0, length = 0;
    int status = 0;
    const char *body = NULL, *field;
    send_request(fd, path, key);
    while (!body || size < (size_t)(body - answer) + length) {
        ssize_t n = recv(fd, answer + size, sizeof answer - 1 - size, 0);
        if (n <= 0)
            return 0;
        size += (size_t)n;
        answer[size] = '\0';
        if (!body && (body = strstr(answer, "\r\n\r\n"))) {
            body += 4;
            field = strstr(answer, "Content-Length: ");
            length = field ? (size_t)atoi(field + 16) : 0;
        }
    }
    assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
    return status;
}

static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Until the server has as many there. */
static void wait_count(const size_t *count, size_t wanted)
{
    size_t found = 0;
    for (int i = 0; i < PATIENCE_S * 1000; i++) {
        pthread_mutex_lock(&server->lock);
        found = *count;
        pthread_mutex_unlock(&server->lock);
        if (found == wanted)
            return;
        (void)usleep(1000);
    }
    assert_int_equal(found, wanted);
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
}

static void expect_status(const char *path, const char *key, int status)
{
    int fd = connect_client();
    assert_int_equal(ask(fd, path, key), status);
    (void)close(fd);
}

static void visitors_without_a_key_give_way(void **state)
{
    int held[PLACES];
    for (int i = 0; i < PLACES; i++) {
        held[i] = connect_client();
        assert_int_equal(ask(held[i], "/public", ""), 200);
    }
    expect_status("/run", "run", 200);
    assert_true(is_closed(held[0]));
    assert_int_equal(ask(held[PLACES - 1], "/public", ""), 200);
    close_all(held, PLACES);
}

static void so_do_those_who_are_being_served(void **state)
{
    int held[PLACES];
    for (int i = 0; i < PLACES; i++) {
        held[i] = connect_client();
        send_request(held[i], "/public-late", "");
    }
    wait_count(&server->active_count, PLACES);
    expect_status("/run", "run", 200);
    for (int i = 0; i < PATIENCE_S * 1000 && !waited; i++)
        (void)usleep(1000);
    assert_int_equal(waited, 1); /* its handler saw it leave */
    assert_true(is_open(held[PLACES - 1]));
    close_all(held, PLACES);
}

static void idle_clients_with_a_key_give_way_oldest_first(void **state)
{
    int held[PLACES], new;
    for (int i = 0; i < PLACES; i++) {
        held[i] = connect_client();
        assert_int_equal(ask(held[i], "/run", "run"), 200);
        wait_count(&server->resting.count, (size_t)i + 1);
    }
    assert_int_equal(ask(held[0], "/run", "run"), 200); /* now the second is idle longest */
    wait_count(&server->resting.count, PLACES);
    new = connect_client();
    assert_int_equal(ask(new, "/run", "run"), 200);
    assert_true(is_closed(held[1]));
    assert_true(is_open(held[0]));
    assert_int_equal(ask(held[0], "/run", "run"), 200);
    assert_int_equal(ask(held[2], "/run", "run"), 200);
    (void)close(new);
    close_all(held, PLACES);
}

static void silent_ones_lock_nobody_out(void **state)
{
    int held[10 * PLACES];
    for (int i = 0; i < 10 * PLACES; i++)
        held[i] = connect_client();
    for (int i = 0; i < 3; i++)
        expect_status("/run", "run", 200);
    assert_true(is_closed(held[0]));
    assert_true(is_closed(held[8 * PLACES]));
    close_all(held, 10 * PLACES);
}

static void the_address_with_most_connections_gives_way(void **state)
{
    int first = connect_from(0x7f000002), held[PLACES];
    for (int i = 0; i < PLACES; i++)
        held[i] = connect_from(0x7f000003);
    assert_true(is_closed(held[0]));
    assert_true(is_open(first)); /* the oldest, but alone */
    assert_int_equal(ask(first, "/run", "run"), 200);
    (void)close(first);
    close_all(held, PLACES);
}

static void requests_under_way_stay_and_admins_get_in(void **state)
{
    int held[PLACES], admin;
    for (int i = 0; i < PLACES; i++) {
        held[i] = connect_client();
        send_request(held[i], "/run-late", "run");
    }
    wait_count(&server->active_count, PLACES);
    expect_status("/run", "run", 503);
    expect_status("/public", "", 503);
    admin = connect_client();
    assert_int_equal(ask(admin, "/run", "admin"), 200);
    assert_int_equal(ask(admin, "/run", "admin"), 200); /* and stay */
    assert_int_equal(waited, 0);
    (void)close(admin);
    close_all(held, PLACES);
}

/* Those who are to be told that all is taken, and ask nothing. */
static void silent_ones_beyond_the_limit_do_not_lock_admins_out(void **state)
{
    int held[PLACES], silent[2 * CORDON_HTTP_REFUSED_MAX];
    for (int i = 0; i < PLACES; i++) {
        held[i] = connect_client();
        send_request(held[i], "/run-late", "run");
    }
    wait_count(&server->active_count, PLACES);
    for (unsigned i = 0; i < 2 * CORDON_HTTP_REFUSED_MAX; i++)
        silent[i] = connect_client();
    expect_status("/run", "admin", 200);
    assert_true(is_closed(silent[0]));
    assert_int_equal(waited, 0);
    close_all(silent, 2 * CORDON_HTTP_REFUSED_MAX);
    close_all(held, PLACES);
}

/* As if all had been accepted, or been done with a request, long ago. */
static void age_all(void)
{
    pthread_mutex_lock(&server->lock);
    for (unsigned i = 0; i < CORDON_HTTP_ADDRESSES; i++)
        for (struct connection *connection = server->strangers[i].first; connection; connection = connection->after)
            connection->waiting_since_us = 0;
    for (struct connection *connection = server->resting.first; connection; connection = connection->after)
        connection->waiting_since_us = 0;
    pthread_mutex_unlock(&server->lock);
}

static size_t count_served(void)
{
    size_t count = 0;
    pthread_mutex_lock(&server->lock);
    for (const struct connection *connection = server->active; connection; connection = connection->next)
        count += connection->served;
    bool others = server->active_count > count;
    pthread_mutex_unlock(&server->lock);
    return others ? 0 : count;
}

/* Until one visitor is being served, and no other request is under way. */
static void wait_served(void)
{
    for (int i = 0; i < PATIENCE_S * 1000 && count_served() != 1; i++)
        (void)usleep(1000);
    assert_int_equal(count_served(), 1);
}

static void time_is_up_for_strangers_who_are_not_being_served(void **state)
{
    int silent = connect_client(), visitor = connect_client(), served = connect_client(), trusted = connect_client();
    assert_int_equal(ask(visitor, "/public", ""), 200);
    assert_int_equal(ask(trusted, "/run", "run"), 200);
    wait_count(&server->active_count, 0); /* an answer comes a little before its request has ended */
    send_request(served, "/public-late", "");
    wait_count(&server->resting.count, 1);
    wait_count(&server->stranger_count, 3);
    wait_served();
    age_all();
    cordon_http_server_expire(server);
    assert_true(is_closed(silent));
    assert_true(is_closed(visitor));
    assert_true(is_open(served));
    assert_int_equal(ask(trusted, "/run", "run"), 200);
    assert_int_equal(waited, 0);
    close_all((const int[]){silent, visitor, served, trusted}, 4);
}

static void a_field_that_can_not_be_written_is_no_want_of_memory(void **state)
{
    expect_status("/odd", "", 400);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(visitors_without_a_key_give_way),
        ROW(so_do_those_who_are_being_served),
        ROW(idle_clients_with_a_key_give_way_oldest_first),
        ROW(silent_ones_lock_nobody_out),
        ROW(the_address_with_most_connections_gives_way),
        ROW(requests_under_way_stay_and_admins_get_in),
        ROW(silent_ones_beyond_the_limit_do_not_lock_admins_out),
        ROW(time_is_up_for_strangers_who_are_not_being_served),
        ROW(a_field_that_can_not_be_written_is_no_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
