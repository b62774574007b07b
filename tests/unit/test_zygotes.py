# SPDX-License-Identifier: Apache-2.0
"""Zygotes: forks of Python into guests. The warden is played by interpreter_peers."""
import os
import re
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pytest_tap  # noqa: E402
from interpreter_peers import FreshDriver, Guest, Pipes, Zygote, job  # noqa: E402
from interpreter_fixtures import EXTENSION, needs_root, needs_data  # noqa: E402

pytest_plugins = ["interpreter_fixtures"]


PROGRAM_OF_RANDOM_NUMBERS = """
import random, ssl, uuid, secrets, tempfile, os, multiprocessing.process
print(random.random(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8), tempfile.mktemp(),
      random.SystemRandom().random(), multiprocessing.process.current_process().authkey.hex(), sep='\\n')
try:
    import numpy
    print(numpy.random.rand(), numpy.random.default_rng().random(), sep='\\n')
except ImportError:
    pass
"""
USE_OF_RANDOM_NUMBERS = """
    import random, ssl, uuid, tempfile, multiprocessing.process
    ssl.create_default_context(); ssl.RAND_bytes(8); random.random(); uuid.getnode(); tempfile.mktemp()
    try:
        import numpy; numpy.random.rand()
    except ImportError:
        pass
"""


@needs_root
@pytest.mark.parametrize("name", ["python", pytest.param("data", marks=needs_data)])
def test_random_numbers_differ_between_forks(name):
    """Fails in a build with -Dweaken=reseed."""
    zygote, guests = Zygote(name, EXTENSION, before_fork=USE_OF_RANDOM_NUMBERS), [Guest(), Guest()]
    try:
        first, second = (zygote.run(guest, PROGRAM_OF_RANDOM_NUMBERS) for guest in guests)
        assert first.exit == second.exit == 0, first.err
        rows = list(zip(first.out.splitlines(), second.out.splitlines()))
        assert len(rows) >= 8 and [row for row in rows if row[0] == row[1]] == []
        assert rows[3][0][-12:] != rows[3][1][-12:] or rows[3][0][:8] != rows[3][1][:8]
    finally:
        zygote.close()
        for guest in guests:
            guest.close()


@needs_root
def test_fork_is_inside_the_guest(zygote, guest):
    outcome = zygote.run(guest, """
import os
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines() if ':' in line)
print(os.getppid(), os.getpid() < 1000, os.getuid(), os.getgid(), os.getgroups(), os.getcwd())
print([status[name].strip() for name in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs')], os.getsid(0) == os.getpid())
print(sorted(os.listdir('/proc/self/fd')), [n for n in os.listdir('/proc') if n.isdigit()] == ['1', str(os.getpid())])
import resource
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
try:
    os.kill(1, 0)
except PermissionError:
    print('agent is protected')
""")
    lines = outcome.out.splitlines()
    assert lines[0] == "1 True 1000 1000 [] /home/user", outcome.err
    assert lines[1] == "['0000000000000000', '0000000000000000', '0000000000000000', '1'] True"
    assert lines[2] == "['0', '1', '2', '3', '4'] True"
    assert lines[3:] == ["(256, 256) (0, 0)", "agent is protected"]


@needs_root
def test_namespaces_are_the_guests(zygote, guest):
    outcome = zygote.run(guest, "import os\nprint(*[os.stat('/proc/self/ns/' + n).st_ino for n in 'user net pid mnt ipc uts cgroup'.split()])")
    assert outcome.out.split() == [str(os.fstat(fd).st_ino) for fd in guest.fds]


@needs_root
def test_exit_status_comes_to_process_one(zygote, guest):
    for code, status in (("print(1)", 0), ("raise SystemExit(7)", 7 << 8), ("import os; os.kill(os.getpid(), 9)", 9)):
        assert zygote.run(guest, code).status == status


@needs_root
def test_many_forks_and_nothing_left(zygote, guest):
    def descriptors():
        return sorted(os.listdir(f"/proc/{zygote.child.pid}/fd"))

    zygote.run(guest, "print(1)")
    before = descriptors()
    for number in range(100):
        assert zygote.run(guest, f"print({number})").out == f"{number}\n"
    assert descriptors() == before
    with open(f"/proc/{zygote.child.pid}/task/{zygote.child.pid}/children") as file:
        assert file.read() == ""


