# SPDX-License-Identifier: Apache-2.0
"""Attacks on memory: what the kernel holds for the code counts like what the code holds itself."""

import pytest
from lib import host
from lib.attack import exited

pytestmark = pytest.mark.each_backend

LIMIT = 64  # MiB; each attack asks for a few times that and no more
OVER = "CEILING = 6 * (64 << 20)\n"


def killed(answer):
    outcome = answer["outcome"]
    assert outcome["cause"] == "memory" and outcome["limit_hit"] == "memory_mb" and outcome["oom_kills"] >= 1, (
        outcome,
        answer["stdout"][-300:],
    )
    assert answer["exit_code"] == 137
    return outcome


def contained(answer, said):
    """Killed, or stopped by an error; never got all it wanted."""
    outcome = answer["outcome"]
    assert said.get("all") is not True, (said, outcome)
    assert outcome["cause"] in ("memory", "exited", "signalled")
    assert outcome["memory_peak_bytes"] <= (LIMIT + 2) << 20


@pytest.mark.weaken("memory")
def test_anonymous_memory(backend):
    answer, said = backend.attack(
        OVER + "x = bytearray(CEILING)\nfor i in range(0, CEILING, 4096): x[i] = 1\nsaid(all=True)", memory_mb=LIMIT
    )
    assert "all" not in said
    assert killed(answer)["memory_peak_bytes"] <= (LIMIT + 2) << 20


@pytest.mark.weaken("memory")
def test_shared_anonymous_memory(backend):
    answer, said = backend.attack(
        OVER + "import mmap\nm = mmap.mmap(-1, CEILING)\nfor i in range(0, CEILING, 4096): m[i] = 1\nsaid(all=True)",
        memory_mb=LIMIT,
    )
    assert "all" not in said
    killed(answer)


@pytest.mark.weaken("memory")
def test_memory_files(backend):
    answer, said = backend.attack(
        OVER
        + "fd = os.memfd_create('m')\nfor _ in range(CEILING >> 20): os.write(fd, b'x' * (1 << 20))\nsaid(all=True)",
        memory_mb=LIMIT,
    )
    assert "all" not in said
    killed(answer)


def test_private_files(backend):
    answer, said = backend.attack(
        OVER
        + """
try:
    for n in range(CEILING >> 20):
        with open(f'/tmp/f{n}', 'wb') as f: f.write(b'x' * (1 << 20))
    said(all=True)
except OSError as e: said(error=_name(e.errno))
""",
        memory_mb=LIMIT,
    )
    contained(answer, said)


def test_system_v_shared_memory(backend):
    answer, said = backend.attack(
        OVER
        + """
libc.shmat.restype = ctypes.c_void_p
got = 0
for _ in range(CEILING >> 22):
    i = libc.shmget(0, 4 << 20, 0o1600)
    if i < 0: break
    p = libc.shmat(i, None, 0)
    if p in (None, ctypes.c_void_p(-1).value): break
    ctypes.memset(p, 1, 4 << 20); got += 4
said(all=got << 20 >= CEILING)
""",
        memory_mb=LIMIT,
    )
    contained(answer, said)


def test_posix_shared_memory(backend):
    answer, said = backend.attack(
        OVER
        + """
try:
    with open('/dev/shm/x', 'wb') as f:
        for _ in range(CEILING >> 20): f.write(b'x' * (1 << 20))
    said(all=True)
except OSError as e: said(error=_name(e.errno))
""",
        memory_mb=LIMIT,
    )
    contained(answer, said)


