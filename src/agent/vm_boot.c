/* SPDX-License-Identifier: Apache-2.0 */
/* From the kernel's hands to the agent: see vm.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/nursery.h"
#include "agent/vm.h"
#include "base/fd.h"
#include "isolate/root.h"

#define LINE_MAX_SIZE 4096
#define MODULES_MAX 64
#define WAIT_MS 20000 /* for a device to appear: under emulation on a busy host that takes a while */
#define DISK_INODES 65536
#define PORTS "/sys/class/virtio-ports"

static char line[LINE_MAX_SIZE]; /* the kernel's command line, a NUL behind each word */
static size_t line_size;

static void read_line(void)
{
    ssize_t n = cordon_read_file(AT_FDCWD, "/proc/cmdline", line, sizeof line);
    if (n < 0)
        cordon_vm_fail("reading the kernel's command line", (int)n);
    line_size = (size_t)n;
    for (size_t i = 0; i < line_size; i++)
        if (line[i] == ' ' || line[i] == '\n')
            line[i] = '\0';
}

/* The next word behind `after` (NULL: the first one); NULL at the end. */
static const char *next_word(const char *after)
{
    const char *at = after ? after + strlen(after) : line, *end = line + line_size;
    while (at < end && !*at)
        at++;
    return at < end ? at : NULL;
}

/* The value of KEY= as the last one says it, or otherwise. */
static const char *word(const char *key, const char *otherwise)
{
    const char *found = otherwise;
    for (const char *at = next_word(NULL); at; at = next_word(at))
        if (strncmp(at, key, strlen(key)) == 0)
            found = at + strlen(key);
    return found;
}

static uint64_t number(const char *key, uint64_t otherwise)
{
    const char *text = word(key, "");
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return *text && !*end && !errno ? value : otherwise;
}

/* --- modules --- */

/* What is said to a module that is built in as NAME.KEY=VALUE, as the arguments of one that is loaded. */
static void arguments_of(const char *name, char *to, size_t size)
{
    size_t length = strlen(name), used = 0;
    *to = '\0';
    for (const char *at = next_word(NULL); at; at = next_word(at)) {
        if (strncmp(at, name, length) != 0 || at[length] != '.')
            continue;
        int n = snprintf(to + used, size - used, "%s ", at + length + 1);
        if (n < 0 || (size_t)n >= size - used)
            cordon_vm_fail("passing on a module's arguments", -E2BIG);
        used += (size_t)n;
    }
}

/* "NN-NAME.ko" */
static void load_module(int folder, const char *file)
{
    char name[64], arguments[LINE_MAX_SIZE];
    (void)snprintf(name, sizeof name, "%s", file + 3);
    *strrchr(name, '.') = '\0';
    arguments_of(name, arguments, sizeof arguments);
    cordon_autoclose int fd = openat(folder, file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (syscall(SYS_finit_module, fd, arguments, 0) < 0 && errno != EEXIST))
        cordon_vm_fail(file, -errno);
    (void)unlinkat(folder, file, 0); /* it was memory */
}

static int is_module(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 6 && length < 60 && entry->d_name[2] == '-' && strcmp(entry->d_name + length - 3, ".ko") == 0;
}

/* None, where the kernel has all built in. */
static void load_modules(void)
{
    struct dirent **list;
    cordon_autoclose int folder = open("/modules", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = folder < 0 ? 0 : scandir("/modules", &list, is_module, alphasort);
    for (int i = 0; i < count; i++) {
        load_module(folder, list[i]->d_name);
        free(list[i]);
    }
    if (count > 0)
        free(list);
}

/* --- devices --- */

static void wait_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&pause, NULL); /* a shorter one only looks once more */
}

/* The port of our name: its number hangs on the order of the devices. */
static int open_port(void)
{
    DIR *ports = opendir(PORTS);
    int fd = -ENODEV;
    for (struct dirent *entry; ports && fd == -ENODEV && (entry = readdir(ports));) {
        char path[300], name[64] = "";
        (void)snprintf(path, sizeof path, PORTS "/%s/name", entry->d_name);
        if (*entry->d_name == '.' || cordon_read_file(AT_FDCWD, path, name, sizeof name) <= 0)
            continue;
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, CORDON_VM_PORT) != 0)
            continue;
        (void)snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            fd = errno == ENOENT ? -ENODEV : -errno;
    }
    if (ports)
        (void)closedir(ports); /* only read */
    return fd;
}

