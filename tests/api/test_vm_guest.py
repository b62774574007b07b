# SPDX-License-Identifier: Apache-2.0
"""
The inside of a virtual machine: the image boots, the agent is its process 1, and what waits for a lease is a guest as any
other. No daemon takes part: see lib/vmboot.py. Machines are emulated, so one boot serves what it can: a machine is kept
as it waits, and each run gets a copy, as in the pool of exec-sandbox. By default three boots and a few copies;
all with CORDON_TEST_LONG=1.
"""
import os
import struct
import tempfile
import time

import pytest

from lib import vmboot
from lib.daemon import PREFIX

pytestmark = [
    pytest.mark.limit(600),  # an emulated boot beside other work
    pytest.mark.skipif(vmboot.QEMU is None, reason="no qemu-system-x86_64: apt-get install qemu-system-x86"),
]


def make_template(image, folder, language, memory=256):
    template = {"ram": os.memfd_create("cordon-test-vm"), "state": os.path.join(folder, language + ".state")}
    os.ftruncate(template["ram"], memory << 20)
    with vmboot.Machine(image, language=language, memory=memory, save=template) as machine:
        said = machine.ready()
        machine.save(template)
    return {**template, "ready": said, "language": language, "memory": memory}


@pytest.fixture(scope="module")
def templates(vm_image):
    """templates(language): a machine of it that waits for its lease, booted once."""
    made = {}
    with tempfile.TemporaryDirectory(prefix=PREFIX + "templates-") as folder:

        def get(language):
            if language not in made:
                made[language] = make_template(vm_image, folder, language)
            return made[language]

        yield get
        for template in made.values():
            os.close(template["ram"])


@pytest.fixture
def copy(vm_image, templates):
    """copy(language): a machine that was READY when it was kept."""
    made = []

    def start(language="python"):
        template = templates(language)
        made.append(vmboot.Machine(vm_image, language=language, memory=template["memory"], template=template))
        return made[-1]

    yield start
    for each in made:
        each.close()


# --- runs ---

def test_python_has_output_result_stdin_files_and_artifacts(copy, templates):
    assert templates("python")["ready"]["language"] == 1 and templates("python")["ready"]["available"] > 64 << 20
    out = copy().run("""
import sys
def main(a, b):
    print("to stdout", sys.stdin.read(), open("put.txt").read())
    print("to stderr", file=sys.stderr)
    open("artifacts/made.txt", "w").write("made")
    import numpy, pandas, os
    held = b"x" * (8 << 20)
    return {"sum": a + b, "numpy": int(numpy.arange(4).sum()), "env": os.environ["GIVEN"], "file": __file__}
""", stdin=b"typed", arguments={"a": 1, "b": 2}, files={"put.txt": b"put"}, env=["GIVEN=yes"], artifacts=True, ready=False)
    assert (out.how, out.status) == (0, 0), out
    assert out.stdout == b"to stdout typed put\n" and out.stderr == b"to stderr\n"
    assert out.result == {"sum": 3, "numpy": 6, "env": "yes", "file": "/home/user/main.py"}
    assert out.artifacts == {"made.txt": b"made"}
    # Of what was warm before the lease nothing is the run's own: without what it holds on to, it may need 256 KiB or megabytes.
    assert out.cpu_us > 0 and 8 << 20 <= out.peak < 64 << 20 and out.oom_kills == 0 and out.left == 0, out


@pytest.mark.long
def test_javascript_runs(copy):
    out = copy("javascript").run("exports.main = ({ n }) => ({ twice: 2 * n }); console.log('out'); console.error('err');",
                                 arguments={"n": 21}, ready=False, language="javascript")
    assert (out.how, out.status, out.stdout, out.stderr) == (0, 0, b"out\n", b"err\n"), out
    assert out.result == {"twice": 42}


def test_bash_runs_and_its_status_is_told(copy):
    out = copy("bash").run("read line; echo \"got $line\"; exit 7", stdin=b"this\n", ready=False, language="bash")
    assert (out.how, out.status, out.stdout) == (0, 7, b"got this\n"), out


# --- copies ---

RANDOM = """
import os, random, ssl, uuid, time, numpy, secrets
print(os.urandom(8).hex()); print(random.random()); print(ssl.RAND_bytes(8).hex()); print(uuid.uuid4())
print(numpy.random.random()); print(secrets.token_hex(8)); print(open('/proc/sys/kernel/random/uuid').read().strip())
"""
RANDOM_JAVASCRIPT = """
const crypto = require('crypto');
console.log(Math.random()); console.log(crypto.randomBytes(8).toString('hex')); console.log(crypto.randomUUID());
console.log(crypto.webcrypto.getRandomValues(new Uint32Array(2)).join());
"""


