/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent as process 1 of a virtual machine. Theory of operation:
 *
 * The kernel starts it as /init of the initramfs (vm_boot.c). It loads the modules, opens the port to the host, mounts
 * the root, and then makes of the whole machine one guest as the warden would on its own host, by the same functions:
 * the tree of root.c with /usr of the image, the guest's mounts, control groups, the code's filter, the agent's uid.
 * From there it is the ordinary agent in mode spawn or kept, with three differences (vm.c): its channel is a port and
 * no socket; what is warm waits for a lease (proto/vm.h) before the first frame; and what the host's control groups
 * count elsewhere, this one's count.
 *
 * Between VM_READY and VM_LEASE the machine is stopped and copied. So nothing that must be an instance's own is
 * believed before the lease: random numbers of the kernel and of the interpreter are keyed anew, the clock is set, and
 * until then it stands in the past. That is on purpose: OpenSSL takes new randomness from the kernel when its own is an
 * hour old, which is the only way to reach the one inside Node.
 *
 * The machine is the boundary towards the host; what is done inside keeps code from the agent, so that what the agent
 * tells stays true. Its end is the machine's: whoever quits restarts the machine, which ends QEMU (-no-reboot).
 */
#ifndef CORDON_AGENT_VM_H
#define CORDON_AGENT_VM_H

#include "agent/agent.h"
#include "proto/vm.h"

/* Was this process started as /init? Then: */
bool cordon_vm_is_init(char **argv);
_Noreturn void cordon_vm_main(void);

/* In a machine: ends it. Elsewhere returns at once. */
void cordon_vm_leave(void);
/* Ends the machine, after telling the host why, where it can be told. */
_Noreturn void cordon_vm_fail(const char *stage, int error);

/* Says VM_READY, waits for the lease (rehearsing as often as the host wants), puts it in force: time, randomness,
 * identity, limits (of config, too), and says VM_LEASED. rehearse: what waits does its part of each rehearsal, too;
 * NULL: it has none. */
void cordon_vm_await_lease(struct cordon_agent_config *config, struct cordon_vm_lease *ret, void (*rehearse)(void));

/* What the code's group has counted since the lease; all 0 where this is no machine. */
struct cordon_vm_counts {
    uint32_t oom_kills;
    uint64_t cpu_us, memory_peak_bytes;
};
struct cordon_vm_counts cordon_vm_count(void);
/* How many processes of the code live besides `program` (0: unknown, then besides none); -1 when it can't be told. In
 * /proc there are the kernel's own threads, too. */
int cordon_vm_others(pid_t program);

/* Is what is started now to join the code's group at once? An interpreter of a template gets warm outside of it, as it
 * does on a host, where the zygote's memory is not the guest's: else its own programs and libraries would be what is
 * thrown out of memory, and read again, for ever, when the limit is reached. cordon_vm_admit() brings it in. */
bool cordon_vm_joins(void);
int cordon_vm_admit(pid_t pid); /* 0, or negative errno */
/* How large a kept guest's files may be together: a machine's files are its memory, and one that is full of them must
 * still live, or nobody could remove them. Elsewhere as large as wanted. */
uint64_t cordon_vm_files_limit(uint64_t wanted);

/* recv() and send() of the channel, without blocking, whatever it is. */
ssize_t cordon_vm_recv(int channel, void *to, size_t size);
ssize_t cordon_vm_send(int channel, const void *from, size_t size);

/* What the boot leaves for the lease. All descriptors are close-on-exec and above those of launch.h; -1: not there. */
struct cordon_vm {
    bool on;
    bool once; /* nothing is made of this machine but one run: what is parked loads only what each run needs */
    int port, random;
    bool leased;
    int machine_id, hostname, hosts;                             /* in /etc, which is read-only otherwise */
    int meminfo;                                                 /* the kernel's own, which the guest's lies over */
    int members;                                                 /* of the code's group: who is in it */
    int memory_max, pids_max, events, cpu, peak, memory_current; /* of the code's group */
    uint32_t language;                                           /* enum cordon_vm_language */
    uint64_t cpu_before, oom_before;
    uint64_t available_bytes, code_bytes; /* of memory, before the lease: to be had, and what code may come to have */
};
extern struct cordon_vm cordon_vm;

/* vm_root.c: from the image's root to the guest's, as the agent; *stage names what failed. Negative errno. */
struct cordon_vm_boot {
    bool kept;
    bool network; /* the machine has a network device */
    const char *language;
    uint64_t disk_bytes, disk_inodes, memory_bytes;
};
int cordon_vm_enter_root(const struct cordon_vm_boot *boot, const char **stage);
int cordon_vm_make_groups(const char **stage);
int cordon_vm_place(int fd, int at); /* moves a descriptor: to at, or (-1) above all fixed ones */

#endif
