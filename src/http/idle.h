/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the HTTP client: pairs of handles with an open connection that nobody uses at the moment. */
#ifndef CORDON_HTTP_IDLE_H
#define CORDON_HTTP_IDLE_H

#include <stdint.h>

#define CORDON_HTTP_IDLE_S 20 /* then a connection is closed rather than used: servers close theirs, too */

struct cordon_http_idle {
    void *multi, *easy; /* CURLM, CURL */
    char origin[256];   /* "https://host:port" */
    uint64_t since_us;
};

/* One for that address, with a connection where there is one: 0, -EINVAL (no http address), -ENOMEM. */
int cordon_http_idle_take(const char *url, struct cordon_http_idle *ret);
void cordon_http_idle_give(struct cordon_http_idle *pair);
void cordon_http_idle_done(struct cordon_http_idle *pair); /* closes it */
void cordon_http_idle_drop(void);                          /* closes all */

#endif
