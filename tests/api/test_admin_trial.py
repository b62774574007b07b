# SPDX-License-Identifier: Apache-2.0
"""Test connection as a stream of lines: told while it happens, cancelled when its client leaves, with settings that count for
nobody else."""

import contextlib
import json
import os
import re
import threading

import pytest
from lib import host
from lib.client import NDJSON
from lib.daemon import Daemon
from lib.pace import stretched
from lib.protocols import Server

TEST, RAGFLOW = "/v1/admin/test", "/api/v1/admin/sandbox/test"


class HeldManager(Server):
    """An executor manager that is healthy, and answers a run only when it may."""

    def __init__(self):
        super().__init__()
        self.asked, self.go, self.stdout = threading.Event(), threading.Event(), "TEST_PASSED\n"
        self.telltale = False

    def handle(self, request, body):
        if request.command == "GET":
            return 200, "application/json", b'{"status": "healthy"}'
        if self.telltale:
            return 403, "text/plain", str(request.headers).encode()
        self.asked.set()
        assert self.go.wait(stretched(60))
        answer = {"status": "success", "stdout": self.stdout, "stderr": "a word of it\n", "exit_code": 0, "time_used_ms": 1,
                  "memory_used_kb": 1, "artifacts": [], "detail": None}
        return 200, "application/json", json.dumps(answer).encode()


@pytest.fixture(scope="module")
def daemon(nothing_left):
    with Daemon(pool_javascript=0, pool_bash=0) as running:
        running.key = running.create_key("--scope", "admin")
        yield running


@pytest.fixture
def manager():
    with HeldManager() as running:
        yield running
        running.go.set()


@contextlib.contextmanager
def streamed(daemon, body, path=TEST):
    """The events as they come; None is never one of them."""
    connection = daemon.connection()
    try:
        connection.request("POST", path, json.dumps(body), daemon.headers({"Accept": NDJSON}))
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"] == NDJSON, answer.read()
        yield map(json.loads, iter(answer.readline, b""))
    finally:
        connection.close()


def whole(daemon, body, path=TEST):
    with streamed(daemon, body, path) as events:
        return list(events)


def elsewhere(manager):
    return {"backend": "self_managed", "values": {"CORDON_SELF_MANAGED_ENDPOINT": manager.url}}


def running(daemon):
    found = daemon.get("/readyz").json()
    return found["running"] + found["waiting"]


def cancelled(daemon):
    """How many runs ended because their clients left, before they had an outcome."""
    return int(re.search(r'^cordon_errors_total\{kind="cancelled"\} (\d+)', daemon.get("/metrics").body.decode(), re.M).group(1))


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def test_all_of_it_in_order(daemon):
    events = whole(daemon, {"backend": "local", "values": {"CORDON_MEMORY_MB": 200}})
    types = [event["type"] for event in events]
    assert types[:3] == ["probing", "connected", "started"] and types[-1] == "outcome"
    assert set(types[3:-1]) == {"stdout"}
    told = "".join(event.get("data", "") for event in events[3:-1])
    assert "2 + 2 = 4" in told and told == events[-1]["stdout"]
    last = daemon.request("POST", TEST, {"backend": "local"}).json()
    assert events[-1]["passed"] and set(last) | {"type"} == set(events[-1])
    settings = {row["name"]: row for row in daemon.request("GET", "/v1/admin/settings").json()["settings"]}
    assert settings["CORDON_MEMORY_MB"]["value"] == "256"


def test_it_is_told_while_it_happens(daemon, manager):
    with streamed(daemon, elsewhere(manager)) as events:
        assert [next(events)["type"], next(events)["type"]] == ["probing", "connected"]
        assert manager.asked.wait(stretched(30)) and not manager.go.is_set()
        manager.go.set()
        rest = list(events)
    assert [event["type"] for event in rest] == ["started", "stdout", "stderr", "outcome"]
    assert rest[1]["data"] == "TEST_PASSED\n" and rest[2]["data"] == "a word of it\n" and rest[-1]["passed"]


