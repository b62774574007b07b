# SPDX-License-Identifier: Apache-2.0
"""The backend exec-sandbox around its virtual machines (which are fakes here, see lib/fakevm.py): how they start, wait,
are leased, die and are counted; and what QEMU may do. tests/api/test_exec_sandbox.py has real machines."""

import fcntl
import json
import os
import re
import signal
import threading
import time

import pytest
from lib import fakevm, host

BACKEND = {"backend": "exec-sandbox"}
F_GET_SEALS = 1034
ALL_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # SEAL, SHRINK, GROW, WRITE


@pytest.fixture
def image(tmp_path):
    os.chmod(tmp_path.parent, 0o755)
    return fakevm.image(str(tmp_path / "image"))


@pytest.fixture
def fake(own, image):
    return lambda **more: own(**fakevm.settings(image, **more))


def pooled(daemon):
    """Runs until one came out of the pool: by then its template is made."""
    for _ in range(200):
        answer = daemon.run("pass", **BACKEND)
        if answer["outcome"]["start"] == "pooled":
            return answer
        time.sleep(0.05)
    raise AssertionError(daemon.log())


def refused(daemon, **fields):
    answer = daemon.post({"code": "pass", "language": "python", **BACKEND, **fields})
    assert answer.status == 503, answer
    return answer.error()[1]


def test_first_is_booted_then_the_pool_serves(fake):
    daemon = fake()
    first = daemon.run("print(1)", **BACKEND)
    assert first["stdout"] == "fake\n"
    assert first["outcome"]["start"] == "booted" and first["outcome"]["warm"] is False
    later = pooled(daemon)["outcome"]
    assert later["warm"] is True
    assert later["accelerator"] == "tcg" and later["isolation"] == "software-emulated"
    # Each memory size has a template of its own.
    assert daemon.run("pass", **BACKEND, memory_mb=512)["outcome"]["start"] == "booted"
    assert host.wait_for(lambda: daemon.log().count("template of machines made") == 2)


def test_what_stands_still_takes_no_cpu(fake):
    """QEMU's main loop may go on waking for timers of a guest that stands: so its process is stopped, too."""
    daemon = fake(vm_pool=2)
    pooled(daemon)
    # Those that wait in the pool; while one is made it runs, and one that was used is on its way out.
    assert host.wait_for(lambda: [host.state(pid) for pid in fakevm.machines(daemon) if fakevm.is_clone(pid)] == ["T", "T"])


def devices(daemon):
    """Of each QEMU that is a clone: the tap device behind its descriptor 11, or None."""
    found = {}
    for pid in fakevm.machines(daemon):
        line, info, target = host.cmdline(pid), host.read(f"/proc/{pid}/fdinfo/11"), host.descriptors(pid).get(11)
        if "-incoming" not in line or not target:
            continue  # or it ends just now
        tap = target == "/dev/net/tun"
        assert ("tap,id=network,fd=11" in line) == tap, (line, target)
        found[pid] = info.split("iff:")[1].split()[0] if "iff:" in info else None
    return found


def holders(daemon):
    """Who holds a tap device, but QEMUs."""
    return [pid for pid in daemon.pids() if host.comm(pid) != "fake_qemu" and "/dev/net/tun" in host.descriptors(pid).values()]


def has_network(daemon):
    """Known when the survey is over, as it is after the first run."""
    rows = {row["name"]: row for row in daemon.get("/v1/backends").json()["backends"]}
    return rows["exec-sandbox"]["capabilities"]["network"]


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/net/tun"), reason="hides /dev/net/tun: needs root")
def test_where_no_device_can_be_made_machines_run_without(fake):
    hidden = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/net/tun && exec "$@"', "sh")
    daemon = fake(allow_network=True, prefix=hidden)
    assert daemon.run("pass", **BACKEND)["outcome"]["start"] == "booted"
    assert not has_network(daemon)
    answer = daemon.post({"code": "pass", "language": "python", **BACKEND, "network": True})
    assert answer.status == 403 and "network" in answer.error()[1], answer
    assert "open /dev/net/tun and make a device" in daemon.log()


