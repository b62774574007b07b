/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to other HTTP servers, over libcurl. TLS is always verified, redirects are answers like any other, a proxy is
 * what the environment names. Each call has an end in time, each answer one in size. Connections are kept and used
 * again. Any thread; a transfer belongs to one thread at a time. Nothing here blocks longer than its deadline or than
 * its cancel_fd's peer is there.
 */
#ifndef CORDON_HTTP_CLIENT_H
#define CORDON_HTTP_CLIENT_H

#include <cordon/backend.h>

#include "base/buf.h"

/* Which calls may be sent a second time. A call that may have had its effect is never sent again unless it is SAFE. */
enum cordon_http_retry {
    CORDON_HTTP_RETRY_NEVER,
    CORDON_HTTP_RETRY_REFUSED, /* when the server said that it did nothing: 429, 503 */
    CORDON_HTTP_RETRY_SAFE     /* also on network errors, 408, 500, 502, 504: the effect is the same twice */
};

struct cordon_http_call {
    const char *method;
    const char *url;            /* http or https */
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    struct cordon_bytes body;   /* data NULL: none */
    uint64_t deadline_us;       /* on cordon_now_us's clock; 0: 60 s from now */
    size_t answer_max;          /* of the answer's body; 0: 1 MiB */
    int cancel_fd;              /* as in a run's request; -1: none */
    enum cordon_http_retry retry;
};

/* Once, before others use it and while the files can be read: the authorities that are trusted (SSL_CERT_FILE, else
 * Debian's bundle). Without them every https call fails, in words that say so. */
int cordon_http_client_setup(struct cordon_error *err);
/* Closes idle connections and frees; no transfer may be open. */
void cordon_http_client_shutdown(void);

struct cordon_http_transfer;
/* Sends and waits for the answer's header. Errors: UNAVAILABLE when not a byte of the request was sent, else
 * INFRASTRUCTURE; CANCELLED. The call is borrowed until it returns: a server that answered before it had read the whole
 * request, and reads on, gets no more of it, and the transfer fails. */
int cordon_http_open(const struct cordon_http_call *call, struct cordon_http_transfer **ret, struct cordon_error *err);
unsigned cordon_http_status(const struct cordon_http_transfer *transfer);
/* A new end in time; a transfer whose time was over can go on with it. */
void cordon_http_extend(struct cordon_http_transfer *transfer, uint64_t deadline_us);
/* 1 and the next bytes of the body (borrowed until the next call), 0 at its end, or negative. */
int cordon_http_read(struct cordon_http_transfer *transfer, struct cordon_bytes *ret, struct cordon_error *err);
/* Ends it; a body that was not read to its end costs the connection. NULL is allowed. */
void cordon_http_close(struct cordon_http_transfer *transfer);

struct cordon_http_answer {
    unsigned status;
    unsigned retry_after_s;
    struct cordon_buf body;
};
/* A whole exchange, repeated where the call allows it. The answer's body is freed by the caller, also after an error.
 */
int cordon_http_exchange(const struct cordon_http_call *call, struct cordon_http_answer *ret, struct cordon_error *err);

/* Waits until the deadline or until cancel_fd's peer left: 0, or -ECANCELED with err. */
int cordon_http_pause(uint64_t until_us, int cancel_fd, struct cordon_error *err);

/* Appends the bytes percent-encoded (RFC 3986, everything but unreserved characters). */
int cordon_url_encode(struct cordon_buf *to, const char *data, size_t size);
/* Is it http://localhost, http://127.…, http://[::1]… or the same with https? */
bool cordon_url_is_loopback(const char *url);

#endif
