/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The device is opened by the caller's own process, since that answers most of the question at
 * once and needs no child: absent, not permitted, group not yet effective. What is left to find is done in a child, as
 * it asks a kernel for things that may hang or kill: the child writes its finding into memory that is shared with
 * it, and is killed when that took too long. What was measured is remembered in this process and, for other processes,
 * in a file.
 */
#include "vmm/accel.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/attempt.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "vmm/accel_try.h"

static const struct cordon_accelerator *const all[] = {&cordon_accelerator_kvm}; /* the best first */

const char *cordon_accel_state_name(enum cordon_accel_state state)
{
    static const char *const names[] = {
        [CORDON_ACCEL_ABSENT] = "absent",
        [CORDON_ACCEL_NO_PERMISSION] = "no-permission",
        [CORDON_ACCEL_GROUP_NOT_EFFECTIVE] = "group-not-effective",
        [CORDON_ACCEL_EMULATED] = "emulated",
        [CORDON_ACCEL_UNUSABLE] = "unusable",
        [CORDON_ACCEL_GOOD] = "good",
    };
    return (size_t)state < CORDON_ACCEL__COUNT ? names[state] : "unknown";
}

void cordon_accel_tell(struct cordon_accel *ret, enum cordon_accel_state state, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(ret->reason, sizeof ret->reason, fmt, args); /* cut where too long */
    va_end(args);
    ret->state = state;
    ret->usable = state == CORDON_ACCEL_GOOD;
}

void cordon_accel_mend(struct cordon_accel *ret, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(ret->fix, sizeof ret->fix, fmt, args); /* cut where too long */
    va_end(args);
}

static int open_device(const char *path, int flags)
{
    return open(path, flags);
}

static int call_device(int fd, unsigned long request, uintptr_t argument)
{
    return ioctl(fd, request, argument);
}

const struct cordon_accel_calls cordon_accel_kernel = {.open = open_device, .ioctl = call_device};

/* The names behind ids; a number where there is none. */
static void name_user(uid_t uid, char *to, size_t size)
{
    char room[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, room, sizeof room, &found) == 0 && found)
        (void)snprintf(to, size, "%.31s", found->pw_name);
    else
        (void)snprintf(to, size, "%u", uid);
}

bool cordon_accel_listed(unsigned uid, unsigned gid)
{
    char room[16384], name[32];
    struct passwd user, *found_user = NULL;
    struct group group, *found = NULL;
    name_user(uid, name, sizeof name);
    if (getpwuid_r(uid, &user, room, sizeof room, &found_user) == 0 && found_user && user.pw_gid == gid)
        return true;
    if (getgrgid_r(gid, &group, room, sizeof room, &found) != 0 || !found)
        return false;
    for (char **member = group.gr_mem; *member; member++)
        if (strcmp(*member, name) == 0)
            return true;
    return false;
}

/* The device is there and can't be opened. */
static void explain_refusal(struct cordon_accel *ret, int error)
{
    char user[32], group_name[32];
    struct stat node;
    char room[16384];
    struct group entry, *found = NULL;
    uid_t uid = geteuid();
    bool seen = stat(ret->device, &node) == 0;
    name_user(uid, user, sizeof user);
    if (!seen || uid == 0) {
        cordon_accel_tell(ret, CORDON_ACCEL_NO_PERMISSION, "opening %s as %s: %s", ret->device, user, strerror(error));
        cordon_accel_mend(ret,
                          "let this container or service have the device: docker run --device %s; for systemd "
                          "DeviceAllow=%s rw",
                          ret->device, ret->device);
        return;
    }
    if (getgrgid_r(node.st_gid, &entry, room, sizeof room, &found) == 0 && found)
        (void)snprintf(group_name, sizeof group_name, "%.31s", entry.gr_name);
    else
        (void)snprintf(group_name, sizeof group_name, "%u", node.st_gid);
    bool by_group = (node.st_mode & 060) == 060 && node.st_gid != 0;
    if (by_group && cordon_accel_listed(uid, node.st_gid)) {
        cordon_accel_tell(ret, CORDON_ACCEL_GROUP_NOT_EFFECTIVE,
                          "%s is for the group %s; %s is in it, but this process was started before that", ret->device,
                          group_name, user);
        cordon_accel_mend(ret, "log in again and start cordon anew (or at once: sg %s -c 'cordon ...')", group_name);
        return;
    }
    cordon_accel_tell(ret, CORDON_ACCEL_NO_PERMISSION, "opening %s as %s: %s (mode %04o, group %s)", ret->device, user,
                      strerror(error), (unsigned)node.st_mode & 07777, group_name);
    if (by_group)
        cordon_accel_mend(ret, "usermod -aG %s %s, then log in again", group_name, user);
    else
        cordon_accel_mend(ret, "as root: chown root:kvm %s; chmod 0660 %s; usermod -aG kvm %s; then log in again",
                          ret->device, ret->device, user);
}

