/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is among daemons: sent with every call to another one, so that a call that comes back is known. */
#ifndef CORDON_BASE_INSTANCE_H
#define CORDON_BASE_INSTANCE_H

#define CORDON_INSTANCE_HEADER "Cordon-Instance"

/* 32 hexadecimal digits, random, the same as long as the process lives. */
const char *cordon_instance_id(void);

#endif
