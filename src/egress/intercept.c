/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a host whose requests get headers, within TLS. To the guest we are that host, by a certificate that
 * our authority signs; to the server we are a client that verifies it. In between there is one HTTP/1.1 request, whose
 * head is judged and rewritten as that of any other (look.c), and its answer.
 *
 *     SHAKING_GUEST -> HEAD -> (connect.c) -> SHAKING_SERVER -> PASSING -> LINGERING
 *
 * Nothing is connected to before the head was judged. What one side does not take is held back, at most a TLS record a
 * direction; else both sides are only read into one buffer of the process.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "egress/head.h"

#define RECORD 16384
#define ROUNDS_A_TURN 16
#define SHAKE_US 10000000u
#define LINGER_US 2000000u
#define EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

enum phase { SHAKING_GUEST, HEAD, CONNECTING, SHAKING_SERVER, PASSING, LINGERING };

/* What of a direction could not be written yet. */
struct held {
    char *data;
    size_t size, at;
    bool ended; /* its source is at its end */
    bool cut;   /* …and has not said so within TLS: neither do we */
};

struct cordon_intercept {
    enum phase phase;
    SSL *guest, *server;
    BIO *hello; /* what was read before TLS took over; NULL: consumed */
    struct held up, down;
};

enum step { WENT_ON, WAITS, OVER, BROKE };

static char record[RECORD]; /* one thread: in use only within a call */

static struct cordon_loop *loop_of(const struct cordon_connection *connection)
{
    return &connection->session->egress->loop;
}

static void drop(struct held *held)
{
    if (held->data)
        explicit_bzero(held->data, held->size);
    free(held->data);
    held->data = NULL;
    held->size = held->at = 0;
}

void cordon_intercept_done(struct cordon_connection *connection)
{
    struct cordon_intercept *self = connection->intercept;
    if (!self)
        return;
    connection->intercept = NULL;
    drop(&self->up);
    drop(&self->down);
    SSL_free(self->guest);
    SSL_free(self->server);
    free(self);
    ERR_clear_error();
}

/* The guest's TLS reads what was read already, then its socket. */
static bool attach_guest(struct cordon_intercept *self, struct cordon_connection *connection)
{
    BIO *to = BIO_new_socket(connection->guest.fd, BIO_NOCLOSE);
    self->hello = BIO_new(BIO_s_mem());
    if (!to || !self->hello ||
        BIO_write(self->hello, connection->in.data, (int)connection->in.size) != (int)connection->in.size) {
        BIO_free(to);
        BIO_free(self->hello);
        self->hello = NULL;
        return false;
    }
    (void)BIO_set_mem_eof_return(self->hello, -1); /* its end is not the connection's; can't fail */
    SSL_set_bio(self->guest, self->hello, to);
    return true;
}

bool cordon_intercept_begin(struct cordon_connection *connection)
{
    struct cordon_intercept *self = calloc(1, sizeof *self);
    connection->intercept = self;
    if (!self)
        return false;
    self->guest = cordon_authority_guest(connection->session->egress->authority, connection->name);
    if (!self->guest || !attach_guest(self, connection))
        return false;
    cordon_buf_done(&connection->in);
    connection->in = CORDON_BUF_INIT(CORDON_HEAD_MAX + RECORD);
    return cordon_source_set(loop_of(connection), &connection->guest, EVENTS) == 0;
}

/* --- one step of TLS --- */

/* What a call that did not succeed means. */
static enum step judge(SSL *ssl, int r)
{
    switch (SSL_get_error(ssl, r)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return WAITS;
    case SSL_ERROR_ZERO_RETURN:
        return OVER;
    default:
        return BROKE;
    }
}

static enum step shake(SSL *ssl)
{
    ERR_clear_error();
    int r = SSL_do_handshake(ssl);
    return r == 1 ? WENT_ON : judge(ssl, r);
}

/* Once what was read before is consumed, the socket takes its place. */
static enum step shake_guest(struct cordon_intercept *self, const struct cordon_connection *connection)
{
    enum step step = shake(self->guest);
    if (!self->hello || BIO_pending(self->hello))
        return step;
    BIO *from = BIO_new_socket(connection->guest.fd, BIO_NOCLOSE);
    if (!from)
        return BROKE;
    SSL_set0_rbio(self->guest, from); /* frees the one before */
    self->hello = NULL;
    return step == WAITS ? shake(self->guest) : step;
}

/* --- the request's head --- */

