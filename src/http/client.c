/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transfer = one easy handle in a multi handle of its own, driven by our own poll(), so that a client who leaves
 * ends the transfer at once. The pair keeps its connection when it is idle, and the next transfer to the same origin
 * takes it over; nothing is shared between threads but the list of idle pairs and the trusted authorities.
 *
 * libcurl by itself sends a request again when a kept connection turns out dead. It may do so with a body only when it
 * can rewind it, which a call that is not SAFE does not offer: once a byte of such a body is out, it is out once.
 */
#include "http/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/instance.h"
#include "http/idle.h"

#define AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"
#define USUAL_US 60000000u
#define CONNECT_MS 10000L
#define USUAL_ANSWER (1u << 20)
#define HEADER_MAX (64u << 10)
#define WINDOW (64u << 10) /* received and not yet read; more is left in the kernel */
#define ATTEMPTS 3
#define BACKOFF_US 200000u
#define RETRY_AFTER_MAX_S 10u
#define SOCKETS_MAX 8

struct cordon_http_transfer {
    struct cordon_http_call call;
    char *url;                    /* call.url: errors name it when the caller's is long gone */
    bool let_go;                  /* the rest of call is the caller's again */
    struct cordon_http_idle pair; /* multi, easy, origin */
    struct curl_slist *headers;
    struct pollfd sockets[SOCKETS_MAX];
    size_t socket_count;
    uint64_t timer_us; /* when libcurl wants to be called; 0: not */
    uint64_t deadline_us;
    size_t sent;         /* of the body */
    size_t header_bytes; /* received */
    uint64_t received;   /* of the answer's body */
    struct cordon_buf body;
    size_t given; /* of body, by the last read */
    bool header_done, done, paused, too_large, added;
    CURLcode result;
    unsigned status, retry_after_s;
    char text[CURL_ERROR_SIZE];
};

static X509_STORE *authorities;
static char authorities_missing[256];

int cordon_http_client_setup(struct cordon_error *err)
{
    const char *named = getenv("SSL_CERT_FILE");
    const char *path = named && *named ? named : AUTHORITIES;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return cordon_fail(err, -ENOMEM, CORDON_ERROR_INFRASTRUCTURE, "libcurl can not be used");
    if (authorities)
        return 0;
    authorities = X509_STORE_new();
    if (!authorities)
        return cordon_fail_errno(err, -ENOMEM, "reading the trusted authorities");
    (void)X509_STORE_set_flags(authorities, X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_PARTIAL_CHAIN); /* can't fail */
    if (X509_STORE_load_file(authorities, path) != 1)
        (void)snprintf(authorities_missing, sizeof authorities_missing,
                       " (%.150s, which names the trusted authorities, could not be read at the start)", path);
    return 0;
}

void cordon_http_client_shutdown(void)
{
    cordon_http_idle_drop();
    X509_STORE_free(CORDON_TAKE(authorities));
    curl_global_cleanup();
}

static CURLcode on_tls(CURL *easy, void *context, void *user)
{
    (void)SSL_CTX_set1_cert_store(context, authorities); /* void */
    return CURLE_OK;
}

