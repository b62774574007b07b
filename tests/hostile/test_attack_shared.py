# SPDX-License-Identifier: Apache-2.0
"""Attacks on what all guests of a host share in its kernel, and on what Cordon itself spends for a guest.

What counts is how the host and the other guests fare, so these look from outside, or from a second guest.
"""

import os
import re
import signal
import subprocess
import threading
import time

import pytest
from lib import host
from lib.attack import exited
from lib.daemon import BASE_ENV, BIN
from lib.pace import stretched

pytestmark = pytest.mark.each_backend

LIMIT = 64  # MiB
PAGE = os.sysconf("SC_PAGE_SIZE")


def socket_buffers(protocol):
    """Bytes that the buffers of all TCP or UDP sockets of this host hold."""
    line = re.search(rf"^{protocol}: .*\bmem (\d+)", host.read("/proc/net/sockstat"), re.M)
    return int(line.group(1)) * PAGE


class Held:
    """Attacking code that runs until it is released or its time is over; `seen` is what it said first."""

    def __init__(self, backend, code, **fields):
        self.answer, self.said = None, None
        self.thread = threading.Thread(target=self.run, args=(backend, code, fields))
        self.thread.start()

    def run(self, backend, code, fields):
        self.answer, self.said = backend.attack(code, **fields)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join()


def most_during(held, look):
    """The most that look() returned while the attack ran."""
    most = 0
    while held.thread.is_alive():
        most = max(most, look())
        time.sleep(0.02)
    return most


TCP = """
CEILING = 160 << 20
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen(64)
held, block, kept = 0, b'x' * 65536, []
end = time.monotonic() + 6
while held < CEILING and time.monotonic() < end and len(kept) < 400:
    a = socket.create_connection(listener.getsockname()); b, _ = listener.accept(); a.setblocking(False)
    b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    kept += [a, b]
    while held < CEILING:
        try: held += a.send(block)
        except OSError: break
said(held=held, pairs=len(kept) // 2)
time.sleep(0.3)
"""

UDP = """
CEILING = 160 << 20
held, block, kept = 0, b'x' * 32768, []
while held < CEILING and len(kept) < 400:
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0)); a.connect(a.getsockname())
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20); a.setblocking(False)
    kept.append(a)
    for _ in range(128):
        try: held += a.send(block)
        except OSError: break
said(held=held, sockets=len(kept))
time.sleep(0.3)
"""


