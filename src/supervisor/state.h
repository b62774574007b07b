/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state folder, and the user that owns it: the gateway's. Nothing in it is opened by root: whoever needs the
 * database becomes that user first, with the folder as its root, so that a gateway that was taken over can leave no
 * trap (a link, a prepared database) for a privileged process.
 */
#ifndef CORDON_SUPERVISOR_STATE_H
#define CORDON_SUPERVISOR_STATE_H

#include <sys/types.h>

#include "base/buf.h"
#include "core/settings.h"

struct cordon_state {
    char path[4000];
    int fd;    /* of the folder */
    uid_t uid; /* the gateway's user; our own when we are not root */
    gid_t gid;
    uid_t spare; /* the uid that stands in where the configured user does not exist */
};

/* Finds the folder's place and its owner, makes it (0700) where it is missing, opens it. Refuses a folder that others
 * may enter, or that is neither ours nor empty. */
int cordon_state_open(const struct cordon_settings *settings, struct cordon_state *ret, struct cordon_error *err);
/* Only the place: path, uid and gid; fd is -1. */
int cordon_state_locate(const struct cordon_settings *settings, struct cordon_state *ret, struct cordon_error *err);
void cordon_state_close(struct cordon_state *state);

/* Gives up all privilege for good: state's user, no groups, no capabilities, no_new_privs, and (as root) the state
 * folder as root of the file tree. *store_path: where cordon_store_open finds the folder afterwards; lives as long as
 * state. */
int cordon_state_confine(struct cordon_state *state, const char **store_path, struct cordon_error *err);

/* The address of the admin page with a one-time link in it, where a browser on this host finds it. */
void cordon_state_link(const struct cordon_settings *settings, const char *link, struct cordon_buf *to);

#endif