static size_t on_body(char *data, size_t one, size_t size, void *user)
{
    struct cordon_http_transfer *self = user;
    if (self->body.size - self->given >= WINDOW) {
        self->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    self->received += size;
    self->too_large = self->received > self->call.answer_max;
    if (self->too_large || cordon_buf_append(&self->body, data, size) < 0)
        return 0; /* ends it with CURLE_WRITE_ERROR */
    self->header_done = true;
    return size;
}

static size_t on_upload(char *to, size_t one, size_t room, void *user)
{
    struct cordon_http_transfer *self = user;
    if (self->let_go && self->sent < self->call.body.size)
        return CURL_READFUNC_ABORT;
    size_t left = self->call.body.size - self->sent;
    size_t size = left < one * room ? left : one * room;
    memcpy(to, self->call.body.data + self->sent, size);
    self->sent += size;
    return size;
}

static int on_rewind(void *user, curl_off_t offset, int origin)
{
    struct cordon_http_transfer *self = user;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > self->call.body.size)
        return CURL_SEEKFUNC_FAIL;
    self->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t on_header(char *data, size_t one, size_t size, void *user)
{
    struct cordon_http_transfer *self = user;
    static const char name[] = "retry-after:";
    self->header_bytes += size;
    if (self->header_bytes > HEADER_MAX)
        return 0;
    if (size > sizeof name && strncasecmp(data, name, sizeof name - 1) == 0) {
        char number[16] = "";
        (void)snprintf(number, sizeof number, "%.*s", (int)(size - sizeof name + 1), data + sizeof name - 1);
        long seconds = strtol(number, NULL, 10); /* a date means: not said */
        self->retry_after_s = seconds > 0 && seconds < 86400 ? (unsigned)seconds : 0;
    }
    if (size == 2 && data[0] == '\r') { /* the end of a header: of 100 Continue, or of the answer */
        long status = 0;
        (void)curl_easy_getinfo(self->pair.easy, CURLINFO_RESPONSE_CODE, &status); /* stays 0 */
        self->header_done = self->header_done || status >= 200;
    }
    return size;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *none)
{
    struct cordon_http_transfer *self = user;
    size_t i = 0;
    while (i < self->socket_count && self->sockets[i].fd != fd)
        i++;
    if (what == CURL_POLL_REMOVE) {
        if (i < self->socket_count)
            self->sockets[i] = self->sockets[--self->socket_count];
        return 0;
    }
    if (i == SOCKETS_MAX)
        return -1;
    self->socket_count += i == self->socket_count;
    self->sockets[i] = (struct pollfd){
        .fd = fd, .events = (short)((what & CURL_POLL_IN ? POLLIN : 0) | (what & CURL_POLL_OUT ? POLLOUT : 0))};
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
    struct cordon_http_transfer *self = user;
    self->timer_us = ms < 0 ? 0 : cordon_now_us() + (uint64_t)ms * 1000 + 1;
    return 0;
}

static bool add_header(struct cordon_http_transfer *self, const char *line)
{
    struct curl_slist *longer = curl_slist_append(self->headers, line);
    self->headers = longer ? longer : self->headers;
    return longer;
}

static bool set_headers(struct cordon_http_transfer *self)
{
    char own[128];
    (void)snprintf(own, sizeof own, CORDON_INSTANCE_HEADER ": %s", cordon_instance_id()); /* fits */
    bool good = add_header(self, own) && add_header(self, "Expect:") && add_header(self, "User-Agent: cordon");
    for (size_t i = 0; good && self->call.headers && self->call.headers[i]; i++)
        good = add_header(self, self->call.headers[i]);
    return good;
}

static void set_body(struct cordon_http_transfer *self)
{
    CURL *easy = self->pair.easy;
    if (!self->call.body.data) {
        (void)curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
        return;
    }
    (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)self->call.body.size);
    (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    (void)curl_easy_setopt(easy, CURLOPT_READDATA, self);
    if (self->call.retry == CORDON_HTTP_RETRY_SAFE) {
        (void)curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_rewind);
        (void)curl_easy_setopt(easy, CURLOPT_SEEKDATA, self);
    }
}

static void allow_http_only(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else /* Ubuntu 22.04's 7.81 */
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

/* Options with constant arguments fail only for want of memory, which the transfer then tells. */
static void set_options(struct cordon_http_transfer *self)
{
    CURL *easy = self->pair.easy;
    curl_easy_reset(easy); /* keeps the connection */
    allow_http_only(easy);
    (void)curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(easy, CURLOPT_CAINFO, NULL); /* all that is trusted comes by on_tls */
    (void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    (void)curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    (void)curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    (void)curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)CORDON_HTTP_IDLE_S);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 16384L);
    (void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, self->text);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, self);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, self);
    (void)curl_easy_setopt(easy, CURLOPT_URL, self->call.url);
    set_body(self);
    (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, self->call.method);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, self->headers);
    CURLM *multi = self->pair.multi;
    (void)curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, self);
    (void)curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(multi, CURLMOPT_TIMERDATA, self);
    (void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 2L);
}

