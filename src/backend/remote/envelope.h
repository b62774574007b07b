/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of Connect's streams (1 byte of flags, 4 of length, a JSON message), and lines, as they come in pieces.
 * Pure, fuzzed: the other end is hostile.
 */
#ifndef CORDON_BACKEND_REMOTE_ENVELOPE_H
#define CORDON_BACKEND_REMOTE_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define CORDON_ENVELOPE_MAX (8u << 20) /* of one message or line */
enum { CORDON_ENVELOPE_COMPRESSED = 1, CORDON_ENVELOPE_END = 2 };

/* Appends one frame. */
int cordon_envelope_put(struct cordon_buf *to, unsigned flags, const char *data, size_t size);
/* The message at the front of what has come: 1 with its flags; 0: more is needed; -EMSGSIZE. Consume *used bytes when
 * done with it. */
int cordon_envelope_next(const struct cordon_buf *in, unsigned *flags, const char **data, size_t *size, size_t *used);
/* The line at the front, without its end and without what server-sent events dress it in: as above; an empty one is
 * told with size 0. */
int cordon_line_next(const struct cordon_buf *in, const char **data, size_t *size, size_t *used);

#endif
