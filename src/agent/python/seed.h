/* SPDX-License-Identifier: Apache-2.0 */
/* New random numbers for a fork, written straight into the state of numpy's own generator. */
#ifndef CORDON_AGENT_PYTHON_SEED_H
#define CORDON_AGENT_PYTHON_SEED_H

#include <stdbool.h>
#include <stddef.h>

#define CORDON_SEED_WORDS 624u /* of a Mersenne twister's state */

/* generator: numpy's struct bitgen. Remembers its state if that is the layout we know, that is, if it holds key (all
 * CORDON_SEED_WORDS of it) and then position. False: it is not, and numpy must be asked to seed it. */
bool cordon_seed_keep(void *generator, const char *key, size_t size, int position);

/* Fills the state that was kept from the kernel's generator. False: nothing is kept, or the kernel has none to give. */
bool cordon_seed_renew(void);

#endif
