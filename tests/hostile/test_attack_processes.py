# SPDX-License-Identifier: Apache-2.0
"""Attacks by many, undying or misplaced processes."""

import contextlib
import time

import pytest
from lib import host
from lib.attack import exited
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend


def nothing_of(backend, marker, seconds=5):
    """No process whose command line or environment has the marker is left in a guest."""
    return host.wait_for(
        lambda: not [pid for pid in backend.guest_pids() if marker in " ".join(host.cmdline(pid))], seconds
    )


@pytest.mark.weaken("pids")
def test_fork_bomb(backend):
    answer, said = backend.attack(
        """
made = 0
try:
    while made < 3000:
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError as e: said(error=_name(e.errno))
said(made=made)
os._exit(0)
""",
        memory_mb=512,
    )
    outcome = exited(answer)
    assert said["error"] == "EAGAIN" and said["made"] < 128
    assert 1 <= outcome["processes_left"] <= said["made"]


@pytest.mark.weaken("pids")
def test_exponential_fork_bomb(backend):
    answer, _ = backend.attack(
        """
for _ in range(12):
    try: os.fork()
    except OSError: pass
time.sleep(20)
""",
        timeout_s=2,
    )
    assert answer["outcome"]["cause"] == "timeout" and answer["outcome"]["processes_left"] <= 128


def test_bash_fork_bomb(backend):
    began = time.monotonic()
    answer = backend.run("b() { b | b & }; b; sleep 300", "bash", timeout_s=2)
    assert answer["outcome"]["cause"] in ("timeout", "exited", "memory") and time.monotonic() - began < stretched(60)


def test_vfork_bomb(backend):
    answer, said = backend.attack(
        """
import subprocess
made = []
try:
    while len(made) < 1000: made.append(subprocess.Popen(['/bin/sleep', '60'], close_fds=False))
except OSError as e: said(error=_name(e.errno))
said(made=len(made))
os._exit(0)
""",
        memory_mb=512,
    )
    outcome = exited(answer)
    assert said["error"] == "EAGAIN" and said["made"] < 128 and 1 <= outcome["processes_left"] <= said["made"]


def test_thread_bomb(backend):
    answer, said = backend.attack("""
import threading
threading.stack_size(65536)
made = 0
try:
    while made < 3000: threading.Thread(target=signal.pause, daemon=True).start(); made += 1
except RuntimeError: pass
said(made=made)
os._exit(0)
""")
    exited(answer)
    assert said["made"] < 128


def test_fork_chain(backend):
    """Each child forks the next and ends: never many at once, always a new one (openai/codex#38909)."""
    answer, _ = backend.attack(
        """
os.setsid() if os.getpid() != os.getsid(0) else None
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork(): os._exit(0)
""",
        timeout_s=2,
    )
    assert answer["outcome"]["cause"] in ("exited", "timeout")
    began = time.monotonic()
    assert backend.run("print(1)")["stdout"] == "1\n" and time.monotonic() - began < stretched(20)


def test_fork_chain_that_leaves_kernel_objects(backend):
    answer, _ = backend.attack(
        """
held = []
for _ in range(4000):
    try: held.append(os.pipe())
    except OSError: pass
    try:
        if os.fork(): signal.pause()
    except OSError: signal.pause()
""",
        timeout_s=3,
        memory_mb=64,
    )
    assert answer["outcome"]["cause"] in ("timeout", "memory", "signalled")


def test_zombie_storm(backend):
    answer, said = backend.attack("""
made = 0
try:
    while made < 3000:
        if os.fork() == 0: os._exit(0)
        made += 1
except OSError as e: said(error=_name(e.errno))
said(made=made)
""")
    exited(answer)
    assert said["made"] < 128 and said["error"] == "EAGAIN"


def test_orphaned_zombies_are_reaped_by_the_agent(backend):
    """More of them than processes are allowed, zombies included."""
    answer, said = backend.attack("""
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
def is_other(pid):  # of ours; a machine has processes of the system, too
    try: return pid.isdigit() and int(pid) != os.getpid() and os.stat('/proc/' + pid).st_uid == os.getuid()
    except FileNotFoundError: return False
while any(map(is_other, os.listdir('/proc'))): time.sleep(0.01)  # zombies included
said(done=True)
""", timeout_s=limit(60))
    outcome = exited(answer)
    assert said["done"] and outcome["processes_left"] == 0


def test_double_forked_daemon_that_holds_the_pipes(backend):
    """The run ends with its program, and not at its limit."""
    answer, _ = backend.attack("""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv('/bin/sleep', ['sleep', '7531'])
    os._exit(0)
os.wait()
print('parent ends', flush=True)
""")
    outcome = exited(answer)
    assert outcome["processes_left"] == 1
    assert "parent ends" in answer["stdout"] and nothing_of(backend, "7531")


def test_daemon_that_goes_on_printing(backend):
    answer, _ = backend.attack("""
if os.fork() == 0:
    os.setsid()
    while True: os.write(1, b'late\\n')
time.sleep(0.1)
os._exit(0)
""")
    outcome = exited(answer)
    assert outcome["processes_left"] == 1


