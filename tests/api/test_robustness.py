# SPDX-License-Identifier: Apache-2.0
"""Parts that die, resources that run out: defined answers, recovery, nothing left."""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib import host
from lib.daemon import BIN, Daemon, cli

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(4)\nprint('end')"
DEFINED = {"unavailable", "infrastructure", "busy", "cancelled"}


def guests_of(daemon):
    """The process 1 of every guest: it has a pid namespace of its own."""
    own = os.readlink("/proc/self/ns/pid")
    found = []
    for pid in daemon.pids():
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") != own and "cordon-agent" in host.cmdline(pid)[:1] + [host.comm(pid)]:
                found.append(pid)
        except OSError:
            pass
    return found


def busy_guest_of(daemon):
    """An agent whose interpreter sleeps in a program, and does not wait for a job."""
    agents = guests_of(daemon)
    for child, parent in host.processes().items():
        if parent in agents and "sleep" in host.read(f"/proc/{child}/wchan"):
            return parent
    return None


def zygotes_of(daemon):
    own = os.readlink("/proc/self/ns/pid")
    found = []
    for pid in daemon.pids():
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == own and any("zygote" in word for word in host.cmdline(pid)):
                found.append(pid)
        except OSError:
            pass
    return found


def nursery_of(daemon):
    """The child of the warden that is no zygote; it makes the agents."""
    warden, zygotes = daemon.role("warden"), zygotes_of(daemon)
    children = [
        pid for pid, parent in host.processes().items() if parent == warden and pid not in zygotes and host.alive(pid)
    ]
    return [pid for pid in children if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")]


def answer_of(daemon, code=SLEEPER, **fields):
    """What a client sees: a cause, an error kind, or that the connection broke."""
    try:
        answer = daemon.post({"language": "python", "code": code, **fields})
    except OSError:
        return "connection"
    except Exception as err:  # http.client's own exceptions for cut answers
        return f"connection ({type(err).__name__})"
    if answer.status == 200:
        body = answer.json()
        return (
            body["outcome"]["cause"] if body["outcome"]["cause"] != "exited" or body["stdout"] == "up\nend\n" else body
        )
    return answer.error()[0]


def assert_recovers(daemon):
    """New runs work again, in every language, and go on doing so."""
    programs = (("python", "print('r')"), ("javascript", "console.log('r')"), ("bash", "echo r"))

    def work():
        try:
            answers = [daemon.post({"language": language, "code": code}) for language, code in programs]
        except OSError:
            return False
        return all(answer.status == 200 and answer.json()["stdout"] == "r\n" for answer in answers)

    assert host.wait_for(work, 60, 0.1), daemon.log()[-2000:]
    assert work(), daemon.log()[-2000:]
    assert daemon.wait_ready()


def strike(daemon, pids):
    """Three runs are under way when these processes are killed; returns what their clients saw."""
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(answer_of, daemon) for _ in range(3)]
        daemon.wait_for_load(3)
        for pid in pids():
            os.kill(pid, signal.SIGKILL)
        return [run.result() for run in runs]


