/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM, tried with a guest of 64 KiB that starts in long mode and has three programs:
 *
 *   count    a loop of the guest's kernel mode. In hardware it runs as fast as any loop; where KVM emulates the
 * kernel's instructions (KVM-PVM, or a host that lost its VMX) a thousand times slower. xsave    XSETBV, XSAVE, XRSTOR:
 * what no emulator of KVM knows and each kernel does before its first process. syscall  SYSRET to user mode, SYSCALL
 * back into a page that only the kernel may touch, twice.
 *
 * Each ends with OUT, which returns here. There is no descriptor table for interrupts: what goes wrong in the guest is
 * a triple fault, which KVM reports as a shutdown.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "vmm/accel_try.h"

#define NO_HELP                                                                                                        \
    "use a machine with Intel VT-x or AMD-V (a virtual one needs nested virtualization); for trusted code only: "      \
    "CORDON_ALLOW_SOFTWARE_EMULATION=true"

static bool file_says(const char *path, const char *word)
{
    char line[8192]; /* /proc/cpuinfo's flags are about 2 KiB */
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, word);
    if (file)
        (void)fclose(file); /* was only read */
    return found;
}

static void explain_missing(struct cordon_accel *ret)
{
    if (file_says("/proc/misc", " kvm\n"))
        cordon_accel_mend(ret, "the kernel has it: docker run --device %s; in a service's own /dev: mknod %s c 10 232",
                          ret->device, ret->device);
    else if (file_says("/proc/cpuinfo", " vmx "))
        cordon_accel_mend(ret, "modprobe kvm_intel (if that fails, virtualization is off in the firmware)");
    else if (file_says("/proc/cpuinfo", " svm "))
        cordon_accel_mend(ret, "modprobe kvm_amd (if that fails, virtualization is off in the firmware)");
    else
        cordon_accel_mend(ret, NO_HELP);
}

#ifdef __x86_64__
#include <linux/kvm.h>

#define FAST UINT64_C(100000000) /* instructions a second that no emulator reaches, and all hardware by far */
#define ROUNDS 5                 /* the best counts: others may have the CPU in between */
#define PORT 0x42
#define LOOPS 100000
#define WARM_UP 1000 /* the first instructions wait for the guest's pages to be mapped */
#define PAGE 4096u

/* Where things are in the guest: addresses are the same, physical and virtual. */
enum { PML4 = 1, PDPT, PD, PT, KERNEL = 6, USER, SAVED, PAGES = 16 };
#define KERNEL_AT 0x6000
#define USER_AT 0x7000
#define SAVED_AT 0x8000
_Static_assert(KERNEL_AT == KERNEL * PAGE && USER_AT == USER * PAGE && SAVED_AT == SAVED * PAGE, "one map");

