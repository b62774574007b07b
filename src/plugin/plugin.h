/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Third-party backends. Only names that CORDON_BACKEND_PLUGINS lists are ever opened. Each runs in a process of its
 * own, without privilege, that loads the library and speaks for it (wire.h), so that a crash or a hang in it costs its
 * runs and nothing else:
 *
 *     gateway --asks, gets a socket--> launcher --fork, exec--> host: dlopen, factory
 *
 * The launcher is started before the gateway gives up what it may, and ends with it.
 */
#ifndef CORDON_PLUGIN_PLUGIN_H
#define CORDON_PLUGIN_PLUGIN_H

#include <cordon/backend.h>
#include <sys/types.h>

#include "core/settings.h"

#define CORDON_PLUGINS_MAX 8u
#define CORDON_PLUGIN_FACTORY "cordon_backend_factory"

/* Finds, checks and registers what the settings list: after cordon_registry_setup, while root and with one thread. What
 * can't be loaded is logged and left out, and its name then fails closed. uid, gid: who the hosts become (as root).
 * Negative only when nothing can be loaded at all. */
int cordon_plugins_load(const struct cordon_settings *settings, uid_t uid, gid_t gid, struct cordon_error *err);
void cordon_plugins_stop(void);

/* Roles of the program. launcher: descriptor 3 is the gateway's socket; argv: UID GID, then NAME LIBRARY pairs.
 * host: descriptor 3 is its first socket; argv: NAME LIBRARY. */
int cordon_plugin_launcher_main(int argc, char **argv);
int cordon_plugin_host_main(int argc, char **argv);

/* --- among themselves --- */

struct cordon_plugin_found {
    char name[64], distribution[128], library[4200];
};
/* What may be loaded, in order: listed, claimed once, no built-in's name, files that only root (or we) can change. */
size_t cordon_plugins_find(const struct cordon_settings *settings, struct cordon_plugin_found *to, size_t max);

/* What the launcher is asked: a byte, the plugin's number, and the order's, which is the answer that a host's socket
 * comes with. */
enum cordon_plugin_order { CORDON_PLUGIN_START = 'S', CORDON_PLUGIN_KILL = 'K' };
#define CORDON_PLUGIN_ORDER 3
/* What a host is told on its first socket, with a socket for it: a run, or a probe. */
enum cordon_plugin_call { CORDON_PLUGIN_RUN = 'R', CORDON_PLUGIN_PROBE = 'P' };

#endif
