/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isolate/nic: the host end of a machine's network device, with the test as a machine whose kernel is the attacker's:
 * it writes frames and reads what comes back. What is not to be answered is written first, and something that is
 * answered behind it: the kernel takes frames in their order, so the first one that comes back tells that nothing else
 * did.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "isolate/nic.h"
#include "isolate/slotns.h"

#define FRAME_MAX 2048
#define WAIT_MS 20000
#define SOMEWHERE "93.184.216.34"
#define SOMEWHERE6 "2606:2800:220:1::34"

static const struct cordon_slotns_ids ids = {.owner = 1879048193u,
                                             .base = 1879113728u,
                                             .count = 65536,
                                             .code_id = 1000,
                                             .network = true,
                                             .every_port = true,
                                             .nic = true};
static struct cordon_slotns ns = CORDON_SLOTNS_NONE;

struct frame {
    size_t size;
    unsigned char bytes[FRAME_MAX];
};

/* --- making frames --- */

static uint32_t add_words(uint32_t sum, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static void begin(struct frame *frame, uint16_t type)
{
    static const unsigned char mac[6] = {0x02, 0x63, 0x6f, 0x72, 0x64, 0x6e};
    struct ether_header header = {.ether_type = htons(type)};
    memcpy(header.ether_dhost, mac, 6);
    memcpy(header.ether_shost, mac, 6);
    memcpy(frame->bytes, &header, sizeof header);
    frame->size = sizeof header;
}

static void append(struct frame *frame, const void *data, size_t size)
{
    memcpy(frame->bytes + frame->size, data, size);
    frame->size += size;
}

/* check: where in data the checksum over it and the addresses stands. */
static struct frame packet(const char *from, const char *to, int protocol, void *data, size_t size, size_t check)
{
    struct frame frame;
    unsigned char addresses[32];
    bool six = strchr(from, ':') != NULL;
    size_t one = six ? 16 : 4;
    assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, from, addresses), 1);
    assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, to, addresses + one), 1);
    uint32_t sum = protocol == IPPROTO_ICMP ? 0 : add_words((uint32_t)(size + (size_t)protocol), addresses, 2 * one);
    uint16_t folded = fold(add_words(sum, data, size));
    memcpy((char *)data + check, &folded, sizeof folded);
    begin(&frame, six ? ETHERTYPE_IPV6 : ETHERTYPE_IP);
    if (six) {
        struct ip6_hdr header = {.ip6_ctlun.ip6_un1 = {htonl(6u << 28), htons((uint16_t)size), (uint8_t)protocol, 255}};
        memcpy(&header.ip6_src, addresses, 32);
        append(&frame, &header, sizeof header);
    } else {
        struct iphdr header = {.version = 4,
                               .ihl = 5,
                               .ttl = 64,
                               .protocol = (uint8_t)protocol,
                               .tot_len = htons((uint16_t)(sizeof header + size))};
        memcpy(&header.saddr, addresses, 8);
        header.check = fold(add_words(0, &header, sizeof header));
        append(&frame, &header, sizeof header);
    }
    append(&frame, data, size);
    return frame;
}

static struct frame tcp(const char *from, const char *to, uint16_t from_port, uint16_t port, bool reset)
{
    struct tcphdr header = {.source = htons(from_port),
                            .dest = htons(port),
                            .seq = htonl(reset ? 1001 : 1000),
                            .doff = 5,
                            .syn = !reset,
                            .rst = reset,
                            .window = 0xffff};
    return packet(from, to, IPPROTO_TCP, &header, sizeof header, offsetof(struct tcphdr, check));
}

static struct frame syn(const char *from, const char *to, uint16_t port)
{
    static uint16_t from_port = 20000;
    return tcp(from, to, ++from_port, port, false);
}

static struct frame datagram(const char *from, const char *to, uint16_t from_port, uint16_t port)
{
    struct {
        struct udphdr header;
        char data[4];
    } udp = {{.source = htons(from_port), .dest = htons(port), .len = htons(12)}, "ask"};
    return packet(from, to, IPPROTO_UDP, &udp, 12, offsetof(struct udphdr, check));
}

