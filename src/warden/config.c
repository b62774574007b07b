/* SPDX-License-Identifier: Apache-2.0 */
/* What the warden needs of the settings. It loads them itself: a gateway tells it nothing about its own limits. */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/authority_file.h"
#include "core/settings.h"
#include "core/state_path.h"
#include "core/template_file.h"
#include "isolate/outer.h"
#include "supervisor/roles.h"

#define HOST_AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"
#define TRUST_MAX (4u << 20)
#define CORDON_IMAGE_FOLDER "/images/vm" /* in the state folder */

static const char *text(const struct cordon_settings *settings, enum cordon_setting id)
{
    return cordon_settings_string(settings, CORDON_DOOR_NATIVE, id);
}

static uint64_t number(const struct cordon_settings *settings, enum cordon_setting id)
{
    int64_t value = cordon_settings_int(settings, CORDON_DOOR_NATIVE, id);
    return value < 0 ? 0 : (uint64_t)value;
}

static int take_path(const struct cordon_settings *settings, enum cordon_setting id, char *to, size_t size,
                     struct cordon_error *err)
{
    const char *path = text(settings, id);
    int n = snprintf(to, size, "%s", path);
    if (path[0] != '/')
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s must be the absolute path of an interpreter that guests see, like /usr/bin/%s, not "
                           "\"%.200s\"",
                           cordon_settings_name(CORDON_DOOR_NATIVE, id), id == CORDON_SET_PYTHON ? "python3" : "node",
                           path);
    if ((size_t)n >= size)
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "%s is longer than %zu bytes",
                           cordon_settings_name(CORDON_DOOR_NATIVE, id), size - 1);
    return 0;
}