def test_who_leaves_cancels_it(daemon, manager):
    before = cancelled(daemon)
    with streamed(daemon, elsewhere(manager)) as events:
        assert next(events)["type"] == "probing"
        assert manager.asked.wait(stretched(30))
        assert running(daemon) == 1
    assert host.wait_for(lambda: running(daemon) == 0), "it still runs"
    assert not manager.go.is_set() and host.wait_for(lambda: cancelled(daemon) == before + 1)
    assert whole(daemon, {"backend": "local"})[-1]["passed"]


def test_what_is_tried_counts_for_nobody_else(daemon, manager):
    """Also while a test with other settings runs in the same process."""
    with streamed(daemon, elsewhere(manager)) as events:
        assert next(events)["type"] == "probing"
        assert manager.asked.wait(stretched(30))
        settings = {row["name"]: row for row in daemon.request("GET", "/v1/admin/settings").json()["settings"]}
        assert settings["CORDON_SELF_MANAGED_ENDPOINT"]["source"] == "default"
        strict = whole(daemon, {"backend": "local", "values": {"CORDON_MIN_ISOLATION": "hardware-virtualized"}})
        assert [event["type"] for event in strict] == ["probing", "outcome"] and strict[-1]["cause"] == "refused"
        assert daemon.run("print('seen')")["stdout"] == "seen\n"
        manager.go.set()
        assert list(events)[-1]["passed"]


def test_what_fails_says_so_in_its_outcome(daemon, manager):
    """Also right after one elsewhere that was reached: that was found with other settings."""
    manager.go.set()
    assert whole(daemon, elsewhere(manager))[-1]["passed"]
    gone = whole(daemon, {"backend": "self_managed", "values": {"CORDON_SELF_MANAGED_ENDPOINT": "http://127.0.0.1:9"}})
    assert [event["type"] for event in gone] == ["probing", "outcome"]
    assert not gone[-1]["passed"] and gone[-1]["message"].startswith("Test FAILED | ") and gone[-1]["cause"] == "unavailable"


def test_a_form_that_is_none_is_an_error_and_no_stream(daemon):
    for body in ({"backend": "local", "values": {"CORDON_PIDS": 0}}, {"backend": "local", "values": 5}, {"backend": 5}):
        answer = daemon.request("POST", TEST, body, {"Accept": NDJSON})
        assert answer.status == 400 and answer.error()[0] == "invalid_request", answer


def test_secrets_are_not_told(daemon, manager):
    """Though the other side says them back."""
    body = elsewhere(manager)
    body["values"]["CORDON_SELF_MANAGED_TOKEN"] = "hush-streamed-66051"
    manager.telltale = True
    told = json.dumps(whole(daemon, body))
    assert any("hush-streamed-66051" in str(headers) for _, _, headers, _ in manager.requests)
    assert "FAILED" in told and "hush-streamed-66051" not in told


def test_a_flood_is_cut(daemon, manager):
    manager.stdout = "TEST_PASSED\n" + "\x01" * 400000
    manager.go.set()
    events = whole(daemon, elsewhere(manager))
    told = sum(len(event.get("data", "")) for event in events if event["type"] in ("stdout", "stderr"))
    assert told == 65536 and events[-1]["type"] == "outcome" and events[-1]["passed"], events[-1]["message"][:300]


def test_ragflows_route_tells_the_same_and_answers_as_ever(daemon, manager):
    form = {"provider_type": "self_managed", "config": {"endpoint": manager.url}}
    manager.go.set()
    types = [event["type"] for event in whole(daemon, form, RAGFLOW)]
    assert types == ["probing", "connected", "started", "stdout", "stderr", "outcome"]
    for accept in (None, "application/json", "*/*"):
        answer = daemon.request("POST", RAGFLOW, form, {"Accept": accept})
        body = answer.json()
        assert answer.headers["Content-Type"] == "application/json" and list(body) == ["code", "message", "data"]
        assert body["data"]["success"] and list(body["data"]["details"]) == ["exit_code", "execution_time", "stdout", "stderr"]


