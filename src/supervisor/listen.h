/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's listeners. */
#ifndef CORDON_SUPERVISOR_LISTEN_H
#define CORDON_SUPERVISOR_LISTEN_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"

struct cordon_listen_address {
    struct sockaddr_storage address;
    socklen_t size;
    bool loopback;
};

/* "127.0.0.1:9385", "[::1]:9385", "localhost:9385", ":9385" (every IPv4 address). Names are not looked up. */
int cordon_listen_parse(const char *text, struct cordon_listen_address *ret, struct cordon_error *err);
/* A listening TCP socket: fd, or negative. */
int cordon_listen_tcp(const char *text, const struct cordon_listen_address *address, struct cordon_error *err);
/* STATE/cordon.sock, mode 0600, in the folder that fd is; a stale one is replaced. The caller holds the folder's lock.
 */
int cordon_listen_unix(int folder_fd, const char *folder, uid_t owner, struct cordon_error *err);
/* "127.0.0.1:9385" of a bound socket. */
void cordon_listen_describe(int fd, char text[64]);

#endif
