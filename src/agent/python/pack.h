/* SPDX-License-Identifier: Apache-2.0 */
/* Where a zygote's memory lies, so that a fork of it copies, maps and unmaps little. Call in this order, each once. */
#ifndef CORDON_AGENT_PYTHON_PACK_H
#define CORDON_AGENT_PYTHON_PACK_H

void cordon_pack_begin(void); /* what is loaded now is used by every fork: on pages of its own */
void cordon_pack_cold(void);  /* what is loaded from now on is used by some: on huge pages */
void cordon_pack_end(void);   /* what is allocated from now on is allocated by forks: on small pages of its own */

#endif
