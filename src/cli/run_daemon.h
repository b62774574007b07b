/* SPDX-License-Identifier: Apache-2.0 */
/* A run that the daemon does: its events, followed to their end. */
#ifndef CORDON_CLI_RUN_DAEMON_H
#define CORDON_CLI_RUN_DAEMON_H

#include "cli/run_show.h"

/* The signal that has interrupted this command; 0: none. */
extern volatile sig_atomic_t cordon_run_interrupted;
/* Posts the body and shows the events that come. */
int cordon_run_by_daemon(int fd, const char *path, const struct cordon_buf *body, struct cordon_run_show *show,
                         struct cordon_error *err);

#endif
