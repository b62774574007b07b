/* SPDX-License-Identifier: Apache-2.0 */
/* Requests passed on to another server, and bodies taken as they come: a real server, a client and an upstream. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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

#include "http/pass.h"
#include "http/pump.h"
#include "http/server.h"

static struct cordon_http_server *server;
static int port;
static int upstream = -1; /* the socket that the next passed request gets */
static int finished, dismissed;
static char taken[64];

/* The upstream's part, played by a thread: what it is to have received, ended by `until`, and what it answers. */
struct script {
    int fd;
    const char *until, *answer;
    bool echo; /* after the answer: sends back what comes, until the end */
    char got[16384];
    size_t size;
};

static void *play(void *context)
{
    struct script *script = context;
    while (!strstr(script->got, script->until)) {
        ssize_t n = recv(script->fd, script->got + script->size, sizeof script->got - 1 - script->size, 0);
        if (n <= 0)
            break;
        script->size += (size_t)n;
        script->got[script->size] = '\0';
    }
    (void)send(script->fd, script->answer, strlen(script->answer), MSG_NOSIGNAL);
    char data[512];
    ssize_t n;
    while (script->echo && (n = recv(script->fd, data, sizeof data, 0)) > 0)
        (void)send(script->fd, data, (size_t)n, MSG_NOSIGNAL);
    (void)close(script->fd);
    return NULL;
}

static void free_pass(void *pass)
{
    cordon_http_pass_free(pass);
    finished++;
}

static int begin(struct cordon_http_request *request, struct cordon_error *err)
{
    static const char *const left_out[] = {"X-Secret", NULL};
    const struct cordon_http_pass_options options = {.left_out = left_out,
                                                     .patience_s = strcmp(request->path, "/impatient") == 0};
    struct cordon_http_pass *pass;
    if (strcmp(request->path, "/refuse") == 0)
        return cordon_fail(err, -ENOSPC, CORDON_ERROR_TOO_LARGE, "no");
    if (strcmp(request->path, "/take") == 0) {
        taken[0] = '\0';
        return 0;
    }
    int fd = upstream;
    upstream = -1;
    int r = cordon_http_pass_begin(request, fd, &options, &pass, err);
    if (r < 0)
        return r;
    request->finish = free_pass;
    request->finish_context = pass;
    return 0;
}

static int piece(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err)
{
    if (strcmp(request->path, "/take") == 0) {
        (void)strncat(taken, data, size < 32 ? size : 32);
        return strstr(taken, "bad") ? cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "bad piece") : 0;
    }
    return cordon_http_pass_piece(request->finish_context, data, size, err);
}

static int handle(struct cordon_http_request *request, struct cordon_error *err)
{
    if (strcmp(request->path, "/take") == 0) {
        struct cordon_buf body = CORDON_BUF_INIT(64);
        (void)cordon_buf_appends(&body, taken);
        cordon_http_reply_header(request, "X-Own", "yes");
        return cordon_http_reply(request, 201, "text/plain", &body);
    }
    return cordon_http_pass_reply(request, request->finish_context, err);
}

static int admit(struct cordon_http_request *request, struct cordon_error *err)
{
    request->admitted = &dismissed;
    return cordon_http_header(request, "X-Deny") ? cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "denied")
                                                 : 0;
}

static void dismiss(void *admitted)
{
    ++*(int *)admitted;
}

static int reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1024);
    (void)cordon_buf_appendf(&body, "own dialect: %s", err->message);
    return cordon_http_reply(request, cordon_http_error_status(request, err), "text/plain", &body);
}

static const struct cordon_http_route routes[] = {
    {.method = "*", .pattern = "*", .handle = handle, .scope = CORDON_HTTP_OWN, .body_limit = CORDON_HTTP_BODY_INTAKE}};
static const struct cordon_http_intake intake = {begin, piece};
static const struct cordon_http_door door = {.name = "door",
                                             .routes = routes,
                                             .route_count = 1,
                                             .admit = admit,
                                             .dismiss = dismiss,
                                             .intake = &intake,
                                             .reply_error = reply_error};
