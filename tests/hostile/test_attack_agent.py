# SPDX-License-Identifier: Apache-2.0
"""Attacks on the agent: process 1 of the guest has another uid than the code, and nothing to steal."""

import pytest
from lib.attack import exited

pytestmark = pytest.mark.each_backend

DENIED = ("EPERM", "EACCES", "ESRCH", "ENOENT")


def test_prlimit_on_the_agent(backend):
    answer, said = backend.attack("""
buf = (ctypes.c_ulong * 2)(1, 1)
for name, what in (('nofile', 7), ('cpu', 0), ('fsize', 1), ('nproc', 6), ('as', 9)):
    said(**{name: call(N['prlimit64'], 1, what, buf, None)})
said(read=call(N['prlimit64'], 1, 7, None, buf))
""")
    exited(answer)
    assert set(said.values()) <= set(DENIED), said


def test_scheduling_class_of_the_agent(backend):
    answer, said = backend.attack("""
param = (ctypes.c_int * 1)(0)
attr = struct.pack('=IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)
said(
    idle=call(N['sched_setscheduler'], 1, 5, param),
    attr=call(N['sched_setattr'], 1, attr, 0),
    nice=call(N['setpriority'], 0, 1, 19),
    affinity=call(N['sched_setaffinity'], 1, 8, struct.pack('Q', 1)),
    io=call(N['ioprio_set'], 1, 1, 3 << 13),
)
""")
    exited(answer)
    assert set(said.values()) <= set(DENIED), said


def test_own_scheduling_class_to_real_time(backend):
    answer, said = backend.attack("""
param = (ctypes.c_int * 1)(1)
said(
    fifo=call(N['sched_setscheduler'], 0, 1, param),
    rr=call(N['sched_setscheduler'], 0, 2, param),
    nice=call(N['setpriority'], 0, 0, -20),
    realtime_io=call(N['ioprio_set'], 1, 0, 1 << 13),
)
""")
    exited(answer)
    assert "ok" not in said.values(), said


@pytest.mark.weaken("agent_uid")
@pytest.mark.parametrize("number", [1, 2, 9, 11, 15, 19, 20, 34, 64])
def test_signals_to_the_agent(backend, number):
    answer, said = backend.attack(f"said(kill=attempt(os.kill, 1, {number}))\ntime.sleep(0.1)\nsaid(alive=True)")
    exited(answer)
    assert said["kill"] in DENIED and said["alive"]


@pytest.mark.weaken("agent_uid")
def test_queued_signals_and_pidfd_signals_to_the_agent(backend):
    answer, said = backend.attack("""
info = ctypes.create_string_buffer(128)
said(queue=call(129 if X86 else 138, 1, 9, info))
fd = libc.syscall(ctypes.c_long(N['pidfd_open']), 1, 0)
said(pidfd=call(N['pidfd_send_signal'], fd, 9, None, 0) if fd >= 0 else 'EPERM')
""")
    exited(answer)
    assert "ok" not in said.values()


@pytest.mark.parametrize(
    "name",
    [
        "mem",
        "environ",
        "fd",
        "maps",
        "root",
        "cwd",
        "exe",
        "auxv",
        "stack",
        "syscall",
        "io",
        "map_files",
        "task/1/mem",
        "fdinfo",
        "ns/mnt",
    ],
)
def test_proc_of_the_agent(backend, name):
    answer, said = backend.attack(f"""
path = '/proc/1/{name}'
def look():
    if os.path.isdir(path): return os.listdir(path)
    if os.path.islink(path): return os.readlink(path)
    with open(path, 'rb') as f: data = f.read(100)
    if not data: raise OSError(errno.ENOENT, 'nothing')
said(read=attempt(look), write=attempt(lambda: os.open(path, os.O_WRONLY)))
""")
    exited(answer)
    assert said["write"] != "ok" and said["read"] in DENIED, said


def test_the_agents_memory_by_process_vm(backend):
    answer, said = backend.attack("""
buf = ctypes.create_string_buffer(16)
local = struct.pack('PN', ctypes.addressof(buf), 16)
remote = struct.pack('PN', 0x400000, 16)
said(
    readv=call(N['process_vm_readv'], 1, local, 1, remote, 1, 0),
    writev=call(N['process_vm_writev'], 1, local, 1, remote, 1, 0),
    ptrace=call(N['ptrace'], 16, 1, 0, 0),
    seize=call(N['ptrace'], 0x4206, 1, 0, 0),
    kcmp=call(N['kcmp'], 1, os.getpid(), 0, 0, 0),
)
""")
    outcome = exited(answer)
    assert "ok" not in said.values()
    assert outcome["syscalls_denied"] >= 4 and outcome["blocked_syscall"] in (
        "kcmp",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
    )


