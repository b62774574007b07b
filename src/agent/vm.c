/* SPDX-License-Identifier: Apache-2.0 */
/* The agent in a virtual machine, once it runs: its port, its lease, its end. See vm.h. */
#include "agent/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/random.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define RESERVE_BYTES (12u << 20) /* of the machine's memory, not for the code: the agent, the kernel's own needs */

struct cordon_vm cordon_vm = {.port = -1, .random = -1, .meminfo = -1};

/* --- the port --- */

static ssize_t port_result(ssize_t n)
{
    if (n < 0 && (errno == EPIPE || errno == ENODEV))
        errno = EPIPE; /* its other end is closed */
    return n;
}

ssize_t cordon_vm_recv(int channel, void *to, size_t size)
{
    return cordon_vm.on ? port_result(read(channel, to, size)) : recv(channel, to, size, MSG_DONTWAIT);
}

ssize_t cordon_vm_send(int channel, const void *from, size_t size)
{
    return cordon_vm.on ? port_result(write(channel, from, size))
                        : send(channel, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void set_blocking(bool blocking)
{
    int flags = fcntl(cordon_vm.port, F_GETFL);
    if (flags < 0 || fcntl(cordon_vm.port, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) < 0)
        cordon_vm_fail("setting the port's mode", -errno);
}

static void say(const struct cordon_buf *frame)
{
    if (frame->failed || cordon_write_full(cordon_vm.port, frame->data, frame->size) < 0)
        cordon_vm_leave(); /* nobody to tell */
}

/* --- the end --- */

void cordon_vm_leave(void)
{
    if (!cordon_vm.on)
        return;
    (void)reboot(RB_AUTOBOOT); /* QEMU ends: -no-reboot */
    _exit(1);                  /* the kernel panics, which comes to the same */
}

void cordon_vm_fail(const char *stage, int error)
{
    char reason[256];
    struct cordon_buf fields = CORDON_BUF_INIT(1024), frame = CORDON_BUF_INIT(2048);
    int n = snprintf(reason, sizeof reason, "the machine's agent: %s: %s", stage, strerror(-error));
    (void)!write(STDERR_FILENO, reason, strlen(reason)); /* the console, where there is one */
    (void)!write(STDERR_FILENO, "\n", 1);
    if (cordon_vm.port >= 0) {
        (void)cordon_field_put_u32(&fields, CORDON_FIELD_CODE_NUMBER, (uint32_t)-error); /* sticks in failed */
        (void)cordon_field_put(&fields, CORDON_FIELD_REASON, reason, (uint32_t)n < sizeof reason ? (uint32_t)n : 255);
        (void)cordon_frame_put(&frame, CORDON_FRAME_ERROR, 0, fields.data, (uint32_t)fields.size);
        set_blocking(true);
        say(&frame);
    }
    cordon_vm_leave();
    _exit(1);
}

/* --- counts --- */

/* The number behind `key` and a blank, at the front of a line. */
static uint64_t read_count(int fd, const char *key)
{
    char text[1024];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    if (!*key)
        return strtoull(text, NULL, 10);
    for (char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, key, strlen(key)) == 0 && at[strlen(key)] == ' ')
            return strtoull(at + strlen(key), NULL, 10);
    return 0;
}

struct cordon_vm_counts cordon_vm_count(void)
{
    if (!cordon_vm.on)
        return (struct cordon_vm_counts){0};
    return (struct cordon_vm_counts){
        .oom_kills = (uint32_t)(read_count(cordon_vm.events, "oom_kill") - cordon_vm.oom_before),
        .cpu_us = read_count(cordon_vm.cpu, "usage_usec") - cordon_vm.cpu_before,
        .memory_peak_bytes = read_count(cordon_vm.peak, ""),
    };
}

int cordon_vm_others(pid_t program)
{
    char text[4096], *at = text, *end;
    int others = 0;
    bool seen = false;
    ssize_t n = pread(cordon_vm.members, text, sizeof text - 1, 0); /* more than fit are many enough */
    if (n < 0)
        return -1;
    text[n] = '\0';
    for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
        seen |= pid == program;
        others += pid != program;
        at = end;
    }
    return others || seen ? others : -1;
}

bool cordon_vm_joins(void)
{
    return !cordon_vm.on || cordon_vm.leased;
}

int cordon_vm_admit(pid_t pid)
{
    return dprintf(CORDON_AGENT_CGROUPS, "%d", (int)pid) < 0 ? -errno : 0;
}