enum answer { COUNTED = 1, SAVED_WELL, RETURNED, WRONG };

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "accel_kernel:\n"
        "accel_count:\n"
        "    mov $" NUMBER(
            LOOPS) ", %ecx\n"
                   "1:  dec %ecx\n"
                   "    jnz 1b\n"
                   "    mov $1, %al\n"
                   "    out %al, $" NUMBER(
                       PORT) "\n"
                             "accel_xsave:\n"
                             "    xor %ecx, %ecx\n"
                             "    xor %edx, %edx\n"
                             "    mov $3, %eax\n" /* x87 and SSE */
                             "    xsetbv\n"
                             "    mov $" NUMBER(
                                 SAVED_AT) ", %edi\n"
                                           "    mov $0x5eed, %ebx\n"
                                           "    movd %ebx, %xmm0\n"
                                           "    xsave (%rdi)\n"
                                           "    xorps %xmm0, %xmm0\n"
                                           "    xrstor (%rdi)\n"
                                           "    movd %xmm0, %esi\n"
                                           "    cmp %ebx, %esi\n"
                                           "    jne 9f\n"
                                           "    mov $2, %al\n"
                                           "    out %al, $" NUMBER(
                                               PORT) "\n"
                                                     "accel_syscall:\n"
                                                     "    mov $0xc0000081, %ecx\n" /* STAR: the kernel's segments from
                                                                                      8, the user's from 0x18 */
                                                     "    xor %eax, %eax\n"
                                                     "    mov $0x00180008, %edx\n"
                                                     "    wrmsr\n"
                                                     "    mov $0xc0000082, %ecx\n" /* LSTAR */
                                                     "    mov $(" NUMBER(
                                                         KERNEL_AT) " + accel_entry - accel_kernel), %eax\n"
                                                                    "    xor %edx, %edx\n"
                                                                    "    wrmsr\n"
                                                                    "    mov $0xc0000084, %ecx\n" /* FMASK: flags stay
                                                                                                   */
                                                                    "    xor %eax, %eax\n"
                                                                    "    wrmsr\n"
                                                                    "    mov $" NUMBER(
                                                                        USER_AT) ", %ecx\n"
                                                                                 "    mov $2, %r11d\n"
                                                                                 "    xor %ebx, %ebx\n"
                                                                                 "    sysretq\n"
                                                                                 "accel_entry:\n"
                                                                                 "    cmp $2, %ebx\n"
                                                                                 "    je 2f\n"
                                                                                 "    cmp $1, %ebx\n"
                                                                                 "    jne 9f\n"
                                                                                 "    sysretq\n" /* to behind the
                                                                                                    SYSCALL, with its
                                                                                                    flags: it left both
                                                                                                    as SYSRET wants them
                                                                                                  */
                                                                                 "2:  mov $3, %al\n"
                                                                                 "    out %al, $" NUMBER(
                                                                                     PORT) "\n"
                                                                                           "9:  mov $4, %al\n"
                                                                                           "    out %al, $" NUMBER(
                                                                                               PORT) "\n"
                                                                                                     "accel_kernel_end:"
                                                                                                     "\n"
                                                                                                     "accel_user:\n"
                                                                                                     "    mov $1, "
                                                                                                     "%ebx\n"
                                                                                                     "    syscall\n"
                                                                                                     "    mov %cs, "
                                                                                                     "%eax\n"
                                                                                                     "    and $3, "
                                                                                                     "%eax\n"
                                                                                                     "    sub $1, "
                                                                                                     "%eax\n" /* 2 in
                                                                                                                 user
                                                                                                                 mode
                                                                                                                 alone
                                                                                                               */
                                                                                                     "    mov %eax, "
                                                                                                     "%ebx\n"
                                                                                                     "    syscall\n"
                                                                                                     "accel_user_end:\n"
                                                                                                     ".popsection\n");
extern const char accel_kernel[], accel_count[], accel_xsave[], accel_syscall[], accel_kernel_end[];
extern const char accel_user[], accel_user_end[];

/* The assembler made them one object; to C each label is its own. */
static size_t between(const char *from, const char *to)
{
    return (uintptr_t)to - (uintptr_t)from;
}

struct machine {
    const struct cordon_accel_calls *calls;
    int device, vm, cpu;
    size_t run_size;
    struct kvm_run *run; /* shared with the kernel; goes with the process, as all of this */
    unsigned char *memory;
    struct cordon_accel *found;
};

/* The last call failed with errno. */
static bool failed(struct machine *machine, const char *what)
{
    cordon_accel_tell(machine->found, CORDON_ACCEL_UNUSABLE, "%s: %s failed: %s", machine->found->device, what,
                      strerror(errno));
    return false;
}

static bool check_version(struct machine *machine)
{
    int version = machine->calls->ioctl(machine->device, KVM_GET_API_VERSION, 0);
    if (version < 0 && errno == ENOTTY)
        cordon_accel_tell(machine->found, CORDON_ACCEL_UNUSABLE, "%s is no KVM device", machine->found->device);
    else if (version < 0)
        return failed(machine, "asking for KVM's version");
    else if (version != KVM_API_VERSION)
        cordon_accel_tell(machine->found, CORDON_ACCEL_UNUSABLE, "%s speaks version %d of KVM's interface, not %d",
                          machine->found->device, version, KVM_API_VERSION);
    return version == KVM_API_VERSION;
}

static void fill_memory(unsigned char *memory)
{
    uint64_t *tables = (uint64_t *)(void *)memory;
    const size_t entries = PAGE / sizeof *tables;
    const uint64_t all = 7, kernel = 3; /* present, writable, and user's */
    tables[PML4 * entries] = PDPT * PAGE | all;
    tables[PDPT * entries] = PD * PAGE | all;
    tables[PD * entries] = PT * PAGE | all;
    for (uint64_t page = 1; page < PAGES; page++)
        tables[PT * entries + page] = page * PAGE | (page == USER ? all : kernel);
    memcpy(memory + KERNEL_AT, accel_kernel, between(accel_kernel, accel_kernel_end));
    memcpy(memory + USER_AT, accel_user, between(accel_user, accel_user_end));
}