static enum step read_head(struct cordon_intercept *self, struct cordon_connection *connection, char why[160])
{
    struct cordon_buf *in = &connection->in;
    char *to = cordon_buf_reserve(in, 4096);
    if (!to) {
        (void)snprintf(why, 160, "it says too much without a name");
        return BROKE;
    }
    ERR_clear_error();
    int n = SSL_read(self->guest, to, 4096);
    if (n <= 0)
        return judge(self->guest, n);
    in->size += (size_t)n;
    switch (cordon_look_http(connection, why)) {
    case CORDON_LOOK_MORE:
        return WENT_ON;
    case CORDON_LOOK_PASSED:
        self->phase = CONNECTING;
        return WENT_ON;
    default:
        return BROKE;
    }
}

/* --- both directions --- */

/* Writes what there is; keeps the rest. */
static enum step write_held(SSL *to, struct held *held)
{
    while (held->at < held->size) {
        ERR_clear_error();
        int n = SSL_write(to, held->data + held->at, (int)(held->size - held->at));
        if (n <= 0)
            return judge(to, n);
        held->at += (size_t)n;
    }
    drop(held);
    return WENT_ON;
}

static enum step hold(struct held *held, const char *data, size_t size)
{
    held->data = malloc(size);
    if (!held->data)
        return BROKE;
    memcpy(held->data, data, size);
    held->size = size;
    held->at = 0;
    return WAITS;
}

