# SPDX-License-Identifier: Apache-2.0
"""What attacks share: the backend that they run on, and the helpers that stand before each attacking program."""

import contextlib
import json
import os

from .client import stdout_bytes
from .pace import limit

# Helpers of the attacking programs: raw system calls, and a way to say what happened.
PRELUDE = r"""
import ctypes, errno, json, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = os.uname().machine == 'x86_64'
def _name(err): return errno.errorcode.get(err, str(err))
def call(number, *args):
    '''A raw system call: "ok" or the name of the error.'''
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    return 'ok' if result != -1 else _name(ctypes.get_errno())
def attempt(function, *args, **named):
    '''"ok", or the name of what it raised.'''
    try: function(*args, **named)
    except OSError as e: return _name(e.errno) if e.errno is not None else type(e).__name__
    except BaseException as e: return type(e).__name__
    return 'ok'
def put(path, data):
    '''Writes at once, so that the error is seen.'''
    fd = os.open(path, os.O_WRONLY)
    try: os.write(fd, data.encode())
    finally: os.close(fd)
def said(**what):
    sys.stdout.write(json.dumps(what) + '\n'); sys.stdout.flush()
"""

# System call numbers by machine; the attacks name them.
NUMBERS = {
    "x86_64": dict(
        ptrace=101,
        prlimit64=302,
        sched_setscheduler=144,
        sched_setattr=314,
        sched_setaffinity=203,
        setpriority=141,
        ioprio_set=251,
        kcmp=312,
        process_vm_readv=310,
        process_vm_writev=311,
        pidfd_open=434,
        pidfd_getfd=438,
        unshare=272,
        setns=308,
        clone=56,
        clone3=435,
        bpf=321,
        perf_event_open=298,
        io_uring_setup=425,
        userfaultfd=323,
        keyctl=250,
        add_key=248,
        request_key=249,
        kexec_load=246,
        kexec_file_load=320,
        init_module=175,
        finit_module=313,
        delete_module=176,
        personality=135,
        seccomp=317,
        modify_ldt=154,
        vmsplice=278,
        mount=165,
        umount2=166,
        pivot_root=155,
        chroot=161,
        mknod=133,
        mknodat=259,
        open_by_handle_at=304,
        name_to_handle_at=303,
        fanotify_init=300,
        reboot=169,
        swapon=167,
        acct=163,
        settimeofday=164,
        clock_settime=227,
        adjtimex=159,
        sethostname=170,
        setdomainname=171,
        iopl=172,
        ioperm=173,
        syslog=103,
        quotactl=179,
        open_tree=428,
        move_mount=429,
        fsopen=430,
        fsmount=432,
        mount_setattr=442,
        memfd_create=319,
        process_madvise=440,
        move_pages=279,
        migrate_pages=256,
        lookup_dcookie=212,
        memfd_secret=447,
        uselib=134,
        nfsservctl=180,
        landlock_create_ruleset=444,
        pidfd_send_signal=424,
        mlock=149,
        quotactl_fd=443,
        vhangup=153,
        ustat=136,
        sysfs=139,
        statmount=457,
        listmount=458,
    ),
    "aarch64": dict(
        ptrace=117,
        prlimit64=261,
        sched_setscheduler=119,
        sched_setattr=274,
        sched_setaffinity=122,
        setpriority=140,
        ioprio_set=30,
        kcmp=272,
        process_vm_readv=270,
        process_vm_writev=271,
        pidfd_open=434,
        pidfd_getfd=438,
        unshare=97,
        setns=268,
        clone=220,
        clone3=435,
        bpf=280,
        perf_event_open=241,
        io_uring_setup=425,
        userfaultfd=282,
        keyctl=219,
        add_key=217,
        request_key=218,
        kexec_load=104,
        kexec_file_load=294,
        init_module=105,
        finit_module=273,
        delete_module=106,
        personality=92,
        seccomp=277,
        vmsplice=75,
        mount=40,
        umount2=39,
        pivot_root=41,
        chroot=51,
        mknodat=33,
        open_by_handle_at=265,
        name_to_handle_at=264,
        fanotify_init=262,
        reboot=142,
        swapon=224,
        acct=89,
        settimeofday=170,
        clock_settime=112,
        adjtimex=171,
        sethostname=161,
        setdomainname=162,
        syslog=116,
        quotactl=60,
        open_tree=428,
        move_mount=429,
        fsopen=430,
        fsmount=432,
        mount_setattr=442,
        memfd_create=279,
        process_madvise=440,
        move_pages=239,
        migrate_pages=238,
        lookup_dcookie=18,
        memfd_secret=447,
        nfsservctl=42,
        landlock_create_ruleset=444,
        pidfd_send_signal=424,
        mlock=228,
        quotactl_fd=443,
        vhangup=58,
        statmount=457,
        listmount=458,
    ),
}[os.uname().machine]


PRELUDE += f"N = {NUMBERS!r}\n"


def what_was_said(lines):
    """All that said() printed; other lines are the attack's own matter."""
    said = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            said.update(json.loads(line) if line.startswith("{") else {})
    return said


class Backend:
    """The backend under attack: runs programs on it, always of the same daemon. `kind` tells what it is by nature."""

    def __init__(self, daemon, kind):
        self.daemon, self.kind, self.name = daemon, kind, kind.name

    def run(self, code, language="python", **fields):
        return self.daemon.run(code, language, backend=self.name, **fields)

    def attack(self, code, **fields):
        """Runs an attacking Python program; returns (answer, everything that it said)."""
        answer = self.run(PRELUDE + code, **{"timeout_s": limit(20), **fields})
        return answer, what_was_said(stdout_bytes(answer).decode("utf-8", "replace").splitlines())

    @contextlib.contextmanager
    def held(self, code, ready="held-7a31", **fields):
        """An attacking program that came to its end, and waits there for as long as the block takes; then its run is
        cancelled. The block's value is what it said."""
        code = f"{PRELUDE}{code}\nprint({ready!r}, flush=True)\nsignal.pause()"
        events = self.daemon.stream(code, backend=self.name, **{"timeout_s": 300, **fields})
        said = ""
        with contextlib.closing(events):
            while ready not in said.splitlines():
                _, event = next(events)
                assert event["type"] in ("queued", "started", "stdout", "stderr"), event
                said += event.get("data", "") if event["type"] == "stdout" else ""
            yield what_was_said(said.splitlines())

    def guest_pids(self):
        """The processes in guests on this host: pid namespaces other than ours."""
        ours = os.readlink("/proc/self/ns/pid")
        found = []
        for pid in self.daemon.pids():
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") != ours:
                    found.append(pid)
            except OSError:
                pass
        return found


def exited(answer, code=0):
    """The program ended by itself with this code, and the outcome says so."""
    outcome = answer["outcome"]
    assert (outcome["cause"], answer["exit_code"]) == ("exited", code), (
        outcome,
        answer["stdout"][-500:],
        answer["stderr"][-1500:],
    )
    return outcome
