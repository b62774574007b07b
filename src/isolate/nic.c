/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/attempt.h"
#include "base/fd.h"
#include "isolate/route.h"

#define TAP "machine" /* its name in the namespace */

static const unsigned char mac[CORDON_MAC_SIZE] = {0x02, 0x63, 0x6f, 0x72, 0x64, 0x6e}; /* CORDON_NIC_MAC */

/* IPv4's settings of a new namespace are the host's, which may be a router; IPv6's the kernel's own. */
static const struct {
    const char *path, *value;
} settings[] = {
    {"ipv4/ip_forward", "0"}, /* first: it resets others */
    {"ipv4/conf/all/route_localnet", "0"},
    {"ipv4/conf/" TAP "/route_localnet", "0"},
    {"ipv4/conf/all/accept_local", "0"},
    {"ipv4/conf/" TAP "/accept_local", "0"},
    {"ipv4/conf/all/rp_filter", "0"}, /* the larger one of the two counts */
    {"ipv4/conf/" TAP "/rp_filter", "1"},
    {"ipv4/conf/all/accept_source_route", "0"},
    {"ipv4/conf/" TAP "/accept_source_route", "0"},
    {"ipv4/conf/all/accept_redirects", "0"},
    {"ipv4/conf/" TAP "/accept_redirects", "0"},
    {"ipv4/conf/all/send_redirects", "0"},
    {"ipv4/conf/" TAP "/send_redirects", "0"},
    {"ipv4/conf/all/proxy_arp", "0"},
    {"ipv4/conf/" TAP "/proxy_arp", "0"},
    {"ipv4/conf/all/log_martians", "0"}, /* the host's log is not the machine's to fill */
    {"ipv4/conf/" TAP "/log_martians", "0"},
    {"ipv4/icmp_echo_ignore_all", "1"},
    {"ipv4/icmp_ratelimit", "0"}, /* what leads nowhere is told each time: the machine's own CPU bounds it */
    {"ipv6/conf/all/forwarding", "0"},
    {"ipv6/conf/" TAP "/accept_ra", "0"},
    {"ipv6/conf/" TAP "/autoconf", "0"},
    {"ipv6/conf/" TAP "/addr_gen_mode", "1"}, /* none, before it is up */
    {"ipv6/conf/" TAP "/accept_redirects", "0"},
    {"ipv6/conf/" TAP "/accept_source_route", "-1"},
    {"ipv6/icmp/echo_ignore_all", "1"},
    {"ipv6/icmp/ratelimit", "0"},
};

/* One that can't be written (a container's /proc/sys is read-only) must be as it is wanted already. */
static int set_one(int sys, const char *path, const char *value)
{
    char now[16] = "";
    int r = cordon_write_file(sys, path, value);
    if (r == 0 || (r == -ENOENT && strncmp(path, "ipv6/", 5) == 0)) /* a host without IPv6 */
        return 0;
    if (cordon_read_file(sys, path, now, sizeof now) < 0)
        return r;
    now[strcspn(now, "\n")] = '\0';
    return strcmp(now, value) == 0 ? 0 : r;
}

static int set_all(void)
{
    cordon_autoclose int sys = open("/proc/sys/net", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = sys < 0 ? -errno : 0;
    for (size_t i = 0; r == 0 && i < sizeof settings / sizeof *settings; i++)
        r = set_one(sys, settings[i].path, settings[i].value);
    return r;
}

static int open_tap(void)
{
    struct ifreq request = {.ifr_name = TAP, .ifr_flags = IFF_TAP | IFF_NO_PI};
    cordon_autoclose int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0)
        return -errno;
    return CORDON_TAKE_FD(tap);
}

static int add_routes(unsigned device)
{
    const struct cordon_route routes[] = {
        {AF_INET, RT_TABLE_LOCAL, RTN_UNICAST, CORDON_NIC_ADDRESS, 32, device},
        {AF_INET6, RT_TABLE_LOCAL, RTN_UNICAST, CORDON_NIC_ADDRESS6, 128, device},
        {AF_INET6, RT_TABLE_LOCAL, RTN_LOCAL, "fe80::", 10, device}, /* looked up by device: lo's does not do */
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof routes / sizeof *routes; i++) {
        r = cordon_route_add(&routes[i]);
        if (routes[i].family == AF_INET6 && access("/proc/sys/net/ipv6/conf/" TAP, F_OK) < 0)
            r = 0; /* a host without IPv6 */
    }
    return r;
}

/* In its namespace. */
static int make(const char **stage)
{
    *stage = "open /dev/net/tun and make a device";
    cordon_autoclose int tap = open_tap();
    if (tap < 0)
        return tap;
    *stage = "set the namespace's network settings";
    int r = set_all();
    if (r < 0)
        return r;
    *stage = "bring the device up";
    if ((r = cordon_route_raise(TAP, mac, true)) < 0)
        return r;
    *stage = "route to the machine";
    if ((r = add_routes(if_nametoindex(TAP))) < 0)
        return r;
    return CORDON_TAKE_FD(tap);
}

int cordon_nic_open(int netns, const char **stage)
{
    *stage = "enter the network namespace";
    return setns(netns, CLONE_NEWNET) < 0 ? -errno : make(stage);
}

struct trial {
    const char *stage; /* of this program's constants, which lie at the same place in the child */
};

static int try_to_make(void *object)
{
    struct trial *trial = object;
    trial->stage = "make a network namespace";
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return -errno;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a user namespace took it back; can't fail */
    int tap = make(&trial->stage);
    return tap < 0 ? tap : 0; /* the device ends with this process */
}

int cordon_nic_probe(unsigned limit_ms, const char **stage)
{
    struct trial trial = {.stage = "start a process"};
    struct cordon_attempt attempt;
    int r = cordon_attempt(try_to_make, &trial, sizeof trial, -1, limit_ms, &attempt);
    if (r == 0)
        r = cordon_attempt_result(&attempt);
    *stage = trial.stage;
    return r == -EINTR ? -EPERM : r; /* an outer filter may kill for trying */
}
