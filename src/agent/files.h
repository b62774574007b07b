/* SPDX-License-Identifier: Apache-2.0 */
/* What both file workers need: whole frames over a blocking socket, and paths walked one component at a time. */
#ifndef CORDON_AGENT_FILES_H
#define CORDON_AGENT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/frame.h"

/* Where code can write, for messages. */
#define CORDON_AGENT_WRITABLE "/home/user, /tmp, /var/tmp and /dev/shm"

/* Sends one frame; negative errno when the agent has gone. */
int cordon_files_send(int fd, uint8_t type, uint16_t exec, const void *payload, uint32_t length);
/* openat2 with RESOLVE_NO_MAGICLINKS and, when beneath, RESOLVE_BENEATH; where the kernel or the filter lacks openat2,
 * a single component is opened with O_NOFOLLOW instead. fd or negative errno. */
int cordon_files_open(int dir, const char *name, int flags, unsigned mode, bool beneath);
/* Opens a relative path below dir component by component, following no link anywhere. fd or negative errno. */
int cordon_files_open_path(int dir, const char *path, int flags);
/* May this be shown to people as the name of an artifact? NULL, or why not. */
const char *cordon_files_bad_name(const char *name, size_t size);

#endif
