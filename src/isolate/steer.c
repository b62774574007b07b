/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/steer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/route.h"

#define LOOPBACK_INDEX 1 /* of lo, in every namespace */
#define BACKLOG 1024

/* `ip route add local default dev lo table local congctl reno` */
static int all_local(int family)
{
    return cordon_route_add(&(struct cordon_route){family, RT_TABLE_LOCAL, RTN_LOCAL, NULL, 0, LOOPBACK_INDEX});
}

/* --- sockets --- */

static const struct {
    int family, type, port;
} kinds[CORDON_STEER_SOCKETS] = {
    [CORDON_STEER_TCP4] = {AF_INET, SOCK_STREAM, 443},  [CORDON_STEER_HTTP4] = {AF_INET, SOCK_STREAM, 80},
    [CORDON_STEER_UDP4] = {AF_INET, SOCK_DGRAM, 53},    [CORDON_STEER_TCP6] = {AF_INET6, SOCK_STREAM, 443},
    [CORDON_STEER_HTTP6] = {AF_INET6, SOCK_STREAM, 80}, [CORDON_STEER_UDP6] = {AF_INET6, SOCK_DGRAM, 53},
};

static int set_options(int sock, size_t kind)
{
    int on = 1;
    bool six = kinds[kind].family == AF_INET6, datagram = kinds[kind].type == SOCK_DGRAM;
    if (six && setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0)
        return -errno;
    if (datagram &&
        setsockopt(sock, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_RECVPKTINFO : IP_PKTINFO, &on, sizeof on) < 0)
        return -errno;
    /* Accepted ones inherit it, whatever route leads to who connects. */
    if (!datagram && setsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, CORDON_UNPACED, sizeof CORDON_UNPACED - 1) < 0)
        return -errno;
    return 0;
}

static int open_one(size_t kind, int *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)kinds[kind].port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)kinds[kind].port)};
    bool six = kinds[kind].family == AF_INET6;
    const struct sockaddr *address = six ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
    cordon_autoclose int sock = socket(kinds[kind].family, kinds[kind].type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = sock < 0 ? -errno : set_options(sock, kind);
    if (r < 0)
        return r;
    if (bind(sock, address, six ? sizeof v6 : sizeof v4) < 0 ||
        (kinds[kind].type == SOCK_STREAM && listen(sock, BACKLOG) < 0))
        return -errno;
    *ret = CORDON_TAKE_FD(sock);
    return 0;
}

static int open_family(int family, int sockets[CORDON_STEER_SOCKETS])
{
    int r = all_local(family);
    for (size_t i = 0; r == 0 && i < CORDON_STEER_SOCKETS; i++)
        if (kinds[i].family == family)
            r = open_one(i, &sockets[i]);
    return r;
}

static bool has_ipv6(void)
{
    cordon_autoclose int sock = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char off[8] = "0";
    if (sock < 0)
        return false;
    (void)cordon_read_file(AT_FDCWD, "/proc/sys/net/ipv6/conf/all/disable_ipv6", off,
                           sizeof off); /* absent: it is on */
    return off[0] != '1';
}

int cordon_steer_open(int sockets[CORDON_STEER_SOCKETS])
{
    for (size_t i = 0; i < CORDON_STEER_SOCKETS; i++)
        sockets[i] = -1;
    int r = open_family(AF_INET, sockets);
    if (r == 0 && has_ipv6())
        r = open_family(AF_INET6, sockets);
    for (size_t i = 0; r < 0 && i < CORDON_STEER_SOCKETS; i++)
        cordon_close(&sockets[i]);
    return r;
}

/* --- every port --- */

