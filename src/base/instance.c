/* SPDX-License-Identifier: Apache-2.0 */
#include "base/instance.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static char id[33];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make(void)
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) { /* never, on kernels that we run on */
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)snprintf(id, sizeof id, "%016lx%016lx", (unsigned long)now.tv_nsec, (unsigned long)getpid());
        return;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", bytes[i]); /* fits */
}

const char *cordon_instance_id(void)
{
    (void)pthread_once(&made, make); /* can't fail with these arguments */
    return id;
}