static struct frame ping(const char *from, const char *to)
{
    unsigned char echo[16] = {strchr(from, ':') ? ICMP6_ECHO_REQUEST : ICMP_ECHO};
    return packet(from, to, strchr(from, ':') ? IPPROTO_ICMPV6 : IPPROTO_ICMP, echo, sizeof echo, 2);
}

/* "I am the router, and this is your prefix." */
static struct frame router_advertisement(void)
{
    struct {
        struct nd_router_advert head;
        struct nd_opt_prefix_info prefix;
    } ra = {.head.nd_ra_hdr.icmp6_type = ND_ROUTER_ADVERT,
            .head.nd_ra_router_lifetime = htons(1800),
            .prefix = {.nd_opt_pi_type = ND_OPT_PREFIX_INFORMATION,
                       .nd_opt_pi_len = 4,
                       .nd_opt_pi_prefix_len = 64,
                       .nd_opt_pi_flags_reserved = 0xc0,
                       .nd_opt_pi_valid_time = 0xffffffff,
                       .nd_opt_pi_preferred_time = 0xffffffff}};
    assert_int_equal(inet_pton(AF_INET6, "2001:db8:bad::", &ra.prefix.nd_opt_pi_prefix), 1);
    return packet("fe80::1", "ff02::1", IPPROTO_ICMPV6, &ra, sizeof ra, offsetof(struct icmp6_hdr, icmp6_cksum));
}

static struct frame neighbour_solicitation(const char *whose)
{
    struct nd_neighbor_solicit ns_packet = {.nd_ns_hdr.icmp6_type = ND_NEIGHBOR_SOLICIT};
    assert_int_equal(inet_pton(AF_INET6, whose, &ns_packet.nd_ns_target), 1);
    return packet(CORDON_NIC_ADDRESS6, whose, IPPROTO_ICMPV6, &ns_packet, sizeof ns_packet,
                  offsetof(struct icmp6_hdr, icmp6_cksum));
}

static struct frame who_has(void)
{
    static const unsigned char request[28] = {0,   1, 8, 0, 6, 4, 0, 1, 0x02, 0x63, 0x6f, 0x72, 0x64, 0x6e,
                                              192, 0, 2, 2, 0, 0, 0, 0, 0,    0,    93,   184,  216,  34};
    struct frame frame;
    begin(&frame, ETHERTYPE_ARP);
    memset(frame.bytes, 0xff, 6);
    append(&frame, request, sizeof request);
    return frame;
}

/* --- the device --- */

static void say(const struct frame *frame)
{
    if (write(ns.nic, frame->bytes, frame->size) != (ssize_t)frame->size)
        fail_msg("the device takes no frame: %s", strerror(errno));
}

static const unsigned char *ip_of(const struct frame *frame)
{
    return frame->bytes + sizeof(struct ether_header);
}

struct segment { /* of TCP */
    bool six;
    unsigned char from[16], to[16];
    struct tcphdr tcp;
};

static bool read_segment(const struct frame *frame, struct segment *ret)
{
    const unsigned char *ip = ip_of(frame);
    *ret = (struct segment){.six = ip[0] >> 4 == 6};
    size_t head = ret->six ? sizeof(struct ip6_hdr) : 4u * (ip[0] & 15u), at = ret->six ? 8 : 12,
           one = ret->six ? 16 : 4;
    if (frame->size < sizeof(struct ether_header) + head + sizeof ret->tcp || ip[ret->six ? 6 : 9] != IPPROTO_TCP)
        return false;
    memcpy(ret->from, ip + at, one);
    memcpy(ret->to, ip + at + one, one);
    memcpy(&ret->tcp, ip + head, sizeof ret->tcp);
    return true;
}

static bool was_answered[65536]; /* by the port that asked: the kernel may say it again */

static bool says_again(const struct frame *frame)
{
    struct segment segment;
    return read_segment(frame, &segment) && was_answered[ntohs(segment.tcp.dest)];
}

