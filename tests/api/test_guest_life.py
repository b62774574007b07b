# SPDX-License-Identifier: Apache-2.0
"""Kept guests through a whole daemon: parts of it are killed at any time, and nobody is told anything untrue."""

import os
import random
import signal
import threading
import time

import pytest
from lib import host
from lib.pace import stretched

pytestmark = pytest.mark.each_backend

POOLS = dict(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1)


@pytest.fixture
def daemon(host_backend):
    with host_backend.daemon(**POOLS) as own:
        yield own


def create(daemon, **fields):
    answer = daemon.request("POST", "/v1/guests", fields)
    assert answer.status == 201, answer
    return answer.json()["id"]


def execute(daemon, guest, *argv, **fields):
    return daemon.request("POST", f"/v1/guests/{guest}/exec", dict({"command": list(argv)}, **fields))


def output(daemon, guest, script):
    answer = execute(daemon, guest, "sh", "-c", script)
    assert answer.status == 200, answer
    return answer.json()["stdout"]


def state(daemon, guest):
    answer = daemon.get(f"/v1/guests/{guest}")
    assert answer.status == 200, answer
    return answer.json()


def kill_role(daemon, name):
    before = daemon.role(name)
    os.kill(before, signal.SIGKILL)
    assert host.wait_for(lambda: daemon.role(name) not in (None, before)) and daemon.wait_ready()


def found_again(daemon, guest):
    """A gateway that was just started may still be looking for its guests, and says so to whoever wants one meanwhile."""
    return host.wait_for(lambda: daemon.get(f"/v1/guests/{guest}/exec").status != 503)


def test_a_new_gateway_finds_its_guests_again(daemon):
    guest, paused = create(daemon, name="stays"), create(daemon)
    assert output(daemon, guest, "echo mine > kept; sleep 1000 >/dev/null 2>&1 & echo $!").strip().isdigit()
    assert daemon.request("POST", f"/v1/guests/{paused}/pause", {}).status == 200
    kill_role(daemon, "gateway")
    assert found_again(daemon, guest) and found_again(daemon, paused)
    assert state(daemon, guest)["state"] == "running" and state(daemon, paused)["state"] == "paused"
    assert output(daemon, guest, "cat kept; pgrep -c sleep") == "mine\n1\n"
    assert execute(daemon, paused, "true").status == 409
    assert daemon.request("POST", f"/v1/guests/{paused}/resume", {}).status == 200
    assert output(daemon, paused, "echo again") == "again\n"


def test_what_went_with_its_warden_is_told(daemon):
    guest = create(daemon)
    kill_role(daemon, "warden")
    gone = host.wait_for(lambda: state(daemon, guest)["state"] == "gone" and state(daemon, guest))
    assert gone and gone["cause"] == "died" and "its agent or its warden was killed" in gone["reason"]
    assert execute(daemon, guest, "true").status == 410
    assert output(daemon, create(daemon), "echo new") == "new\n"


def test_a_stopped_daemon_tells_what_it_had(daemon):
    guest = create(daemon)
    daemon.restart()
    gone = state(daemon, guest)
    assert gone["state"] == "gone" and gone["cause"] == "daemon"
    assert daemon.request("DELETE", f"/v1/guests/{guest}").status in (200, 204)


def test_another_key_sees_nothing(daemon):
    guest = create(daemon, name="secret")
    mine, daemon.key = daemon.key, daemon.create_key()
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/metrics"),
        ("GET", "/files?path=/etc/passwd"),
        ("GET", "/exec"),
    ]:
        answer = daemon.request(method, f"/v1/guests/{guest}{path}", {} if method == "POST" else None)
        assert answer.status == 404, (method, path, answer)
    assert execute(daemon, guest, "true").status == 404
    assert daemon.get("/v1/guests").json()["guests"] == []
    assert create(daemon, name="secret") != guest
    daemon.key = mine
    assert state(daemon, guest)["state"] == "running"


def work(daemon, until, right, wrong):
    """One client: whatever is answered, it must be what was asked or a clear refusal."""
    number = threading.get_ident() + random.randrange(1 << 30)
    while time.monotonic() < until:
        try:
            answer = daemon.request("POST", "/v1/guests", {"memory_mb": 64}, timeout=stretched(30))
            if answer.status != 201:
                assert answer.status in (410, 429, 503), answer
                continue
            guest = answer.json()["id"]
            for i in range(3):
                done = execute(daemon, guest, "sh", "-c", f"echo {number} >> f; tail -n 1 f; wc -l < f")
                if done.status != 200:
                    assert done.status in (404, 410, 500, 503), done
                    break
                outcome = done.json()
                if outcome["outcome"]["cause"] == "exited" and outcome["stdout"] != f"{number}\n{i + 1}\n":
                    wrong.append(outcome)
                right.append(guest)
            daemon.request("DELETE", f"/v1/guests/{guest}", timeout=stretched(30))
        except OSError:
            time.sleep(0.05)  # the gateway was killed just now
        except AssertionError as error:
            wrong.append(error)


@pytest.mark.parametrize("seconds", [pytest.param(600, marks=[pytest.mark.long, pytest.mark.limit(900)]), 12])
def test_soak(daemon, seconds):
    right, wrong, until = [], [], time.monotonic() + stretched(seconds)
    clients = [threading.Thread(target=work, args=(daemon, until, right, wrong)) for _ in range(4)]
    for client in clients:
        client.start()
    while time.monotonic() < until - stretched(3):
        time.sleep(stretched(2.5))
        role = random.choice(["gateway", "warden", "gateway"])
        pid = daemon.role(role)
        if pid:
            os.kill(pid, signal.SIGKILL)
    for client in clients:
        client.join()
    assert right and not wrong, (len(right), wrong[:3])
    assert daemon.wait_ready()
    left = daemon.get("/v1/guests").json()["guests"]
    for guest in left:  # those whose client was cut off
        assert daemon.request("DELETE", f"/v1/guests/{guest['id']}").status in (200, 204)
    assert output(daemon, create(daemon), "echo well") == "well\n"