/* A name that is the same after a restart, so that what a killed warden left is found; FNV-1a of the state folder. */
static void name_instance(const struct cordon_settings *settings, struct cordon_warden_config *ret)
{
    uint32_t hash = 2166136261u;
    if (ret->oneshot) {
        (void)snprintf(ret->instance, sizeof ret->instance, "run-%d", (int)getpid());
        return;
    }
    for (const char *p = text(settings, CORDON_SET_STATE); *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    (void)snprintf(ret->instance, sizeof ret->instance, "serve-%08x", hash);
}

/* Where no state folder can be there are no made templates either: a run of the default one needs none. */
static int find_templates(const struct cordon_settings *settings, struct cordon_warden_config *ret,
                          struct cordon_error *err)
{
    char state[sizeof ret->templates - sizeof CORDON_TEMPLATES_FOLDER];
    if (cordon_state_path(settings, state, sizeof state, NULL) == 0)
        (void)snprintf(ret->templates, sizeof ret->templates, "%s" CORDON_TEMPLATES_FOLDER, state); /* fits */
    else if (!ret->oneshot)
        return cordon_state_path(settings, state, sizeof state, err);
    return 0;
}

/* The authority for hosts with headers, by itself and behind what the host trusts: bytes, which nothing here reads. */
static int read_trust(const struct cordon_settings *settings, struct cordon_warden_config *ret,
                      struct cordon_error *err)
{
    char state[sizeof ret->templates];
    struct stat st;
    ret->authority = CORDON_BUF_INIT(TRUST_MAX);
    ret->trust_bundle = CORDON_BUF_INIT(TRUST_MAX);
    if (!cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_CA))
        return 0;
    int r = cordon_state_path(settings, state, sizeof state, err);
    if (r == 0)
        r = cordon_authority_file_read(state, CORDON_AUTHORITY_CERTIFICATE, &ret->authority, err);
    if (r < 0)
        return r == -ENOENT && ret->oneshot ? 0 : r; /* a run without headers needs none */
    cordon_autoclose int fd = open(HOST_AUTHORITIES, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *to = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < (off_t)TRUST_MAX
                   ? cordon_buf_reserve(&ret->trust_bundle, (size_t)st.st_size)
                   : NULL;
    if (to && cordon_read_full(fd, to, (size_t)st.st_size) == 0)
        ret->trust_bundle.size = (size_t)st.st_size; /* else guests trust our authority alone */
    if (cordon_buf_append(&ret->trust_bundle, ret->authority.data, ret->authority.size) < 0)
        return cordon_fail_errno(err, -ENOMEM, "read the authority for hosts with headers");
    return 0;
}

/* A path that is of no use is kept as the warden's problem: it is told in the hello, to whoever asks for a guest. */
static void take(const struct cordon_settings *settings, struct cordon_warden_config *ret)
{
    static const struct {
        enum cordon_guest_kind kind;
        enum cordon_setting id;
    } floors[] = {{CORDON_GUEST_PYTHON, CORDON_SET_POOL_PYTHON},
                  {CORDON_GUEST_PYTHON_DATA, CORDON_SET_POOL_PYTHON_DATA},
                  {CORDON_GUEST_JAVASCRIPT, CORDON_SET_POOL_JAVASCRIPT},
                  {CORDON_GUEST_BASH, CORDON_SET_POOL_BASH},
                  {CORDON_GUEST_KEPT, CORDON_SET_POOL_GUEST}};
    ret->allow_none = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_ALLOW_NONE);
    ret->network = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_ALLOW_NETWORK);
    ret->uid_base = (uid_t)number(settings, CORDON_SET_UID_BASE);
    ret->memory_bytes = number(settings, CORDON_SET_MEMORY_MB) << 20;
    ret->max_memory_bytes = number(settings, CORDON_SET_MAX_MEMORY_MB) << 20;
    ret->disk_bytes = number(settings, CORDON_SET_DISK_MB) << 20;
    ret->disk_inodes = number(settings, CORDON_SET_DISK_INODES);
    ret->pids = (uint32_t)number(settings, CORDON_SET_PIDS);
    ret->cpu_percent = (uint32_t)number(settings, CORDON_SET_CPU_PERCENT);
    ret->open_files = (uint32_t)number(settings, CORDON_SET_OPEN_FILES);
    ret->pool_max = ret->oneshot ? 0 : (unsigned)number(settings, CORDON_SET_POOL_MAX);
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
        ret->floor[floors[i].kind] = ret->oneshot ? 0 : (unsigned)number(settings, floors[i].id);
    ret->start_us = number(settings, CORDON_SET_GUEST_START_S) * 1000000;
    ret->orphan_us = number(settings, CORDON_SET_GUEST_ORPHAN_S) * 1000000;
    if (ret->memory_bytes > ret->max_memory_bytes)
        ret->memory_bytes = ret->max_memory_bytes;
    ret->templates_max = (unsigned)number(settings, CORDON_SET_TEMPLATES);
    ret->template_bytes = number(settings, CORDON_SET_TEMPLATE_MB) << 20;
    struct cordon_interpreters *to = &ret->interpreters;
    (void)snprintf(to->bash, sizeof to->bash, "/bin/bash");
    struct cordon_error *problem = &ret->problem;
    if (take_path(settings, CORDON_SET_PYTHON, to->python, sizeof to->python, problem) == 0)
        (void)take_path(settings, CORDON_SET_NODE, to->node, sizeof to->node, problem); /* kept in problem */
}

/* Half a CPU is left to the host, and each CPU carries two machines. */
#define CPU_OVERCOMMIT 2

static uint64_t host_memory_mb(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size >> 20 : 1024;
}

