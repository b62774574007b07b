# SPDX-License-Identifier: Apache-2.0
"""The store of settings when things go wrong: a killed gateway, a full disk, many at once."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import sqlite3

import pytest
from lib import disk, host
from lib.client import Client
from lib.daemon import Daemon

SMALL = {"pool_javascript": 0, "pool_bash": 0, "pool_python_data": 0}
# Changed together, always to the same number.
NAMES = tuple("CORDON_" + name for name in ("PIDS", "OPEN_FILES", "STDOUT_KB", "STDERR_KB", "OUTPUT_KILL_MB", "GUEST_PIDS", "KEY_RUNS",
                                            "KEY_GUESTS", "KEY_RATE"))


def admin_daemon(**settings):
    running = Daemon(**SMALL, **settings)
    running.key = running.create_key("--scope", "admin")
    return running


def put(client, number, timeout=60):
    return client.request("PUT", "/v1/admin/settings", {"values": dict.fromkeys(NAMES, number)}, timeout=timeout)


def values(client):
    rows = client.request("GET", "/v1/admin/settings").json()["settings"]
    return [int(row["value"]) for row in rows if row["name"] in NAMES]


def stored(daemon):
    with contextlib.closing(sqlite3.connect(f"file:{daemon.state}/cordon.db?mode=ro", uri=True)) as db:
        return [int(value) for (value,) in db.execute("SELECT value FROM settings WHERE name IN (SELECT value FROM json_each(?))", (json.dumps(NAMES),))]


def save_until_killed(daemon, gateway, done):
    """Saves one after the other, in the midst of which the gateway is killed. The last number that was answered."""
    first = done

    def kill():
        assert host.wait_for(lambda: done >= first + 3)
        os.kill(gateway, signal.SIGKILL)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        killed = pool.submit(kill)
        try:
            while not killed.done():
                assert put(daemon, 100 + done + 1).status == 200
                done += 1
        except (OSError, http.client.HTTPException):
            pass  # it is dead
        killed.result()
    return done


def test_a_change_is_whole_or_not_there_when_the_gateway_is_killed(nothing_left):
    with admin_daemon() as daemon:
        done = 0
        for _ in range(4):
            gateway = daemon.role("gateway")
            done = save_until_killed(daemon, gateway, done)
            assert host.wait_for(lambda before=gateway: daemon.role("gateway") not in (None, before)) and daemon.wait_ready(60)
            now = values(daemon)
            assert len(set(now)) == 1 and len(now) == len(NAMES) and now == stored(daemon), (now, stored(daemon))
            assert now[0] in (100 + done, 100 + done + 1), "what was answered is lost"
            done = now[0] - 100
            entries = daemon.request("GET", f"/v1/admin/audit?limit={len(NAMES)}").json()["entries"]
            assert {entry["after"] for entry in entries} == {str(now[0])}


def test_what_is_applied_last_is_what_is_stored(nothing_left):
    with admin_daemon() as daemon:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda number: put(Client(daemon.port, daemon.key), number).status, range(100, 148)))
        assert statuses == [200] * 48
        now = values(daemon)
        assert len(set(now)) == 1 and now == stored(daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_is_told_and_changes_nothing(nothing_left):
    with disk.small() as state, admin_daemon(state=state, history=0) as daemon:
        assert put(daemon, 100).status == 200
        ballast = disk.fill(state)
        # What SQLite's files have room for is still taken: more than that is not.
        answers = [daemon.request("PUT", "/v1/admin/settings", {"values": {"CORDON_ALLOWED_DOMAINS": f"{'a' * 60}.n{i}.example.com," * 300}})
                   for i in range(60)]
        refused = next(answer for answer in answers if answer.status != 200)
        assert refused.status == 500 and refused.error()[0] == "infrastructure", refused
        assert "full" in refused.error()[1] and "free space" in refused.error()[1], refused
        assert put(daemon, 101).status == 500 and values(daemon) == stored(daemon) == [100] * len(NAMES)
        assert daemon.run(language="python", code="print('still')")["stdout"] == "still\n"
        os.unlink(ballast)
        assert put(daemon, 102).status == 200 and values(daemon) == stored(daemon) == [102] * len(NAMES)