/* --- the lease --- */

static uint64_t memory_available(void)
{
    return read_count(cordon_vm.meminfo, "MemAvailable:") * 1024;
}

/* As the machine waits. What is there then is still there with the lease, and the kernel's account is long. What is
 * mapped of files can be read again, so the kernel calls it available; but about half of it is what runs all the time.
 */
static void look_at_memory(void)
{
    uint64_t runs = read_count(cordon_vm.meminfo, "Mapped:") * 1024 / 2;
    cordon_vm.available_bytes = memory_available();
    uint64_t all = cordon_vm.available_bytes + read_count(cordon_vm.memory_current, "");
    cordon_vm.code_bytes = all > runs ? all - runs : 0;
}

static void say_ready(const struct cordon_agent_config *config)
{
    struct timespec up;
    struct cordon_buf frame = CORDON_BUF_INIT(256);
    (void)clock_gettime(CLOCK_BOOTTIME, &up); /* can't fail for this clock */
    const struct cordon_vm_ready ready = {.language = cordon_vm.language,
                                          .kept = config->kept,
                                          .memory_available_bytes = cordon_vm.available_bytes,
                                          .boot_ms = (uint32_t)(up.tv_sec * 1000 + up.tv_nsec / 1000000)};
    cordon_vm_ready_put(&frame, &ready);
    say(&frame);
    cordon_buf_done(&frame);
}

/* Before its first byte the machine may be stopped, copied and continued. */
static void read_lease(struct cordon_vm_lease *ret)
{
    char bytes[CORDON_FRAME_HEADER + CORDON_VM_LEASE_SIZE];
    struct cordon_frame frame;
    if (cordon_read_full(cordon_vm.port, bytes, sizeof bytes) < 0)
        cordon_vm_leave(); /* the host is gone */
    if (cordon_frame_parse(bytes, sizeof bytes, 0, &frame) <= 0 || cordon_vm_lease_parse(&frame, ret) < 0)
        cordon_vm_fail("reading the lease: the host speaks another version", -EBADMSG);
}

static void key_anew(const struct cordon_vm_lease *lease)
{
    union {
        struct rand_pool_info head;
        char space[sizeof(struct rand_pool_info) + CORDON_VM_ENTROPY];
    } pool = {.head = {.entropy_count = 8 * CORDON_VM_ENTROPY, .buf_size = CORDON_VM_ENTROPY}};
    memcpy(pool.space + sizeof pool.head, lease->entropy, CORDON_VM_ENTROPY);
    if (ioctl(cordon_vm.random, RNDADDENTROPY, &pool) < 0 || ioctl(cordon_vm.random, RNDRESEEDCRNG) < 0)
        cordon_vm_fail("keying the kernel's random numbers anew", -errno);
    explicit_bzero(&pool, sizeof pool);
}

static void set_clock(uint64_t realtime_ns)
{
    const struct timespec now = {.tv_sec = (time_t)(realtime_ns / 1000000000),
                                 .tv_nsec = (long)(realtime_ns % 1000000000)};
    if (clock_settime(CLOCK_REALTIME, &now) < 0)
        cordon_vm_fail("setting the clock", -errno);
}

static void replace(int fd, const char *text)
{
    int r = cordon_agent_overwrite(fd, text, strlen(text));
    if (r < 0)
        cordon_vm_fail("writing the machine's identity", r);
}

/* The files of a machine that has this name already say so. */
static void take_hostname(const char *name)
{
    char text[256];
    if (gethostname(text, sizeof text) == 0 && strcmp(text, name) == 0)
        return;
    if (sethostname(name, strlen(name)) < 0)
        cordon_vm_fail("setting the hostname", -errno);
    (void)snprintf(text, sizeof text, "%s\n", name); /* both fit */
    replace(cordon_vm.hostname, text);
    (void)snprintf(text, sizeof text, "127.0.0.1 localhost %s\n::1 localhost %s\n", name, name);
    replace(cordon_vm.hosts, text);
}

static void take_identity(const struct cordon_vm_lease *lease)
{
    char text[CORDON_VM_TEXT + 1];
    take_hostname(lease->hostname);
    (void)snprintf(text, sizeof text, "%s\n", lease->machine_id); /* fits */
    replace(cordon_vm.machine_id, text);
}

