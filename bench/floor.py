# SPDX-License-Identifier: Apache-2.0
"""
floor.py COUNT PAUSE_MS FIRST: the bare floor. A warm interpreter forks itself into fresh pid, mount, ipc, uts and
cgroup namespaces and an empty network namespace that is there already; the child compiles and runs one print, the
parent reads it and waits. No limits, no filter, no ids dropped, no root of its own, no protocol: a sandbox can only be
slower. Prints {"us":[...],"errors":N}.
"""
import ctypes
import gc
import json
import os
import sys
import time

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def empty_network():
    """A descriptor of a fresh network namespace; this process goes back to its own."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    checked(libc.unshare(NEWNET))
    made = os.open("/proc/self/ns/net", os.O_RDONLY)
    checked(libc.setns(own, NEWNET))
    return made


def child(code, out, network):
    try:
        checked(libc.unshare(NEWNS | NEWIPC | NEWUTS | NEWCGROUP))
        checked(libc.setns(network, NEWNET))
        os.dup2(out, 1)
        exec(compile(code, "<run>", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        os._exit(1)


def once(code, network, own_pids):
    reader, writer = os.pipe()
    checked(libc.unshare(NEWPID))
    pid = os.fork()
    if pid == 0:
        child(code, writer, network)
    checked(libc.setns(own_pids, NEWPID))
    os.close(writer)
    text = b""
    while part := os.read(reader, 4096):
        text += part
    os.close(reader)
    return os.waitpid(pid, 0)[1] == 0 and text


def main():
    count, pause_ms, first = map(int, sys.argv[1:4])
    network, own_pids = empty_network(), os.open("/proc/self/ns/pid", os.O_RDONLY)
    took, errors = [], 0
    gc.collect()
    gc.freeze()
    for number in range(first, first + count):
        begin = time.monotonic_ns()
        good = once(f'print("<{number}>")', network, own_pids)
        took.append((time.monotonic_ns() - begin) // 1000)
        errors += not good
        time.sleep(pause_ms / 1000)
    print(json.dumps({"us": took, "errors": errors}))


main()