static const struct cordon_http_door *const doors[] = {&door, NULL};

static int start(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    port = ntohs(address.sin_port);
    const struct cordon_http_config config = {.doors = doors,
                                              .listen_fds = &fd,
                                              .listen_count = 1,
                                              .body_max = 1000,
                                              .connections_max = 16,
                                              .idle_timeout_s = 30};
    struct cordon_error err = {0};
    return cordon_http_server_start(&config, &server, &err);
}

static int stop(void **state)
{
    cordon_http_server_stop(server, 1000);
    return 0;
}

static int connect_client(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    const struct timeval limit = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

/* Until the peer closes, or `until` has come. */
static void receive(int fd, char *to, size_t room, const char *until)
{
    size_t size = 0;
    to[0] = '\0';
    while (size < room - 1 && !(until && strstr(to, until))) {
        ssize_t n = recv(fd, to + size, room - 1 - size, 0);
        if (n <= 0)
            break;
        size += (size_t)n;
        to[size] = '\0';
    }
}

static void exchange(const char *request, char answer[16384])
{
    int fd = connect_client();
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    receive(fd, answer, 16384, strstr(request, "Connection: close") ? NULL : "0\r\n\r\n");
    (void)close(fd);
}

static void begin_script(struct script *script, pthread_t *thread)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    upstream = pair[0];
    script->fd = pair[1];
    assert_int_equal(pthread_create(thread, NULL, play, script), 0);
}

