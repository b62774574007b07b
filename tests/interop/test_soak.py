# SPDX-License-Identifier: Apache-2.0
"""The PyPI clients of E2B, unmodified, for a while, as agents, the warden and the gateway are killed: no wrong answer, nothing
left, and memory stays flat."""

import json
import os
import random
import signal
import subprocess
import time

import clients
import pytest
from lib import host
from lib.daemon import Daemon

SOAK = os.path.join(clients.HERE, "python", "soak.py")
SLACK_KB = 16384


def agents(daemon):
    """Process 1 of each guest."""
    return [pid for pid in daemon.pids() if host.comm(pid) == "cordon-agent" and host.read(f"/proc/{pid}/status").count("\t1\n")]


def kill_one(daemon):
    what = random.choice(["agent", "agent", "agent", "gateway", "warden"])
    pids = agents(daemon) if what == "agent" else [daemon.role(what)]
    if pids and pids[0]:
        try:
            os.kill(random.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return None
        return what
    return None


def settled_kb(daemon, role):
    """What it uses once it answers."""
    assert daemon.wait_ready(60)
    return host.status_kb(daemon.role(role), "RssAnon")


@pytest.mark.limit(1200)
@pytest.mark.parametrize("seconds", [pytest.param(600, marks=[pytest.mark.long, pytest.mark.limit(1200)]), 15])
def test_killed_parts_cost_no_wrong_answer(nothing_left, seconds):
    program = clients.python("e2b")
    with Daemon(createos_min_isolation="namespace", guest_memory_mb=256) as daemon:
        supervisor_kb = settled_kb(daemon, "warden")
        done = subprocess.Popen([program, "-I", SOAK, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clients.sdk_env(daemon))
        killed, end = [], time.monotonic() + seconds - 3
        while (time.monotonic() < end or not any(killed)) and done.poll() is None:
            time.sleep(random.uniform(0.5, 3))
            killed.append(kill_one(daemon))
            host.reap(but=(daemon.process.pid, done.pid))
        out, errors = done.communicate(timeout=300)
        assert done.returncode == 0, errors[-3000:]
        told = json.loads(out.splitlines()[-1])
        assert not told["wrong"], (len(told["wrong"]), sorted({text.splitlines()[-1] for text in told["wrong"]}), told["wrong"][0])
        assert told["right"] > 10 and any(killed), (told, killed)
        for guest in daemon.get("/sandboxes").json():  # those whose client was cut off
            assert daemon.request("DELETE", f"/sandboxes/{guest['sandboxID']}").status in (204, 404)
        assert daemon.run("print(6 * 7)")["stdout"] == "42\n"
        assert settled_kb(daemon, "warden") < supervisor_kb + SLACK_KB and settled_kb(daemon, "gateway") < 200 << 10
        print(told["right"], "right,", told["refused"], "refused", told.get("kinds"), "killed:", killed)
        daemon.note_cgroups()