/* The source is at its end: the target is told, in the same way. */
static enum step end(SSL *from, SSL *to, struct held *held)
{
    unsigned long error = ERR_peek_error();
    held->ended = true;
    held->cut = !(SSL_get_shutdown(from) & SSL_RECEIVED_SHUTDOWN);
    if (held->cut && ERR_GET_REASON(error) != SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return BROKE;
    ERR_clear_error();
    if (!held->cut)
        (void)SSL_shutdown(to); /* a few bytes; a target that does not take them has its socket closed as well */
    return OVER;
}

static enum step move(SSL *from, SSL *to, struct held *held, uint64_t *bytes, uint64_t *count)
{
    enum step step = write_held(to, held);
    if (step != WENT_ON || held->ended)
        return step == WENT_ON ? OVER : step;
    ERR_clear_error();
    int n = SSL_read(from, record, sizeof record);
    if (n <= 0) {
        step = judge(from, n);
        return step == WAITS ? WAITS : end(from, to, held);
    }
    *bytes += (size_t)n;
    *count += (size_t)n;
    int written = SSL_write(to, record, n);
    if (written == n)
        return WENT_ON;
    if (written <= 0 && (step = judge(to, written)) != WAITS)
        return BROKE;
    written = written > 0 ? written : 0;
    return hold(held, record + written, (size_t)(n - written));
}

/* The rewritten head, and what came of the body with it. */
static enum step send_out(struct cordon_intercept *self, struct cordon_connection *connection)
{
    struct cordon_buf *out = &connection->out;
    while (connection->out_at < out->size) {
        size_t size = out->size - connection->out_at;
        ERR_clear_error();
        int n = SSL_write(self->server, out->data + connection->out_at, size < RECORD ? (int)size : RECORD);
        if (n <= 0)
            return judge(self->server, n);
        connection->out_at += (size_t)n;
        connection->up.bytes += (size_t)n;
        connection->session->log.counts.sent += (size_t)n;
    }
    cordon_buf_wipe(out);
    connection->out_at = 0;
    return WENT_ON;
}

/* Has the server agreed to the upgrade? Until then nothing more goes there. */
static enum step see_101(struct cordon_intercept *self, struct cordon_connection *connection)
{
    static const char agreed[] = "HTTP/1.1 101 ";
    char start[sizeof agreed - 1];
    ERR_clear_error();
    int n = SSL_peek(self->server, start, sizeof start);
    if (n <= 0 && judge(self->server, n) == WAITS)
        return WAITS;
    connection->waits_for_101 = false;
    if (n != (int)sizeof start || memcmp(start, agreed, sizeof start) != 0)
        self->up.ended = true; /* an answer like any other, and no more is to be asked */
    if (!self->up.ended && connection->in.size && hold(&self->up, connection->in.data, connection->in.size) == BROKE)
        return BROKE;
    cordon_buf_wipe(&connection->in);
    return WENT_ON;
}

static enum step pass(struct cordon_intercept *self, struct cordon_connection *connection)
{
    struct cordon_egress_counts *counts = &connection->session->log.counts;
    enum step up = send_out(self, connection);
    if (up == WENT_ON && connection->waits_for_101) {
        up = see_101(self, connection);
        cordon_connection_upgrade(connection);
    }
    if (up == WENT_ON)
        up = move(self->guest, self->server, &self->up, &connection->up.bytes, &counts->sent);
    enum step down = connection->waits_for_101
                         ? WAITS
                         : move(self->server, self->guest, &self->down, &connection->down.bytes, &counts->received);
    if (down == BROKE || (up == BROKE && !self->down.ended))
        return BROKE;
    if (self->down.ended && !self->down.data)
        return OVER; /* the answer is whole */
    return up == WENT_ON || down == WENT_ON ? WENT_ON : WAITS;
}

/* --- the phases --- */

static void refuse(struct cordon_connection *connection, const char *what, SSL *ssl)
{
    char why[160];
    long verified = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
    const char *reason =
        verified != X509_V_OK ? X509_verify_cert_error_string(verified) : ERR_reason_error_string(ERR_peek_error());
    (void)snprintf(why, sizeof why, "%s: %.90s", what, reason ? reason : "the connection ended");
    cordon_connection_cut(connection, true, NULL, why);
}

/* The answer is on its way to the guest: what it says now is read away, so that no reset overtakes the answer. */
static void linger(struct cordon_intercept *self, struct cordon_connection *connection)
{
    self->phase = LINGERING;
    cordon_source_close(loop_of(connection), &connection->server);
    (void)shutdown(connection->guest.fd, SHUT_WR); /* one that is gone is noticed by the next read */
    cordon_timer_arm(loop_of(connection), &connection->timer, LINGER_US);
}

/* True: it is over, and gone. */
static bool read_away(struct cordon_connection *connection)
{
    for (int i = 0; i < ROUNDS_A_TURN; i++) {
        ssize_t n = recv(connection->guest.fd, record, sizeof record, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            cordon_connection_end(connection);
            return true;
        }
    }
    return false;
}

/* One step of the phase that it is in. OVER: it is gone. */
static enum step advance(struct cordon_intercept *self, struct cordon_connection *connection)
{
    char why[160] = "it ended before it named a host";
    enum step step = WAITS;
    switch (self->phase) {
    case SHAKING_GUEST:
        step = shake_guest(self, connection);
        if (step == WENT_ON)
            self->phase = HEAD;
        else if (step != WAITS)
            refuse(connection, "the guest does not take the certificate for hosts with headers", NULL);
        break;
    case HEAD:
        step = read_head(self, connection, why);
        if (step == WENT_ON && self->phase == CONNECTING) {
            cordon_connect_begin(connection); /* may end it */
            return OVER;
        }
        if (step == BROKE || step == OVER)
            cordon_connection_cut(connection, true, NULL, why);
        break;
    case CONNECTING:
        break;
    case SHAKING_SERVER:
        step = shake(self->server);
        if (step == WENT_ON) {
            self->phase = PASSING;
            cordon_timer_cancel(loop_of(connection), &connection->timer);
            cordon_connection_established(connection);
        } else if (step != WAITS) {
            refuse(connection, "TLS with the server", self->server);
        }
        break;
    case PASSING:
        step = pass(self, connection);
        if (step == OVER) {
            linger(self, connection);
            step = WENT_ON;
        } else if (step == BROKE) {
            cordon_connection_cut(connection, false, NULL, "it broke");
        }
        break;
    case LINGERING:
        step = read_away(connection) ? OVER : WAITS;
        break;
    }
    return step == BROKE ? OVER : step;
}

void cordon_intercept_event(struct cordon_connection *connection)
{
    struct cordon_intercept *self = connection->intercept;
    enum step step = WENT_ON;
    for (int round = 0; round < ROUNDS_A_TURN && step == WENT_ON; round++)
        step = advance(self, connection);
    if (step != WENT_ON)
        return; /* it waits, or is gone, or waits for its server */
    /* Its share of this turn is used up: set again, the events come at once. */
    (void)cordon_source_set(loop_of(connection), &connection->guest, EVENTS); /* they are set already */
    if (connection->server.fd >= 0)
        (void)cordon_source_set(loop_of(connection), &connection->server, EVENTS);
}

void cordon_intercept_connected(struct cordon_connection *connection)
{
    struct cordon_intercept *self = connection->intercept;
    self->server = cordon_authority_server(connection->session->egress->authority, connection->name);
    if (!self->server || SSL_set_fd(self->server, connection->server.fd) != 1 ||
        cordon_source_set(loop_of(connection), &connection->server, EVENTS) < 0) {
        cordon_connection_cut(connection, true, NULL, "no memory for TLS");
        return;
    }
    self->phase = SHAKING_SERVER;
    cordon_timer_arm(loop_of(connection), &connection->timer, SHAKE_US);
    cordon_intercept_event(connection);
}

bool cordon_intercept_lingers(const struct cordon_connection *connection)
{
    return connection->intercept && connection->intercept->phase == LINGERING;
}
