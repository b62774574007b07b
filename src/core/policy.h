/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May this run go to this backend? First failing rule wins; a refusal never falls back. Each refusal is kind REFUSED
 * and names the setting, the backend, the value found and what would be accepted.
 * Order: isolation, deny-all egress, domain allowlist, time limit cap, egress exceptions, language, life-cycle needs
 * (limits that must be held, files, artifacts). The backend `none`, where it was named and is allowed, isolates nothing
 * by its nature: the isolation and egress rules are waived for it, and only for it.
 */
#ifndef CORDON_CORE_POLICY_H
#define CORDON_CORE_POLICY_H

#include "core/run.h"

/* In two steps: what a backend declares once and for all, then what depends on the host, which is known for sure only
 * after its probe went well. A live run probes in between, so that a host that lacks something fails in its words.
 * named: the request or its door named this backend itself (what `none` demands). */
int cordon_policy_check_declared(const struct cordon_settings *settings, const struct cordon_run_request *request,
                                 const struct cordon_backend *backend, bool named, struct cordon_error *err);
int cordon_policy_check_held(const struct cordon_settings *settings, const struct cordon_run_request *request,
                             const struct cordon_backend *backend, bool named, struct cordon_error *err);

#endif