@pytest.mark.parametrize("ignored", ["SIGTERM", "SIGINT", "SIGHUP", "every signal"])
def test_signal_proof_program(backend, ignored):
    signals = "range(1, 65)" if ignored == "every signal" else f"[signal.{ignored}]"
    began = time.monotonic()
    answer, _ = backend.attack(
        f"""
for s in {signals}: attempt(signal.signal, s, signal.SIG_IGN)
attempt(signal.pthread_sigmask, signal.SIG_BLOCK, range(1, 65))
while True: time.sleep(1)
""",
        timeout_s=1,
    )
    assert answer["outcome"]["cause"] == "timeout" and time.monotonic() - began < stretched(20)


def test_stopping_itself(backend):
    began = time.monotonic()
    answer, _ = backend.attack("os.kill(os.getpid(), signal.SIGSTOP)", timeout_s=1)
    assert answer["outcome"]["cause"] == "timeout" and time.monotonic() - began < stretched(20)


def test_stopping_everything(backend):
    began = time.monotonic()
    answer, _ = backend.attack("attempt(os.kill, -1, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)", timeout_s=1)
    assert answer["outcome"]["cause"] == "timeout" and time.monotonic() - began < stretched(20)


@pytest.mark.parametrize("number", [1, 2, 9, 15])
def test_signal_storm_to_everybody(backend, number):
    answer, _ = backend.attack(f"""
for s in range(1, 32): attempt(signal.signal, s, signal.SIG_IGN)
for _ in range(2000): attempt(os.kill, -1, {number})
print('alive', flush=True)
os._exit(5)
""")
    outcome = answer["outcome"]
    assert outcome["cause"] in ("exited", "signalled")
    assert answer["exit_code"] in (5, 128 + number)


@pytest.mark.smoke
def test_signal_storm_to_the_process_group(backend):
    answer, _ = backend.attack("signal.signal(15, signal.SIG_IGN)\nfor _ in range(5000): os.kill(0, 15)\nos._exit(4)")
    exited(answer, 4)


def test_queued_real_time_signals(backend):
    answer, said = backend.attack("""
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65))
sent = 0
while sent < 300000 and libc.sigqueue(os.getpid(), 40, None) == 0: sent += 1
said(sent=sent)
""")
    exited(answer)
    assert said["sent"] < 300000


def test_timers_by_the_thousand(backend):
    answer, said = backend.attack(
        """
timer = ctypes.c_int()
made = 0
while made < 200000 and call(222 if X86 else 107, 1, None, ctypes.byref(timer)) == 'ok': made += 1
said(made=made)
""",
        memory_mb=64,
    )
    assert answer["outcome"]["cause"] in ("exited", "memory")


def test_kill_all_pids_by_number(backend):
    answer, said = backend.attack("""
hit = [pid for pid in range(1, 33000) if pid != os.getpid() and attempt(os.kill, pid, 0) == 'ok']
said(hit=hit)
""")
    exited(answer)
    assert said["hit"] == []


def test_orphans_survive_no_run(backend):
    for _ in range(5):
        backend.attack(

                "for _ in range(10):\n    if os.fork() == 0:\n        os.setsid()\n"
                "        os.execv('/bin/sleep', ['sleep', '8642'])\nos._exit(0)"

        )
    assert nothing_of(backend, "8642")


def test_exec_of_the_interpreter_away(backend):
    answer, _ = backend.attack("print('before', flush=True)\nos.execv('/bin/echo', ['echo', 'replaced'])")
    assert answer["stdout"].endswith("before\nreplaced\n") and exited(answer)


def test_exec_chain(backend):
    answer, _ = backend.attack(

            "os.execv('/bin/bash', ['bash', '-c', 'i=0; while [ $i -lt 50 ]; do i=$((i+1)); /bin/true; "
            'done; exec /bin/sh -c "exit 12"\'])'

    )
    exited(answer, 12)


def test_core_dumps(backend):
    answer, said = backend.attack("""
import resource
said(
    raise_limit=attempt(resource.setrlimit, resource.RLIMIT_CORE, (1 << 30, 1 << 30)),
    limit=resource.getrlimit(resource.RLIMIT_CORE)[0],
)
pid = os.fork()
if pid == 0:
    os.abort()
said(core=os.WCOREDUMP(os.waitpid(pid, 0)[1]))
""")
    exited(answer)
    assert said["raise_limit"] != "ok" and said["limit"] == 0 and said["core"] is False


@pytest.mark.weaken("cpu")
def test_more_than_the_share_of_cpu(lonely):
    answer, _ = lonely(cpu_percent=30).attack(

            "for _ in range(3):\n    if os.fork() == 0: break\nend = time.monotonic() + 2\n"
            "while time.monotonic() < end: pass\nif os.getppid() != 1: os._exit(0)\n"
            "[attempt(os.wait) for _ in range(3)]"

    )
    # Three tenths of the time that it took, and a third over: the kernel counts in slices. Unlimited it is a whole CPU or more.
    assert answer["outcome"]["cpu_ms"] < 400 + 0.4 * answer["timing"]["run_ms"], answer


def test_cpu_hogs_do_not_starve_others(backend):
    hog = """
gate, gatekeeper = os.pipe()
for _ in range(50):
    if os.fork() == 0:
        os.close(gatekeeper)
        os.read(gate, 1)
        while True: pass
os.close(gatekeeper)  # all of them are there: now they begin
"""
    with contextlib.ExitStack() as hogs:
        for _ in range(3):
            hogs.enter_context(backend.held(hog))
        began = time.monotonic()
        assert backend.run("print('through')")["stdout"] == "through\n"
        assert time.monotonic() - began < stretched(20)
