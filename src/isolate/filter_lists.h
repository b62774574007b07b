/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls by name, each in exactly one list or with a rule on its arguments in filter_build.c. NULL ends a
 * list. */
#ifndef CORDON_ISOLATE_FILTER_LISTS_H
#define CORDON_ISOLATE_FILTER_LISTS_H

extern const char *const cordon_filter_allowed[];
extern const char *const cordon_filter_egress_allowed[]; /* all that the egress process may */
extern const char *const cordon_filter_vmm_allowed[];    /* all that a vmm may, once its QEMU runs */
extern const char *const cordon_filter_exec[];           /* allowed to code as well, denied to the gateway */
extern const char *const cordon_filter_checked[];        /* allowed with certain arguments only */
extern const char *const cordon_filter_quiet_enosys[];   /* answered by the kernel, not notified */
extern const char *const cordon_filter_quiet_eperm[];
extern const char *const cordon_filter_quiet_nothing[]; /* succeed and do nothing */
extern const char *const *const cordon_filter_denied[]; /* named sets, for what they would open */

#endif