def test_the_agents_descriptors_by_pidfd(backend):
    answer, said = backend.attack("""
fd = libc.syscall(ctypes.c_long(N['pidfd_open']), 1, 0)
said(opened=fd >= 0, stolen=[call(N['pidfd_getfd'], fd, i, 0) for i in range(12)])
""")
    exited(answer)
    assert "ok" not in said["stolen"]


def test_no_descriptor_but_the_standard_ones_leads_anywhere(backend):
    answer, said = backend.attack("""
fds = {}
for n in os.listdir('/proc/self/fd'):
    try: fds[n] = os.readlink('/proc/self/fd/' + n)
    except OSError: pass
inherited = os.popen("ls -l /proc/self/fd | sed 's/.* -> //;1d'").read().split()
said(fds=fds, inherited=inherited)
""")
    exited(answer)
    for number, target in said["fds"].items():
        assert (
            target.startswith(("pipe:", "socket:", "/dev/null", "/proc/", "anon_inode:"))
            or int(number) > 4
            and "lib" in target
        ), said["fds"]
        assert int(number) <= 2 or target.startswith(("socket:", "/proc/", "/usr/")), said["fds"]
    assert all(target.startswith(("pipe:", "socket:", "/dev/null", "/proc/")) for target in said["inherited"]), said


# The driver's socket lies at descriptor 3 in the interpreter's own process: the code can write to it what it wants.
FRAME = """
def frame(kind, payload=b'', exec_=0, length=None):
    return struct.pack('<BBHI', kind, 0, exec_, len(payload) if length is None else length) + payload
"""
FIND = """
def target(fd):
    try: return os.readlink(f'/proc/self/fd/{fd}')
    except OSError: return ''
drivers = [fd for fd in range(3, 64) if target(fd).startswith('socket:')]
"""


@pytest.mark.parametrize(
    "name,payload",
    [
        ("random bytes", "os.urandom(4096)"),
        ("zeros", "b'\\0' * 4096"),
        ("text", "b'RESULT {}' * 100"),
        ("huge length", "frame(64, b'x', 0, 0xffffffff)"),
        ("length beyond the limit", "frame(64, b'x', 0, 0x7fffffff)"),
        ("unknown type", "frame(200, b'x')"),
        ("agent's own type", "frame(1, b'x')"),
        ("type zero", "frame(0)"),
        ("reserved byte", "b'\\x40\\x01\\0\\0\\x01\\0\\0\\0x'"),
        ("half a frame", "frame(64, b'x' * 100)[:50]"),
        ("exit with a short payload", "frame(67, b'x')"),
        ("exit with a long payload", "frame(67, b'x' * 400)"),
        ("listener without a descriptor", "frame(66)"),
        ("many listeners", "frame(66) * 100"),
    ],
)
def test_garbage_to_the_agent(backend, name, payload):
    answer, said = backend.attack(
        FRAME
        + FIND
        + f"""
said(found=len(drivers))
for fd in drivers: said(sent=attempt(os.write, fd, {payload}))
time.sleep(0.2)
print('still', flush=True)
"""
    )
    assert answer["outcome"]["cause"] in ("exited", "signalled"), answer["outcome"]
    assert answer["outcome"]["cause"] != "infrastructure"
    assert answer["outcome"]["isolation"] == backend.kind.isolation


def test_forged_result_without_main(backend):
    answer, said = backend.attack(
        FRAME + FIND + "for fd in drivers: os.write(fd, frame(64, b'\"forged\"'))\ntime.sleep(0.1)"
    )
    assert answer["outcome"]["cause"] in ("exited", "signalled")
    assert answer["result"] in (None, "forged")  # a result is the program's own claim; here it claims one
    assert answer["stdout"] == "" or "forged" not in answer["stdout"]


@pytest.mark.parametrize("value", ["nul\\0", "{broken", "\\xff\\xfe", "1 2", ""])
def test_forged_results_that_are_no_json(backend, value):
    answer, _ = backend.attack(FRAME + FIND + f"for fd in drivers: os.write(fd, frame(64, b'{value}'))\nos._exit(0)")
    assert answer["result"] is None
    assert answer["outcome"]["cause"] in ("exited", "signalled")


def test_forged_exit_cannot_hide_what_the_program_does_next(backend):
    """A forged EXIT frame is the program's own claim of its end: the run ends there, and everything of it dies."""
    answer, said = backend.attack(
        FRAME
        + FIND
        + """
said(before=True)
for fd in drivers: os.write(fd, frame(67, struct.pack('<i', 0)))
time.sleep(15)
said(after=True)
"""
    )
    assert answer["timing"]["run_ms"] < 14000 and "after" not in said or answer["outcome"]["cause"] == "exited"
    assert not backend.daemon.run("print(1)")["stderr"]


