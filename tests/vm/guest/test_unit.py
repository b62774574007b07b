# SPDX-License-Identifier: Apache-2.0
"""The installed package on a host with systemd and cgroup v2 alone: the unit, its limits, and what an ordinary user gets.

Runs in the machine of ./dev test-vm only. Tests are in the order of the file: the unit runs from the first to the last.
"""

import glob
import json
import os
import signal
import subprocess
import tempfile
import time

import pytest
from lib import host
from lib.daemon import KEY_FORM
from lib.pace import stretched

pytestmark = [
    pytest.mark.limit(30),
    pytest.mark.skipif(not os.path.exists("/opt/test/cordon.deb"), reason="only in the machine of ./dev test-vm"),
]
CGROUPS = "/sys/fs/cgroup"
UNIT = f"{CGROUPS}/system.slice/cordon.service"
GREEDY = "x = bytearray({0} << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('all')"
ALICE = [
    "runuser", "-u", "alice", "--", "env", "HOME=/home/alice", "XDG_RUNTIME_DIR=/run/user/1000",
    "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus",
]
DELEGATED = [*ALICE, "systemd-run", "--user", "--scope", "--quiet", "-p", "Delegate=yes", "--"]
# As the unit's drop-in has it: tests/vm/guest/run.
PATIENT = {"CORDON_GUEST_START_S": os.environ.get("CORDON_GUEST_START_S", "10")}
PASSED = [f"--setenv={name}={value}" for name, value in PATIENT.items()]
# The program refuses CORDON_ names that are no settings, and the tests have some.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("CORDON_")} | PATIENT
LONG_S = str(min(300, int(stretched(15))))  # for a program that is to come to its own end


def sh(*words, check=True):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=stretched(20), check=False, env=ENV)
    assert not check or done.returncode == 0, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def shown(name, *scope):
    return sh(*scope, "systemctl", *(["--user"] if scope else []), "show", "-P", name, "cordon").stdout.strip()


def outcome(*words, prefix=()):
    """A run's answer."""
    done = sh(*prefix, "cordon", "run", "--json", "-t", LONG_S, *words, check=False)
    assert done.stdout.startswith("{"), done
    return json.loads(done.stdout)


def local(*prefix):
    listed = json.loads(sh(*prefix, "cordon", "backends", "--json").stdout)
    entries = listed["backends"] if isinstance(listed, dict) else listed
    entry = next(entry for entry in entries if entry["name"] == "local")
    return entry.get("capabilities", entry)


def doctor(*prefix):
    told = json.loads(sh(*prefix, "cordon", "doctor", "--json", check=False).stdout)
    return {probe["name"]: probe for probe in told["probes"]}


def wait_ready():
    def ready():
        return sh("curl", "-sf", "http://127.0.0.1:9385/readyz", check=False).returncode == 0

    assert host.wait_for(ready, 30, 0.5), sh("journalctl", "-u", "cordon", "-n", "40", "--no-pager").stdout


def pids_of(role):
    return [p for p in host.processes() if "--role" in host.cmdline(p) and host.cmdline(p)[-1:] and role in host.cmdline(p)]


def procs(group):
    return host.read(f"{group}/cgroup.procs").split()


def test_the_machine_is_what_is_meant():
    assert sh("stat", "-fc", "%T", CGROUPS).stdout.strip() == "cgroup2fs"
    assert os.uname().release.startswith("6.1.")
    assert not [line for line in host.read("/proc/self/mountinfo").splitlines() if " - cgroup " in line]


def test_the_package_started_its_unit():
    wait_ready()
    assert shown("ActiveState") == "active" and shown("Delegate") == "yes" and shown("Type") == "notify"
    assert sh("systemctl", "is-enabled", "cordon").stdout.strip() == "enabled"
    assert sh("id", "-u", "cordon").stdout.strip().isdigit()
    assert os.stat("/etc/cordon/cordon.conf").st_mode & 0o777 == 0o640
    for path in ("/usr/bin/cordon", "/usr/include/cordon/backend.h", "/usr/share/pkgconfig/cordon.pc"):
        assert os.path.exists(path), path


def test_no_key_came_into_the_journal():
    journal = sh("journalctl", "-u", "cordon", "--no-pager").stdout
    assert "there is no key yet" in journal and "shown once" not in journal