class TestKilled:
    def test_warden(self, own):
        made = own()
        assert_recovers(made)
        old = made.role("warden")
        seen = strike(made, lambda: [old])
        assert set(seen) <= DEFINED | {"signalled"}, seen
        assert_recovers(made)
        assert made.role("warden") not in (None, old)
        assert not host.alive(old)

    def test_gateway(self, own):
        made = own()
        old = made.role("gateway")
        seen = strike(made, lambda: [old])
        assert all(one.startswith("connection") or one in DEFINED for one in seen), seen
        assert_recovers(made)
        assert host.wait_for(lambda: len([p for p in made.pids() if "time.sleep" in str(host.cmdline(p))]) == 0)

    def test_warden_leaves_no_guest(self, own):
        made = own()
        assert_recovers(made)
        before = guests_of(made)
        os.kill(made.role("warden"), signal.SIGKILL)
        assert host.wait_for(lambda: not [pid for pid in before if host.alive(pid)])
        assert_recovers(made)

    def test_zygote(self, own):
        made = own()
        assert_recovers(made)
        zygotes = zygotes_of(made)
        assert zygotes
        seen = strike(made, lambda: zygotes)
        assert set(seen) <= DEFINED | {"exited", "signalled"}, seen
        assert_recovers(made)
        assert host.wait_for(lambda: len(zygotes_of(made)) >= len(zygotes))

    def test_nursery(self, own):
        made = own()
        assert_recovers(made)
        seen = strike(made, lambda: nursery_of(made)[:1])
        assert set(seen) <= DEFINED | {"exited", "signalled"}, seen
        assert_recovers(made)

    def test_an_agent_takes_only_its_own_run(self, own):
        made = own()
        assert_recovers(made)
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(answer_of, made) for _ in range(3)]
            made.wait_for_load(3)
            os.kill(host.wait_for(lambda: busy_guest_of(made)), signal.SIGKILL)
            seen = [run.result() for run in runs]
        assert seen.count("exited") >= 2, seen
        assert set(seen) <= DEFINED | {"exited"}, seen
        assert_recovers(made)

    def test_supervisor(self, own):
        made = own()
        assert_recovers(made)
        roots, pids = set(made.note_cgroups()), made.pids()
        os.kill(made.process.pid, signal.SIGKILL)
        made.process.wait(60)
        assert host.wait_for(lambda: not [pid for pid in pids if host.alive(pid)]), [
            host.cmdline(p) for p in pids if host.alive(p)
        ]
        made.start()  # cleans up after its predecessor
        assert_recovers(made)
        made.stop()
        assert not [root for root in roots if os.path.exists(root)]

    def test_all_at_once_again_and_again(self, own):
        made = own()
        for name in ("warden", "gateway", "warden", "gateway"):
            pid = host.wait_for(lambda role=name: made.role(role))
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        assert_recovers(made)

    def test_warden_while_clients_flood(self, own):
        made = own()
        stop, seen = threading.Event(), []

        def client():
            while not stop.is_set():
                seen.append(answer_of(made, "print('up'); print('end')"))

        clients = [threading.Thread(target=client) for _ in range(6)]
        for each in clients:
            each.start()
        for _ in range(2):
            time.sleep(1)
            os.kill(host.wait_for(lambda: made.role("warden")), signal.SIGKILL)
        before = seen.count("exited")
        assert host.wait_for(lambda: seen.count("exited") > before + 3), seen
        stop.set()
        for each in clients:
            each.join(60)
        assert set(seen) <= DEFINED | {"exited", "signalled"}, set(map(str, seen))
        assert_recovers(made)

    def test_nothing_is_left_after_all_that(self, own):
        made = own()
        assert_recovers(made)
        for _ in range(3):
            os.kill(made.role("warden"), signal.SIGKILL)
            assert_recovers(made)
        host.wait_for(lambda: False, 1)
        namespaces = len(host.network_namespaces(made.pids()))
        slots = len(host.slot_cgroups(made.note_cgroups()))
        os.kill(made.role("warden"), signal.SIGKILL)
        assert_recovers(made)
        assert host.wait_for(lambda: len(host.network_namespaces(made.pids())) <= namespaces * 2 + 4)
        assert host.wait_for(lambda: len(host.slot_cgroups(made.note_cgroups())) <= slots * 2 + 8 * len(made.roots))
        roots = set(made.roots)
        made.stop()
        assert not [root for root in roots if os.path.exists(root)]