def test_a_device_only_with_the_network(fake):
    daemon = fake(allow_network=True)
    assert daemon.run("pass", **BACKEND)["outcome"]["start"] == "booted"
    if not has_network(daemon):
        pytest.skip("no tap devices can be made here")
    # With it: a template and a pool of its own.
    assert daemon.run("pass", **BACKEND, network=True)["outcome"]["start"] == "booted"
    assert host.wait_for(lambda: {None, "machine"} == set(devices(daemon).values())), devices(daemon)
    # It ends with its QEMU, which alone holds it once it has started.
    assert host.wait_for(lambda: not holders(daemon)), [host.cmdline(pid) for pid in holders(daemon)]


def test_says_what_it_can(fake):
    daemon = fake()
    pooled(daemon)
    rows = {row["name"]: row for row in daemon.get("/v1/backends").json()["backends"]}
    row = rows["exec-sandbox"]
    assert row["capabilities"]["isolation"] == "software-emulated"
    # Other backends do not claim to have run by an accelerator.
    local = daemon.run("pass")["outcome"]
    assert local["accelerator"] is None and local["start"] is None


def test_template_is_sealed_and_qemu_jailed(fake):
    daemon = fake()
    pooled(daemon)
    assert host.wait_for(lambda: any(fakevm.is_clone(pid) for pid in fakevm.machines(daemon)))
    pid = next(pid for pid in fakevm.machines(daemon) if fakevm.is_clone(pid))
    for number in (9, 10):
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        try:
            assert fcntl.fcntl(fd, F_GET_SEALS) == ALL_SEALS
            for attempt in (lambda fd=fd: os.write(fd, b"x"), lambda fd=fd: os.ftruncate(fd, 1 << 30)):
                with pytest.raises(PermissionError):
                    attempt()
        finally:
            os.close(fd)
    status = dict(line.split(":\t", 1) for line in host.read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    warden = daemon.role("warden")
    for kind in ("pid", "mnt", "net", "ipc", "uts", "cgroup"):
        assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/{warden}/ns/{kind}"), kind
    root = f"/proc/{pid}/root"
    assert set(os.listdir(root)) == {"usr", "lib", "lib64", "etc", "dev", "proc", fakevm.QEMU.split("/")[1]}
    assert not os.path.exists(f"{root}/usr/bin/python3") and not os.path.exists(f"{root}/etc/passwd")
    assert {os.readlink(f"/proc/{pid}/cwd"), *os.listdir(f"{root}/dev")} == {"/", "null", "urandom"}
    # No two machines share a uid.
    uids = [host.read(f"/proc/{pid}/status").split("Uid:\t")[1].split()[0] for pid in fakevm.machines(daemon)]
    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize("victim", ["qemu", "vmm"])
def test_death_under_way_is_told(fake, victim):
    daemon = fake(vm_pool=0)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(daemon.run("wait()", **BACKEND)))
    thread.start()
    assert host.wait_for(lambda: fakevm.machines(daemon))
    host.wait_for(lambda: answers, 0.3)  # so that it has its program; if not yet, it is killed a step earlier
    pid = fakevm.machines(daemon)[-1]
    os.kill(pid if victim == "qemu" else int(host.stat_fields(pid)[1]), signal.SIGKILL)
    thread.join(180)
    outcome = answers[0]["outcome"]
    if outcome["cause"] == "exited":  # killed before it was leased: another one took its place
        pytest.skip("the machine was killed before its lease")
    assert outcome["cause"] == "infrastructure", outcome
    assert "the virtual machine ended before its program did" in outcome["message"]
    assert ("QEMU was killed by signal 9 (SIGKILL)" if victim == "qemu" else "its vmm was killed") in outcome["message"]
    assert daemon.run("pass", **BACKEND)["exit_code"] == 0


def test_qemu_ends_itself(fake):
    daemon = fake()
    outcome = daemon.run("die()", **BACKEND)["outcome"]
    assert outcome["cause"] == "infrastructure" and "killed by signal 9" in outcome["message"], outcome
    assert daemon.run("pass", **BACKEND)["exit_code"] == 0