static int bpf(int command, union bpf_attr *attr)
{
    int r = (int)syscall(SYS_bpf, command, attr, sizeof *attr);
    return r < 0 ? -errno : r;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FIRST_BYTE_MASK 0xff
#define LOOPBACK_FIRST_BYTE 127
#define WORD_ONE 0x01000000
#else
#define FIRST_BYTE_MASK ((int)0xff000000)
#define LOOPBACK_FIRST_BYTE 0x7f000000
#define WORD_ONE 1
#endif

#define LOAD(to, member)                                                                                               \
    {                                                                                                                  \
        .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = (to), .src_reg = 6,                                              \
        .off = (short)offsetof(struct bpf_sk_lookup, member)                                                           \
    }
#define SET(to, number)                                                                                                \
    {                                                                                                                  \
        .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (to), .imm = (number)                                          \
    }
#define COPY(to, from)                                                                                                 \
    {                                                                                                                  \
        .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = (to), .src_reg = (from)                                        \
    }
#define OR(to, from)                                                                                                   \
    {                                                                                                                  \
        .code = BPF_ALU64 | BPF_OR | BPF_X, .dst_reg = (to), .src_reg = (from)                                         \
    }
#define JUMP_IF(how, reg, number, skip)                                                                                \
    {                                                                                                                  \
        .code = BPF_JMP | (how) | BPF_K, .dst_reg = (reg), .imm = (number), .off = (skip)                              \
    }
#define JUMP(skip)                                                                                                     \
    {                                                                                                                  \
        .code = BPF_JMP | BPF_JA, .off = (skip)                                                                        \
    }
#define CALL(number)                                                                                                   \
    {                                                                                                                  \
        .code = BPF_JMP | BPF_CALL, .imm = (number)                                                                    \
    }
#define EXIT                                                                                                           \
    {                                                                                                                  \
        .code = BPF_JMP | BPF_EXIT                                                                                     \
    }

/* Registers: 6 the context, 7 the key (0: IPv4, 1: IPv6) and then the socket. Jumps count the instructions between. */
static int load_program(int map)
{
    const struct bpf_insn program[] = {
        /*  0 */ COPY(6, 1),
        /*  1 */ LOAD(2, protocol),
        /*  2 */ JUMP_IF(BPF_JNE, 2, IPPROTO_TCP, 34), /* to pass */
        /*  3 */ LOAD(2, family),
        /*  4 */ SET(7, 0),
        /*  5 */ JUMP_IF(BPF_JEQ, 2, AF_INET6, 4), /* to 10 */
        /*  6 */ LOAD(3, local_ip4),
        /*  7 */ {.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = 3, .imm = FIRST_BYTE_MASK},
        /*  8 */ JUMP_IF(BPF_JEQ, 3, LOOPBACK_FIRST_BYTE, 28), /* to pass */
        /*  9 */ JUMP(9),                                      /* to 19 */
        /* 10 */ SET(7, 1),
        /* 11 */ LOAD(3, local_ip6[0]),
        /* 12 */ LOAD(4, local_ip6[1]),
        /* 13 */ OR(3, 4),
        /* 14 */ LOAD(4, local_ip6[2]),
        /* 15 */ OR(3, 4),
        /* 16 */ JUMP_IF(BPF_JNE, 3, 0, 2), /* to 19 */
        /* 17 */ LOAD(4, local_ip6[3]),
        /* 18 */ JUMP_IF(BPF_JEQ, 4, WORD_ONE, 18), /* ::1, to pass */
        /* 19 */ {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = 10, .src_reg = 7, .off = -4},
        /* 20 */ {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map},
        /* 21 */ {0},
        /* 22 */ COPY(2, 10),
        /* 23 */ {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 2, .imm = -4},
        /* 24 */ CALL(BPF_FUNC_map_lookup_elem),
        /* 25 */ JUMP_IF(BPF_JEQ, 0, 0, 11), /* to pass */
        /* 26 */ COPY(7, 0),
        /* 27 */ COPY(1, 6),
        /* 28 */ COPY(2, 0),
        /* 29 */ SET(3, 0),
        /* 30 */ CALL(BPF_FUNC_sk_assign),
        /* 31 */ COPY(8, 0),
        /* 32 */ COPY(1, 7),
        /* 33 */ CALL(BPF_FUNC_sk_release),
        /* 34 */ JUMP_IF(BPF_JEQ, 8, 0, 2), /* to pass */
        /* 35 */ SET(0, SK_DROP),
        /* 36 */ EXIT,
        /* 37 */ SET(0, SK_PASS), /* pass */
        /* 38 */ EXIT,
    };
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_SK_LOOKUP,
                           .expected_attach_type = BPF_SK_LOOKUP,
                           .insns = (uintptr_t)program,
                           .insn_cnt = sizeof program / sizeof *program,
                           .license = (uintptr_t) "GPL"};
    memcpy(attr.prog_name, "cordon_steer", sizeof "cordon_steer");
    return bpf(BPF_PROG_LOAD, &attr);
}

static int make_map(void)
{
    union bpf_attr attr = {.map_type = BPF_MAP_TYPE_SOCKMAP,
                           .key_size = sizeof(uint32_t),
                           .value_size = sizeof(uint64_t),
                           .max_entries = 2};
    return bpf(BPF_MAP_CREATE, &attr);
}

static int put(int map, uint32_t key, int sock)
{
    uint64_t value = (uint64_t)sock;
    union bpf_attr attr = {
        .map_fd = (uint32_t)map, .key = (uintptr_t)&key, .value = (uintptr_t)&value, .flags = BPF_ANY};
    return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

int cordon_steer_attach(int netns, const int sockets[CORDON_STEER_SOCKETS])
{
    cordon_autoclose int map = make_map();
    if (map < 0)
        return map;
    int r = put(map, 0, sockets[CORDON_STEER_TCP4]);
    if (r >= 0 && sockets[CORDON_STEER_TCP6] >= 0)
        r = put(map, 1, sockets[CORDON_STEER_TCP6]);
    if (r < 0)
        return r;
    cordon_autoclose int program = load_program(map);
    if (program < 0)
        return program;
    union bpf_attr attr = {
        .link_create = {.prog_fd = (uint32_t)program, .target_fd = (uint32_t)netns, .attach_type = BPF_SK_LOOKUP}};
    return bpf(BPF_LINK_CREATE, &attr);
}

int cordon_steer_probe(void)
{
    cordon_autoclose int map = make_map();
    if (map < 0)
        return map;
    cordon_autoclose int program = load_program(map);
    return program < 0 ? program : 0;
}