class TestShortage:
    @pytest.mark.root
    def test_full_disk_of_the_state_folder(self, tmp_path):
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "cordon-test", state], check=True)
        try:
            with Daemon(state=str(state)) as made:
                assert made.run("print(1)")["stdout"] == "1\n"
                try:
                    with open(state / "filler", "wb", 0) as filler:
                        while True:
                            filler.write(b"x" * 4096)
                except OSError:
                    pass
                assert made.run("print(2)")["stdout"] == "2\n"
                failed = cli("key", "create", "--state", state)
                assert failed.status == 125 or failed.status == 0
                if failed.status:
                    assert failed.errors.strip()
                (state / "filler").unlink()
                assert cli("key", "create", "--state", state).status == 0
                assert made.run("print(3)")["stdout"] == "3\n"
        finally:
            subprocess.run(["umount", state], check=True)

    def test_few_descriptors(self, own):
        made = own(nofile=256, ready=False)
        if made.wait_ready():
            with ThreadPoolExecutor(40) as pool:
                seen = list(pool.map(lambda _: answer_of(made, "print('up'); print('end')"), range(200)))
            assert set(seen) <= DEFINED | {"exited", "connection"}, set(map(str, seen))
            assert_recovers(made)
        else:
            assert (
                made.process.poll() not in (None, 0)
                and "descriptor" in made.log().lower()
                or "files" in made.log().lower()
                or "NOFILE" in made.log()
            )

    @pytest.mark.root
    def test_few_processes_for_all_of_it(self, tmp_path):
        """The daemon is put into a pids group that is soon full; "
        "runs are refused, and work again when there is room."""
        base = "/sys/fs/cgroup/pids" if os.path.isdir("/sys/fs/cgroup/pids") else "/sys/fs/cgroup"
        group = f"{base}/cordon-test-outer-{os.getpid()}"
        try:
            os.mkdir(group)
            open(f"{group}/pids.max", "w").close()
        except OSError as err:
            pytest.skip(f"no pids group of our own can be made here: {err}")
        script = tmp_path / "inside"
        script.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nexec "$@"\n')
        script.chmod(0o755)
        made = None
        try:
            made = Daemon(prefix=[str(script)])
            assert made.run("print(1)")["stdout"] == "1\n"
            with open(f"{group}/pids.max", "w", encoding="ascii") as file:
                file.write(open(f"{group}/pids.current", encoding="ascii").read().strip())
            with ThreadPoolExecutor(12) as pool:
                seen = list(pool.map(lambda _: answer_of(made, "print('up'); print('end')"), range(60)))
            assert all(one in DEFINED | {"exited"} or str(one).startswith("connection") for one in seen), set(
                map(str, seen)
            )
            with open(f"{group}/pids.max", "w", encoding="ascii") as file:
                file.write("max")
            assert_recovers(made)
        finally:
            if made:
                made.close()
            host.wait_for(lambda: not host.read(f"{group}/cgroup.procs").strip())
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)

    def test_memory_of_all_guests_is_theirs(self, own):
        made = own(max_runs=4)
        with ThreadPoolExecutor(4) as pool:
            code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
            seen = list(pool.map(lambda _: answer_of(made, code, memory_mb=64), range(16)))
        assert set(seen) == {"memory"}, seen
        assert_recovers(made)

    def test_temporary_folder_is_not_needed(self, own):
        made = own(env={"TMPDIR": "/nonexistent"})
        assert made.run("print(1)")["stdout"] == "1\n"


class TestRepetition:
    def test_the_second_run_is_like_the_first(self, run):
        first, second = run("print(1)"), run("print(1)")
        assert first["stdout"] == second["stdout"] and first["outcome"]["cause"] == second["outcome"]["cause"]

    def test_three_hundred_in_a_row_leave_the_same_descriptors(self, own):
        made = own(pool_max=8)

        def counts():
            return {role: len(host.descriptors(made.role(role))) for role in ("warden", "gateway")}

        for _ in range(100):  # until the pool has found its size
            made.run("print(1)")
        time.sleep(1)
        before = counts()
        for _ in range(300):
            made.run("print(1)")
        time.sleep(1)
        after = counts()
        assert all(after[role] <= before[role] * 1.5 + 20 for role in before), (before, after)

    def test_command_line_runs_leave_nothing(self, tmp_path):
        for _ in range(5):
            assert cli("run", "-c", "print(1)", CORDON_STATE=str(tmp_path / "s")).text == "1\n"
        assert host.wait_for(
            lambda: not [p for p in host.descendants(os.getpid()) if f"{tmp_path}" in host.read(f"/proc/{p}/environ")],
        )

    def test_killed_command_line_leaves_nothing(self, tmp_path):
        process = subprocess.Popen(
            [BIN, "run", "-t", "200", "-c", "import time; print(1, flush=True); time.sleep(200)"],
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "CORDON_STATE": str(tmp_path / "s")},
        )
        assert process.stdout.readline() == b"1\n"
        children = host.descendants(process.pid)
        roots = host.cgroup_roots(children)
        process.kill()
        process.wait()
        process.stdout.close()
        assert host.wait_for(lambda: not [pid for pid in children if host.alive(pid)])
        # what a killed run could not remove itself, the next one does
        assert cli("run", "-c", "print(1)", CORDON_STATE=str(tmp_path / "s")).status == 0
        assert host.wait_for(lambda: not [root for root in roots if os.path.exists(root)]), roots
