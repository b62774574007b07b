/* SPDX-License-Identifier: Apache-2.0 */
/* Two sockets, each other's ends: what comes on the one goes out on the other. */
#ifndef CORDON_HTTP_PUMP_H
#define CORDON_HTTP_PUMP_H

#include <stddef.h>

/* Writes all of it, waiting as long as it takes: 0, or negative. */
int cordon_http_pump_first(int fd, const char *data, size_t size);
/* Until both have ended, or one is broken. An end on one side is passed on as the end of writing on the other. Who left
 * altogether looks like one who only has no more to say, so once a side has ended the other has half_ms from each time
 * that something moved. a_socket: the connection that a stands for (a itself, but for TLS): when that is shut both ways
 * and nothing more of it is to be read, nothing is waited for. */
void cordon_http_pump(int a, int a_socket, int b, int half_ms);

#endif
