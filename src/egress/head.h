/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP/1 request: whom it is for, and what of it goes on. Pure, fuzzed. Strict: what two servers could
 * read in two ways (both lengths, bare line ends, folded lines, a second Host) is refused.
 *
 * One request a connection: what is passed on says "Connection: close", since a second request might be for another
 * host. A WebSocket upgrade is passed on as such; the caller holds back what the guest says after it until the server
 * has agreed.
 */
#ifndef CORDON_EGRESS_HEAD_H
#define CORDON_EGRESS_HEAD_H

#include <stdbool.h>

#include "core/egress.h"

#define CORDON_HEAD_MAX (32u << 10)

enum cordon_head { CORDON_HEAD_MORE = 0, CORDON_HEAD_READ, CORDON_HEAD_BAD };

struct cordon_http_head {
    size_t size; /* with the empty line */
    char host[CORDON_EGRESS_NAME_SIZE];
    uint16_t port; /* that stands in Host; 0: none */
    bool websocket;
    bool echo;   /* the method is TRACE: the answer is the request, its headers with it */
    bool origin; /* the target is a path; else absolute, and names the same host */
};

/* BAD fills *why, in words for the log. */
enum cordon_head cordon_head_read(const char *data, size_t size, struct cordon_http_head *ret, const char **why);

/* Is this the start of a request, even of one that only lenient servers take (blanks before it, any token as method)?
 * READ: its first line names HTTP. MORE: it may yet. BAD: it is none, and will not be one whatever follows. */
enum cordon_head cordon_head_guess(const char *data, size_t size);

/* Appends the head as it goes on to the server, with the policy's headers for name and port put in. *added: how many.
 * 0 or -EMSGSIZE, -ENOMEM. */
int cordon_head_rewrite(const char *data, const struct cordon_http_head *head,
                        const struct cordon_egress_policy *policy, const char *name, uint16_t port,
                        struct cordon_buf *to, unsigned *added);

#endif