static void take_end(struct cordon_http_transfer *self)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(self->pair.multi, &left));) {
        if (message->msg != CURLMSG_DONE)
            continue;
        self->done = true;
        self->result = message->data.result;
    }
}

/* Nothing was sent: the request can't have had an effect. */
static bool unsent(const struct cordon_http_transfer *self)
{
    long size = 0;
    (void)curl_easy_getinfo(self->pair.easy, CURLINFO_REQUEST_SIZE, &size); /* stays 0 */
    return size == 0;
}

static int fail_transfer(struct cordon_http_transfer *self, int code, const char *why, struct cordon_error *err)
{
    bool tls = self->result == CURLE_PEER_FAILED_VERIFICATION || self->result == CURLE_SSL_CONNECT_ERROR;
    return cordon_fail(err, code, unsent(self) ? CORDON_ERROR_UNAVAILABLE : CORDON_ERROR_INFRASTRUCTURE,
                       "%s %.200s: %s%s", self->call.method, self->call.url, why, tls ? authorities_missing : "");
}

static int fail_ended(struct cordon_http_transfer *self, struct cordon_error *err)
{
    char text[CURL_ERROR_SIZE + 64];
    if (self->too_large) {
        (void)snprintf(text, sizeof text, "the answer is larger than %zu bytes", self->call.answer_max);
        return fail_transfer(self, -EMSGSIZE, text, err);
    }
    if (self->header_bytes > HEADER_MAX)
        return fail_transfer(self, -EMSGSIZE, "the answer's header is larger than 64 KiB", err);
    if (self->result ==
        CURLE_SEND_FAIL_REWIND) /* libcurl would have sent it once more, for which it has not our leave */
        return fail_transfer(self, -EPIPE, "the server closed the connection that was kept, without an answer", err);
    if (self->result == CURLE_ABORTED_BY_CALLBACK)
        return fail_transfer(self, -EPIPE, "the server answered before it had read the whole request, and then read on",
                             err);
    bool refused = self->result == CURLE_COULDNT_CONNECT || self->result == CURLE_COULDNT_RESOLVE_HOST;
    return fail_transfer(self, refused ? -ECONNREFUSED : -EIO,
                         *self->text ? self->text : curl_easy_strerror(self->result), err);
}

static int cancelled(struct cordon_error *err)
{
    return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the run was cancelled: its client left");
}

