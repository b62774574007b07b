/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest is told about its machine. Whoever makes the guest mounts the files of /run/cordon-guest over
 * /proc/meminfo, /proc/cpuinfo and /proc/stat (bind mounts, so rewriting them in place is enough) and lets the agent
 * own them. The numbers are the run's limits: pools of threads and heaps are sized by them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"
#include "isolate/root.h"

#define TOLD_DIR CORDON_ROOT_GUEST "/"
#define OWN_INODES 8 /* of the guest's tmpfs, beyond the run's: see isolate/guest_mount.c */
#define CPUS_MAX 1024

int cordon_agent_overwrite(int fd, const char *text, size_t size)
{
    struct stat st;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    int r = cordon_write_full(fd, text, size);
    if (r == 0 && (fstat(fd, &st) < 0 || (st.st_size > (off_t)size && ftruncate(fd, (off_t)size) < 0)))
        r = -errno;
    return r;
}

static void rewrite(const char *path, const struct cordon_buf *text)
{
    cordon_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0 && !text->failed)
        (void)cordon_agent_overwrite(fd, text->data, text->size); /* told, not held: a limit does not hang on it */
}

static void tell_memory(uint64_t bytes)
{
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    uint64_t kib = bytes / 1024;
    (void)cordon_buf_appendf(&text, /* failures stick in text.failed */
                             "MemTotal:       %8" PRIu64 " kB\nMemFree:        %8" PRIu64 " kB\n"
                             "MemAvailable:   %8" PRIu64
                             " kB\nBuffers:               0 kB\nCached:                0 kB\n"
                             "SwapCached:            0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
                             "Shmem:                 0 kB\nSReclaimable:          0 kB\n",
                             kib, kib, kib);
    rewrite(TOLD_DIR "meminfo", &text);
    cordon_buf_done(&text);
}

static void tell_cpuinfo(uint32_t cpus)
{
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    for (uint32_t i = 0; i < cpus; i++)
        (void)cordon_buf_appendf(&text, /* failures stick in text.failed */
                                 "processor\t: %u\nmodel name\t: cordon guest\ncpu MHz\t\t: 2000.000\n"
                                 "physical id\t: 0\nsiblings\t: %u\ncore id\t\t: %u\ncpu cores\t: %u\n\n",
                                 i, cpus, i, cpus);
    rewrite(TOLD_DIR "cpuinfo", &text);
    cordon_buf_done(&text);
}

static void tell_stat(uint32_t cpus)
{
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    (void)cordon_buf_appends(&text, "cpu  0 0 0 0 0 0 0 0 0 0\n"); /* failures stick in text.failed */
    for (uint32_t i = 0; i < cpus; i++)
        (void)cordon_buf_appendf(&text, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
    (void)cordon_buf_appendf(&text,
                             "intr 0\nctxt 0\nbtime %" PRIu64 "\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
                             (uint64_t)time(NULL));
    rewrite(TOLD_DIR "stat", &text);
    cordon_buf_done(&text);
}

static void tell_load(void)
{
    struct cordon_buf text = CORDON_BUF_INIT(64);
    (void)cordon_buf_appends(&text, "0.00 0.00 0.00 1/1 1\n"); /* failures stick in text.failed */
    rewrite(TOLD_DIR "loadavg", &text);
    cordon_buf_done(&text);
}

void cordon_agent_tell_limits(uint64_t memory_bytes, uint32_t cpus)
{
    if (memory_bytes)
        tell_memory(memory_bytes);
    if (!cpus)
        return;
    uint32_t shown = cpus > CPUS_MAX ? CPUS_MAX : cpus;
    tell_cpuinfo(shown);
    tell_stat(shown);
    tell_load();
}

/* Only where the numbers differ: the usual limits are those that the guest was made with. */
int cordon_agent_resize_files(uint64_t bytes, uint64_t inodes)
{
    struct statvfs now;
    char options[96];
    if (!bytes && !inodes)
        return 0;
    if (statvfs(CORDON_ROOT_GUEST, &now) < 0)
        return -errno;
    uint64_t pages = (bytes + now.f_frsize - 1) / now.f_frsize;
    if ((!bytes || pages == now.f_blocks) && (!inodes || inodes + OWN_INODES == now.f_files))
        return 0;
    (void)snprintf(options, sizeof options, "size=%" PRIu64 ",nr_inodes=%" PRIu64,
                   bytes ? bytes : (uint64_t)now.f_blocks * now.f_frsize,
                   inodes ? inodes + OWN_INODES : (uint64_t)now.f_files);
    unsigned long flags = MS_REMOUNT | MS_NOSUID | MS_NODEV;
    return mount(NULL, CORDON_ROOT_GUEST, NULL, flags, options) < 0 ? -errno : 0;
}