static struct frame next(void)
{
    struct frame frame = {0};
    struct pollfd wait = {.fd = ns.nic, .events = POLLIN};
    do {
        if (poll(&wait, 1, WAIT_MS) != 1)
            fail_msg("nothing comes by the device");
        ssize_t n = read(ns.nic, frame.bytes, sizeof frame.bytes);
        assert_true(n > (ssize_t)sizeof(struct ether_header));
        frame.size = (size_t)n;
    } while (says_again(&frame));
    return frame;
}

/* Writes a SYN. Is the next that comes its answer, SYN and ACK from where it went? */
static bool is_answered(const char *from, const char *to, uint16_t port)
{
    const struct frame asked_frame = syn(from, to, port);
    struct segment asked, answer;
    say(&asked_frame);
    const struct frame frame = next();
    assert_true(read_segment(&asked_frame, &asked));
    if (!read_segment(&frame, &answer) || answer.six != asked.six || memcmp(answer.from, asked.to, 16) != 0 ||
        memcmp(answer.to, asked.from, 16) != 0 || answer.tcp.source != asked.tcp.dest ||
        answer.tcp.dest != asked.tcp.source || !answer.tcp.syn || !answer.tcp.ack)
        return false;
    was_answered[ntohs(asked.tcp.source)] = true;
    const struct frame end = tcp(from, to, ntohs(asked.tcp.source), port, true);
    say(&end);
    return true;
}