def test_doctor_lacks_nothing_that_is_held():
    probes = doctor()
    for name in ("user namespaces", "uid range", "namespaces", "network namespace", "proc", "system call filter",
                 "memory limit", "process limit", "CPU limit", "outer seccomp", "outer AppArmor", "outer /proc"):
        assert probes[name]["ok"], probes[name]


def test_the_daemon_declares_all_limits():
    declared = local()
    for name in ("memory_limit", "pids_limit", "cpu_limit", "agent_protected"):
        assert declared[name] is True, declared


@pytest.mark.parametrize("language,code", [("python", "print('hi')"), ("javascript", "console.log('hi')"), ("bash", "echo hi")])
def test_a_run(language, code):
    answer = outcome("-l", language, "-c", code)
    assert (answer["stdout"], answer["exit_code"]) == ("hi\n", 0), answer


def test_a_run_over_http():
    key = sh("cordon", "key", "create", "--name", "vm").stdout
    key = KEY_FORM.search(key).group()
    done = sh("curl", "-s", "http://127.0.0.1:9385/v1/runs", "-H", f"Authorization: Bearer {key}", "-d",
              json.dumps({"language": "python", "code": "print(6 * 7)"}))
    assert json.loads(done.stdout)["stdout"] == "42\n", done.stdout


def test_the_daemon_keeps_to_a_leaf_of_the_unit():
    assert procs(UNIT) == []
    inside = procs(f"{UNIT}/cordon-daemon")
    assert shown("MainPID") in inside and str(pids_of("gateway")[0]) in inside and str(pids_of("warden")[0]) in inside
    assert {"memory", "pids", "cpu"} <= set(host.read(f"{UNIT}/cgroup.subtree_control").split())


def test_the_gateway_has_no_privileges():
    status = host.read(f"/proc/{pids_of('gateway')[0]}/status")
    assert f"Uid:\t{sh('id', '-u', 'cordon').stdout.strip()}" in status
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status


def test_a_guests_group_holds_its_limits():
    """Read while the program runs, from the files that the kernel goes by."""
    program = subprocess.Popen(["cordon", "run", "-t", LONG_S, "-m", "100", "-c", "import time; time.sleep(1000)"], env=ENV)
    try:
        def group():
            found = [g for g in glob.glob(f"{UNIT}/cordon-serve-*/*/") if host.read(g + "memory.max").strip() == str(100 << 20)]
            return [g for g in found if procs(g) or procs(g + "0")]

        found = host.wait_for(group, 10, 0.2)
        assert len(found) == 1, (found, sh("systemd-cgls", "--no-pager", "-u", "cordon").stdout)
        values = {name: host.read(found[0] + name).strip() for name in
                  ("memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.subtree_control")}
        assert values["pids.max"] == "128" and values["cpu.max"] == "100000 100000", values
        assert values["memory.oom.group"] == "1" and values["memory.swap.max"] in ("0", ""), values
    finally:
        program.send_signal(signal.SIGINT)
        program.wait(stretched(10))


def test_a_kept_guest_pauses_and_goes_on():
    """Paused is frozen: the kernel's own word for it, in the group of v2, and the code stands still."""
    guest = sh("cordon", "guest", "create").stdout.split()[0]

    def ticks():
        return sh("cordon", "guest", "exec", guest, "cat", "/tmp/n", check=False).stdout

    def frozen():
        return [f for f in glob.glob(f"{UNIT}/cordon-serve-*/**/cgroup.events", recursive=True) if "frozen 1" in host.read(f)]

    try:
        sh("cordon", "guest", "exec", "--background", guest, "sh", "-c", "while :; do date +%s%N >/tmp/n; sleep 0.1; done")
        assert host.wait_for(ticks, 10, 0.2) and not frozen()
        sh("cordon", "guest", "pause", guest)
        assert frozen(), sh("systemd-cgls", "--no-pager", "-u", "cordon").stdout
        sh("cordon", "guest", "resume", guest)
        before = ticks()
        assert not frozen() and host.wait_for(lambda: ticks() not in ("", before), 10, 0.2)
    finally:
        sh("cordon", "guest", "rm", guest)


