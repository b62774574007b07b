/* SPDX-License-Identifier: Apache-2.0 */
/* The backends that come with Cordon, for cordon_registry_setup. */
#ifndef CORDON_BACKEND_BUILTIN_H
#define CORDON_BACKEND_BUILTIN_H

#include <cordon/backend.h>

#include "core/settings.h"

extern const struct cordon_backend cordon_backend_none, cordon_backend_local, cordon_backend_exec_sandbox;
extern const struct cordon_backend cordon_backend_self_managed, cordon_backend_ssh, cordon_backend_e2b,
    cordon_backend_createos, cordon_backend_tenki, cordon_backend_ucloud_agent_sandbox,
    cordon_backend_aliyun_codeinterpreter;
extern const struct cordon_backend *const cordon_backend_builtin[]; /* NULL-terminated */

/* For the remote ones: their settings (borrowed for ever), and the files that these name, which are read now. Once,
 * while all files can be read and there is one thread. */
int cordon_backend_setup(const struct cordon_settings *settings, struct cordon_error *err);
/* The process has given up its file tree; this folder is what it may still write to. */
int cordon_backend_confined(const char *folder, struct cordon_error *err);
/* Closes connections that are kept; no run may be open. */
void cordon_backend_teardown(void);

/* Do its guests come from this host's warden? Not those of remote ones and of plugins. */
bool cordon_backend_needs_warden(const struct cordon_backend *backend);

/* Is it a remote one whose address is not on this machine? */
bool cordon_backend_is_elsewhere(const struct cordon_backend *backend);

/* "python,javascript,bash": what the warden's interpreters allow. Lives for ever. */
const char *cordon_backend_languages(uint32_t kinds);

#endif
