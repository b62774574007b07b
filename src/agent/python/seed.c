/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy.random.seed() runs through so many objects of numpy that a fork which only does this copies 50 pages and splits
 * a dozen huge ones. What it comes to is 624 new words in the state of one Mersenne twister.
 */
#include "agent/python/seed.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

struct twister {
    uint32_t key[CORDON_SEED_WORDS];
    int position;
};

/* Numpy's public struct bitgen (numpy/random/bitgen.h) begins with this. */
struct bitgen {
    struct twister *state;
};

static struct twister *kept;

bool cordon_seed_keep(void *generator, const char *key, size_t size, int position)
{
    const struct bitgen *bitgen = generator;
    if (size != sizeof bitgen->state->key || memcmp(bitgen->state->key, key, size) != 0 ||
        bitgen->state->position != position)
        return false;
    kept = bitgen->state;
    return true;
}

bool cordon_seed_renew(void)
{
    if (!kept)
        return false;
    for (size_t done = 0; done < sizeof kept->key;) {
        ssize_t n = getrandom((char *)kept->key + done, sizeof kept->key - done, 0);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    kept->key[0] |= 0x80000000u;        /* of the first word only this bit counts: so the state is never all zero */
    kept->position = CORDON_SEED_WORDS; /* all words are used up: the next number makes new ones of them */
    return true;
}