@pytest.mark.parametrize("language", ["python", pytest.param("javascript", marks=pytest.mark.long)])
def test_two_copies_share_no_random_numbers(copy, language):
    code = RANDOM if language == "python" else RANDOM_JAVASCRIPT
    machines = [copy(language) for _ in range(2)]
    for machine in machines:
        machine.rehearse(entropy=b"e" * 64)
    one, two = (machine.run(code, ready=False, language=language).stdout.split() for machine in machines)
    assert len(one) == len(two) >= 4
    assert not set(one) & set(two), "each kind of random number differs"


def test_the_lease_sets_clock_and_identity(copy):
    now = time.time_ns() + 86400 * 10**9
    machine = copy("bash")
    for _ in range(2):  # of which nothing lasts
        machine.rehearse(hostname="cordon-of-a-longer-name", machine_id="b" * 32, memory=16 << 20, pids=1, files=8, disk=1 << 20, inodes=16)
    out = machine.run("date +%s; hostname; cat /etc/hostname /etc/machine-id; getent hosts cordon-seven | head -n 1; "
                      "head -c 2M /dev/zero >big && echo room",
                           ready=False, language="bash", realtime_ns=now, hostname="cordon-seven", machine_id="a" * 32)
    seconds, *names = out.stdout.decode().split("\n")
    assert 0 <= int(seconds) - now // 10**9 < 300, "tomorrow, as the lease says, and not this host's time"
    assert names[:3] == ["cordon-seven", "cordon-seven", "a" * 32] and "cordon-seven" in names[3], out
    assert names[4] == "room", out


@pytest.mark.long
def test_a_fresh_interpreter_is_in_no_template(copy):
    code = "print(hash('the seed'), 'pandas' in __import__('sys').modules)"
    copies = [copy().run(code, ready=False, flags=flags).stdout.split() for flags in (0, 0, 1, 1)]
    assert copies[0] == copies[1] and copies[0][1] == b"True", "the seed belongs to the template"
    assert len({seed for seed, _ in copies}) == 3 and copies[2][1] == b"False"


# --- what code finds ---

