# SPDX-License-Identifier: Apache-2.0
"""The backend exec-sandbox with real virtual machines, in software emulation: one daemon for all of them, since each
cold boot takes seconds. What is around the machines has its tests, with fakes, in test_machines.py."""

import os
import shutil
import signal
import threading
import time

import pytest
from lib import fakevm, host
from lib.daemon import Daemon
from lib.guest import Guest

BACKEND = {"backend": "exec-sandbox"}
QEMU = "/usr/bin/qemu-system-x86_64"
PATIENCE = 300  # s; emulated, on a machine that does other things, too

pytestmark = [
    pytest.mark.limit(600),
    pytest.mark.skipif(not os.access(QEMU, os.X_OK), reason="needs QEMU: apt-get install qemu-system-x86"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture(scope="module")
def machines(vm_image):
    with Daemon(vm_image=vm_image, allow_software_emulation=True, min_isolation="none", vm_pool=2,
                guest_memory_mb=256, max_runs=8) as made:
        yield made


def run(daemon, code, language="python", **fields):
    return daemon.run(code, language, timeout=PATIENCE, **{"timeout_s": 120, **BACKEND, **fields})


def qemus(daemon):
    return fakevm.machines(daemon, "qemu-system-x86_64")


def pooled(daemon, code, language):
    """A run by a clone that was parked before; the first ones may have been booted."""

    def attempt():
        answer = run(daemon, code, language)
        return answer if answer["outcome"]["start"] == "pooled" else None

    return host.wait_for(attempt, PATIENCE, 0.5)


PROGRAMS = {
    "python": "import sys; print(6 * 7); print('e', file=sys.stderr); sys.exit(3)",
    "javascript": "console.log(6 * 7); console.error('e'); process.exit(3)",
    "bash": "echo $((6 * 7)); echo e >&2; exit 3",
}


@pytest.mark.parametrize("language", ["bash", "python", pytest.param("javascript", marks=pytest.mark.long)])
def test_languages_booted_and_pooled(machines, language):
    first = run(machines, PROGRAMS[language], language)
    later = pooled(machines, PROGRAMS[language], language)
    for answer in (first, later):
        outcome = answer["outcome"]
        assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("42\n", "e\n", 3), answer
        assert outcome["cause"] == "exited" and outcome["accelerator"] == "tcg"
        assert outcome["isolation"] == "software-emulated"


def test_only_what_is_copied_loads_what_not_each_run_needs(machines):
    """A machine that is booted for one run has a Python with the standard library alone: who waits for it waits less."""
    code = "print(any('/numpy/' in line for line in open('/proc/self/maps')))"
    first = run(machines, code, memory_mb=384)
    assert (first["outcome"]["start"], first["stdout"]) == ("booted", "False\n"), first
    assert run(machines, "import numpy; print(numpy.arange(3).sum())", memory_mb=384)["stdout"] == "3\n"
    assert pooled(machines, code, "python")["stdout"] == "True\n"


IDENTITY = """
import os, random, ssl, time, uuid
print(random.random(), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), open('/etc/machine-id').read().strip(),
      open('/proc/sys/kernel/random/boot_id').read().strip(), sep='\\n')
print(time.time())
"""


def test_clones_share_nothing_that_they_must_not(machines):
    pooled(machines, "pass", "python")
    answers = [pooled(machines, IDENTITY, "python")["stdout"].split() for _ in range(2)]
    for one, other in zip(*(answer[:5] for answer in answers)):
        assert one != other
    # The clock is the host's.
    assert abs(float(answers[1][-1]) - time.time()) < 60
    # A variable of one is not in the other.
    run(machines, "import builtins, sys; builtins.left = sys.left = 1; open('/tmp/left', 'w').close()")
    answer = run(machines, "import builtins, os, sys; print(hasattr(builtins, 'left'), hasattr(sys, 'left'), os.path.exists('/tmp/left'))")
    assert answer["stdout"] == "False False False\n"


def test_files_and_artifacts(machines):
    answer = run(machines, "cat in.txt; echo made > artifacts/out.txt", "bash", artifacts=True,
                 files=[{"path": "in.txt", "content": "given\n"}])
    assert answer["stdout"] == "given\n"
    assert [item["name"] for item in answer["artifacts"]] == ["out.txt"], answer


def test_timeout_keeps_the_output(machines):
    answer = run(machines, "echo before; sleep 1000", "bash", timeout_s=8)
    assert answer["outcome"]["cause"] == "timeout" and answer["exit_code"] == -1
    assert answer["stdout"] == "before\n"


def test_memory_is_137(machines):
    answer = run(machines, "x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mb=256)
    assert answer["outcome"]["cause"] == "memory" and answer["exit_code"] == 137, answer["outcome"]


def test_no_network_device(machines):
    answer = run(machines, "ls /sys/class/net 2>/dev/null || tail -n +3 /proc/net/dev", "bash")
    assert set(answer["stdout"].replace(":", " ").split()[:1]) <= {"lo"}
    refused = machines.post({"code": "pass", "language": "python", "network": True, **BACKEND})
    assert refused.status in (403, 501), refused


@pytest.mark.long
def test_qemu_killed_under_way(machines):
    pooled(machines, ":", "bash")
    answers, before = [], set(qemus(machines))
    thread = threading.Thread(target=lambda: answers.append(run(machines, "echo running; sleep 1000", "bash")))
    thread.start()
    # The one that burns no more than a parked one can't be told by that; its program is seen by its output's coming
    # late, so all machines of the moment are killed once the run has its own.
    assert host.wait_for(lambda: set(qemus(machines)) - before, PATIENCE)
    host.wait_for(lambda: answers, 8)
    for pid in qemus(machines):
        os.kill(pid, signal.SIGKILL)
    thread.join(PATIENCE)
    outcome = answers[0]["outcome"]
    assert outcome["cause"] in ("infrastructure", "timeout"), outcome
    if outcome["cause"] == "infrastructure":
        assert "the virtual machine ended before its program did: QEMU was killed by signal 9" in outcome["message"]
    assert run(machines, "echo well", "bash")["stdout"] == "well\n"


def test_kept_guest(machines):
    with Guest(machines, **BACKEND) as guest:
        assert guest.exec(["sh", "-c", "echo mine > kept; id -u"], timeout=PATIENCE)["stdout"] == "1000\n"
        outcome = guest.exec(["sh", "-c", "cat kept"], timeout=PATIENCE)["outcome"]
        assert outcome["accelerator"] == "tcg" and outcome["isolation"] == "software-emulated"
        assert guest.call("POST", "/pause", {}).status == 200
        assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 409
        assert guest.call("POST", "/resume", {}).status == 200
        os.kill(machines.role("gateway"), signal.SIGKILL)  # a new one gets a new channel to the same machine
        assert machines.wait_ready()
        command = {"command": ["true"]}  # "is being looked for after a restart" is an answer, too, for a moment
        assert host.wait_for(lambda: guest.call("POST", "/exec", command, timeout=PATIENCE).status == 200, PATIENCE, 0.2)
        assert guest.exec(["cat", "kept"], timeout=PATIENCE)["stdout"] == "mine\n"
        usage = guest.good("GET", "/usage") if guest.call("GET", "/usage").status == 200 else None
        assert usage is None or usage["memory_bytes"] > 0


@pytest.mark.long
def test_nothing_is_left(vm_image):
    with Daemon(vm_image=vm_image, allow_software_emulation=True, min_isolation="none") as daemon:
        assert run(daemon, "echo 1", "bash")["stdout"] == "1\n"
        assert host.wait_for(lambda: qemus(daemon), PATIENCE)
        left = qemus(daemon)
        daemon.stop()
        assert host.wait_for(lambda: not any(host.alive(pid) for pid in left))


@pytest.mark.long
def test_what_the_image_lacks_is_not_started(tmp_path, vm_image):
    """An image that was cut after it was made is refused whole."""
    os.chmod(tmp_path.parent, 0o755)
    copy = tmp_path / "image"
    os.mkdir(copy, 0o755)
    for name in ("vmlinux", "initrd", "manifest.json"):
        shutil.copy(os.path.join(vm_image, name), copy / name)
    with open(os.path.join(vm_image, "root.erofs"), "rb") as whole, open(copy / "root.erofs", "wb") as cut:
        cut.write(whole.read(1 << 20))
    with Daemon(vm_image=copy, allow_software_emulation=True, min_isolation="none") as daemon:
        answer = daemon.post({"code": "pass", "language": "python", **BACKEND}, timeout=PATIENCE)
        assert answer.status == 503 and "root.erofs is not what its manifest.json says" in answer.error()[1], answer


def test_no_network_is_declared_where_machines_can_not_run():
    """Nothing was measured there."""
    with Daemon(vm_image="/nonexistent/vm", allow_software_emulation=True, allow_network=True, min_isolation="none") as daemon:
        row = next(row for row in daemon.get("/v1/backends").json()["backends"] if row["name"] == "exec-sandbox")
        able = row["capabilities"]
        assert not any(able[name] for name in ("network", "domain_allowlist", "egress_headers")), row
        assert able["deny_all_egress"], row
        for network, words in ((True, "can give none here"), (False, "there is no image for virtual machines in /nonexistent/vm")):
            answer = daemon.post({"code": "pass", "language": "python", "network": network, **BACKEND})
            assert answer.status >= 400 and words in answer.error()[1], answer
