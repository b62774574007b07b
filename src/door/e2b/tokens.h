/* SPDX-License-Identifier: Apache-2.0 */
/* The access tokens of this door's guests, by which a signed URL's guest is found: it names none. Any thread. */
#ifndef CORDON_E2B_TOKENS_H
#define CORDON_E2B_TOKENS_H

#include "core/guests.h"

/* A guest that was just made. Where there is no memory for it its signed URLs need its address beside them. */
void cordon_e2b_tokens_add(const struct cordon_guest_info *guest);
/* The guest whose token `fits`: 1 and its id, 0, or negative. */
int cordon_e2b_tokens_find(bool (*fits)(void *context, const char *token), void *context, char id[CORDON_GUEST_ID],
                           struct cordon_error *err);

#endif