static void write_limit(int fd, uint64_t value)
{
    char text[32];
    int n = value ? snprintf(text, sizeof text, "%" PRIu64, value) : snprintf(text, sizeof text, "max");
    if (pwrite(fd, text, (size_t)n, 0) != n)
        cordon_vm_fail("setting a limit of the code's control group", -errno);
}

/* The code's memory ends before the machine's does: then the group's limit is what ends it, and the agent can tell. */
static uint64_t memory_limit(uint64_t wanted)
{
    uint64_t all = cordon_vm.code_bytes;
    uint64_t most = all > 2 * RESERVE_BYTES ? all - RESERVE_BYTES : all / 2;
    return wanted && wanted < most ? wanted : most;
}

uint64_t cordon_vm_files_limit(uint64_t wanted)
{
    uint64_t most = cordon_vm.code_bytes / 4 * 3;
    return wanted && most && wanted > most ? most : wanted;
}

static void take_limits(const struct cordon_vm_lease *lease, struct cordon_agent_config *config)
{
    write_limit(cordon_vm.memory_max, memory_limit(lease->memory_bytes));
    write_limit(cordon_vm.pids_max, lease->pids);
    if (lease->open_files)
        config->open_files = lease->open_files;
    if (lease->memory_bytes)
        config->memory_bytes = lease->memory_bytes;
    if (lease->cpu_percent)
        config->cpus = (lease->cpu_percent + 99) / 100;
    cordon_agent_tell_limits(config->memory_bytes, config->cpus);
    int r = cordon_agent_resize_files(lease->disk_bytes, lease->disk_inodes);
    if (r < 0)
        cordon_vm_fail("setting the size of the guest's files", r);
    cordon_vm.oom_before = read_count(cordon_vm.events, "oom_kill");
    cordon_vm.cpu_before = read_count(cordon_vm.cpu, "usage_usec");
}

/* As in every guest: ending the code, becoming the code, remounting its files; and here, ending the machine. A
 * rehearsal leaves setting the clock, for the lease. */
static void drop_capabilities(bool rehearsal)
{
    static const int kept[] = {CAP_KILL,     CAP_SETUID,  CAP_SETGID,       CAP_SETPCAP, CAP_SYS_ADMIN,
                               CAP_CHOWN,    CAP_FOWNER,  CAP_DAC_OVERRIDE, CAP_FSETID,  CAP_NET_BIND_SERVICE,
                               CAP_SYS_BOOT, CAP_SYS_TIME};
    const size_t count = sizeof kept / sizeof *kept - !rehearsal;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    for (size_t i = 0; i < count; i++)
        data[kept[i] / 32].permitted |= 1u << (kept[i] % 32);
    for (size_t i = 0; i < 2; i++)
        data[i].effective = data[i].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        cordon_vm_fail("dropping capabilities", -errno);
}

static void take_lease(struct cordon_vm_lease *lease, struct cordon_agent_config *config)
{
    key_anew(lease);
    set_clock(lease->realtime_ns);
    take_identity(lease);
    take_limits(lease, config);
    drop_capabilities(lease->flags & CORDON_VM_REHEARSAL);
    explicit_bzero(lease->entropy, sizeof lease->entropy);
}

/* All that a lease does is done anew by the next one, but for what it leaves as it was in config. */
static void rehearse_lease(struct cordon_vm_lease *lease, const struct cordon_agent_config *config)
{
    struct cordon_agent_config scratch = *config;
    lease->disk_bytes = lease->disk_inodes = 0; /* else the next one could not leave them as booted */
    take_lease(lease, &scratch);
}

void cordon_vm_await_lease(struct cordon_agent_config *config, struct cordon_vm_lease *ret, void (*rehearse)(void))
{
    struct cordon_buf frame = CORDON_BUF_INIT(64);
    int *const used[] = {&cordon_vm.random, &cordon_vm.hostname, &cordon_vm.hosts, &cordon_vm.machine_id};
    set_blocking(true);
    take_hostname(CORDON_GUEST_HOSTNAME);
    look_at_memory();
    for (;;) {
        say_ready(config);
        read_lease(ret);
        if (!(ret->flags & CORDON_VM_REHEARSAL))
            break;
        rehearse_lease(ret, config);
        if (rehearse)
            rehearse();
    }
    take_lease(ret, config);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        cordon_close(used[i]);
    cordon_vm.leased = true;
    cordon_vm_leased_put(&frame);
    say(&frame);
    cordon_buf_done(&frame);
    set_blocking(false);
}