def test_parked_one_that_dies_is_replaced(fake):
    daemon = fake()
    pooled(daemon)
    for _ in range(2):
        for pid in fakevm.machines(daemon):
            os.kill(pid, signal.SIGKILL)
        assert daemon.run("pass", **BACKEND)["exit_code"] == 0


def test_a_booted_one_that_is_left_over_makes_way_for_copies(own, tmp_path):
    os.chmod(tmp_path.parent, 0o755)
    image = fakevm.image(str(tmp_path / "image"), boot={"acpi": True, "append": "tsc=reliable fake.slow"})
    daemon = own(**fakevm.settings(image, vm_pool=1))
    leaver = daemon.connection()
    leaver.request("POST", "/v1/runs", json.dumps({"language": "python", "code": "pass", **BACKEND}), daemon.headers())
    assert host.wait_for(lambda: len(fakevm.machines(daemon)) == 1)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(daemon.run("pass", **BACKEND)))
    thread.start()
    assert host.wait_for(lambda: len(fakevm.machines(daemon)) == 2 or answers)
    leaver.close()  # two are booted now, and one is wanted
    thread.join(180)
    assert answers[0]["outcome"]["start"] == "booted"

    def copies_alone():
        found = fakevm.machines(daemon)
        return len(found) == 1 and all(fakevm.is_clone(pid) and host.state(pid) == "T" for pid in found)

    assert host.wait_for(copies_alone), [host.cmdline(pid) for pid in fakevm.machines(daemon)]
    assert daemon.run("pass", **BACKEND)["outcome"]["start"] == "pooled"


def test_what_is_missing_is_told(own, tmp_path):
    os.chmod(tmp_path.parent, 0o755)
    empty, good = str(tmp_path / "empty"), fakevm.image(str(tmp_path / "good"))
    os.mkdir(empty)
    daemon = own(**fakevm.settings(empty))
    message = refused(daemon)
    assert "there is no image" in message and "cordon image build" in message
    fakevm.image(empty)  # an image that comes later is found
    assert host.wait_for(lambda: daemon.post({"code": "pass", "language": "python", **BACKEND}).status == 200)

    daemon = own(**fakevm.settings(good, vm_qemu="/nonexistent/qemu"))
    assert "apt-get install --no-install-recommends qemu-system-x86" in refused(daemon)

    with open(os.path.join(good, "root.erofs"), "a", encoding="utf-8") as file:
        file.write("x")
    daemon = own(**fakevm.settings(good))
    assert "root.erofs is not what its manifest.json says (sha256)" in refused(daemon)


@pytest.mark.parametrize(
    "manifest, words",
    [
        ({"format": 2}, "of another version"),
        ({"kernel": {"file": "../vmlinux", "sha256": "0" * 64}}, "names no kernel"),
        ({"boot": {"append": 'x" -device y'}}, "odd characters"),
        ({"initrd": None}, "names no initrd"),
    ],
)
def test_odd_manifest_is_refused(own, tmp_path, manifest, words):
    os.chmod(tmp_path.parent, 0o755)
    daemon = own(**fakevm.settings(fakevm.image(str(tmp_path / "image"), **manifest)))
    assert words in refused(daemon)


def test_new_image_makes_templates_stale(fake, image):
    daemon = fake()
    pooled(daemon)
    before = set(fakevm.machines(daemon))
    fakevm.image(image, mark="2")
    assert host.wait_for(lambda: daemon.run("pass", **BACKEND)["outcome"]["start"] == "booted")
    assert pooled(daemon)["exit_code"] == 0
    assert host.wait_for(lambda: not before & set(fakevm.machines(daemon))), "clones of the old image are parked"


def test_a_pool_is_filled_again_when_what_was_missing_is_there(fake, image):
    daemon = fake()
    pooled(daemon)
    manifest = os.path.join(image, "manifest.json")
    os.rename(manifest, manifest + ".away")
    assert host.wait_for(lambda: daemon.post({"code": "pass", "language": "python", **BACKEND}).status == 503)
    os.rename(manifest + ".away", manifest)
    assert host.wait_for(lambda: daemon.post({"code": "pass", "language": "python", **BACKEND}).status == 200)
    pooled(daemon)


