/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking gzip as it comes, in pieces of bounded size. */
#ifndef CORDON_E2B_INFLATE_H
#define CORDON_E2B_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

struct cordon_e2b_inflate;

/* take: gets what was unpacked; negative breaks off. NULL: no memory. */
struct cordon_e2b_inflate *cordon_e2b_inflate_new(int (*take)(void *context, const char *data, size_t size),
                                                  void *context);
int cordon_e2b_inflate_feed(struct cordon_e2b_inflate *inflate, const char *data, size_t size); /* -EBADMSG: no gzip */
bool cordon_e2b_inflate_whole(const struct cordon_e2b_inflate *inflate);                        /* its end came */
void cordon_e2b_inflate_free(struct cordon_e2b_inflate *inflate);                               /* NULL is allowed */

#endif