static void pass(struct script *script, const char *request, char answer[16384])
{
    pthread_t thread;
    begin_script(script, &thread);
    exchange(request, answer);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void header_and_body_are_passed_on(void **state)
{
    struct script script = {.until = "hello",
                            .answer = "HTTP/1.1 202 Fine\r\nContent-Length: 3\r\nX-A: b\r\nSet-Cookie: c=1\r\n"
                                      "Set-Cookie: d=2\r\nConnection: X-Hop\r\nX-Hop: no\r\n\r\nabc"};
    char answer[16384];
    int before = finished;
    pass(&script,
         "POST /a%2Fb?x=%20+&y HTTP/1.1\r\nHost: one.example\r\nContent-Length: 5\r\nX-Secret: s\r\nX-Seen: t\r\n"
         "Connection: close, X-Mine\r\nX-Mine: u\r\n\r\nhello",
         answer);
    assert_non_null(strstr(script.got, "POST /a%2Fb?x=%20+&y HTTP/1.1\r\nHost: one.example\r\n"));
    assert_non_null(strstr(script.got, "X-Seen: t\r\n"));
    assert_null(strstr(script.got, "X-Secret"));
    assert_null(strstr(script.got, "X-Mine"));
    assert_non_null(strstr(answer, "HTTP/1.1 202"));
    assert_non_null(strstr(answer, "X-A: b\r\n"));
    assert_non_null(strstr(answer, "Set-Cookie: c=1\r\n"));
    assert_non_null(strstr(answer, "Set-Cookie: d=2\r\n"));
    assert_null(strstr(answer, "X-Hop"));
    assert_null(strstr(answer, "no-store")); /* nothing of ours */
    assert_non_null(strstr(answer, "Content-Length: 3\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\nabc"));
    assert_int_equal(finished, before + 1);
}

static void chunked_both_ways(void **state)
{
    struct script script = {.until = "0\r\n\r\n",
                            .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                      "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"};
    char answer[16384];
    pass(&script,
         "PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
         "3\r\nxyz\r\n0\r\n\r\n",
         answer);
    assert_non_null(strstr(script.got, "\r\n\r\n3\r\nxyz\r\n0\r\n\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\nabc"));
}

static void head_has_no_body(void **state)
{
    struct script script = {.until = "\r\n\r\n", .answer = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"};
    char answer[16384];
    pass(&script, "HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", answer);
    assert_non_null(strstr(answer, "Content-Length: 500\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

static void a_server_that_says_nothing_or_rubbish(void **state)
{
    struct script silent = {.until = "\r\n\r\n", .answer = ""},
                  rubbish = {.until = "\r\n\r\n", .answer = "SSH-2.0-x\r\n\r\n"};
    char answer[16384];
    pass(&silent, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", answer);
    assert_non_null(strstr(answer, "HTTP/1.1 503"));
    assert_non_null(strstr(answer, "own dialect: the server on this port closed"));
    pass(&rubbish, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", answer);
    assert_non_null(strstr(answer, "is not HTTP/1.1"));
}

/* The server's end stays open and mute; nobody reads it either. */
static void a_server_that_never_says_anything_is_given_up(void **state)
{
    char answer[16384];
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    upstream = pair[0];
    exchange("GET /impatient HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", answer);
    assert_non_null(strstr(answer, "HTTP/1.1 503"));
    assert_non_null(strstr(answer, "own dialect: the server on this port neither took nor sent anything for 1 s"));
    (void)close(pair[1]);
}

static void a_body_that_breaks_off_does_not_look_whole(void **state)
{
    struct script script = {.until = "\r\n\r\n",
                            .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"};
    char answer[16384];
    pass(&script, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n", answer);
    assert_non_null(strstr(answer, "abc"));
    assert_null(strstr(answer, "0\r\n\r\n"));
}

static void an_upgrade_is_two_streams(void **state)
{
    struct script script = {.until = "\r\n\r\n",
                            .echo = true,
                            .answer = "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                      "Sec-WebSocket-Accept: xyz\r\n\r\nfirst"};
    static const char request[] =
        "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        "Sec-WebSocket-Key: k\r\n\r\n";
    pthread_t thread;
    char answer[16384];
    int before = finished;
    begin_script(&script, &thread);
    int fd = connect_client();
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    receive(fd, answer, sizeof answer, "first");
    assert_non_null(strstr(answer, "HTTP/1.1 101"));
    assert_non_null(strstr(answer, "Upgrade: websocket\r\n"));
    assert_non_null(strstr(answer, "Sec-WebSocket-Accept: xyz\r\n"));
    assert_non_null(strstr(script.got, "Upgrade: websocket\r\n"));
    assert_int_equal(send(fd, "ping", 4, 0), 4);
    receive(fd, answer, sizeof answer, "ping");
    assert_non_null(strstr(answer, "ping"));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    receive(fd, answer, sizeof answer, NULL); /* until the other side has ended, too */
    (void)close(fd);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 6000 && finished == before; i++)
        (void)usleep(10000);
    assert_int_equal(finished, before + 1);
}

struct pumped {
    int ends[2], half_ms, socket;
};

static void *pump(void *context)
{
    const struct pumped *pumped = context;
    cordon_http_pump(pumped->ends[0], pumped->socket, pumped->ends[1], pumped->half_ms);
    (void)close(pumped->ends[0]);
    (void)close(pumped->ends[1]);
    return NULL;
}

/* The outer ends of what a thread pumps between. */
static void begin_pump(struct pumped *pumped, int half_ms, int *client, int *upstream_end, pthread_t *thread)
{
    int one[2], other[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, one), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    *pumped = (struct pumped){{one[1], other[1]}, half_ms, one[1]};
    *client = one[0];
    *upstream_end = other[0];
    assert_int_equal(pthread_create(thread, NULL, pump, pumped), 0);
}

static void one_who_left_is_not_held_by_a_server_that_never_ends(void **state)
{
    struct pumped pumped;
    pthread_t thread;
    int client, server_end;
    (void)state;
    begin_pump(&pumped, 50, &client, &server_end, &thread);
    assert_int_equal(shutdown(client, SHUT_WR),
                     0); /* all that is seen of one who left, until something is sent there */
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(client);
    (void)close(server_end);
}

/* As by the server, which wants the place for another (places.c). */
static void one_who_was_cut_off_is_not_waited_for(void **state)
{
    struct pumped pumped;
    pthread_t thread;
    int client, server_end;
    (void)state;
    begin_pump(&pumped, 3600 * 1000, &client, &server_end, &thread);
    assert_int_equal(shutdown(pumped.ends[0], SHUT_RDWR), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(client);
    (void)close(server_end);
}

/* Within TLS what is pumped is libmicrohttpd's socket, which is told nothing of that. */
static void one_who_was_cut_off_within_tls_is_not_waited_for(void **state)
{
    int one[2], other[2], tls[2];
    pthread_t thread;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, one), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, tls), 0);
    struct pumped pumped = {{one[1], other[1]}, 3600 * 1000, tls[0]};
    assert_int_equal(pthread_create(&thread, NULL, pump, &pumped), 0);
    assert_int_equal(shutdown(tls[0], SHUT_RDWR), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(one[0]);
    (void)close(other[0]);
    (void)close(tls[0]);
    (void)close(tls[1]);
}

static void one_who_only_has_no_more_to_say_is_answered(void **state)
{
    struct pumped pumped;
    pthread_t thread;
    char data[8];
    int client, server_end;
    (void)state;
    begin_pump(&pumped, 60000, &client, &server_end, &thread);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    assert_int_equal(recv(server_end, data, sizeof data, 0), 0); /* it was passed on */
    assert_int_equal(send(server_end, "late", 4, MSG_NOSIGNAL), 4);
    assert_int_equal(recv(client, data, sizeof data, 0), 4);
    (void)close(server_end);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(client);
}

static void bodies_are_taken_beyond_the_servers_limit(void **state)
{
    static char request[6000], answer[16384];
    int size = snprintf(request, sizeof request,
                        "POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n");
    memset(request + size, 'x', 5000);
    exchange(request, answer);
    assert_non_null(strstr(answer, "HTTP/1.1 201"));
    assert_non_null(strstr(answer, "X-Own: yes\r\n"));
}

static void refusals_are_told_in_the_doors_words(void **state)
{
    char answer[16384];
    int before = dismissed;
    exchange("POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", answer);
    assert_non_null(strstr(answer, "HTTP/1.1 413"));
    assert_non_null(strstr(answer, "own dialect: no"));
    exchange("POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsay bad", answer);
    assert_non_null(strstr(answer, "HTTP/1.1 400"));
    exchange("POST /take HTTP/1.1\r\nHost: h\r\nX-Deny: 1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
             answer);
    assert_non_null(strstr(answer, "HTTP/1.1 401"));
    assert_non_null(strstr(answer, "own dialect: denied"));
    assert_int_equal(dismissed, before + 3);
}

static void queries_are_decoded(void **state)
{
    char to[16];
    assert_int_equal(cordon_http_unescape("a%2Fb+c", 7, false, to), 5);
    assert_memory_equal(to, "a/b+c", 5);
    assert_int_equal(cordon_http_unescape("a+%00", 5, true, to), 3);
    assert_memory_equal(to, "a \0", 3);
    static const char *const bad[] = {"%", "%a", "%zz", "x%2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cordon_http_unescape(bad[i], strlen(bad[i]), false, to), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_body_are_passed_on),
        cmocka_unit_test(chunked_both_ways),
        cmocka_unit_test(head_has_no_body),
        cmocka_unit_test(a_server_that_says_nothing_or_rubbish),
        cmocka_unit_test(a_server_that_never_says_anything_is_given_up),
        cmocka_unit_test(a_body_that_breaks_off_does_not_look_whole),
        cmocka_unit_test(an_upgrade_is_two_streams),
        cmocka_unit_test(one_who_left_is_not_held_by_a_server_that_never_ends),
        cmocka_unit_test(one_who_was_cut_off_is_not_waited_for),
        cmocka_unit_test(one_who_was_cut_off_within_tls_is_not_waited_for),
        cmocka_unit_test(one_who_only_has_no_more_to_say_is_answered),
        cmocka_unit_test(bodies_are_taken_beyond_the_servers_limit),
        cmocka_unit_test(refusals_are_told_in_the_doors_words),
        cmocka_unit_test(queries_are_decoded),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
