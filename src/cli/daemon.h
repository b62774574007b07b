/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon of the same state folder, spoken to over its unix socket. */
#ifndef CORDON_CLI_DAEMON_H
#define CORDON_CLI_DAEMON_H

#include "core/settings.h"
#include "http/reader.h"

#define CORDON_DAEMON_ANSWER_S 10u /* one that fails at each start keeps its socket, and says nothing there */

/* A connected socket; -ENOENT (err untouched) when no daemon answers there, or none can be reached in the usual state
 * folder; else an error. Who answers must be root or ourselves. */
int cordon_daemon_connect(const struct cordon_settings *settings, struct cordon_error *err);
/* The same, with a limit for it and for each send and read on the socket, which then fails with -EAGAIN. 0: none. */
int cordon_daemon_connect_within(const struct cordon_settings *settings, unsigned limit_s, struct cordon_error *err);
/* Sends a request (body may be NULL). accept: a media type. */
int cordon_daemon_send(int fd, const char *method, const char *path, const char *accept, const struct cordon_buf *body,
                       struct cordon_error *err);
/* Reads once: 1, or 0 when the answer is whole. */
int cordon_daemon_read(int fd, struct cordon_http_reader *reader, struct cordon_error *err);
/* A whole GET into reader->body. */
int cordon_daemon_get(int fd, const char *path, struct cordon_http_reader *reader, struct cordon_error *err);

#endif