# Each makes objects that live in the kernel. The count is far beyond what the limit holds if each were charged.
MANY = {
    "pipes": (
        "held = []\nfor _ in range(100000):\n    r, w = os.pipe(); os.set_blocking(w, False)\n"
        "    attempt(os.write, w, b'x' * 65536); held.append((r, w))"
    ),
    "sockets": (
        "held = []\nfor _ in range(100000):\n    a, b = socket.socketpair(); a.setblocking(False)\n"
        "    while attempt(a.send, b'x' * 4096) == 'ok': pass\n    held.append((a, b))"
    ),
    "udp sockets": (
        "held = []\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(100000):\n"
        "    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0))\n"
        "    for _ in range(50): attempt(s.sendto, b'x' * 8000, a.getsockname())\n"
        "    held.append(a)"
    ),
    "epolls": "import select\nheld = [select.epoll() for _ in range(100000)]",
    "eventfds": "held = [os.eventfd(0) for _ in range(100000)]",
    "timerfds": "held = [libc.timerfd_create(1, 0) for _ in range(200000)]\nassert min(held) >= 0",
    "inotify": (
        "held = []\nfor _ in range(200000):\n    fd = libc.inotify_init()\n    assert fd >= 0\n    held.append(fd)"
    ),
    "memfds": "held = [os.memfd_create('x') for _ in range(100000)]",
    "descriptors in flight": (
        "held = []\nr, w = os.pipe()\nfor _ in range(100000):\n    a, b = socket.socketpair()\n"
        "    while True:\n        a.settimeout(0)\n"
        "        if attempt(socket.send_fds, a, [b'x'], [r] * 200) != 'ok': break\n"
        "    held.append((a, b))"
    ),
    "file locks": (
        "import fcntl\nf = open('/tmp/l', 'w+')\nfor i in range(2000000): fcntl.lockf(f, fcntl.LOCK_EX, 1, i * 2)"
    ),
    "mappings": "import mmap\nheld = [mmap.mmap(-1, 4096, prot=1 if i & 1 else 3) for i in range(1000000)]",
    "message queues": (
        "for _ in range(100000):\n    q = libc.msgget(0, 0o1600)\n    assert q >= 0\n"
        "    buf = struct.pack('q', 1) + b'x' * 8000\n"
        "    while libc.msgsnd(q, buf, 8000, 0o4000) == 0: pass"
    ),
    "semaphores": "for _ in range(200000): assert libc.semget(0, 250, 0o1600) >= 0",
    "directories": "for i in range(1000000): os.mkdir(f'/tmp/d{i}')",
    "names that are not there": (
        "end = time.monotonic() + 3\nwhile time.monotonic() < end:\n"
        "    os.path.exists('/tmp/' + os.urandom(100).hex())\nraise OSError(errno.ENOENT, 'all')"
    ),
    "extended attributes": (
        "open('/tmp/x', 'w').close()\nfor i in range(1000000): os.setxattr('/tmp/x', f'user.a{i}', b'x' * 4096)"
    ),
    "long link names": "for i in range(1000000): os.symlink('x' * 4000, f'/tmp/s{i}')",
}


@pytest.mark.parametrize("kind", MANY)
def test_many_small_kernel_objects(backend, kind):
    program = (
        "import resource\n"
        "attempt(resource.setrlimit, resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
    )
    body = "\n".join("    " + line for line in MANY[kind].splitlines())
    program += (
        f"children = 0\ntry:\n{body}\n    said(all=True)\n"
        f"except (OSError, AssertionError, MemoryError, RuntimeError) as e: said(error=repr(e)[:80])\n"
    )
    answer, said = backend.attack(program, memory_mb=LIMIT, timeout_s=12)
    if answer["outcome"]["cause"] != "timeout":  # slow is contained, too
        contained(answer, said)
    peak = answer["outcome"]["memory_peak_bytes"]
    if peak is None:  # a machine's own count, which its agent could not tell in time
        assert backend.kind.machine and answer["outcome"]["cause"] == "timeout", answer["outcome"]
    else:
        assert peak <= (LIMIT + 2) << 20


def test_kernel_objects_of_many_processes(backend):
    """Each process may open 1,024 files; "
    "100 of them hold 100,000 pipes with 64 KiB each, or are stopped before that."""
    answer, said = backend.attack(
        """
for _ in range(100):
    if os.fork() == 0:
        try:
            while True:
                r, w = os.pipe(); os.set_blocking(w, False); attempt(os.write, w, b'x' * 65536)
        except OSError: signal.pause()
time.sleep(3)
said(all=True)
""",
        memory_mb=LIMIT,
        timeout_s=15,
    )
    outcome = answer["outcome"]
    assert outcome["memory_peak_bytes"] <= (LIMIT + 2) << 20
    assert outcome["oom_kills"] >= 1 or outcome["cause"] in ("timeout", "exited")