/* Port and root appear soon after their drivers, each by the kernel's own threads. */
static void open_devices(void)
{
    int port = -ENODEV, r = -ENOENT;
    for (int waited = 0; waited < WAIT_MS && (port == -ENODEV || r == -ENOENT); waited += 2) {
        if (port < 0)
            port = open_port();
        if (port >= 0 && r == -ENOENT)
            r = mount("/dev/vda", "/root", "erofs", MS_RDONLY, NULL) < 0 ? -errno : 0;
        if (r < 0 && (errno == ENXIO || errno == ENOENT))
            r = -ENOENT;
        if (port == -ENODEV || r == -ENOENT)
            wait_ms(2);
    }
    if (port < 0)
        cordon_vm_fail("opening the port " CORDON_VM_PORT, port);
    cordon_vm.port = cordon_vm_place(port, CORDON_AGENT_CHANNEL);
    if (r < 0)
        cordon_vm_fail("mounting the root from /dev/vda", r);
}

static void first_mounts(void)
{
    static const struct {
        const char *type, *at;
    } rows[] = {{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)mkdir(rows[i].at, 0755); /* there already, with our own initramfs */
        if (mount(rows[i].type, rows[i].at, rows[i].type, MS_NOSUID | MS_NOEXEC, NULL) < 0 && errno != EBUSY)
            cordon_vm_fail(rows[i].at, -errno);
    }
    (void)mkdir("/root", 0755); /* as above */
}

/* 0 and 1 are nothing, 2 the console where the machine has one. */
static void first_descriptors(void)
{
    int null = cordon_vm_place(open("/dev/null", O_RDWR), -1);
    int console = cordon_vm_place(open("/dev/console", O_WRONLY | O_NOCTTY), -1);
    if (null < 0)
        cordon_vm_fail("opening /dev/null", -errno);
    (void)dup2(console < 0 ? null : console, STDERR_FILENO);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(null, STDOUT_FILENO);
    for (int fd = 3; fd < CORDON_AGENT_CGROUPS; fd++) /* nothing else is to get the numbers of launch.h */
        (void)dup3(STDIN_FILENO, fd, O_CLOEXEC);
    (void)close_range(CORDON_AGENT_CGROUPS, ~0u, 0);
}

/* --- the kernel's own settings --- */

static void set_kernel(void)
{
    static const struct {
        const char *path, *value;
    } rows[] = {
        {"/proc/sys/kernel/modprobe", ""},
        {"/proc/sys/kernel/modules_disabled", "1"}, /* all that are needed are there */
        {"/proc/sys/kernel/kexec_load_disabled", "1"},
        {"/proc/sys/kernel/dmesg_restrict", "1"},
        {"/proc/sys/kernel/kptr_restrict", "2"},
        {"/proc/sys/kernel/unprivileged_bpf_disabled", "1"},
        {"/proc/sys/kernel/sysrq", "0"},
        {"/proc/sys/kernel/core_pattern", "core"},
        {"/proc/sys/user/max_user_namespaces", "0"},
        {"/proc/sys/user/max_net_namespaces", "0"},
        {"/proc/sys/user/max_time_namespaces", "0"},
        /* As on a host, whose memory is large: what a program asks for it gets, and what it uses is limited. */
        {"/proc/sys/vm/overcommit_memory", "1"},
        {"/proc/sys/vm/panic_on_oom", "0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        (void)cordon_write_file(AT_FDCWD, rows[i].path, rows[i].value); /* a kernel without it needs it not */
    /* Code takes another one, but may go back to what it was born with: so not -1000, which nothing could end. */
    (void)cordon_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "-999");
    const struct timespec past = {.tv_sec = CORDON_VM_PAST_S};
    (void)clock_settime(CLOCK_REALTIME, &past); /* see vm.h; can't fail for root */
    struct sched_param param = {.sched_priority = 1};
    (void)sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param); /* else it only answers later */
}

/* --- the agent --- */

