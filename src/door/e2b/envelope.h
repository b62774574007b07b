/* SPDX-License-Identifier: Apache-2.0 */
/* The envelopes of the Connect protocol's streams: u8 flags, u32 length (big endian), a JSON message. Pure; fuzzed. */
#ifndef CORDON_E2B_ENVELOPE_H
#define CORDON_E2B_ENVELOPE_H

#include <cordon/backend.h>

#include "base/buf.h"
#include "base/json.h"

/* The one message of a request body: 0, or negative with err (INVALID). Borrowed from the body. */
int cordon_e2b_envelope_read(const char *body, size_t size, struct cordon_bytes *ret, struct cordon_error *err);

/* Appends an envelope: begin, write the message, end with what begin returned. Failures are sticky in buf->failed. */
size_t cordon_e2b_envelope_begin(struct cordon_buf *buf, bool last);
void cordon_e2b_envelope_end(struct cordon_buf *buf, size_t start);
/* The last envelope of a stream: with err where it failed, else NULL. */
void cordon_e2b_envelope_last(struct cordon_buf *buf, const struct cordon_error *err);
/* "code":…,"message":… of an error, within an object. */
void cordon_e2b_connect_error(struct cordon_json *json, const struct cordon_error *err);

#endif
