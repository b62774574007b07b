/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the gateway's end of plugins: their host processes, which the launcher starts. proxy.c has the runs.
 */
#ifndef CORDON_PLUGIN_HOSTS_H
#define CORDON_PLUGIN_HOSTS_H

#include <pthread.h>

#include "plugin/plugin.h"
#include "plugin/wire.h"

struct cordon_plugin {
    size_t number; /* the launcher's */
    struct cordon_plugin_found found;
    struct cordon_wire_hello hello; /* of the first host: what is declared does not change */
    struct cordon_backend backend;
    pthread_mutex_t lock; /* host */
    int host;             /* its first socket; -1: none runs */
    uint32_t generation;  /* of hosts */
};

/* The launcher, while this process may still execute things; and its end, which ends the hosts. */
int cordon_plugin_hosts_begin(uid_t uid, gid_t gid, const struct cordon_plugin_found *found, size_t count,
                              struct cordon_error *err);
void cordon_plugin_hosts_end(void);

/* Starts one, and takes its hello. The plugin's lock is held. */
int cordon_plugin_host_start(struct cordon_plugin *plugin, struct cordon_wire_hello *hello, struct cordon_error *err);
/* Gives a host one end of a new socket: that of a run or a probe. With a new host, if the old one is gone. */
int cordon_plugin_host_call(struct cordon_plugin *plugin, char what, int *ret, uint32_t *generation,
                            struct cordon_error *err);
void cordon_plugin_host_kill(struct cordon_plugin *plugin, uint32_t generation, const char *why);
/* Whether that host is no more: then the next call starts another one. */
bool cordon_plugin_host_gone(struct cordon_plugin *plugin, uint32_t generation);

#endif
