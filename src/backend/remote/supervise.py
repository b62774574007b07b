# SPDX-License-Identifier: Apache-2.0
"""Runs one command on a host that nobody else cleans up: supervise.py SECONDS COMMAND. Or, with --clean MARK, kills what
still has CORDON_RUN=MARK in its environment.

All that the command starts is a descendant of this process (it makes itself the reaper of orphans), and is killed when
the command ends, when its time is over, or when whoever started this is gone: standard input then ends. What kills this
process instead (it has the same user) loses only the exit status: the caller then looks for what is left by the mark.
Prints nothing; the exit status is the command's, 124 when its time was over. The command's own stdin is empty.
"""
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def parents():
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            found[int(name)] = int(fields[1])
    return found


def descendants():
    found, tree = [], parents()
    for pid in tree:
        above = tree.get(pid)
        while above and above != os.getpid():
            above = tree.get(above)
        if above:
            found.append(pid)
    return found


def kill_all():
    """Until none is left: what forks faster than it is stopped is stopped first."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        left = descendants()
        if not left:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        reap()


def reap():
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def wait(child, seconds):
    """The command's wait status, or None when it has to be ended."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    end = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        left = end - time.monotonic()
        if left <= 0:
            return None
        ready = select.select([0, woken], [], [], left)[0]
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready and not os.read(0, 4096):
            return None


def marked(mark):
    found = []
    for pid in parents():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0") and pid != os.getpid():
                    found.append(pid)
        except OSError:
            pass
    return found


def clean(mark):
    for _ in range(50):
        left = marked(mark)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


def main():
    if sys.argv[1] == "--clean":
        clean(b"CORDON_RUN=" + sys.argv[2].encode())
        return
    seconds, command = float(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    end = time.monotonic() + seconds
    child = os.fork()
    if child == 0:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        try:
            os.execv("/bin/sh", ["sh", "-c", command])
        finally:
            os._exit(127)
    status = wait(child, seconds)
    over = status is None and time.monotonic() >= end
    kill_all()
    reap()
    if status is None:
        os._exit(124 if over else 125)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


main()