@needs_root
def test_cgroups_are_joined(zygote, guest):
    folder = f"/sys/fs/cgroup/cpuacct/cordon-test-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError as error:
        pytest.skip(f"{folder}: {error}")
    try:
        procs = os.open(folder + "/cgroup.procs", os.O_WRONLY)
        pipes = zygote.fork(guest, [procs])
        os.close(procs)
        pipes.wait_ready()
        with open(folder + "/cgroup.procs") as file:
            inside = file.read().split()
        assert len(inside) == 1 and int(inside[0]) != zygote.child.pid
        assert pipes.run(job("print(1)")).out == "1\n"
        guest.status()
        pipes.close()
    finally:
        os.rmdir(folder)


@needs_root
def test_failing_steps_are_told(zygote, guest):
    def answer(fds, cgroups=(), **options):
        pipes = Pipes()
        zygote.send(fds, pipes, cgroups, **options)
        seq, status, stage = zygote.reply()
        pipes.give()
        os.close(pipes.stdin)
        pipes.close()
        assert seq in (zygote.seq, 0)
        return status, stage

    nothing = os.open("/dev/null", os.O_RDONLY)
    for number, name in enumerate(("user", "net", "pid", "mnt", "ipc", "uts", "cgroup")):
        fds = list(guest.fds)
        fds[number] = nothing
        assert answer(fds) == (-22, "setns " + name)
    assert answer(guest.fds, [nothing]) == (-9, "enter the cgroup")
    assert answer(guest.fds, version=9) == (-71, "job: version")
    assert answer(guest.fds[:5]) == (-71, "job: descriptors")
    os.close(nothing)
    assert zygote.run(guest, "print('still there')").out == "still there\n"


@needs_root
def test_child_that_can_not_become_the_code_says_why(zygote, guest):
    filter_fd, zygote.filter = zygote.filter, os.memfd_create("no filter program")
    os.write(zygote.filter, b"abc")
    try:
        pipes = zygote.fork(guest)
        outcome = pipes.run(b"")
        assert "could not enter its guest" in outcome.err and guest.status() == 125 << 8
        pipes.close()
    finally:
        os.close(zygote.filter)
        zygote.filter = filter_fd


@needs_root
def test_zygote_ends_with_the_warden():
    zygote = Zygote("python", EXTENSION)
    zygote.control.close()
    assert zygote.child.wait(timeout=30) == 0
    zygote.close()


@needs_root
def test_parked_fork_is_small(zygote, guest):
    pipes = zygote.fork(guest)
    pipes.wait_ready()
    pid = max(int(p) for p in os.listdir("/proc") if p.isdigit() and _pid_namespace(p) == os.fstat(guest.fds[2]).st_ino
              and int(p) != guest.init)
    with open(f"/proc/{pid}/smaps_rollup") as file:
        rollup = file.read()
    with open(f"/proc/{pid}/status") as file:
        tables = int(re.search(r"VmPTE:\s+(\d+)", file.read())[1])
    private = sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+)", rollup))
    pipes.driver.close()
    guest.status()
    os.close(pipes.stdin)
    pipes.close()
    assert private + tables < 2560, (private, tables)


def _pid_namespace(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


@needs_root
@needs_data
def test_data_modules(data_zygote, guest):
    outcome = data_zygote.run(guest, """
import os, threading
import numpy as np, pandas as pd, matplotlib, matplotlib.pyplot as plt
assert threading.Thread().name == 'Thread-1' and plt.get_fignums() == []
print(matplotlib.get_backend().lower(), pd.DataFrame({'a': np.arange(4)})['a'].sum(), threading.active_count(),
      len(os.listdir('/proc/self/task')))
plt.plot([1, 2]); plt.title('x'); plt.savefig('/tmp/plot.png'); plt.show()
print(os.path.getsize('/tmp/plot.png') > 1000, matplotlib.get_configdir())
print(np.linalg.inv(np.eye(3)).sum())
""")
    assert outcome.out.splitlines() == ["agg 6 1 1", "True /tmp/.matplotlib", "3.0"] and outcome.err == "", outcome.err
    assert outcome.exit == 0


@needs_data
def test_matplotlib_in_a_fresh_interpreter():
    with tempfile.TemporaryDirectory(prefix="cordon-test-") as folder:
        outcome = FreshDriver("python").run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.savefig('p.png'); plt.show()\nprint('ok')",
                                            env=["MPLCONFIGDIR=" + folder])
    assert outcome.out == "ok\n" and outcome.exit == 0, outcome.err


# --- run by meson: one TAP line a test ---

if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
