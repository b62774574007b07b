/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an agent is started: the contract between whoever launches it (warden/nursery, for `local` and `none`) and
 * agent/main.c. The agent's argv is {"cordon-agent", MODE, KEY=VALUE…}; its environment is empty; its descriptors
 * are exactly the ones below (no others are open).
 *
 * MODE   forked    the interpreter is forked into the guest by a zygote; the agent gets the ends of its pipes
 *        spawn     the agent starts the interpreter itself (node, bash, a fresh python) and parks it
 *        kept      nothing is parked: the guest stays, and the host starts what it likes (agent/kept.h)
 * KEYs   language=python|javascript|bash   what to park (mode spawn)
 *        code_uid=N code_gid=N             the uid and gid of the code, in the agent's user namespace
 *        workdir=PATH                      /home/user in a guest; the private directory with `none`
 *        isolated=0|1                      1: process 1 of its own pid namespace, with capabilities in it; 0: `none`
 *        memory=BYTES cpus=N               what the guest is told (see agent/limits.c)
 *        told=0|1                          1: whoever launches it has told it already
 *        awaited=0|1                       1: a run waits, so an interpreter that is started does not rehearse
 *        open_files=N                      limit of the code's open files in mode spawn; 1024 when left out
 *        processes=N                       limit of the code's processes, where no control group holds it; none when
 *                                          left out or 0
 *        interpreter=PATH driver=PATH      mode spawn: the program and its driver script (driver unused for bash)
 */
#ifndef CORDON_AGENT_LAUNCH_H
#define CORDON_AGENT_LAUNCH_H

enum cordon_agent_fd {
    CORDON_AGENT_NULL_IN = 0, /* /dev/null; stderr (2) is the daemon's log, for the agent's own failures only */
    CORDON_AGENT_CHANNEL = 3, /* guest protocol, stream socket */
    CORDON_AGENT_READY = 4,   /* pipe write end; see CORDON_DRIVER_READY_FD */
    CORDON_AGENT_FILTER = 5,  /* sealed memfd: struct sock_filter[] for the code; empty file: no filter (`none`) */
    CORDON_AGENT_DRIVER = 6,  /* mode forked: the agent's end of the driver socket; mode kept: a SEQPACKET socket on
                                 which the warden brings a new channel, one byte and the descriptor */
    CORDON_AGENT_STDIN = 7,   /* mode forked: write end */
    CORDON_AGENT_STDOUT = 8,  /* mode forked: read end */
    CORDON_AGENT_STDERR = 9,  /* mode forked: read end */
    CORDON_AGENT_CGROUPS = 10 /* 10…: entries of the code's cgroups (isolate/cgroup_tree.h), may be none */
};
#define CORDON_AGENT_CGROUPS_MAX 6

/* In an interpreter (both modes): the driver's end of its socket, and the ready pipe. When the driver is rehearsed and
 * waits for its job it writes one byte to the pipe and closes it. The agent writes nothing, and closes its copy when it
 * has parked the interpreter. So the pipe's end says that user code may come if there was a byte before it, and that
 * the interpreter died before it waited if there was none. Both are close-on-exec. */
#define CORDON_DRIVER_FD 3
#define CORDON_DRIVER_READY_FD 4

#endif