def test_many_at_once_and_none_is_left(daemon, manager):
    assert whole(daemon, {"backend": "local"})[-1]["passed"]
    threads = threads_of(daemon.role("gateway"))
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(streamed(daemon, elsewhere(manager))) for _ in range(6)]
        assert [next(events)["type"] for events in begun] == ["probing"] * 6
    manager.go.set()
    assert host.wait_for(lambda: running(daemon) == 0 and threads_of(daemon.role("gateway")) <= threads)


def test_a_stored_secret_stays_where_it_was_stored_for(daemon, manager):
    """Who may try settings is not told secrets: a form with another address brings its own."""
    manager.go.set()
    change = lambda values: daemon.request("PUT", "/v1/admin/settings", {"values": values})
    trials = lambda: [entry for entry in daemon.get("/v1/admin/audit").json()["entries"] if entry["action"] == "backend.test"]
    assert change({"CORDON_SELF_MANAGED_ENDPOINT": "http://127.0.0.1:9", "CORDON_SELF_MANAGED_TOKEN": "stored-and-sealed"}).status == 200
    try:
        before = len(trials())
        refused = daemon.request("POST", TEST, elsewhere(manager))
        assert refused.status == 400 and "CORDON_SELF_MANAGED_TOKEN" in refused.error()[1], refused
        assert not manager.requests and len(trials()) == before
        given = elsewhere(manager)
        given["values"]["CORDON_SELF_MANAGED_TOKEN"] = "of the form"
        assert whole(daemon, given)[-1]["passed"]
        assert "stored-and-sealed" not in str(manager.requests) and "of the form" in str(manager.requests)
        last = trials()[0]
        assert len(trials()) == before + 1 and last["subject"] == "self_managed"
        assert "CORDON_SELF_MANAGED_ENDPOINT" in last["after"] and "of the form" not in str(last)
        assert daemon.request("POST", TEST, {"backend": "self_managed"}).status == 200  # its own address
    finally:
        assert change({"CORDON_SELF_MANAGED_ENDPOINT": None, "CORDON_SELF_MANAGED_TOKEN": None}).status == 200


WHERE = [
    ("self_managed", "SELF_MANAGED_TOKEN", ("SELF_MANAGED_ENDPOINT=http://127.0.0.1:9",)),
    ("ssh", "SSH_PASSWORD", ("SSH_HOST=other.test", "SSH_PORT=2222")),
    ("e2b", "E2B_API_KEY", ("E2B_SERVICE_DOMAIN=other.test", "E2B_API_URL=https://other.test", "E2B_SANDBOX_URL=https://other.test")),
    ("ucloud_agent_sandbox", "UCLOUD_SANDBOX_API_KEY",
     ("UCLOUD_SANDBOX_REGION=other", "UCLOUD_SANDBOX_DOMAIN=other.test", "UCLOUD_SANDBOX_API_URL=https://other.test",
      "UCLOUD_SANDBOX_URL=https://other.test")),
    ("createos", "CREATEOS_API_KEY", ("CREATEOS_BASE_URL=https://other.test",)),
    ("tenki", "TENKI_API_KEY", ("TENKI_API_URL=https://other.test",)),
    *(("aliyun_codeinterpreter", secret,
       ("AGENTRUN_ACCOUNT_ID=7", "AGENTRUN_REGION=cn-beijing", "AGENTRUN_DATA_ENDPOINT=https://other.test"))
      for secret in ("AGENTRUN_ACCESS_KEY_SECRET", "AGENTRUN_SECURITY_TOKEN")),
]


@pytest.mark.parametrize("backend, secret, places", WHERE, ids=[row[1] for row in WHERE])
def test_each_part_of_an_address_counts(daemon, backend, secret, places):
    name = "CORDON_" + secret
    assert daemon.request("PUT", "/v1/admin/settings", {"values": {name: "e2b_stored"}}).status == 200
    try:
        for place in places:
            setting, value = place.split("=", 1)
            refused = daemon.request("POST", TEST, {"backend": backend, "values": {"CORDON_" + setting: value}})
            assert refused.status == 400 and name in refused.error()[1], (place, refused)
    finally:
        assert daemon.request("PUT", "/v1/admin/settings", {"values": {name: None}}).status == 200
