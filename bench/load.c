/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP load generator that costs little CPU: one thread, epoll, keep-alive connections, each with one request at a
 * time. It stands on the machine that it measures, so every cycle it takes is taken from the daemon.
 *
 *     bench_load -P PORT -k KEY [-c CLIENTS] [-n COUNT | -t SECONDS] [-p PAUSE_MS] [-s FIRST] [-a ACCEPT] [-v] [-x]
 * BODY...
 *
 * The bodies take turns. "{N}" in one is the request's number, from FIRST. The program must print "<N>", so that each
 * answer is known to be the one of its own request. An answer counts when its status is 200 and "<N>" is in it. Prints
 * {"us":[…],"seen_us":[…],"bytes":N,"errors":N,"seconds":S}: whole answers, and the time at which "<N>" had come.
 * -v adds "answers":[…], the bodies (they must be JSON). -x: an answer need not hold "<N>".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "sample.h"

#define CLIENTS_MAX 4096u

struct client {
    int sock, timer;
    unsigned long number;
    uint64_t begin_us, seen_us;
    struct cordon_buf out, in;
    size_t body_at;   /* where the body begins in `in`; 0: the head is not complete */
    size_t scan_at;   /* chunked: the next chunk's head; behind it nothing was looked at */
    long long length; /* Content-Length; -1: chunked */
    int status;
    char token[32];
    size_t token_scan;
};

static struct {
    unsigned long port, clients, count, seconds, pause_ms, first;
    const char *key, *path, *accept;
    char **bodies;
    unsigned long body_count;
    int verbose, any;
} plan = {.clients = 1, .count = 100, .key = "", .path = "/v1/runs", .accept = "application/json"};

static struct client clients[CLIENTS_MAX];
static struct bench_samples whole, seen;
static struct cordon_buf answers = CORDON_BUF_INIT(1u << 30);
static unsigned long started, ended, errors;
static uint64_t bytes, until_us;
static int poller;

static void watch(int fd, struct client *client, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)(client - clients) * 2 + (fd == client->timer)};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event) < 0 && epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
        bench_die("epoll_ctl");
}

static void dial(struct client *client)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan.port)};
    int one = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    client->sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->sock < 0 || connect(client->sock, (struct sockaddr *)&to, sizeof to) < 0)
        bench_die("connect");
    (void)setsockopt(client->sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* only slower without */
    watch(client->sock, client, EPOLLIN);
}

static void send_all(struct client *client)
{
    while (client->out.size) {
        ssize_t n = send(client->sock, client->out.data, client->out.size, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            bench_die("send");
        if (n > 0)
            cordon_buf_consume(&client->out, (size_t)n);
    }
}

/* False when no more requests are to be made. */
static int start_next(struct client *client)
{
    if (until_us ? cordon_now_us() >= until_us : started >= plan.count)
        return 0;
    client->number = plan.first + started++;
    char *body = bench_numbered(plan.bodies[client->number % plan.body_count], client->number);
    (void)snprintf(client->token, sizeof client->token, "<%lu>", client->number); /* fits */
    cordon_buf_done(&client->in);
    client->in = CORDON_BUF_INIT(256u << 20);
    client->out = CORDON_BUF_INIT(256u << 20);
    client->body_at = client->scan_at = client->token_scan = 0;
    client->seen_us = 0;
    client->length = -1;
    if (cordon_buf_appendf(&client->out,
                           "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n"
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                           plan.path, plan.key, plan.accept, strlen(body)) < 0 ||
        cordon_buf_appends(&client->out, body) < 0)
        bench_die("request");
    free(body);
    client->begin_us = cordon_now_us();
    send_all(client);
    cordon_buf_done(&client->out);
    return 1;
}

static void read_head(struct client *client)
{
    char *end = memmem(client->in.data, client->in.size, "\r\n\r\n", 4);
    if (!end)
        return;
    *end = '\0';
    client->body_at = client->scan_at = client->token_scan = (size_t)(end - client->in.data) + 4;
    client->status = client->in.size > 12 ? (int)strtol(client->in.data + 9, NULL, 10) : 0;
    for (char *line = client->in.data; line; line = strstr(line, "\r\n")) {
        line += line == client->in.data ? 0 : 2;
        if (!strncasecmp(line, "Content-Length:", 15))
            client->length = strtoll(line + 15, NULL, 10);
    }
}

static int chunks_complete(struct client *client)
{
    while (client->scan_at < client->in.size) {
        char *head = client->in.data + client->scan_at, *after;
        if (!memmem(head, client->in.size - client->scan_at, "\r\n", 2))
            return 0;
        size_t size = strtoul(head, &after, 16);
        size_t next = client->scan_at + (size_t)(strstr(head, "\r\n") - head) + 2 + size + 2;
        if (next > client->in.size)
            return 0;
        client->scan_at = next;
        if (size == 0)
            return 1;
    }
    return 0;
}

static int complete(struct client *client)
{
    if (!client->body_at)
        read_head(client);
    if (!client->body_at)
        return 0;
    if (!client->seen_us && memmem(client->in.data + client->token_scan, client->in.size - client->token_scan,
                                   client->token, strlen(client->token)))
        client->seen_us = cordon_now_us();
    if (!client->seen_us && client->in.size > client->body_at + sizeof client->token)
        client->token_scan = client->in.size - sizeof client->token;
    if (client->length >= 0)
        return client->in.size >= client->body_at + (size_t)client->length;
    return chunks_complete(client);
}

static void finish(struct client *client)
{
    uint64_t now = cordon_now_us();
    ended++;
    bytes += client->in.size;
    if (client->status == 200 && (client->seen_us || plan.any)) {
        bench_add(&whole, now - client->begin_us);
        bench_add(&seen, client->seen_us ? client->seen_us - client->begin_us : 0);
        if (plan.verbose && client->length >= 0) {
            (void)cordon_buf_appends(&answers, answers.size ? "," : ""); /* sticky */
            (void)cordon_buf_append(&answers, client->in.data + client->body_at, (size_t)client->length);
        }
    } else if (errors++ < 3) {
        (void)fprintf(stderr, "bench: answer %d without %s: %.300s\n", client->status, client->token,
                      client->in.data + client->body_at);
    }
}

/* Returns how many clients stopped. */
static unsigned proceed(struct client *client)
{
    if (!plan.pause_ms)
        return !start_next(client);
    struct itimerspec when = {.it_value = {(time_t)(plan.pause_ms / 1000), (long)(plan.pause_ms % 1000) * 1000000}};
    if (timerfd_settime(client->timer, 0, &when, NULL) < 0)
        bench_die("timer");
    return 0;
}

static unsigned on_input(struct client *client)
{
    char *room = cordon_buf_reserve(&client->in, 262144);
    if (!room)
        bench_die("answer");
    ssize_t n = recv(client->sock, room, 262144, 0);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0) {
        errors++;
        (void)close(client->sock); /* the peer ended it */
        dial(client);
        return proceed(client);
    }
    client->in.size += (size_t)n;
    client->in.data[client->in.size] = '\0';
    if (!complete(client))
        return 0;
    finish(client);
    return proceed(client);
}

