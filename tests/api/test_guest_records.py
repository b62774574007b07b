# SPDX-License-Identifier: Apache-2.0
"""What is kept of guests: bounded for those that are gone, and never older than what was answered."""

import contextlib
import json
import os
import signal
import sqlite3

import pytest
from lib import disk, host
from lib.daemon import Daemon

POOLS = dict(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1)


def create(daemon, **fields):
    answer = daemon.request("POST", "/v1/guests", fields)
    assert answer.status == 201, answer
    return answer.json()["id"]


def listed(daemon, state):
    return [guest["id"] for guest in daemon.get(f"/v1/guests?state={state}&limit=100").json()["guests"]]


def records(state):
    with contextlib.closing(sqlite3.connect(f"file:{state}/cordon.db?mode=ro", uri=True, timeout=30)) as db:
        return {guest: json.loads(record) for guest, record in db.execute("SELECT id, record FROM guests WHERE id != 'node'")}


def test_the_first_that_ended_is_forgotten_first(nothing_left):
    with Daemon(key_tombstones=3, **POOLS) as daemon:
        lives, ended = create(daemon), []
        for i in range(5):
            ended.append(create(daemon, metadata={"number": str(i), "filler": "x" * 8000}))
            assert daemon.request("DELETE", f"/v1/guests/{ended[-1]}").status in (200, 204)
        assert host.wait_for(lambda: set(records(daemon.state)) == {lives, *ended[2:]}, 20)
        assert set(listed(daemon, "gone")) == set(ended[2:]) and listed(daemon, "running") == [lives]
        assert daemon.get(f"/v1/guests/{ended[0]}").status == 404
        assert daemon.get(f"/v1/guests/{ended[4]}").json()["cause"] == "destroyed"


def test_of_one_that_is_gone_no_rules_are_kept(nothing_left):
    with Daemon(allow_network=True, **POOLS) as daemon:
        guest = create(daemon, network=True, allowed_domains=["kept.example.com"])
        assert records(daemon.state)[guest]["domains"] == ["kept.example.com"]
        assert daemon.request("DELETE", f"/v1/guests/{guest}").status in (200, 204)
        assert "domains" not in records(daemon.state)[guest]
        assert daemon.get(f"/v1/guests/{guest}").json()["allowed_domains"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_rules_that_can_not_be_stored_are_in_force_told_and_stored_later(nothing_left):
    with disk.small() as state, Daemon(state=state, allow_network=True, history=0, **POOLS) as daemon:
        guest = create(daemon, network=True, allowed_domains=["open.example.com"])
        path = f"/v1/guests/{guest}/egress"
        ballast = disk.fill(state)
        # What SQLite's files have room for is still taken.
        for i in range(200):
            wide = {"network": True, "allowed_domains": [f"{'a' * 60}.{'b' * 60}.n{i}-{j}.example.com" for j in range(60)]}
            answer = daemon.request("PUT", path, wide)
            if answer.status != 200:
                break
        assert answer.status == 500 and "could not be stored" in answer.error()[1], answer
        answer = daemon.request("PUT", path, {"network": False})
        assert answer.status == 500 and "is in force as asked" in answer.error()[1], answer
        assert daemon.get(path).json()["network"] is False
        refused = daemon.request("POST", "/v1/guests", {"metadata": {"filler": "x" * 8000}})
        assert refused.status == 500, refused
        assert listed(daemon, "running") == [guest]
        os.unlink(ballast)
        assert host.wait_for(lambda: records(state)[guest]["network"] == 0, 30)
        os.kill(daemon.role("gateway"), signal.SIGKILL)
        assert daemon.wait_ready()
        assert host.wait_for(lambda: daemon.get(path).status == 200, 20)
        assert daemon.get(path).json()["network"] is False
