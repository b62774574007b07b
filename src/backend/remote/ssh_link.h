/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to an SSH server, over libssh. The host's key must be known, the user proves itself by a password or a
 * key. Never blocks beyond a deadline or a cancel_fd, but for the look-up of the host's name.
 */
#ifndef CORDON_BACKEND_REMOTE_SSH_LINK_H
#define CORDON_BACKEND_REMOTE_SSH_LINK_H

#include <cordon/backend.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include "base/error.h"

struct cordon_ssh_link {
    ssh_session session;
    ssh_channel channel; /* one at a time */
    struct ssh_channel_callbacks_struct callbacks;
    bool exit_known;
    bool fresh;                   /* data came while we looked elsewhere */
    int exit_status, exit_signal; /* a number; 0: none */
    char buffer[16384];
};

/* Deadline and cancel_fd of what is done next: where they stand. */
struct cordon_ssh_patience {
    uint64_t deadline_us;
    int cancel_fd;
};

int cordon_ssh_connect(struct cordon_ssh_link *link, const struct cordon_ssh_patience *patience,
                       struct cordon_error *err);
void cordon_ssh_disconnect(struct cordon_ssh_link *link);
/* Starts a command of the remote shell on a new channel (an open one is closed). */
int cordon_ssh_exec(struct cordon_ssh_link *link, const char *command, const struct cordon_ssh_patience *patience,
                    struct cordon_error *err);
int cordon_ssh_write(struct cordon_ssh_link *link, const char *data, size_t size,
                     const struct cordon_ssh_patience *patience, struct cordon_error *err);
void cordon_ssh_eof(struct cordon_ssh_link *link); /* the command's standard input ends */
/* 1 and a piece of stdout (or of stderr), borrowed until the next call; 0: the command ended, exit_… say how; negative:
 * -ETIMEDOUT may be tried again. */
int cordon_ssh_read(struct cordon_ssh_link *link, bool *errors, struct cordon_bytes *ret,
                    const struct cordon_ssh_patience *patience, struct cordon_error *err);
/* A whole command with its input; its stdout is thrown away. 0, or UNAVAILABLE when it did not end with 0. */
int cordon_ssh_run(struct cordon_ssh_link *link, const char *command, struct cordon_bytes input, const char *what,
                   const struct cordon_ssh_patience *patience, struct cordon_error *err);
#endif
