# SPDX-License-Identifier: Apache-2.0
"""What the host holds: processes, control groups, mounts, descriptors. Everything is scoped to this test process.

Other people's daemons may run on the same machine, so nothing here looks at names alone. The test process makes itself
a *subreaper*: whatever a daemon leaves behind becomes its child, and so is found by walking down from our own pid.
"""

import contextlib
import ctypes
import os
import random
import re
import socket
import time

from .pace import stretched

PR_SET_CHILD_SUBREAPER = 36
CGROUP_NAME = re.compile(r"/(cordon-[^/]+)")


def become_subreaper():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read(path, default=""):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return default


def stat_fields(pid):
    """The fields of /proc/PID/stat after the name: state first, then the parent. None when the process is gone."""
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2 :].split() if ")" in text else None


def processes():
    """{pid: parent} of every live process; zombies count, since someone forgot to reap them."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(name)
            if fields:
                found[int(name)] = int(fields[1])
    return found


def descendants(pid):
    children = {}
    for child, parent in processes().items():
        children.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def cmdline(pid):
    return read(f"/proc/{pid}/cmdline").split("\0")[:-1]


def comm(pid):
    return read(f"/proc/{pid}/comm").strip()


def state(pid):
    fields = stat_fields(pid)
    return fields[0] if fields else None


def alive(pid):
    return state(pid) not in (None, "Z", "X")


def reap(but=()):
    """Collects orphans that came to us as subreaper, and no child that a Popen object waits for: name those in but."""
    me = os.getpid()
    for pid, parent in processes().items():
        if parent == me and pid not in but and state(pid) == "Z":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def status_kb(pid, field="VmRSS"):
    match = re.search(rf"^{field}:\s+(\d+) kB", read(f"/proc/{pid}/status"), re.M)
    return int(match.group(1)) if match else 0


def descriptors(pid):
    """{fd: target} of a process."""
    found = {}
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                pass
    except OSError:
        pass
    return found


def cgroup_roots(pids):
    """The folders cordon-<instance> (one a hierarchy) in which these processes are, as absolute paths."""
    mounts = {}
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        fields = left.split(" ")
        if kind == "cgroup2":
            mounts.setdefault("", (fields[3], fields[4]))
        elif kind == "cgroup":
            for option in options.replace(" ", ",").split(","):
                mounts.setdefault(option, (fields[3], fields[4]))
    found = set()
    for pid in pids:
        for line in read(f"/proc/{pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            match = CGROUP_NAME.search(path)
            mount = mounts.get(controllers.split(",")[0])
            if match and mount:
                root, point = mount
                inside = path[: match.end()]
                if root != "/" and inside.startswith(root):
                    inside = inside[len(root) :]
                found.add(point + inside)
    return found


def slot_cgroups(roots):
    found = []
    for root in roots:
        for folder, names, _ in os.walk(root):
            found += [os.path.join(folder, name) for name in names]
    return found


def mounts():
    return set(read("/proc/self/mountinfo").splitlines())


def network_namespaces(pids):
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            pass
        found.update(target for target in descriptors(pid).values() if target.startswith("net:["))
    return found


def wait_for(condition, seconds=60.0, step=0.02):
    """The condition's first true value, or its last false one when the time is over (stretched on a slow machine). A time of
    its own is for where the condition may stay false, or where much has to happen first."""
    end = time.monotonic() + stretched(seconds)
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


def free_port():
    """A port to listen on later. It is none that the kernel gives to who names none (a client, port 0): those are all taken
    and left beside us, and one of them could be this one by then."""
    lowest = int(read("/proc/sys/net/ipv4/ip_local_port_range", "32768").split()[0])
    while True:
        port = random.randrange(max(1024, lowest - 12000), max(13024, lowest))
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