@pytest.mark.parametrize("protocol, code", [("TCP", TCP), ("UDP", UDP)], ids=["TCP", "UDP"])
def test_socket_buffers_are_bounded(backend, protocol, code):
    """Buffers of loopback sockets that nobody reads stay within the guest's memory, wherever they are counted."""
    before = socket_buffers(protocol)
    with Held(backend, code, memory_mb=LIMIT) as attack:
        most = most_during(attack, lambda: socket_buffers(protocol)) - before
    outcome = attack.answer["outcome"]
    assert outcome["cause"] in ("exited", "memory"), outcome
    assert most <= (LIMIT + LIMIT // 4) << 20, (most >> 20, attack.said, outcome)
    if outcome["cause"] == "memory":
        assert outcome["limit_hit"] == "memory_mb"


INOTIFY = """
fds = []
while len(fds) < 2000:
    fd = libc.inotify_init1(0)
    if fd < 0: break
    fds.append(fd)
said(got=len(fds))
"""

SIGNALS = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
n = 0
libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
while n < 300000 and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0: n += 1
said(got=n)
"""

VICTIM = """
timer = ctypes.c_void_p()
said(inotify=libc.inotify_init1(0) >= 0, timer=libc.timer_create(0, None, ctypes.byref(timer)) == 0)
"""


@pytest.mark.parametrize("code, most", [(INOTIFY, 16), (SIGNALS, 4096)], ids=["inotify", "signals"])
def test_counted_objects_are_left_for_others(backend, code, most):
    """The kernel counts these for all guests together: one may not take them all."""
    with backend.held(code) as took:
        answer, said = backend.attack(VICTIM)
    exited(answer)
    assert said == {"inotify": True, "timer": True}, took
    assert took["got"] > 0
    if backend.kind.kernel_shared:
        assert took["got"] <= most


def test_namespaces_can_not_be_made_inside(backend):
    """A second lock behind the filter: the guest's own user namespace allows no more of them."""
    answer, said = backend.attack("""
said(limits={n: int(open(f'/proc/sys/user/max_{n}_namespaces').read()) for n in ('user', 'net', 'time')},
     raised=attempt(put, '/proc/sys/user/max_user_namespaces', '10'))
""")
    exited(answer)
    assert set(said["limits"].values()) == {0}
    assert said["raised"] in ("EACCES", "EPERM", "EROFS")


def test_disks_of_the_host_are_not_flushed(backend):
    """syncfs on /usr would write out the host's file system. The kernel is never asked: it would refuse this one."""
    answer, said = backend.attack("said(refused=call(306 if X86 else 267, -1))")
    exited(answer)
    assert said["refused"] == "ok"


def agent_of(backend):
    for pid in backend.guest_pids():
        numbers = re.search(r"^NSpid:\s+(.*)$", host.read(f"/proc/{pid}/status"), re.M)
        if numbers and numbers.group(1).split()[-1] == "1" and host.descendants(pid):
            yield pid


def ticks(pid):
    fields = host.stat_fields(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


FLOOD = """
end = time.monotonic() + 2
n = 0
while time.monotonic() < end:
    call(N['ptrace'], 0, 0, 0, 0); n += 1
said(calls=n)
"""


def agent_seconds(backend, code):
    """(CPU time of the host's that the agent of the run spent, answer, said); a machine's agent has none but its guest's."""
    if backend.kind.machine:
        return 0, *backend.attack(code)
    before = {pid: ticks(pid) for pid in agent_of(backend)}
    spent = {}

    def look():
        spent.update({pid: ticks(pid) - before.get(pid, 0) for pid in agent_of(backend)})
        return 0

    with Held(backend, code, timeout_s=10) as attack:
        most_during(attack, look)
    return max(spent.values()) / os.sysconf("SC_CLK_TCK"), attack.answer, attack.said


def test_denied_calls_do_not_cost_the_host(backend):
    """The agent answers them with CPU time of its own, at real-time priority: not for ever."""
    seconds, answer, said = agent_seconds(backend, FLOOD)
    outcome = exited(answer)
    assert outcome["syscalls_denied"] == said["calls"] and outcome["blocked_syscall"] == "ptrace"
    assert seconds < 0.25, said


@pytest.mark.parametrize(
    "name, what",
    [
        ("output", "os.write(2, b'x')"),
        ("results", "os.write(3, struct.pack('<BBHI', 64, 0, 0, 1) + b'x')"),
    ],
)
def test_single_bytes_do_not_cost_the_host(backend, name, what):
    """Reading each byte that is written alone would cost the agent as much as it costs the program."""
    loop = f"end = time.monotonic() + 2; n = 0\nwhile time.monotonic() < end: {what}; n += 1\nsaid(wrote=n)"
    seconds, answer, said = agent_seconds(backend, loop)
    outcome = exited(answer)
    assert seconds < 0.3, (seconds, said)
    assert said["wrote"] > 1000 / stretched(1)
    if name == "output":
        assert outcome["stderr"]["bytes"] == said["wrote"]


def test_a_few_denied_calls_are_quick(backend):
    answer, said = backend.attack("""
began = time.monotonic()
for _ in range(200): call(N['ptrace'], 0, 0, 0, 0)
said(seconds=time.monotonic() - began)
""")
    assert exited(answer)["syscalls_denied"] == 200
    assert said["seconds"] < stretched(5)


@pytest.mark.root
def test_single_runs_share_no_uids():
    """Two instances on one host: the kernel's checks by uid hold between their guests, too."""
    code = "import signal; print(open('/proc/self/uid_map').read(), end='', flush=True); signal.pause()"
    command = [BIN, "run", "-t", "300", "-l", "python", "-c", code]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BASE_ENV) for _ in range(3)]
    try:
        maps = [run.stdout.readline().split() for run in runs]  # all are there at once
    finally:
        for run in runs:
            run.send_signal(signal.SIGINT)
        ended = [(*run.communicate(timeout=stretched(30)), run.returncode) for run in runs]
    assert all(status == 130 for *_, status in ended), ended
    assert len({outside for _, outside, _ in maps}) == len(maps), maps