def test_memory_is_held_and_told():
    for _ in range(3):  # the group, or its successor, is used again
        told = outcome("-m", "64", "-c", GREEDY.format(300))["outcome"]
        assert (told["cause"], told["limit_hit"]) == ("memory", "memory_mb") and told["oom_kills"] >= 1, told
        assert told["memory_peak_bytes"] <= 66 << 20
    told = outcome("-m", "64", "-c", "print(1)")["outcome"]
    assert told["cause"] == "exited" and told["oom_kills"] == 0 and told["memory_peak_bytes"] < 40 << 20, told
    assert shown("ActiveState") == "active" and shown("NRestarts") == "0"


def test_processes_are_held():
    answer = outcome("-c", "import os, time\nn = 0\ntry:\n  while n < 600:\n    if os.fork() == 0: time.sleep(60)\n"
                     "    n += 1\nexcept BlockingIOError: pass\nprint(n)")
    assert 100 <= int(answer["stdout"]) <= 128, answer


def test_a_limit_around_the_unit_holds():
    """The kernel then kills for the unit's limit, not for the program's: told as what it is, and survived."""
    sh("systemctl", "set-property", "--runtime", "cordon", "MemoryMax=400M")
    try:
        told = outcome("-m", "1024", "-c", GREEDY.format(800))["outcome"]
        assert told["cause"] == "infrastructure" and told["oom_kills"] >= 1, told
    finally:
        sh("systemctl", "set-property", "--runtime", "cordon", "MemoryMax=infinity")
    wait_ready()
    assert outcome("-c", "print(1)")["stdout"] == "1\n"
    assert shown("NRestarts") == "0"


def test_a_killed_warden_is_replaced():
    before = pids_of("warden")
    os.kill(before[0], signal.SIGKILL)
    assert host.wait_for(lambda: pids_of("warden") not in ([], before), 10, 0.5)
    wait_ready()
    assert outcome("-m", "64", "-c", GREEDY.format(300))["outcome"]["cause"] == "memory"
    assert procs(UNIT) == [] and shown("NRestarts") == "0"