def test_code_is_nobody_and_sees_neither_port_nor_devices(copy):
    out = copy().run("""
import ctypes, glob, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def denied(number, *arguments):
    ctypes.set_errno(0)
    return libc.syscall(number, *arguments) == -1 and ctypes.get_errno() or 0
print(os.getuid(), os.getgid(), os.getgroups())
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(status["CapEff"].strip(), status["CapBnd"].strip(), status["NoNewPrivs"].strip(), status["Seccomp"].strip())
print(sorted(os.listdir("/dev")))
print(glob.glob("/dev/vport*") + glob.glob("/dev/vd*") + glob.glob("/sys/*") + glob.glob("/modules/*"))
print([name for _, name in socket.if_nameindex()])
print(denied(175, b"x", 1, b"") != 0, denied(313, 0, b"", 0) != 0, denied(165, b"a", b"/tmp", b"tmpfs", 0, None) != 0, denied(169, 0) != 0)
for path in ("/usr/x", "/etc/x", "/x", "/run/cordon/driver.py", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w")
        print("could write", path)
    except OSError:
        pass
print(os.path.exists("/proc/1"), open("/proc/cmdline").read() == "", open("/proc/modules").read() == "")
""", ready=False)
    lines = out.stdout.decode().splitlines()
    assert lines[0] == "1000 1000 []" or lines[0] == "1000 1000 [1000]", out
    assert lines[1] == "0000000000000000 0000000000000000 1 2", out
    assert set(eval(lines[2])) <= {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"}
    assert lines[3] == "[]" and lines[4] == "['lo']" and lines[5] == "True True True True", out
    assert lines[6:] == ["False True True"], out


GREEDY = "x = []\nwhile True: x.append(bytearray(1 << 20))"


def test_memory_ends_by_the_groups_limit_and_is_told(copy):
    out = copy().run(GREEDY, ready=False, memory=128 << 20)
    assert (out.how, out.status) == (vmboot.SIGNALLED, 9) and out.oom_kills >= 1, out


@pytest.mark.long
def test_the_machines_memory_is_the_ceiling_without_a_limit(copy):
    out = copy().run(GREEDY, ready=False)
    assert (out.how, out.status) == (vmboot.SIGNALLED, 9) and out.oom_kills >= 1, out


@pytest.mark.long
def test_a_fork_bomb_is_contained(copy):
    machine = copy("bash")
    out = machine.run("f() { f | f & }; f 2>/dev/null; sleep 1; echo still here", ready=False, language="bash", pids=32)
    assert (out.how, out.status) == (0, 0) and b"still here" in out.stdout, out


@pytest.mark.long
def test_disk_is_limited(copy):
    out = copy("bash").run("head -c 100M /dev/zero >big; echo $?; stat -c %s big", ready=False, language="bash")
    status, size = out.stdout.split()
    assert status != b"0" and int(size) <= 64 << 20, out


@pytest.mark.long
def test_a_kill_of_the_host_ends_it(copy):
    machine = copy("bash")
    machine.lease()
    assert machine.frame()[0] == vmboot.HELLO
    machine.send(vmboot.EXEC, vmboot.field(vmboot.F_LANGUAGE, "bash") + vmboot.limits() + vmboot.field(vmboot.F_FLAGS, 0) +
                 vmboot.field(vmboot.F_CODE, "echo here; while :; do :; done"), 1)
    while (frame := machine.frame())[0] != vmboot.STDOUT:
        assert frame[0] == vmboot.STARTED
    machine.send(vmboot.KILL, struct.pack("<I", 9), 1)
    out = machine.outcome()
    assert (out.how, out.status) == (vmboot.SIGNALLED, 9), out


# --- the handshake ---

@pytest.mark.long
def test_nothing_comes_between_ready_and_lease(copy):
    machine = copy("bash")
    assert machine.quiet(1), "the absence is what is claimed"
    machine.lease()


@pytest.mark.long
@pytest.mark.parametrize("bad", ["version", "frame"])
def test_a_host_of_another_kind_ends_the_machine(copy, bad):
    machine = copy("bash")
    data = bytearray(vmboot.lease())
    if bad == "version":
        data[0] = 99
        machine.send(vmboot.VM_LEASE, bytes(data))
    else:
        machine.send(vmboot.EXEC, bytes(data))
    with pytest.raises(vmboot.Exited):
        kind, _, payload = machine.frame()
        assert kind == vmboot.ERROR and b"lease" in payload
        machine.frame()
    machine.process.wait(vmboot.PATIENCE_S)


@pytest.mark.long
def test_a_host_that_leaves_ends_the_machine(copy):
    machine = copy("bash")
    machine.lease()
    assert machine.frame()[0] == vmboot.HELLO
    machine.channel.close()
    assert machine.process.wait(vmboot.PATIENCE_S) is not None


# --- kept guests ---

STDIN, FILE = 1, 3
EXEC, READ, WRITE, LIST, DISK = 1, 3, 4, 7, 11


@pytest.fixture(scope="module")
def kept(vm_image):
    with vmboot.Machine(vm_image, mode="kept", language="none") as machine:
        assert machine.ready()["kept"] == 1
        machine.lease(hostname="cordon-kept")
        guest = vmboot.Kept(machine)
        guest.begin()
        guest.set_up()
        yield guest


def arguments(*words):
    return b"".join(vmboot.field(vmboot.F_ARGUMENT, word) for word in words)


def output(found):
    return b"".join(data[1:] for kind, data in found if kind == vmboot.OUTPUT)


def ended(found):
    (payload,) = [data for kind, data in found if kind == vmboot.ENDED]
    how, status, _, _, _, oom_kills = struct.unpack("<IiQQQI", payload)
    return how, status, oom_kills


def test_a_kept_guest_runs_programs(kept):
    found = kept.operation(EXEC, arguments("/usr/bin/bash", "-c", "id -u; hostname; echo $FROM_SETUP; exit 3"))
    assert output(found) == b"1000\ncordon-kept\n1\n" and ended(found) == (0, 3, 0)
    found = kept.operation(EXEC, arguments("/usr/bin/python3", "-c", "print(6 * 7)"))
    assert output(found) == b"42\n" and ended(found) == (0, 0, 0)


def test_files_go_into_a_kept_guest_and_come_back(kept):
    data = os.urandom(50_000)
    path = vmboot.field(vmboot.F_PATH, "/home/user/there/data.bin")
    found = kept.operation(WRITE, path + vmboot.field(vmboot.F_MODE, 0o640), writes=[(FILE, data)])
    assert [kind for kind, _ in found][-1] == vmboot.DONE, found
    assert output(kept.operation(READ, path)) == data


@pytest.mark.long
def test_the_root_of_a_kept_guest_reaches_nothing_of_the_agents(kept):
    code = ("id -u; touch /root/mine && echo home; cat /proc/1/maps; echo x >/proc/sys/kernel/core_pattern; echo b >/proc/sysrq-trigger;"
            "ls /proc/1/fd; ls /dev/vport* /dev/vda; mknod /tmp/port c 247 1; cat /tmp/port; touch /usr/x; echo end")
    found = kept.operation(EXEC, vmboot.field(vmboot.F_USER, "root") + arguments("/usr/bin/bash", "-c", code + " 2>&1"))
    lines = output(found).decode().splitlines()
    assert lines[0] == "0" and lines[1] == "home" and lines[-1] == "end", lines
    assert not [line for line in lines[2:-1] if not any(word in line for word in (
        "denied", "not permitted", "Read-only", "No such file", "must be superuser", "cannot"))], lines


@pytest.mark.long
def test_memory_of_a_kept_guest_ends_the_program_only(kept):
    found = kept.operation(EXEC, arguments("/usr/bin/python3", "-c", GREEDY))
    how, status, oom_kills = ended(found)
    assert (how, status) == (1, 9) and oom_kills >= 1
    assert output(kept.operation(EXEC, arguments("/usr/bin/bash", "-c", "echo lives"))) == b"lives\n"
