/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's end of its network device, as its first process sets it up. See nic.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>

#include "base/fd.h"
#include "isolate/nic.h"
#include "isolate/route.h"

#define WAIT_MS 20000 /* its driver makes it soon; on a busy host under emulation that takes a while */
#define SETTINGS "/proc/sys/net/ipv6/conf/" CORDON_NIC_GUEST "/"

static unsigned wait_for_device(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    unsigned device = if_nametoindex(CORDON_NIC_GUEST);
    for (int waited = 0; device == 0 && waited < WAIT_MS; waited += 2) {
        (void)nanosleep(&pause, NULL); /* a shorter one only looks once more */
        device = if_nametoindex(CORDON_NIC_GUEST);
    }
    return device;
}

static int add(int family, const char *address, unsigned device)
{
    const struct cordon_route all = {family, RT_TABLE_MAIN, RTN_UNICAST, NULL, 0, device};
    int r = cordon_route_add_address(family, address, device);
    return r < 0 ? r : cordon_route_add(&all);
}

int cordon_nic_raise(const char **stage)
{
    *stage = "waiting for the network device " CORDON_NIC_GUEST;
    unsigned device = wait_for_device();
    if (device == 0)
        return -ENODEV;
    *stage = "raising the network device";
    bool six = cordon_write_file(AT_FDCWD, SETTINGS "addr_gen_mode", "1") == 0; /* none of its own */
    (void)cordon_write_file(AT_FDCWD, SETTINGS "accept_ra", "0");               /* there is none; absent without IPv6 */
    int r = cordon_route_raise(CORDON_NIC_GUEST, NULL, true);
    *stage = "giving the network device its addresses";
    if (r == 0)
        r = add(AF_INET, CORDON_NIC_ADDRESS, device);
    if (r == 0 && six)
        r = add(AF_INET6, CORDON_NIC_ADDRESS6, device);
    return r;
}