static void drain(void)
{
    char bytes[FRAME_MAX];
    while (read(ns.nic, bytes, sizeof bytes) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
}

/* Writes the frame, and one that is answered: nothing else came back, before that or instead of it. */
static void nothing_answers(const char *name, const struct frame *frame)
{
    say(frame);
    if (!is_answered(CORDON_NIC_ADDRESS, SOMEWHERE, 443))
        fail_msg("%s is answered", name);
    drain();
}

static bool listens(const struct pollfd *wait)
{
    return wait->fd >= 0 && (wait->revents & POLLIN);
}

/* --- tests --- */

static int make(void **state)
{
    struct cordon_error err = {0};
    const char *stage = "";
    int r = geteuid() == 0 ? cordon_nic_probe(CORDON_NIC_PROBE_MS, &stage) : -EPERM;
    if (r == -ENOENT || r == -EPERM || r == -ENODEV) {
        print_message("# skipped: no device can be made here: %s\n", geteuid() ? "needs root" : stage);
        return 0;
    }
    assert_int_equal(r, 0);
    if (cordon_slotns_make(&ids, &ns, &err) < 0)
        fail_msg("%s", err.message);
    return 0;
}

static int unmake(void **state)
{
    cordon_slotns_done(&ns);
    return 0;
}

static void needs_device(void)
{
    if (ns.nic < 0)
        skip();
    drain();
}

static void every_address_and_port_is_our_socket(void **state)
{
    static const struct {
        const char *to;
        uint16_t port;
    } cases[] = {{SOMEWHERE, 443}, {SOMEWHERE, 80}, {SOMEWHERE, 25}, {"10.1.2.3", 5432}, {"169.254.169.254", 80}};
    needs_device();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(is_answered(CORDON_NIC_ADDRESS, cases[i].to, cases[i].port));
}

static void datagrams_to_53_come_with_their_address_and_are_answered_from_it(void **state)
{
    char data[16], control[128];
    struct sockaddr_in peer;
    struct iovec iov = {data, sizeof data};
    struct msghdr message = {.msg_name = &peer,
                             .msg_namelen = sizeof peer,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    needs_device();
    const struct frame asked = datagram(CORDON_NIC_ADDRESS, "198.18.0.53", 5000, 53);
    say(&asked);
    struct pollfd wait = {.fd = ns.steer[CORDON_STEER_UDP4], .events = POLLIN};
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    assert_int_equal(recvmsg(wait.fd, &message, 0), 4);
    assert_string_equal(inet_ntoa(peer.sin_addr), CORDON_NIC_ADDRESS);
    iov.iov_len = 4;
    assert_int_equal(sendmsg(wait.fd, &message, 0), 4); /* with the same control data, as egress does */
    struct frame answer = next();
    struct iphdr ip, ip_asked;
    memcpy(&ip, ip_of(&answer), sizeof ip);
    memcpy(&ip_asked, ip_of(&asked), sizeof ip);
    assert_int_equal(ip.saddr, ip_asked.daddr);
    assert_int_equal(ip.daddr, ip_asked.saddr);
}

/* So that whoever tries it fails at once, each time. */
static void a_datagram_that_leads_nowhere_is_told(void **state)
{
    needs_device();
    for (int i = 0; i < 20; i++) {
        const struct frame asked = datagram(CORDON_NIC_ADDRESS, SOMEWHERE, 6000, 443);
        say(&asked);
        struct frame answer = next();
        struct iphdr ip;
        memcpy(&ip, ip_of(&answer), sizeof ip);
        assert_int_equal(ip.protocol, IPPROTO_ICMP);
        const unsigned char *icmp = ip_of(&answer) + 4 * ip.ihl;
        assert_int_equal(icmp[0], ICMP_DEST_UNREACH);
        assert_int_equal(icmp[1], ICMP_PORT_UNREACH);
    }
}

static void what_is_not_ours_to_answer_is_not_answered(void **state)
{
    const struct {
        const char *name;
        struct frame frame;
    } cases[] = {
        {"another source", syn("203.0.113.9", SOMEWHERE, 443)},
        {"the destination's source", syn(SOMEWHERE, SOMEWHERE, 443)},
        {"a source of loopback", syn("127.0.0.1", SOMEWHERE, 443)},
        {"no source", syn("0.0.0.0", SOMEWHERE, 443)},
        {"loopback", syn(CORDON_NIC_ADDRESS, "127.0.0.1", 443)},
        {"all of loopback", syn(CORDON_NIC_ADDRESS, "127.255.255.254", 80)},
        {"itself", syn(CORDON_NIC_ADDRESS, CORDON_NIC_ADDRESS, 443)},
        {"a name server's answer to itself", datagram(SOMEWHERE, "198.18.0.53", 53, 53)},
        {"a multicast group", datagram(CORDON_NIC_ADDRESS, "224.0.0.251", 5353, 5353)},
        {"ping", ping(CORDON_NIC_ADDRESS, SOMEWHERE)},
        {"a forged ping", ping("203.0.113.9", SOMEWHERE)},
        {"ARP", who_has()},
    };
    needs_device();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        nothing_answers(cases[i].name, &cases[i].frame);
}

static void nor_over_ipv6(void **state)
{
    needs_device();
    if (ns.steer[CORDON_STEER_TCP6] < 0)
        skip();
    const struct {
        const char *name;
        struct frame frame;
    } cases[] = {
        {"another source", syn("2a00::9", SOMEWHERE6, 443)},
        {"the destination's source", syn(SOMEWHERE6, SOMEWHERE6, 443)},
        {"a source of loopback", syn("::1", SOMEWHERE6, 443)},
        {"a mapped source", syn("::ffff:192.0.2.2", SOMEWHERE6, 443)},
        {"loopback", syn(CORDON_NIC_ADDRESS6, "::1", 443)},
        {"itself", syn(CORDON_NIC_ADDRESS6, CORDON_NIC_ADDRESS6, 443)},
        {"a name server's answer to itself", datagram(SOMEWHERE6, "2a00::53", 53, 53)},
        {"ping", ping(CORDON_NIC_ADDRESS6, SOMEWHERE6)},
        {"ping to all", ping(CORDON_NIC_ADDRESS6, "ff02::1")},
        {"who has", neighbour_solicitation(SOMEWHERE6)},
        {"a router advertisement", router_advertisement()},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        nothing_answers(cases[i].name, &cases[i].frame);
}

static void ipv6_comes_to_our_socket(void **state)
{
    static const char *const to[] = {SOMEWHERE6, "fd00:ec2::254", "fe80::1"};
    needs_device();
    if (ns.steer[CORDON_STEER_TCP6] < 0)
        skip();
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        assert_true(is_answered(CORDON_NIC_ADDRESS6, to[i], 443));
}

static size_t read_inside(const char *path, char *text, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ssize_t n = setns(ns.net, CLONE_NEWNET) < 0 ? -1 : cordon_read_file(AT_FDCWD, path, text, size);
        _exit(n < 0 || write(ends[1], text, (size_t)n) != n);
    }
    close(ends[1]);
    size_t have = 0;
    for (ssize_t n; have < size - 1 && (n = read(ends[0], text + have, size - 1 - have)) > 0;)
        have += (size_t)n;
    text[have] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return have;
}

/* After all that was sent before: its routes are ours, and it forwards nothing. */
static void the_machine_changed_nothing(void **state)
{
    static const struct {
        const char *path, *value;
    } settings[] = {{"/proc/sys/net/ipv4/ip_forward", "0\n"},
                    {"/proc/sys/net/ipv4/conf/machine/forwarding", "0\n"},
                    {"/proc/sys/net/ipv4/conf/machine/rp_filter", "1\n"},
                    {"/proc/sys/net/ipv6/conf/machine/forwarding", "0\n"}};
    static char text[65536];
    int found = 0;
    needs_device();
    assert_true(read_inside("/proc/self/net/ipv6_route", text, sizeof text) > 0);
    assert_null(strstr(text, "20010db80bad")); /* the advertised prefix */
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        bool own = strncmp(line, "20010db8000000000000000000000002 80", 35) == 0;
        size_t size = strcspn(line, "\n");
        bool of_machine = size > 7 && strncmp(line + size - 7, "machine", 7) == 0; /* the device comes last */
        if (of_machine)
            assert_true(own || strncmp(line, "fe80", 4) == 0 || strncmp(line, "ff00", 4) == 0);
        found += own && of_machine;
    }
    assert_int_equal(found, 1);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        (void)read_inside(settings[i].path, text, sizeof text);
        if (i < 3 || *text)
            assert_string_equal(text, settings[i].value);
    }
}