/* Milliseconds until the earlier of two times (0: none), rounded up. */
static int until_ms(uint64_t a, uint64_t b)
{
    uint64_t now = cordon_now_us(), at = a && (!b || a < b) ? a : b;
    uint64_t ms = at > now ? (at - now + 999) / 1000 : 0;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* One wait and what libcurl makes of it. */
static int step(struct cordon_http_transfer *self, struct cordon_error *err)
{
    struct pollfd fds[SOCKETS_MAX + 1];
    size_t count = self->socket_count;
    int running, r;
    memcpy(fds, self->sockets, count * sizeof *fds);
    fds[count] = (struct pollfd){.fd = self->call.cancel_fd, .events = POLLRDHUP};
    r = poll(fds, count + 1, until_ms(self->timer_us, self->deadline_us));
    if (r < 0 && errno != EINTR)
        return cordon_fail_errno(err, -errno, "waiting for %.200s", self->call.url);
    if (r > 0 && fds[count].revents)
        return cancelled(err);
    uint64_t now = cordon_now_us();
    for (size_t i = 0; r > 0 && i < count; i++) {
        short got = fds[i].revents;
        int bits = (got & (POLLIN | POLLHUP) ? CURL_CSELECT_IN : 0) | (got & POLLOUT ? CURL_CSELECT_OUT : 0) |
                   (got & (POLLERR | POLLNVAL) ? CURL_CSELECT_ERR : 0);
        if (bits && curl_multi_socket_action(self->pair.multi, fds[i].fd, bits, &running) != CURLM_OK)
            return fail_transfer(self, -ENOMEM, "libcurl failed", err);
    }
    if (self->timer_us && now >= self->timer_us) {
        self->timer_us = 0;
        (void)curl_multi_socket_action(self->pair.multi, CURL_SOCKET_TIMEOUT, 0, &running); /* told by take_end */
    }
    take_end(self);
    if (!self->done && now >= self->deadline_us)
        return fail_transfer(self, -ETIMEDOUT, "no whole answer came in time", err);
    return 0;
}

static int start(struct cordon_http_transfer *self, struct cordon_error *err)
{
    int r = cordon_http_idle_take(self->call.url, &self->pair);
    if (r < 0)
        return r == -EINVAL
                   ? cordon_fail(err, r, CORDON_ERROR_INVALID, "%.200s is no http or https address", self->call.url)
                   : cordon_fail_errno(err, r, "calling %.200s", self->call.url);
    if (!set_headers(self))
        return cordon_fail_errno(err, -ENOMEM, "calling %.200s", self->call.url);
    set_options(self);
    if (curl_multi_add_handle(self->pair.multi, self->pair.easy) != CURLM_OK)
        return cordon_fail_errno(err, -ENOMEM, "calling %.200s", self->call.url);
    self->added = true;
    while (!self->header_done && !self->done && r == 0)
        r = step(self, err);
    if (r == 0 && self->done && self->result != CURLE_OK)
        r = fail_ended(self, err);
    long status = 0;
    (void)curl_easy_getinfo(self->pair.easy, CURLINFO_RESPONSE_CODE, &status); /* stays 0 */
    self->status = (unsigned)status;
    return r;
}

static int open_call(const struct cordon_http_call *call, struct cordon_http_transfer **ret, struct cordon_error *err)
{
    struct cordon_http_transfer *self = calloc(1, sizeof *self);
    char *url = strdup(call->url);
    if (!self || !url) {
        free(self);
        free(url);
        return cordon_fail_errno(err, -ENOMEM, "calling %.200s", call->url);
    }
    self->call = *call;
    self->call.url = self->url = url;
    self->call.answer_max = call->answer_max ? call->answer_max : USUAL_ANSWER;
    self->deadline_us = call->deadline_us ? call->deadline_us : cordon_now_us() + USUAL_US;
    self->body = CORDON_BUF_INIT(WINDOW + CURL_MAX_WRITE_SIZE * 2);
    int r = start(self, err);
    if (r < 0)
        cordon_http_close(self);
    else
        *ret = self;
    return r;
}

int cordon_http_open(const struct cordon_http_call *call, struct cordon_http_transfer **ret, struct cordon_error *err)
{
    int r = open_call(call, ret, err);
    if (r == 0)
        (*ret)->let_go = true;
    return r;
}

unsigned cordon_http_status(const struct cordon_http_transfer *transfer)
{
    return transfer->status;
}

void cordon_http_extend(struct cordon_http_transfer *transfer, uint64_t deadline_us)
{
    transfer->deadline_us = deadline_us;
}

int cordon_http_read(struct cordon_http_transfer *self, struct cordon_bytes *ret, struct cordon_error *err)
{
    int r = 0;
    cordon_buf_consume(&self->body, self->given);
    self->given = 0;
    if (self->paused && self->body.size < WINDOW) {
        self->paused = false;
        (void)curl_easy_pause(self->pair.easy, CURLPAUSE_CONT); /* what it fails with, the transfer ends with */
        take_end(self);
    }
    while (!self->body.size && !self->done && r == 0)
        r = step(self, err);
    if (r < 0)
        return r;
    if (self->body.size) {
        self->given = self->body.size;
        *ret = (struct cordon_bytes){self->body.data, self->body.size};
        return 1;
    }
    return self->result == CURLE_OK ? 0 : fail_ended(self, err);
}

void cordon_http_close(struct cordon_http_transfer *self)
{
    if (!self)
        return;
    bool whole = self->done && self->result == CURLE_OK && !self->body.failed;
    if (self->added)
        (void)curl_multi_remove_handle(self->pair.multi, self->pair.easy); /* can't fail for one that was added */
    if (self->pair.multi) {
        (void)curl_multi_setopt(self->pair.multi, CURLMOPT_SOCKETFUNCTION, NULL); /* they point to self */
        (void)curl_multi_setopt(self->pair.multi, CURLMOPT_TIMERFUNCTION, NULL);
    }
    if (whole)
        cordon_http_idle_give(&self->pair);
    else
        cordon_http_idle_done(&self->pair);
    curl_slist_free_all(self->headers);
    cordon_buf_done(&self->body);
    free(self->url);
    free(self);
}

/* --- whole exchanges --- */

static int exchange_once(const struct cordon_http_call *call, struct cordon_http_answer *ret, struct cordon_error *err)
{
    struct cordon_http_transfer *transfer;
    struct cordon_bytes data;
    ret->body = CORDON_BUF_INIT(call->answer_max ? call->answer_max : USUAL_ANSWER);
    int r = open_call(call, &transfer, err);
    if (r < 0)
        return r;
    ret->status = transfer->status;
    ret->retry_after_s = transfer->retry_after_s;
    while ((r = cordon_http_read(transfer, &data, err)) > 0)
        if (cordon_buf_append(&ret->body, data.data, data.size) < 0) {
            r = cordon_fail_errno(err, -ENOMEM, "reading the answer of %.200s", call->url);
            break;
        }
    cordon_http_close(transfer);
    return r;
}

/* May what came of this attempt be followed by another one? */
static bool again(const struct cordon_http_call *call, int r, const struct cordon_http_answer *answer)
{
    unsigned status = answer->status;
    bool safe = call->retry == CORDON_HTTP_RETRY_SAFE;
    if (call->retry == CORDON_HTTP_RETRY_NEVER || r == -ECANCELED || r == -EMSGSIZE || r == -ENOMEM || r == -EINVAL)
        return false;
    if (r < 0)
        return safe;
    return status == 429 || status == 503 ||
           (safe && (status == 408 || status == 500 || status == 502 || status == 504));
}

int cordon_http_exchange(const struct cordon_http_call *call, struct cordon_http_answer *ret, struct cordon_error *err)
{
    struct cordon_http_call timed = *call;
    uint16_t jitter = 0;
    timed.deadline_us = call->deadline_us ? call->deadline_us : cordon_now_us() + USUAL_US;
    *ret = (struct cordon_http_answer){.body = CORDON_BUF_INIT(0)};
    for (unsigned attempt = 1;; attempt++) {
        int r = exchange_once(&timed, ret, err);
        if (attempt == ATTEMPTS || !again(call, r, ret))
            return r;
        if (getrandom(&jitter, sizeof jitter, GRND_NONBLOCK) != (ssize_t)sizeof jitter)
            jitter = 0;
        uint64_t wait_us = (BACKOFF_US << attempt) * (32768u + jitter) / 98304u;
        if (ret->retry_after_s > RETRY_AFTER_MAX_S)
            return r;
        if (ret->retry_after_s)
            wait_us = ret->retry_after_s * 1000000ull;
        if (cordon_now_us() + wait_us >= timed.deadline_us)
            return r;
        cordon_buf_done(&ret->body);
        ret->status = ret->retry_after_s = 0;
        r = cordon_http_pause(cordon_now_us() + wait_us, call->cancel_fd, err);
        if (r < 0)
            return r;
    }
}

int cordon_http_pause(uint64_t until_us, int cancel_fd, struct cordon_error *err)
{
    for (;;) {
        struct pollfd left = {.fd = cancel_fd, .events = POLLRDHUP};
        int r = poll(&left, 1, until_ms(until_us, 0));
        if (r > 0 && left.revents)
            return cancelled(err);
        if (cordon_now_us() >= until_us)
            return 0;
    }
}

int cordon_url_encode(struct cordon_buf *to, const char *data, size_t size)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < size; i++) {
        bool kept = data[i] && strchr(plain, data[i]);
        int r = kept ? cordon_buf_append(to, data + i, 1) : cordon_buf_appendf(to, "%%%02X", (unsigned char)data[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

bool cordon_url_is_loopback(const char *url)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = strstr(url, "://");
    if (!host)
        return false;
    host += 3;
    size_t size = strcspn(host, "/?#");
    if (size > 2 && *host == '[')
        size = strcspn(host, "]") + 1;
    else
        size = strcspn(host, ":/?#");
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (strlen(hosts[i]) == size && strncasecmp(hosts[i], host, size) == 0)
            return true;
    return false;
}
