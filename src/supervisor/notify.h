/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_SUPERVISOR_NOTIFY_H
#define CORDON_SUPERVISOR_NOTIFY_H

/* Tells systemd (NOTIFY_SOCKET): one datagram, "READY=1" or "STOPPING=1". Without systemd it does nothing. */
void cordon_notify(const char *state);

#endif
