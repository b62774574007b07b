# SPDX-License-Identifier: Apache-2.0
"""Doctor and quotas over the API."""

import concurrent.futures
import os
import signal

import pytest
from lib import host
from lib.admin import Session
from lib.client import Client
from lib.daemon import Daemon, cli
from lib.guest import Guest


@pytest.fixture
def daemon(nothing_left):
    with Daemon(pool_python=1, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1) as running:
        running.admin = Client(running.port, running.create_key("--scope", "admin"))
        yield running


def doctor(daemon):
    answer = daemon.admin.request("GET", "/v1/admin/doctor")
    assert answer.status == 200, answer
    return answer.json()


def test_doctor_tells_what_the_command_tells(daemon):
    told = doctor(daemon)
    done = cli("doctor", "--json", CORDON_STATE=daemon.state)
    mine = done.json()
    rows = [[(row["name"], row["weight"], row["ok"]) for row in found["probes"]] for found in (told, mine)]
    assert rows[0] == rows[1] and len(rows[0]) > 15
    assert told["ok"] is mine["ok"] and told["daemon"]["ready"] is True and "reason" not in told
    assert set(told["probes"][0]) == {"ok", "name", "weight", "found", "fix"}
    assert not [pid for pid in daemon.pids() if "doctor" in host.cmdline(pid)]


def test_doctor_uses_the_daemons_settings(nothing_left):
    with Daemon(node="/nonexistent/node") as daemon:
        daemon.admin = Client(daemon.port, daemon.create_key("--scope", "admin"))
        rows = {row["name"]: row for row in doctor(daemon)["probes"]}
        assert not rows["node"]["ok"] and "/nonexistent/node" in rows["node"]["found"]


def kill_doctor(daemon):
    """The supervisor's child that looks at the host, from its first moment on."""
    supervisor = daemon.process.pid
    for pid in host.read(f"/proc/{supervisor}/task/{supervisor}/children").split():
        if "doctor" in host.cmdline(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
            return True
    return False


def look_killed(daemon):
    """What is told when the process that looks is killed; None: it was too fast for us."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(doctor, daemon)
        killed = False
        while not killed and not asked.done():
            killed = kill_doctor(daemon)
        return asked.result() if killed else None


def test_a_host_that_can_not_be_looked_at_is_told_as_such(daemon):
    """Nothing is made up, and who asks next is answered."""
    told = host.wait_for(lambda: look_killed(daemon), 60)
    assert told["probes"] is told["ok"] is None and told["daemon"]["ready"] is True, told
    assert "could not look at the host" in told["reason"]
    assert doctor(daemon)["probes"]


def test_doctor_is_for_operators(daemon):
    assert Client(daemon.port, daemon.create_key("--scope", "view")).request("GET", "/v1/admin/doctor").status == 200
    assert daemon.request("GET", "/v1/admin/doctor").status == 403
    assert daemon.request("GET", "/v1/admin/quotas").status == 403


def quotas(daemon):
    found = daemon.admin.request("GET", "/v1/admin/quotas").json()
    return found["limits"], {row["id"]: row for row in found["keys"]}


def test_quotas_tell_what_each_key_may_and_has(daemon):
    limits, keys = quotas(daemon)
    assert limits == {"runs": None, "guests": None, "memory_mb": None, "rate_per_minute": None}
    assert len(keys) == 2 and all((row["runs"], row["guests"], row["memory_mb"], row["rate_left"]) == (0, 0, 0, None)
                                  for row in keys.values())
    values = {"CORDON_KEY_RUNS": 3, "CORDON_KEY_GUESTS": 2, "CORDON_KEY_MEMORY_MB": 1000, "CORDON_KEY_RATE": 60}
    assert daemon.admin.request("PUT", "/v1/admin/settings", {"values": values}).status == 200
    with Guest(daemon, memory_mb=200) as guest:
        events = daemon.stream("import time\nprint('on', flush=True)\ntime.sleep(60)", memory_mb=100)
        assert any(event["type"] == "stdout" for _, event in events)
        for _ in range(20):  # one comes back each second, and a busy host lets some pass
            guest.show()
        limits, keys = quotas(daemon)
        assert limits == {"runs": 3, "guests": 2, "memory_mb": 1000, "rate_per_minute": 60}
        mine = keys[guest.show()["key"]]
        assert (mine["name"], mine["scope"], mine["runs"], mine["guests"], mine["memory_mb"]) == ("unnamed", "run", 1, 1, 300), mine
        assert 30 <= mine["rate_left"] <= 59
        assert sum(row["runs"] for row in keys.values()) == 1
        events.close()
    assert host.wait_for(lambda: all(row["runs"] == row["guests"] == row["memory_mb"] == 0 for row in quotas(daemon)[1].values()))


def test_quotas_leave_out_keys_that_were_revoked(daemon):
    made = daemon.admin.request("POST", "/v1/admin/keys", {"name": "gone"}).json()
    assert made["id"] in quotas(daemon)[1]
    assert daemon.admin.request("DELETE", f"/v1/admin/keys/{made['id']}").status == 200
    assert made["id"] not in quotas(daemon)[1]


def test_who_only_looks_resumes_nothing(daemon):
    guest = daemon.admin.request("POST", "/v1/guests", {"auto_resume": True}).json()
    path = f"/v1/guests/{guest['id']}"
    try:
        assert daemon.admin.request("PUT", path + "/files?path=kept", b"mine").status in (200, 201)
        assert daemon.admin.request("POST", path + "/pause", {}).status == 200
        viewer = Session(daemon, key=daemon.create_key("--scope", "view"))
        for rest in ("/files?path=kept", "/entries?path=."):
            answer = viewer.request("GET", path + rest)
            assert answer.status == 409 and answer.error()[0] == "paused", answer
        assert viewer.request("GET", path).json()["state"] == "paused"
        admin = Session(daemon, key=daemon.create_key("--scope", "admin"))
        assert admin.request("GET", path + "/files?path=kept").body == b"mine"
        assert viewer.request("GET", path).json()["state"] == "running"
        active = viewer.request("GET", path).json()["active_at"]
        for rest in ("/files?path=kept", "/entries?path=."):
            assert viewer.request("GET", path + rest).status == 200
        assert viewer.request("GET", path).json()["active_at"] == active, "who only looks keeps no guest awake"
        assert admin.request("GET", path + "/files?path=kept").body == b"mine"
        assert viewer.request("GET", path).json()["active_at"] > active
    finally:
        assert daemon.admin.request("DELETE", path).status in (200, 204)


def test_the_page_may_ask_for_both(daemon):
    session = Session(daemon, key=daemon.create_key("--scope", "view"))
    assert session.request("GET", "/v1/admin/quotas").status == 200
    assert session.request("GET", "/v1/admin/doctor").json()["daemon"]["version"]
