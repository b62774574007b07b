/* SPDX-License-Identifier: Apache-2.0 */
#include "door/unread.h"

#include <stdatomic.h>

#define LEAVES_AT_ONCE (64u << 10) /* less than what a socket takes without its reader */
#define UNREAD_MAX (256u << 20)

static atomic_size_t unread;

bool cordon_unread_charge(size_t *charged, size_t size)
{
    if (atomic_fetch_add(&unread, size) + size > UNREAD_MAX) {
        atomic_fetch_sub(&unread, size);
        return false;
    }
    *charged += size;
    return true;
}

bool cordon_unread_gives_back(size_t *charged, size_t size)
{
    return size > LEAVES_AT_ONCE && cordon_unread_charge(charged, size);
}

void cordon_unread_done(size_t charged)
{
    atomic_fetch_sub(&unread, charged);
}
