/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A clone must have the very machine of its template, so both come from the same rows; a row says
 * for which VMs it stands. All files are descriptors that QEMU inherits: it opens them by /proc/self/fd, and has no
 * path of the host's but its own program, libraries and firmware.
 *
 * The guest's kernel ends its VM by a triple fault (reboot=t), which -no-reboot makes QEMU's own end. `pit` stays on: a
 * kernel under software emulation has no other clock to measure by.
 */
#include "vmm/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "isolate/nic.h"

enum {
    COLD = 1u << CORDON_VMM_COLD,
    TEMPLATE = 1u << CORDON_VMM_TEMPLATE,
    CLONE = 1u << CORDON_VMM_CLONE,
    ALL = COLD | TEMPLATE | CLONE,
    TCG = 16,
    KVM = 32,
    NETWORK = 64
};

#define FD(name) "/proc/self/fd/" name

static const struct {
    unsigned when;
    const char *option, *value; /* {name}: filled in */
} rows[] = {
    {ALL, "-nodefaults", NULL},
    {ALL, "-no-user-config", NULL},
    {ALL, "-no-reboot", NULL},
    {ALL, "-display", "none"},
    {ALL, "-M", "microvm,acpi={acpi},ioapic2=off,pit=on,rtc=on,isa-serial=off,memory-backend=ram,dump-guest-core=off"},
    {ALL | TCG, "-accel", "tcg,thread=single,tb-size=64"},
    {ALL | TCG, "-cpu", "qemu64"},
    {ALL | KVM, "-accel", "kvm"},
    {ALL | KVM, "-cpu", "host,-svm,-vmx"},
    {ALL, "-smp", "1"},
    {ALL, "-m", "{memory}M"},
    {COLD, "-object", "memory-backend-ram,id=ram,size={memory}M"},
    {TEMPLATE, "-object", "memory-backend-file,id=ram,size={memory}M,mem-path=" FD("9") ",share=on"},
    {CLONE, "-object", "memory-backend-file,id=ram,size={memory}M,mem-path=" FD("9") ",share=off"},
    {ALL, "-kernel", FD("6")},
    {ALL, "-initrd", FD("7")},
    {ALL, "-append",
     "{emulated}quiet loglevel=1 reboot=t panic=-1 root=/dev/vda rootfstype=erofs ro cordon.mode={mode} "
     "cordon.language={language} cordon.disk_mb={disk} cordon.disk_inodes={inodes} cordon.network={network} "
     "cordon.once={once} "
     "{append}"},
    {ALL, "-drive", "id=root,file=" FD("8") ",format=raw,if=none,readonly=on,file.locking=off"},
    {ALL, "-device", "virtio-blk-device,drive=root"},
    {ALL, "-device", "virtio-serial-device,max_ports=2"},
    {ALL, "-chardev", "socket,id=agent,fd=5"},
    {ALL, "-device", "virtserialport,chardev=agent,name=org.cordon.agent,nr=1"},
    {ALL, "-device", "virtio-rng-device"},
    {ALL | NETWORK, "-netdev", "tap,id=network,fd=11"},
    {ALL | NETWORK, "-device", "virtio-net-device,netdev=network,mac=" CORDON_NIC_MAC},
    {ALL, "-chardev", "socket,id=qmp,fd=12"},
    {ALL, "-mon", "chardev=qmp,mode=control"},
    {CLONE, "-incoming", "defer"},
    {CLONE, "-S", NULL},
    {ALL, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"},
};

static bool stands(unsigned when, const struct cordon_vmm_start *start)
{
    if (!(when & 1u << start->make))
        return false;
    if (when & NETWORK && !start->network)
        return false;
    unsigned accel = start->accel == CORDON_VMM_KVM ? KVM : TCG;
    return !(when & (TCG | KVM)) || when & accel;
}

static int fill(struct cordon_buf *to, const char *value, const struct cordon_vmm_start *start)
{
    char memory[16], disk[16], inodes[16];
    (void)snprintf(memory, sizeof memory, "%u", start->memory_mb); /* these fit */
    (void)snprintf(disk, sizeof disk, "%u", start->disk_mb);
    (void)snprintf(inodes, sizeof inodes, "%u", start->disk_inodes);
    const struct {
        const char *name, *text;
    } names[] = {{"{memory}", memory},
                 {"{disk}", disk},
                 {"{inodes}", inodes},
                 {"{mode}", start->kept ? "kept" : "run"},
                 {"{language}", start->kept ? "none" : start->language},
                 {"{network}", start->network ? "1" : "0"},
                 {"{once}", start->make == CORDON_VMM_COLD ? "1" : "0"},
                 {"{acpi}", start->acpi ? "on" : "off"},
                 /* what shields from speculation: an emulated CPU does not speculate */
                 {"{emulated}", start->accel == CORDON_VMM_TCG ? "mitigations=off " : ""},
                 {"{append}", start->append}};
    while (*value) {
        size_t i = 0, count = sizeof names / sizeof *names;
        while (i < count && strncmp(value, names[i].name, strlen(names[i].name)) != 0)
            i++;
        if (i == count)
            (void)cordon_buf_append(to, value++, 1);
        else
            (void)cordon_buf_appends(to, names[i].text);
        if (i < count)
            value += strlen(names[i].name);
    }
    return cordon_buf_append(to, "", 1);
}

int cordon_vmm_command(const struct cordon_vmm_start *start, struct cordon_vmm_command *ret)
{
    size_t argc = 0;
    *ret = (struct cordon_vmm_command){.text = CORDON_BUF_INIT(16384)};
    (void)cordon_buf_append(&ret->text, start->qemu, strnlen(start->qemu, sizeof start->qemu - 1) + 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!stands(rows[i].when, start))
            continue;
        (void)cordon_buf_append(&ret->text, rows[i].option, strlen(rows[i].option) + 1);
        if (rows[i].value)
            (void)fill(&ret->text, rows[i].value, start); /* failures stick */
    }
    if (ret->text.failed)
        return -ENOMEM;
    for (size_t at = 0; at < ret->text.size; at += strlen(ret->text.data + at) + 1) {
        if (argc == CORDON_VMM_ARGUMENTS)
            return -E2BIG;
        ret->argv[argc++] = ret->text.data + at;
    }
    return 0;
}

void cordon_vmm_command_done(struct cordon_vmm_command *command)
{
    cordon_buf_done(&command->text);
}