/* Our listeners saw no connection whose source was forged. */
static void only_the_machine_was_heard(void **state)
{
    needs_device();
    struct pollfd waits[CORDON_STEER_SOCKETS];
    assert_true(is_answered(CORDON_NIC_ADDRESS, SOMEWHERE, 443));
    for (size_t i = 0; i < CORDON_STEER_SOCKETS; i++)
        waits[i] = (struct pollfd){.fd = ns.steer[i], .events = POLLIN};
    assert_true(poll(waits, CORDON_STEER_SOCKETS, 0) >= 0);
    assert_false(listens(&waits[CORDON_STEER_TCP4])); /* none was completed */
    assert_false(listens(&waits[CORDON_STEER_HTTP4]));
    assert_false(listens(&waits[CORDON_STEER_TCP6]));
    assert_false(listens(&waits[CORDON_STEER_UDP4]));
}

static void the_device_ends_with_its_descriptor(void **state)
{
    char text[4096];
    needs_device();
    (void)read_inside("/proc/self/net/dev", text, sizeof text);
    assert_non_null(strstr(text, "machine:"));
    cordon_close(&ns.nic);
    (void)read_inside("/proc/self/net/dev", text, sizeof text);
    assert_null(strstr(text, "machine:"));
    assert_non_null(strstr(text, "lo:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_address_and_port_is_our_socket),
        cmocka_unit_test(datagrams_to_53_come_with_their_address_and_are_answered_from_it),
        cmocka_unit_test(a_datagram_that_leads_nowhere_is_told),
        cmocka_unit_test(what_is_not_ours_to_answer_is_not_answered),
        cmocka_unit_test(ipv6_comes_to_our_socket),
        cmocka_unit_test(nor_over_ipv6),
        cmocka_unit_test(the_machine_changed_nothing),
        cmocka_unit_test(only_the_machine_was_heard),
        cmocka_unit_test(the_device_ends_with_its_descriptor),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