def test_a_killed_supervisor_is_restarted_by_systemd():
    os.kill(int(shown("MainPID")), signal.SIGKILL)
    assert host.wait_for(lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active", 15, 0.5)
    wait_ready()
    assert outcome("-m", "64", "-c", GREEDY.format(300))["outcome"]["cause"] == "memory"


def test_a_wrong_setting_stops_the_start_once():
    path = "/etc/cordon/cordon.conf"
    kept = host.read(path)
    sh("systemctl", "stop", "cordon")
    try:
        with open(path, "a") as file:
            file.write("CORDON_PIDS=none\n")
        assert sh("systemctl", "start", "cordon", check=False).returncode != 0
        assert host.wait_for(lambda: shown("ActiveState") == "failed", 5, 0.5), shown("ActiveState")
        assert shown("ExecMainStatus") == "2" and shown("NRestarts") == "0"
        assert "CORDON_PIDS" in sh("journalctl", "-u", "cordon", "-n", "5", "--no-pager").stdout
    finally:
        with open(path, "w") as file:
            file.write(kept)
        sh("systemctl", "reset-failed", "cordon")
        sh("systemctl", "start", "cordon")
    wait_ready()


def test_a_stop_leaves_nothing():
    sh("systemctl", "stop", "cordon")
    assert shown("Result") == "success", shown("Result")
    assert not os.path.exists(UNIT)
    left = [p for p in host.processes() if host.comm(p).startswith("cordon")]
    assert not left, [host.cmdline(p) for p in left]
    assert not [line for line in host.mounts() if "cordon" in line]
    sh("systemctl", "start", "cordon")
    wait_ready()


def test_a_run_without_the_daemon():
    """Beside processes that are not ours: its group is made in the slice, and removed from there."""
    with tempfile.TemporaryDirectory(prefix="cordon-test-") as state:
        told = outcome("--state", state, "-m", "64", "-c", GREEDY.format(300))["outcome"]
    assert told["cause"] == "memory", told
    assert not glob.glob(f"{CGROUPS}/**/cordon-run-*", recursive=True)


# What a container's root without CAP_SYS_ADMIN has, with control groups mounted read-only.
CONTAINER = [
    "systemd-run", "--quiet", "--wait", "--pipe", *PASSED, "-p", "Delegate=yes", "-p", "ProtectControlGroups=yes", "-p", "PrivateTmp=yes", "-p",
    "CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_SETPCAP CAP_SETFCAP CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SYS_CHROOT",
]


def test_root_without_admin_holds_all_limits():
    answer = outcome("--state", "/tmp/none", "-m", "64", "-c", GREEDY.format(300), prefix=CONTAINER)
    assert answer["outcome"]["cause"] == "memory", answer
    declared = local(*CONTAINER, "env", "CORDON_STATE=/tmp/none")
    assert declared["memory_limit"] and declared["pids_limit"] and declared["cpu_limit"] and declared["agent_protected"], declared


def test_root_with_read_only_groups_holds_all_limits():
    prefix = ["systemd-run", "--quiet", "--wait", "--pipe", *PASSED, "-p", "Delegate=yes", "-p", "ProtectControlGroups=yes"]
    answer = outcome("--state", "/tmp/none", "-m", "64", "-c", GREEDY.format(300), prefix=prefix)
    assert answer["outcome"]["cause"] == "memory", answer


# --- an ordinary user ---


@pytest.fixture(scope="module")
def bus():
    assert host.wait_for(lambda: os.path.exists("/run/user/1000/bus"), 10, 0.5)


@pytest.fixture
def user_unit(bus):
    """cordon serve as a unit of the user's own manager."""
    sh(*ALICE, "systemd-run", "--user", "--quiet", *PASSED, "--unit=cordon", "-p", "Type=notify", "-p", "Delegate=yes", "-p", "KillMode=mixed",
       "cordon", "serve", "--listen", "127.0.0.1:19385", "--state", "/home/alice/state")
    yield f"{CGROUPS}/user.slice/user-1000.slice/user@1000.service/app.slice/cordon.service"
    sh(*ALICE, "systemctl", "--user", "stop", "cordon", check=False)


def test_a_users_unit_holds_its_limits(user_unit):
    def run(*words):
        return outcome("--state", "/home/alice/state", *words, prefix=ALICE)

    declared = local(*ALICE, "env", "CORDON_STATE=/home/alice/state")
    assert declared["memory_limit"] and declared["pids_limit"] and declared["cpu_limit"], declared
    assert declared["agent_protected"] is False
    assert run("-c", "print(1)")["stdout"] == "1\n"
    assert run("-m", "64", "-c", GREEDY.format(300))["outcome"]["cause"] == "memory"
    # In the unit, not beside it: what limits the unit limits the guests.
    assert procs(user_unit) == [] and procs(f"{user_unit}/cordon-daemon")
    assert glob.glob(f"{user_unit}/cordon-serve-*/*/")
    sh(*ALICE, "systemctl", "--user", "stop", "cordon")
    assert not os.path.exists(user_unit)


def test_a_users_scope_holds_its_limits(bus):
    told = outcome("-m", "64", "-c", GREEDY.format(300), prefix=DELEGATED)["outcome"]
    assert told["cause"] == "memory", told
    assert doctor(*DELEGATED)["memory limit"]["ok"]


def test_without_delegation_a_user_is_refused(bus):
    """From a group of root's: nothing can be held, which is said, and asked for in vain."""
    done = sh(*ALICE, "cordon", "run", "--json", "-m", "64", "-c", "print(1)", check=False)
    assert done.returncode == 126 and "memory" in done.stdout, done
    probe = doctor(*ALICE)["memory limit"]
    assert not probe["ok"] and "Delegate=yes" in probe["fix"], probe


# --- the end ---


def test_removal_keeps_the_state_and_a_purge_does_not():
    sh("dpkg", "-r", "cordon")
    assert not os.path.exists(UNIT) and not os.path.exists("/usr/bin/cordon")
    assert os.path.exists("/var/lib/cordon/cordon.db") and os.path.exists("/etc/cordon/cordon.conf")
    sh("dpkg", "-P", "cordon")
    assert not os.path.exists("/var/lib/cordon") and not os.path.exists("/etc/cordon")
    sh("dpkg", "-i", "/opt/test/cordon.deb")
    wait_ready()