/* Folder and program are looked at when a machine is asked for, and told then. */
static void take_machines(const struct cordon_settings *settings, struct cordon_warden_config *ret)
{
    const char *image = text(settings, CORDON_SET_VM_IMAGE);
    char state[sizeof ret->image - sizeof CORDON_IMAGE_FOLDER];
    if (*image)
        (void)snprintf(ret->image, sizeof ret->image, "%s", image); /* cut, it is not found */
    else if (cordon_state_path(settings, state, sizeof state, NULL) == 0)
        (void)snprintf(ret->image, sizeof ret->image, "%s" CORDON_IMAGE_FOLDER, state); /* fits */
    (void)snprintf(ret->qemu, sizeof ret->qemu, "%s", text(settings, CORDON_SET_VM_QEMU));
    ret->allow_emulation = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_ALLOW_SOFTWARE_EMULATION) ||
                           cordon_settings_bool(settings, CORDON_DOOR_LANGFLOW, CORDON_SET_ALLOW_SOFTWARE_EMULATION);
    ret->force_emulation = cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_VM_FORCE_EMULATION);
    ret->machine_pool = ret->oneshot ? 0 : (unsigned)number(settings, CORDON_SET_VM_POOL);
    ret->machine_memory_mb = number(settings, CORDON_SET_VM_MEMORY_BUDGET_MB);
    ret->machine_cpu_percent = number(settings, CORDON_SET_VM_CPU_BUDGET_PERCENT);
    if (!ret->machine_memory_mb)
        ret->machine_memory_mb = host_memory_mb() * 92 / 100;
    if (!ret->machine_cpu_percent)
        ret->machine_cpu_percent = (ret->cpus * 100 - 50) * CPU_OVERCOMMIT;
}

static void set_up_log(const struct cordon_settings *settings)
{
    enum cordon_log_level level = CORDON_LOG_INFO;
    (void)cordon_log_level_parse(text(settings, CORDON_SET_LOG_LEVEL), &level); /* settings have checked it */
    cordon_log_setup("warden", level, cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
}

int cordon_warden_configure(int argc, char **argv, struct cordon_warden_config *ret, struct cordon_error *err)
{
    struct cordon_settings_input input = {0};
    struct cordon_settings *settings;
    int at = 1;
    *ret = (struct cordon_warden_config){0};
    ret->template_fd = -1;
    if (at < argc && strcmp(argv[at], "--oneshot") == 0) {
        ret->oneshot = true;
        at++;
    }
    if (ret->oneshot && at < argc && strcmp(argv[at], "--host-network") == 0) {
        ret->host_network = true;
        at++;
    }
    if (ret->oneshot && at < argc && strcmp(argv[at], "--template-file") == 0) {
        ret->template_fd = CORDON_ROLE_TEMPLATE;
        (void)fcntl(ret->template_fd, F_SETFD, FD_CLOEXEC); /* checked by its first use */
        at++;
    }
    if (at + 1 < argc && strcmp(argv[at], "--config") == 0) {
        input.file = argv[at + 1];
        at += 2;
    }
    input.flags = (const char *const *)(argv + at);
    int r = cordon_settings_load(&input, &settings, err);
    if (r < 0)
        return r;
    set_up_log(settings);
    r = find_templates(settings, ret, err);
    if (r == 0)
        r = read_trust(settings, ret, err);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    ret->cpus = cpus > 0 ? (unsigned)cpus : 1;
    ret->outer_uid = geteuid();
    ret->outer_gid = getegid();
    take(settings, ret);
    take_machines(settings, ret);
    name_instance(settings, ret);
    /* In a container's user namespace the guests' uids may not be there. */
    ret->root = ret->outer_uid == 0 && cordon_outer_has_ids(ret->uid_base, 3 * CORDON_UID_RANGE);
    cordon_settings_free(settings);
    return r;
}

const char *cordon_interpreter_of(const struct cordon_interpreters *interpreters, enum cordon_guest_kind kind)
{
    if (kind == CORDON_GUEST_KEPT)
        return "";
    if (kind == CORDON_GUEST_JAVASCRIPT)
        return interpreters->node;
    return kind == CORDON_GUEST_BASH ? interpreters->bash : interpreters->python;
}

uint32_t cordon_guest_processes(const struct cordon_warden *warden)
{
    bool held = cordon_cgroup_has_pids(warden->cgroups);
#ifdef CORDON_WEAKEN_PIDS
    held = true;
#endif
    return held ? 0 : warden->config.pids + (warden->config.root ? 0 : 1); /* the agent has the same uid */
}

uint32_t cordon_guest_cpus(uint32_t cpu_percent, unsigned host_cpus)
{
    uint32_t cpus = (cpu_percent + 99) / 100;
    if (cpus > host_cpus)
        cpus = host_cpus;
    return cpus ? cpus : 1;
}