static void language_of(struct cordon_vm_boot *boot, uint32_t *number_of)
{
    static const char *const names[] = {"none", "python", "javascript", "bash"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(boot->language, names[i]) == 0 && (i > 0 || boot->kept)) {
            *number_of = boot->kept ? CORDON_VM_NONE : i;
            return;
        }
    }
    cordon_vm_fail("finding the language in the kernel's command line (cordon.language=)", -EINVAL);
}

static uint64_t memory_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void read_boot(struct cordon_vm_boot *ret)
{
    const char *mode = word("cordon.mode=", "run");
    ret->kept = strcmp(mode, "kept") == 0;
    if (!ret->kept && strcmp(mode, "run") != 0)
        cordon_vm_fail("finding the mode in the kernel's command line (cordon.mode=)", -EINVAL);
    ret->language = word("cordon.language=", ret->kept ? "none" : "python");
    language_of(ret, &cordon_vm.language);
    ret->network = number("cordon.network=", 0) == 1;
    cordon_vm.once = number("cordon.once=", 0) == 1;
    ret->memory_bytes = memory_bytes();
    ret->disk_bytes = number("cordon.disk_mb=", 0) << 20;
    if (!ret->disk_bytes)
        ret->disk_bytes = ret->memory_bytes / 2;
    ret->disk_inodes = number("cordon.disk_inodes=", DISK_INODES);
}

/* The driver socket is opened by the agent (mode spawn), or is what a warden would bring a new channel on (kept), which
 * in a machine is the port itself. */
static _Noreturn void become_agent(const struct cordon_vm_boot *boot)
{
    static const char *const interpreters[] = {"", "/usr/bin/python3", "/usr/bin/node", "/usr/bin/bash"};
    static const char *const drivers[] = {"", CORDON_ROOT_OWN "/zygote.py", CORDON_ROOT_OWN "/driver.js", ""};
    static char texts[8][128], name[] = "cordon-agent", spawn[] = "spawn", kept[] = "kept", isolated[] = "isolated=1",
                               told[] = "told=1";
    char *argv[] = {name,     boot->kept ? kept : spawn,
                    isolated, told,
                    texts[0], texts[1],
                    texts[2], texts[3],
                    texts[4], texts[5],
                    texts[6], texts[7]};
    (void)snprintf(texts[0], sizeof texts[0], "code_uid=%u", CORDON_CODE_UID); /* all fit */
    (void)snprintf(texts[1], sizeof texts[1], "code_gid=%u", CORDON_CODE_UID);
    (void)snprintf(texts[2], sizeof texts[2], "memory=%llu", (unsigned long long)boot->memory_bytes);
    (void)snprintf(texts[3], sizeof texts[3], "cpus=%ld", sysconf(_SC_NPROCESSORS_ONLN));
    (void)snprintf(texts[4], sizeof texts[4], "language=%s", boot->kept ? "" : boot->language);
    (void)snprintf(texts[5], sizeof texts[5], "workdir=%s", CORDON_ROOT_HOME);
    (void)snprintf(texts[6], sizeof texts[6], "interpreter=%s", interpreters[cordon_vm.language]);
    (void)snprintf(texts[7], sizeof texts[7], "driver=%s", drivers[cordon_vm.language]);
    cordon_vm.on = true;
    cordon_agent_main(sizeof argv / sizeof *argv, argv);
    cordon_vm_fail("starting the agent", -EINVAL);
}

bool cordon_vm_is_init(char **argv)
{
    return getpid() == 1 && strcmp(argv[0], "/init") == 0;
}

void cordon_vm_main(void)
{
    struct cordon_vm_boot boot;
    const char *stage = "";
    cordon_vm.on = true;
    (void)umask(022);
    first_mounts();
    first_descriptors();
    read_line();
    load_modules();
    open_devices();
    read_boot(&boot);
    set_kernel();
    int r = cordon_vm_make_groups(&stage);
    if (r == 0)
        r = cordon_vm_enter_root(&boot, &stage);
    if (r < 0)
        cordon_vm_fail(stage, r);
    (void)prctl(PR_SET_NAME, "cordon-agent"); /* for ps only */
    become_agent(&boot);
}