static void explain_open(const struct cordon_accelerator *which, struct cordon_accel *ret, int error)
{
    if (error == EACCES || error == EPERM) {
        explain_refusal(ret, error);
    } else if (error == ENOENT || error == ENOTDIR || error == ENXIO || error == ENODEV) {
        cordon_accel_tell(ret, CORDON_ACCEL_ABSENT, "%s: %s", ret->device,
                          error == ENOENT || error == ENOTDIR ? "not there" : "no driver answers behind it");
        if (which->missing)
            which->missing(ret);
    } else {
        cordon_accel_tell(ret, CORDON_ACCEL_UNUSABLE, "opening %s: %s", ret->device, strerror(error));
    }
}

struct trial {
    const struct cordon_accelerator *which;
    const struct cordon_accel_calls *calls;
    int device;
    struct cordon_accel found;
};

static int examine(void *data)
{
    struct trial *trial = data;
    trial->which->examine(trial->calls, trial->device, &trial->found);
    return 0;
}

static void explain_end(const struct cordon_accelerator *which, const struct cordon_attempt *attempt, unsigned limit_ms,
                        struct cordon_accel *ret)
{
    const char *device = which->device;
    int value = attempt->value;
    if (attempt->end == CORDON_ATTEMPT_KILLED)
        cordon_accel_tell(ret, CORDON_ACCEL_UNUSABLE, "trying %s: the process was killed by signal %d (%s)", device,
                          value, strsignal(value));
    else if (attempt->end == CORDON_ATTEMPT_ENDED)
        cordon_accel_tell(ret, CORDON_ACCEL_UNUSABLE, "trying %s: the process ended without an answer (status %d)",
                          device, value);
    else
        cordon_accel_tell(ret, CORDON_ACCEL_UNUSABLE, "trying %s: no answer within %u ms%s", device, limit_ms,
                          attempt->end == CORDON_ATTEMPT_LATE ? "" : ", and the process that tried can not be killed");
}

static int measure(const struct cordon_accelerator *which, const struct cordon_accel_calls *calls, int device,
                   unsigned limit_ms, struct cordon_accel *ret, struct cordon_error *err)
{
    struct trial trial = {.which = which, .calls = calls, .device = device, .found = *ret};
    struct cordon_attempt attempt;
    uint64_t begin = cordon_now_us();
    int r = cordon_attempt(examine, &trial, sizeof trial, device, limit_ms, &attempt);
    if (r < 0)
        return cordon_fail_errno(err, r, "try the accelerator %s: start a process", which->name);
    if (attempt.end == CORDON_ATTEMPT_ENDED && attempt.value == 0)
        *ret = trial.found;
    else
        explain_end(which, &attempt, limit_ms, ret);
    ret->took_us = cordon_now_us() - begin;
    return 0;
}

static void begin(const struct cordon_accelerator *which, struct cordon_accel *ret)
{
    *ret = (struct cordon_accel){.state = CORDON_ACCEL_ABSENT};
    (void)snprintf(ret->name, sizeof ret->name, "%.15s", which->name);
    (void)snprintf(ret->device, sizeof ret->device, "%.63s", which->device);
}

static int open_one(const struct cordon_accelerator *which, const struct cordon_accel_calls *calls,
                    struct cordon_accel *ret)
{
    begin(which, ret);
    int device = calls->open(which->device, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (device < 0)
        explain_open(which, ret, errno);
    return device;
}

int cordon_accel_try(const struct cordon_accelerator *which, const struct cordon_accel_calls *calls, unsigned limit_ms,
                     struct cordon_accel *ret, struct cordon_error *err)
{
    cordon_autoclose int device = open_one(which, calls, ret);
    return device < 0 ? 0 : measure(which, calls, device, limit_ms, ret, err);
}

/* NULL: this user has no folder that lives as long as the boot. */
static const char *memory_file(char *room, size_t size)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0)
        return "/run/cordon/accel"; /* whatever the environment says */
    if (!folder || *folder != '/')
        return NULL;
    int length = snprintf(room, size, "%s/cordon-accel", folder);
    return length > 0 && (size_t)length < size ? room : NULL;
}

static int probe_one(const struct cordon_accelerator *which, bool anew, struct cordon_accel *ret,
                     struct cordon_error *err)
{
    char room[256];
    const char *file = memory_file(room, sizeof room);
    cordon_autoclose int device = open_one(which, &cordon_accel_kernel, ret);
    if (device < 0)
        return 0;
    struct cordon_accel known = *ret;
    if (!anew && file && cordon_accel_recall(file, device, &known)) {
        *ret = known;
        return 0;
    }
    int r = measure(which, &cordon_accel_kernel, device, CORDON_ACCEL_LIMIT_MS, ret, err);
    if (r == 0 && file)
        cordon_accel_keep(file, device, ret);
    return r;
}

static int probe_all(bool anew, struct cordon_accel *ret, struct cordon_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* two measurements at once would slow each other */
    int r = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof all / sizeof *all && r == 0; i++) {
        struct cordon_accel found;
        r = probe_one(all[i], anew, &found, err);
        if (r == 0 && (i == 0 || found.usable))
            *ret = found;
        if (r == 0 && found.usable)
            break;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

int cordon_accel_probe(struct cordon_accel *ret, struct cordon_error *err)
{
    return probe_all(false, ret, err);
}

int cordon_accel_probe_anew(struct cordon_accel *ret, struct cordon_error *err)
{
    return probe_all(true, ret, err);
}