def test_page_tables(backend):
    """One byte in each 2 MiB costs a page and a page table each: 8 KiB; 64 MiB of limit are 8,192 of them."""
    answer, said = backend.attack(
        """
import mmap
size = 200000 * (2 << 20)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
base = libc.mmap(None, size, 3, 0x4022, -1, 0)
if base in (None, ctypes.c_void_p(-1).value): said(error='mmap'); os._exit(0)
for i in range(0, size, 2 << 20): ctypes.memset(base + i, 1, 1)
said(all=True)
""",
        memory_mb=LIMIT,
    )
    contained(answer, said)


def test_locking_memory(backend):
    answer, said = backend.attack(
        OVER
        + """
import mmap
m = mmap.mmap(-1, CEILING)
address = ctypes.addressof(ctypes.c_char.from_buffer(m))
said(mlock=call(N['mlock'], address, ctypes.c_long(CEILING)))
""",
        memory_mb=LIMIT,
    )
    assert said.get("mlock") != "ok"
    assert answer["outcome"]["cause"] in ("exited", "memory")


def test_memory_of_many_processes_together(backend):
    answer, said = backend.attack(
        """
done, doing = os.pipe()
gate, gatekeeper = os.pipe()
for _ in range(20):
    if os.fork() == 0:
        os.close(gatekeeper)
        x = bytearray(b'x' * (16 << 20)); os.close(doing); os.read(gate, 1); os._exit(0)
os.close(doing)
os.read(done, 1)  # its end: each holds its memory now, or is dead
os.close(gatekeeper)
dead = [os.wait()[1] for _ in range(20)]
said(killed=sum(os.WIFSIGNALED(d) and os.WTERMSIG(d) == 9 for d in dead))
""",
        memory_mb=LIMIT,
    )
    outcome = answer["outcome"]
    assert outcome["oom_kills"] >= 1 and outcome["memory_peak_bytes"] <= (LIMIT + 2) << 20
    if outcome["cause"] == "exited":
        assert said["killed"] >= 1 and said["killed"] == outcome["oom_kills"]


def test_raising_the_own_oom_score_of_others(backend):
    answer, said = backend.attack("""
said(
    lower=attempt(put, '/proc/self/oom_score_adj', '-1000'),
    score=open('/proc/self/oom_score_adj').read().strip(),
    agent=attempt(put, '/proc/1/oom_score_adj', '1000'),
)
""")
    exited(answer)
    assert said["lower"] != "ok" and said["agent"] != "ok"


def test_the_agent_survives_the_codes_memory(backend):
    """The code's group is killed, the agent is not in it: artifacts and output still come."""
    answer, _ = backend.attack(
        """
open('artifacts/kept', 'w').write('kept')
print('printed', flush=True)
x = []
while True: x.append(bytearray(1 << 20))
""",
        memory_mb=LIMIT,
        artifacts=True,
    )
    killed(answer)
    assert "printed" in answer["stdout"] and [entry["name"] for entry in answer["artifacts"]] == ["kept"]


def test_memory_thrash_is_over_soon(backend):
    """Killed for its memory, and not because its time is up."""
    answer, _ = backend.attack("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mb=LIMIT)
    killed(answer)


def test_two_guests_do_not_share_a_limit(backend):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(
                backend.attack, "x = bytearray(b'x') * (100 << 20); time.sleep(1); said(ok=True)", memory_mb=160 + backend.kind.system_mb
            )
            for _ in range(2)
        ]
        for one in both:
            answer, said = one.result()
            assert exited(answer) and said["ok"]


def test_daemon_memory_does_not_grow_with_the_guests(backend):
    def resident():
        return sum(host.status_kb(backend.daemon.role(role)) for role in ("warden", "gateway"))

    backend.attack("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mb=LIMIT)
    before = resident()
    for _ in range(5):
        backend.attack("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mb=LIMIT)
    assert resident() - before < 4096