def test_larger_than_the_budget(fake):
    daemon = fake(vm_memory_budget_mb=512)
    assert "CORDON_VM_MEMORY_BUDGET_MB" in refused(daemon, memory_mb=1024)
    assert daemon.run("pass", **BACKEND, memory_mb=128)["exit_code"] == 0


def most_at_once(spans):
    moments = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    now = most = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize("setting", [{"vm_cpu_budget_percent": 500}, {"vm_memory_budget_mb": 4 * (256 + 208) + 96}])
def test_fifty_with_a_budget_for_four(fake, setting):
    count = 50 if "vm_cpu_budget_percent" in setting else 16
    daemon = fake(max_runs=64, **setting)
    spans, failures = [], []

    def one():
        try:
            answer = daemon.run("sleep()", timeout=300, **BACKEND)
            assert answer["exit_code"] == 0, answer
            spans.append(tuple(map(float, answer["stdout"].split())))
        except (AssertionError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures and len(spans) == count, failures[:3]
    assert 2 <= most_at_once(spans) <= 4
    daemon.note_cgroups()


def test_nothing_is_left(fake):
    daemon = fake()
    pooled(daemon)
    assert host.wait_for(lambda: fakevm.machines(daemon))
    left = fakevm.machines(daemon)
    daemon.stop()
    assert host.wait_for(lambda: not any(host.alive(pid) for pid in left))


def stands_still(pid):
    """The fake ignores SIGUSR1 then."""
    ignored = re.search(r"^SigIgn:\s+(\w+)$", host.read(f"/proc/{pid}/status"), re.M)
    return bool(ignored and int(ignored.group(1), 16) & 1 << signal.SIGUSR1 - 1)


@pytest.fixture
def kept(own, tmp_path):
    """A daemon and its machine that was paused: it does not greet on the first two channels that it is given anew."""
    os.chmod(tmp_path.parent, 0o755)
    image = fakevm.image(str(tmp_path / "image"), boot={"acpi": True, "append": "fake.mute=2"})
    daemon = own(**fakevm.settings(image))
    made = daemon.request("POST", "/v1/guests", BACKEND)
    assert made.status == 201, (made, daemon.log())
    guest = f"/v1/guests/{made.json()['id']}"
    assert daemon.request("POST", f"{guest}/pause", {}).status == 200
    booted = lambda: [pid for pid in fakevm.machines(daemon) if not fakevm.is_clone(pid)]
    assert host.wait_for(lambda: len(booted()) == 1 and stands_still(booted()[0]), 60)  # a template is made beside it
    return daemon, guest, booted()[0]


def test_a_paused_machine_stands_still_again_when_its_adoption_breaks_off(kept):
    """To be adopted it has to run. A gateway that dies in that moment leaves it to the warden, and the next one to find
    it as its owner left it."""
    daemon, guest, pid = kept
    assert host.wait_for(lambda: host.state(pid) == "T")  # its process as well: see test_what_stands_still_takes_no_cpu
    os.kill(daemon.role("gateway"), signal.SIGKILL)
    assert host.wait_for(lambda: not stands_still(pid), 60), daemon.log()  # the new one adopts, and waits for a greeting
    supervisor, gateway = daemon.process.pid, daemon.role("gateway")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(gateway, signal.SIGKILL)
        assert host.wait_for(lambda: stands_still(pid), 60), daemon.log()
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert host.wait_for(lambda: not stands_still(pid), 60), daemon.log()
    assert daemon.wait_ready()
    assert host.wait_for(lambda: stands_still(pid), 120), daemon.log()  # now by the gateway, which has adopted it
    assert host.wait_for(lambda: daemon.request("POST", f"{guest}/resume", {}).status == 200, 120), daemon.log()
    assert not stands_still(pid) and host.state(pid) != "T"
    assert daemon.get(guest).json()["state"] == "running"


def test_lost_warden_takes_its_machines(fake):
    daemon = fake()
    pooled(daemon)
    left = fakevm.machines(daemon)
    os.kill(daemon.role("warden"), signal.SIGKILL)
    assert host.wait_for(lambda: not any(host.alive(pid) for pid in left))
    assert host.wait_for(lambda: daemon.post({"code": "pass", "language": "python", **BACKEND}).status == 200)