def test_result_flood_is_bounded(backend):
    answer, _ = backend.attack(
        FRAME
        + FIND
        + """
payload = b'[' + b'1,' * 32000
try:
    for _ in range(8000):
        for fd in drivers: os.write(fd, frame(64, payload))
except OSError as e: said(error=_name(e.errno))
""",
        timeout_s=30,
    )
    assert answer["result"] is None and answer["outcome"]["cause"] in ("exited", "signalled", "timeout")


def test_closing_the_drivers_socket(backend):
    answer, said = backend.attack(FIND + "for fd in drivers: os.close(fd)\nprint('after', flush=True)\nsys.exit(3)")
    assert answer["stdout"].startswith("after") or "after\n" in answer["stdout"]
    assert answer["outcome"]["cause"] in ("exited", "signalled") and answer["exit_code"] in (3, 0, 1), answer


def test_closing_every_descriptor(backend):
    answer, _ = backend.attack("print('x', flush=True)\nos.closerange(0, 1024)\nos._exit(6)")
    assert answer["stdout"] == "x\n" and answer["exit_code"] == 6, answer


def test_passing_a_false_listener(backend):
    """The seccomp listener goes to the agent over the driver's socket before the code; "
    "a second one is the code's lie."""
    answer, said = backend.attack(
        FRAME
        + FIND
        + """
r, w = os.pipe()
for fd in drivers:
    s = socket.socket(fileno=os.dup(fd))
    said(sent=attempt(socket.send_fds, s, [frame(66)], [r]))
said(denied=call(N['ptrace'], 16, 1, 0, 0))
time.sleep(0.2)
"""
    )
    assert answer["outcome"]["cause"] in ("exited", "signalled"), answer["outcome"]
    assert said.get("denied") in ("EPERM", "ENOSYS", None)


def test_flooding_the_agent_with_descriptors(backend):
    answer, _ = backend.attack(
        FRAME
        + FIND
        + """
r, w = os.pipe()
for fd in drivers:
    s = socket.socket(fileno=os.dup(fd))
    s.settimeout(2)
    for _ in range(3000):
        if attempt(socket.send_fds, s, [frame(66)], [r] * 200) != 'ok': break
said(done=True)
"""
    )
    assert answer["outcome"]["cause"] in ("exited", "signalled"), answer["outcome"]


def test_a_false_channel(backend):
    """Descriptor 3 of the agent is its channel to the host; the code's own descriptor 3 must not be."""
    answer, _ = backend.attack("""
EXIT = struct.pack('<BBHI', 69, 0, 1, 72) + bytes(72)
for n in range(3, 64):
    try: os.write(n, EXIT)
    except OSError: pass
time.sleep(0.2)
print('end', flush=True)
os._exit(9)
""")
    assert answer["outcome"]["cause"] in ("exited", "signalled")


def test_denied_calls_by_the_thousand(backend):
    answer, said = backend.attack("""
began = time.monotonic()
results = {call(N['ptrace'], 16, 1, 0, 0) for _ in range(20000)}
said(results=sorted(results), seconds=time.monotonic() - began)
""")
    outcome = exited(answer)
    assert (
        said["results"] == ["EPERM"] and outcome["syscalls_denied"] >= 20000 and outcome["blocked_syscall"] == "ptrace"
    )


def test_killing_the_interpreter_from_a_child(backend):
    answer, _ = backend.attack("if os.fork() == 0:\n    os.kill(os.getppid(), 9)\n    os._exit(0)\ntime.sleep(10)")
    assert answer["outcome"]["cause"] == "signalled" and answer["outcome"]["signal"] == 9


@pytest.mark.weaken("agent_uid")
def test_the_agent_is_not_the_codes_uid(backend):
    answer, said = backend.attack(
        """
said(
    agent=os.stat('/proc/1').st_uid if os.path.exists('/proc/1') else -1,
    own=os.getuid(),
    parent=os.getppid(),
    pids=[p for p in os.listdir('/proc') if p.isdigit()],
)
"""
    )
    exited(answer)
    assert said["agent"] != said["own"] == 1000 and "1" not in said["pids"]


@pytest.mark.parametrize("code", [-5, 256, 99999, 2**31 - 1])
def test_forged_exit_codes_that_no_program_can_have(backend, code):
    """The agent tells what the kernel said instead: here that the program ended with 7."""
    answer, said = backend.attack(
        FRAME
        + FIND
        + f"""
for fd in drivers: os.write(fd, frame(67, struct.pack('<i', {code})))
said(sent=len(drivers))
os._exit(7)
"""
    )
    assert said["sent"] >= 1
    exited(answer, 7)
