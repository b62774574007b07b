/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/value.h"
#include "isolate/nic.h"
#include "isolate/probe_row.h"
#include "vmm/accel.h"

#define MANIFEST_MAX (1u << 20)

static void probe_accelerator(const struct cordon_vmm_host *host, struct cordon_probe *probe)
{
    struct cordon_accel accel;
    struct cordon_error err = {0};
    if (cordon_accel_probe_anew(&accel, &err) < 0) {
        cordon_probe_found(probe, false, "%.250s", err.message);
        cordon_probe_fix(probe, "let cordon start processes");
        return;
    }
    if (host->forced)
        cordon_probe_found(probe, false, "not used, since CORDON_VM_FORCE_EMULATION is true (%s)",
                           cordon_accel_state_name(accel.state));
    else
        cordon_probe_found(probe, accel.usable, "%s: %s", cordon_accel_state_name(accel.state), accel.reason);
    if (host->forced)
        cordon_probe_fix(probe, "leave CORDON_VM_FORCE_EMULATION (EXEC_SANDBOX_FORCE_EMULATION) out");
    else if (!accel.usable)
        cordon_probe_fix(probe, "%s",
                         accel.fix[0] ? accel.fix : "see the kernel's log (dmesg) for what it says of KVM");
}

/* "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)" */
static void judge_qemu(struct cordon_probe *probe, const char *path, const char *text)
{
    int major = 0, minor = 0;
    const char *at = strstr(text, "version ");
    if (!at || sscanf(at, "version %d.%d", &major, &minor) != 2)
        cordon_probe_found(probe, false, "%.160s did not tell its version", path);
    else
        cordon_probe_found(probe, major > 7 || (major == 7 && minor >= 2), "%.160s is %d.%d", path, major, minor);
}

static void probe_qemu(const struct cordon_vmm_host *host, struct cordon_probe *probe)
{
    char text[512];
    const char *const argv[] = {host->qemu, "--version", NULL};
    int status = cordon_try_program(argv, text, sizeof text);
    if (status == 0)
        judge_qemu(probe, host->qemu, text);
    else if (status == 127)
        cordon_probe_found(probe, false, "%.160s is not there", host->qemu);
    else if (status < 0)
        cordon_probe_found(probe, false, "running %.160s: %s", host->qemu, strerror(-status));
    else
        cordon_probe_found(probe, false, "%.160s: exit status %d when asked for its version", host->qemu, status);
    if (!probe->ok)
        cordon_probe_fix(probe, "7.2 or newer is needed: apt-get install --no-install-recommends qemu-system-x86");
}

/* The manifest's text, NUL-terminated, to be freed; NULL with errno. */
static char *read_manifest(int folder, size_t *size)
{
    struct stat meta;
    cordon_autoclose int fd = openat(folder, "manifest.json", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &meta) < 0)
        return NULL;
    errno = meta.st_size > 0 ? EFBIG : ENODATA;
    if (!S_ISREG(meta.st_mode) || meta.st_size <= 0 || meta.st_size > (off_t)MANIFEST_MAX)
        return NULL;
    *size = (size_t)meta.st_size;
    char *text = calloc(1, *size + 1);
    int r = text ? cordon_read_full(fd, text, *size) : -ENOMEM;
    if (r == 0)
        return text;
    free(text);
    errno = -r;
    return NULL;
}

/* One part: there, and of the size that is said. Its digest is compared when machines are made of it. */
static bool check_part(int folder, const struct cordon_value *manifest, const char *part, struct cordon_probe *probe)
{
    struct cordon_value row, size;
    struct stat meta;
    char name[64];
    int64_t bytes;
    if (!cordon_value_member(manifest, part, &row) || !cordon_value_text(&row, "file", name, sizeof name) ||
        !cordon_value_member(&row, "size", &size) || !cordon_value_integer(&size, &bytes)) {
        cordon_probe_found(probe, false, "its manifest names no %s", part);
        return false;
    }
    if (fstatat(folder, name, &meta, AT_SYMLINK_NOFOLLOW) < 0) {
        cordon_probe_found(probe, false, "its %s: %s", name, strerror(errno));
        return false;
    }
    if (!S_ISREG(meta.st_mode) || meta.st_size != bytes) {
        cordon_probe_found(probe, false, "its %s has %lld bytes, its manifest says %lld", name, (long long)meta.st_size,
                           (long long)bytes);
        return false;
    }
    return true;
}

static void judge_image(const char *path, int folder, const char *text, size_t size, struct cordon_probe *probe)
{
    struct cordon_value manifest, kernel;
    char version[64] = "of unknown version";
    if (cordon_value_parse(text, size, &manifest, NULL) < 0 || manifest.kind != CORDON_VALUE_OBJECT) {
        cordon_probe_found(probe, false, "%.160s/manifest.json is no JSON object", path);
        return;
    }
    static const char *const parts[] = {"kernel", "initrd", "root"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!check_part(folder, &manifest, parts[i], probe))
            return;
    if (cordon_value_member(&manifest, "kernel", &kernel))
        (void)cordon_value_text(&kernel, "version", version, sizeof version); /* only told */
    cordon_probe_found(probe, true, "%.160s, kernel %s", path, version);
}

static void probe_image(const struct cordon_vmm_host *host, struct cordon_probe *probe)
{
    size_t size = 0;
    cordon_autoclose int folder = open(host->image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *text = folder < 0 ? NULL : read_manifest(folder, &size);
    if (text)
        judge_image(host->image, folder, text, size, probe);
    else
        cordon_probe_found(probe, false, "no manifest.json can be read in %.160s: %s", host->image, strerror(errno));
    if (!probe->ok)
        cordon_probe_fix(probe, "cordon image build");
    free(text);
}

static void probe_network(struct cordon_probe *probe)
{
    const char *stage;
    int r = cordon_nic_probe(CORDON_NIC_PROBE_MS, &stage);
    if (r == 0)
        cordon_probe_found(probe, true, "machines can have a network device");
    else
        cordon_probe_found(probe, false, "machines can have no network device: %s: %s", stage,
                           r == -ETIME ? "no answer within 20 s" : strerror(-r));
    if (r == -ENOENT || r == -ENODEV)
        cordon_probe_fix(probe, "modprobe tun; in a container: --device /dev/net/tun");
    else if (r < 0)
        cordon_probe_fix(probe, "let the daemon use /dev/net/tun and make network namespaces");
}

void cordon_vmm_host_probe(const struct cordon_vmm_host *host, struct cordon_probe ret[CORDON_VMM_HOST_PROBES])
{
    enum cordon_probe_weight needed = host->wanted ? CORDON_PROBE_NEEDED : CORDON_PROBE_INFO;
    enum cordon_probe_weight accelerator = host->wanted && host->emulation ? CORDON_PROBE_LESSENS : needed;
    ret[0] = (struct cordon_probe){.name = "machines: kvm", .weight = accelerator};
    ret[1] = (struct cordon_probe){.name = "machines: qemu", .weight = needed};
    ret[2] = (struct cordon_probe){.name = "machines: image", .weight = needed};
    ret[3] = (struct cordon_probe){.name = "machines: network",
                                   .weight = host->wanted ? CORDON_PROBE_LESSENS : CORDON_PROBE_INFO};
    probe_accelerator(host, &ret[0]);
    probe_qemu(host, &ret[1]);
    probe_image(host, &ret[2]);
    probe_network(&ret[3]);
}
