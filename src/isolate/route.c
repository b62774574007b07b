/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define ADDRESS_MAX 16

/* One request with its attributes behind it. */
struct request {
    struct nlmsghdr header;
    union {
        struct rtmsg route;
        struct ifaddrmsg address;
        char space[64 + 3 * (sizeof(struct rtattr) + ADDRESS_MAX)];
    } body;
};

static struct request begin(int type, size_t body)
{
    return (struct request){.header = {.nlmsg_len = NLMSG_LENGTH((uint32_t)body),
                                       .nlmsg_type = (uint16_t)type,
                                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE}};
}

/* All that are put here fit. */
static void put(struct request *request, int type, const void *data, size_t size)
{
    struct rtattr *at = (struct rtattr *)(void *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));
    at->rta_type = (unsigned short)type;
    at->rta_len = (unsigned short)RTA_LENGTH(size);
    memcpy(RTA_DATA(at), data, size);
    request->header.nlmsg_len = (uint32_t)(NLMSG_ALIGN(request->header.nlmsg_len) + RTA_ALIGN(at->rta_len));
}

static int put_address(struct request *request, int type, int family, const char *text)
{
    unsigned char address[ADDRESS_MAX];
    if (inet_pton(family, text, address) != 1)
        return -EINVAL;
    put(request, type, address, family == AF_INET6 ? 16 : 4);
    return 0;
}

/* Of the ends of connections that go by the route and begin here. */
static void put_unpaced(struct request *request)
{
    const struct {
        struct rtattr attribute;
        char name[8];
    } congestion = {{.rta_len = RTA_LENGTH(sizeof congestion.name), .rta_type = RTAX_CC_ALGO}, CORDON_UNPACED};
    put(request, RTA_METRICS, &congestion, sizeof congestion);
}

static int ask(const struct request *request)
{
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[512];
    } verdict;
    cordon_autoclose int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (sock < 0 || send(sock, request, request->header.nlmsg_len, 0) != (ssize_t)request->header.nlmsg_len)
        return -errno;
    ssize_t n = recv(sock, &verdict, sizeof verdict, 0);
    if (n < (ssize_t)(sizeof verdict.header + sizeof verdict.error) || verdict.header.nlmsg_type != NLMSG_ERROR)
        return n < 0 ? -errno : -EBADMSG;
    return verdict.error.error;
}

int cordon_route_add(const struct cordon_route *route)
{
    struct request request = begin(RTM_NEWROUTE, sizeof request.body.route);
    uint32_t device = route->device;
    request.body.route = (struct rtmsg){.rtm_family = (unsigned char)route->family,
                                        .rtm_dst_len = (unsigned char)route->length,
                                        .rtm_table = (unsigned char)route->table,
                                        .rtm_protocol = RTPROT_BOOT,
                                        .rtm_scope = route->type == RTN_LOCAL ? RT_SCOPE_HOST : RT_SCOPE_LINK,
                                        .rtm_type = (unsigned char)route->type};
    int r = route->address ? put_address(&request, RTA_DST, route->family, route->address) : 0;
    put(&request, RTA_OIF, &device, sizeof device);
    if (route->type == RTN_LOCAL)
        put_unpaced(&request);
    return r < 0 ? r : ask(&request);
}

int cordon_route_add_address(int family, const char *address, unsigned device)
{
    struct request request = begin(RTM_NEWADDR, sizeof request.body.address);
    request.body.address = (struct ifaddrmsg){.ifa_family = (unsigned char)family,
                                              .ifa_prefixlen = family == AF_INET6 ? 128 : 32,
                                              .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
                                              .ifa_index = device};
    int r = put_address(&request, IFA_LOCAL, family, address);
    if (r == 0)
        r = put_address(&request, IFA_ADDRESS, family, address);
    return r < 0 ? r : ask(&request);
}

int cordon_route_raise(const char *device, const unsigned char mac[CORDON_MAC_SIZE], int silent)
{
    struct ifreq request = {0};
    cordon_autoclose int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device); /* the kernel's names fit */
    if (mac) {
        request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
        memcpy(request.ifr_hwaddr.sa_data, mac, CORDON_MAC_SIZE);
    }
    if (sock < 0 || (mac && ioctl(sock, SIOCSIFHWADDR, &request) < 0))
        return -errno;
    request.ifr_flags = (short)(IFF_UP | IFF_RUNNING | (silent ? IFF_NOARP : 0));
    return ioctl(sock, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}