static bool make_machine(struct machine *machine)
{
    const size_t size = PAGES * PAGE;
    machine->vm = machine->calls->ioctl(machine->device, KVM_CREATE_VM, 0);
    if (machine->vm < 0)
        return failed(machine, "making a virtual machine");
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return failed(machine, "64 KiB of memory");
    machine->memory = memory;
    fill_memory(machine->memory);
    struct kvm_userspace_memory_region region = {.memory_size = size, .userspace_addr = (uintptr_t)memory};
    if (machine->calls->ioctl(machine->vm, KVM_SET_USER_MEMORY_REGION, (uintptr_t)&region) < 0)
        return failed(machine, "giving it memory");
    machine->cpu = machine->calls->ioctl(machine->vm, KVM_CREATE_VCPU, 0);
    if (machine->cpu < 0)
        return failed(machine, "making a CPU");
    int run_size = machine->calls->ioctl(machine->device, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (run_size < (int)sizeof *machine->run)
        return failed(machine, "asking for the size of a CPU's page");
    machine->run_size = (size_t)run_size;
    void *run = mmap(NULL, machine->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, machine->cpu, 0);
    if (run == MAP_FAILED)
        return failed(machine, "mapping a CPU's page");
    machine->run = run;
    return true;
}

/* Without it, the guest has no XSAVE. */
static bool set_features(struct machine *machine)
{
    static union {
        struct kvm_cpuid2 head;
        char room[sizeof(struct kvm_cpuid2) + 256 * sizeof(struct kvm_cpuid_entry2)];
    } features;
    features.head.nent = 256;
    if (machine->calls->ioctl(machine->device, KVM_GET_SUPPORTED_CPUID, (uintptr_t)&features) < 0)
        return failed(machine, "asking for a CPU's features");
    if (machine->calls->ioctl(machine->cpu, KVM_SET_CPUID2, (uintptr_t)&features) < 0)
        return failed(machine, "setting a CPU's features");
    return true;
}

static bool set_long_mode(struct machine *machine)
{
    struct kvm_sregs special;
    if (machine->calls->ioctl(machine->cpu, KVM_GET_SREGS, (uintptr_t)&special) < 0)
        return failed(machine, "reading a CPU's registers");
    struct kvm_segment code = {.limit = ~0u, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = {.limit = ~0u, .selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1};
    special.cs = code;
    special.ds = special.es = special.fs = special.gs = special.ss = data;
    special.cr0 = 0x80010033; /* PG, WP, NE, ET, MP, PE */
    special.cr3 = PML4 * PAGE;
    special.cr4 = 0x40620; /* OSXSAVE, OSXMMEXCPT, OSFXSR, PAE */
    special.efer = 0x501;  /* LMA, LME, SCE */
    if (machine->calls->ioctl(machine->cpu, KVM_SET_SREGS, (uintptr_t)&special) < 0)
        return failed(machine, "setting a CPU to long mode with XSAVE");
    /* The guest's own XSETBV says the same; QEMU's emulation of SVM, under which this is tested, hides that from KVM.
     */
    struct kvm_xcrs extended = {.nr_xcrs = 1, .xcrs = {{.xcr = 0, .value = 3}}};
    if (machine->calls->ioctl(machine->cpu, KVM_SET_XCRS, (uintptr_t)&extended) < 0)
        return failed(machine, "letting a CPU save x87 and SSE");
    return true;
}

static void explain_exit(struct machine *machine, const char *what)
{
    const struct kvm_run *run = machine->run;
    static const char *const names[] = {
        [KVM_EXIT_EXCEPTION] = "an exception",
        [KVM_EXIT_HLT] = "HLT",
        [KVM_EXIT_MMIO] = "an access outside its memory",
        [KVM_EXIT_SHUTDOWN] = "a triple fault",
        [KVM_EXIT_FAIL_ENTRY] = "the hardware refused it",
        [KVM_EXIT_INTERNAL_ERROR] = "KVM can't emulate it",
    };
    const char *name = run->exit_reason < sizeof names / sizeof *names ? names[run->exit_reason] : NULL;
    cordon_accel_tell(machine->found, CORDON_ACCEL_UNUSABLE, "%s: a guest's %s fails: %s (KVM's exit %u)",
                      machine->found->device, what, name ? name : "it came back for another reason", run->exit_reason);
}

/* Runs the guest from one of its programs to the next OUT. */
static bool run_program(struct machine *machine, const char *program, uint64_t rcx, enum answer wanted,
                        const char *what)
{
    struct kvm_regs registers = {.rcx = rcx, .rip = KERNEL_AT + between(accel_kernel, program), .rflags = 2};
    struct kvm_run *run = machine->run;
    if (machine->calls->ioctl(machine->cpu, KVM_SET_REGS, (uintptr_t)&registers) < 0)
        return failed(machine, "setting a CPU's registers");
    int r;
    do {
        r = machine->calls->ioctl(machine->cpu, KVM_RUN, 0);
    } while (r < 0 && errno == EINTR);
    if (r < 0)
        return failed(machine, what);
    bool out = run->exit_reason == KVM_EXIT_IO && run->io.direction == KVM_EXIT_IO_OUT && run->io.port == PORT &&
               run->io.data_offset < machine->run_size;
    if (!out) {
        explain_exit(machine, what);
        return false;
    }
    unsigned char answer = ((const unsigned char *)run)[run->io.data_offset];
    if (answer != wanted)
        cordon_accel_tell(machine->found, CORDON_ACCEL_UNUSABLE, "%s: a guest's %s gives wrong results",
                          machine->found->device, what);
    return answer == wanted;
}

static bool count(struct machine *machine)
{
    struct cordon_accel *found = machine->found;
    if (!run_program(machine, accel_count, WARM_UP, COUNTED, "kernel code"))
        return false;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = cordon_now_us();
        if (!run_program(machine, accel_count, LOOPS, COUNTED, "kernel code"))
            return false;
        uint64_t took_us = cordon_now_us() - begin;
        uint64_t rate = UINT64_C(2000000) * LOOPS / (took_us ? took_us : 1);
        if (rate > found->instructions_per_s)
            found->instructions_per_s = rate;
        if (found->instructions_per_s >= FAST)
            return true;
        if (found->instructions_per_s < FAST / 10)
            break; /* no other process explains that */
    }
    cordon_accel_tell(found, CORDON_ACCEL_EMULATED,
                      "%s is there but emulated: a guest's kernel runs %.1f million instructions a second, where "
                      "hardware gives more than %.0f",
                      found->device, (double)found->instructions_per_s / 1e6, (double)FAST / 1e6);
    return false;
}

static bool save_state(struct machine *machine)
{
    return run_program(machine, accel_xsave, 0, SAVED_WELL, "XSAVE and XRSTOR");
}

static bool call_kernel(struct machine *machine)
{
    return run_program(machine, accel_syscall, 0, RETURNED, "SYSCALL and SYSRET");
}

static void examine(const struct cordon_accel_calls *calls, int device, struct cordon_accel *ret)
{
    static bool (*const steps[])(struct machine *) = {check_version, make_machine, set_features, set_long_mode,
                                                      count,         save_state,   call_kernel};
    struct machine machine = {.calls = calls, .device = device, .vm = -1, .cpu = -1, .found = ret};
    cordon_accel_mend(ret, NO_HELP);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!steps[i](&machine))
            return; /* what it opened and mapped ends with this process */
    cordon_accel_tell(ret, CORDON_ACCEL_GOOD,
                      "%s runs guests in hardware: %.0f million instructions a second of a guest's kernel; XSAVE and "
                      "SYSCALL work",
                      ret->device, (double)ret->instructions_per_s / 1e6);
    *ret->fix = '\0';
}
#else
/* Guests are x86-64 (QEMU's microvm machine is); the setting for software emulation still works. */
static void examine(const struct cordon_accel_calls *calls, int device, struct cordon_accel *ret)
{
    (void)calls;
    (void)device;
    cordon_accel_tell(ret, CORDON_ACCEL_UNUSABLE, "%s: microVMs are made for x86-64 hosts only", ret->device);
}
#endif

const struct cordon_accelerator cordon_accelerator_kvm = {
    .name = "kvm", .device = "/dev/kvm", .missing = explain_missing, .examine = examine};
