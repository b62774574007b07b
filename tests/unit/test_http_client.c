/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer holds of its call once it is open: its own, since the caller's is gone by then. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
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

#include "base/clock.h"
#include "http/client.h"

#define BODY (4u << 20) /* more than sockets hold */
#define POISON '\xee'

/* Answers when it has the header, and reads on only when the caller has given its memory back. */
struct server {
    int listener, go[2], port;
    const char *answer;
    size_t received;
    bool poisoned;
};

static void *serve(void *context)
{
    struct server *server = context;
    char data[65536];
    size_t size = 0;
    int fd = accept(server->listener, NULL, NULL);
    for (ssize_t n; !memmem(data, size, "\r\n\r\n", 4) && (n = recv(fd, data + size, sizeof data - size, 0)) > 0;)
        size += (size_t)n;
    (void)send(fd, server->answer, strlen(server->answer), MSG_NOSIGNAL);
    (void)!read(server->go[0], data, 1);
    for (ssize_t n; (n = recv(fd, data, sizeof data, 0)) > 0; server->received += (size_t)n)
        server->poisoned = server->poisoned || memchr(data, POISON, (size_t)n);
    (void)close(fd);
    return NULL;
}

static pthread_t begin(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_t thread;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(pipe(server->go), 0);
    server->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, serve, server), 0);
    return thread;
}

static void end(struct server *server, pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(server->listener);
    (void)close(server->go[0]);
    (void)close(server->go[1]);
}

static void what_the_caller_gave_back_is_neither_sent_nor_shown(void **state)
{
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"};
    struct cordon_http_transfer *transfer;
    struct cordon_error err = {0};
    struct cordon_bytes data;
    char url[64], *body = malloc(BODY);
    int r;
    (void)state;
    assert_non_null(body);
    memset(body, 'a', BODY);
    pthread_t thread = begin(&server);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/the-way", server.port);
    const struct cordon_http_call call = {.method = "POST",
                                          .url = url,
                                          .body = {body, BODY},
                                          .deadline_us = cordon_now_us() + 30000000u,
                                          .cancel_fd = -1};
    assert_int_equal(cordon_http_open(&call, &transfer, &err), 0);
    assert_int_equal(cordon_http_status(transfer), 200);
    memset(body, POISON, BODY);
    memset(url, POISON, sizeof url - 1);
    assert_int_equal(write(server.go[1], "x", 1), 1);
    while ((r = cordon_http_read(transfer, &data, &err)) > 0)
        continue;
    assert_true(r < 0);
    assert_non_null(strstr(err.message, "/the-way"));
    assert_non_null(strstr(err.message, "answered before it had read the whole request"));
    cordon_http_close(transfer);
    end(&server, thread);
    assert_false(server.poisoned);
    assert_true(server.received < BODY);
    free(body);
}

/* Within one exchange all of it is still there: what a server reads late is sent. */
static void a_whole_exchange_sends_all_of_it(void **state)
{
    struct server server = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"};
    struct cordon_http_answer answer;
    struct cordon_error err = {0};
    char url[64];
    (void)state;
    pthread_t thread = begin(&server);
    assert_int_equal(write(server.go[1], "x", 1), 1);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    const struct cordon_http_call call = {.method = "POST",
                                          .url = url,
                                          .body = {"small", 5},
                                          .deadline_us = cordon_now_us() + 30000000u,
                                          .cancel_fd = -1};
    assert_int_equal(cordon_http_exchange(&call, &answer, &err), 0);
    assert_int_equal(answer.status, 200);
    assert_memory_equal(answer.body.data, "ok", 2);
    cordon_buf_done(&answer.body);
    end(&server, thread);
}

static int stop(void **state)
{
    (void)state;
    cordon_http_client_shutdown();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_caller_gave_back_is_neither_sent_nor_shown),
        cmocka_unit_test(a_whole_exchange_sends_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, stop);
}