static unsigned on_timer(struct client *client)
{
    uint64_t times;
    if (read(client->timer, &times, sizeof times) < 0)
        return 0;
    return !start_next(client);
}

static void loop(void)
{
    struct epoll_event events[64];
    unsigned long alive = plan.clients;
    for (unsigned long i = 0; i < plan.clients; i++)
        alive -= (unsigned long)!start_next(&clients[i]);
    while (alive > 0) {
        int n = epoll_wait(poller, events, 64, 300000);
        if (n == 0) {
            (void)fprintf(stderr, "bench: no answer for 300 s\n");
            exit(1);
        }
        for (int i = 0; i < n; i++) {
            struct client *client = &clients[events[i].data.u64 / 2];
            alive -= events[i].data.u64 % 2 ? on_timer(client) : on_input(client);
        }
    }
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "P:k:u:c:n:t:p:s:a:vx")) != -1) {
        switch (option) {
        case 'P':
            plan.port = bench_number(optarg);
            break;
        case 'k':
            plan.key = optarg;
            break;
        case 'u':
            plan.path = optarg;
            break;
        case 'c':
            plan.clients = bench_number(optarg);
            break;
        case 'n':
            plan.count = bench_number(optarg);
            break;
        case 't':
            plan.seconds = bench_number(optarg);
            break;
        case 'p':
            plan.pause_ms = bench_number(optarg);
            break;
        case 's':
            plan.first = bench_number(optarg);
            break;
        case 'a':
            plan.accept = optarg;
            break;
        case 'v':
            plan.verbose = 1;
            break;
        case 'x':
            plan.any = 1;
            break;
        default:
            exit(2);
        }
    }
    if (optind >= argc || plan.clients < 1 || plan.clients > CLIENTS_MAX)
        exit(2);
    plan.bodies = argv + optind;
    plan.body_count = (unsigned long)(argc - optind);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        bench_die("epoll");
    for (unsigned long i = 0; i < plan.clients; i++) {
        clients[i].timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (clients[i].timer < 0)
            bench_die("timer");
        watch(clients[i].timer, &clients[i], EPOLLIN);
        dial(&clients[i]);
    }
    uint64_t begin = cordon_now_us();
    until_us = plan.seconds ? begin + plan.seconds * 1000000 : 0;
    loop();
    double seconds = (double)(cordon_now_us() - begin) / 1e6;
    (void)printf("{");
    bench_print("us", &whole);
    (void)printf(",");
    bench_print("seen_us", &seen);
    (void)printf(",\"bytes\":%llu,\"errors\":%lu,\"seconds\":%.6f,\"answers\":[%s]}\n", (unsigned long long)bytes,
                 errors, seconds, answers.size ? answers.data : "");
    return 0;
}
