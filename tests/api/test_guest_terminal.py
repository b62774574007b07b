# SPDX-License-Identifier: Apache-2.0
"""Terminals of kept guests over the native door, and who may open them."""

import json
import re

import pytest
from lib import host
from lib.admin import Session, Terminal
from lib.client import Client
from lib.daemon import Daemon
from lib.guest import Guest


@pytest.fixture(scope="module")
def daemon(nothing_left):
    with Daemon(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1) as running:
        running.admin = running.create_key("--scope", "admin")
        running.viewer = running.create_key("--scope", "view")
        yield running


@pytest.fixture(scope="module")
def guest(daemon):
    with Guest(daemon, memory_mb=256) as made:
        yield made


def running(guest):
    return [program for program in guest.good("GET", "/exec")["programs"] if program["running"]]


def test_a_login_shell_on_a_terminal_of_the_size_asked_for(daemon, guest):
    with Terminal(daemon, guest.id, cols=90, rows=20) as terminal:
        terminal.type("tty; stty size; echo $TERM $((6 * 7))\r")
        shown = terminal.until(b"xterm-256color 42")
        assert b"/dev/pts/" in shown and b"20 90" in shown
        assert terminal.to("resize", cols=120, rows=40).status == 204
        terminal.type("stty size\r")
        terminal.until(b"40 120")
        terminal.type("(echo in front $((1 + 1)); exec sleep 100)\r")  # the shell's answer, not the terminal's echo
        terminal.until(b"in front 2")
        terminal.type("\x03exit 7\r")
        end = terminal.end()
        assert (end["type"], end["cause"], end["exit_code"]) == ("exit", "exited", 7), end
        assert terminal.event() is None
    answer = terminal.to("input", data="x")
    assert answer.status == 404 and "does not run" in answer.error()[1]


def test_any_bytes_travel_both_ways(daemon, guest):
    with Terminal(daemon, guest.id, command=["sh", "-c", "stty raw -echo; echo ready; head -c 4 | od -An -tx1"]) as terminal:
        terminal.until(b"ready")
        assert terminal.to("input", data_b64="AP8bgA==").status == 204
        terminal.end()
        assert b"00 ff 1b 80" in terminal.shown


def test_it_ends_with_its_connection(daemon, guest):
    terminal = Terminal(daemon, guest.id, command=["sh", "-c", "trap '' HUP TERM; sleep 777 & echo on; wait"])
    terminal.until(b"on")
    assert running(guest)
    terminal.close()
    assert host.wait_for(lambda: not running(guest))
    assert guest.exec("ps ax 2>/dev/null | grep -c '[s]leep 777'; true")["stdout"].strip() == "0"


def test_what_is_wrong_is_told(daemon, guest):
    for body, word in (({"cols": 0}, "cols"), ({"rows": 1001}, "rows"), ({"cols": "wide"}, "cols"), ({"command": "sh"}, "command")):
        status, kind, message = guest.refused("POST", "/terminal", body)
        assert (status, kind) == (400, "invalid_request") and word in message, message
    with Terminal(daemon, guest.id, command=["cat"]) as terminal:
        for what, body in (("input", {}), ("input", {"data": 5}), ("resize", {"cols": 80}), ("resize", {"cols": 80, "rows": 0})):
            assert terminal.to(what, **body).status == 400, (what, body)
        assert terminal.to("input", data="x" * 65537).status in (400, 413)
    assert guest.call("POST", "/exec/none/input", {"data": "x"}).status == 400
    assert guest.call("POST", "/exec/4000000/resize", {"cols": 80, "rows": 24}).status == 404
    assert daemon.request("POST", "/v1/guests/nowhere/terminal", {}).status == 404


def test_a_guest_that_is_ended_ends_it(daemon):
    with Guest(daemon) as other, Terminal(daemon, other.id, command=["cat"]) as terminal:
        other.good("DELETE")
        end = terminal.end()
        assert end["type"] == "error" and end["error"]["kind"] == "gone", end


def test_the_page_sees_the_guests_of_all_and_a_key_its_own(daemon, guest):
    admin, viewer = Session(daemon, key=daemon.admin), Session(daemon, key=daemon.viewer)
    for session in (admin, viewer):
        listed = {row["id"]: row for row in session.request("GET", "/v1/guests").json()["guests"]}
        assert re.fullmatch("[0-9a-f]{16}", listed[guest.id]["key"])
    other = Client(daemon.port, daemon.admin)
    assert guest.id not in other.request("GET", "/v1/guests").body.decode()
    assert other.request("GET", f"/v1/guests/{guest.id}").status == 404
    refused = viewer.request("POST", f"/v1/guests/{guest.id}/terminal", {})
    assert (refused.status, refused.error()[0]) == (403, "forbidden")
    for path in ("exec/1/input", "exec/1/resize", "pause", "runs", "exec"):
        assert viewer.request("POST", f"/v1/guests/{guest.id}/{path}", {"command": ["id"]}).status == 403, path
    assert viewer.request("DELETE", f"/v1/guests/{guest.id}").status == 403


def test_one_connection_does_not_stay_an_operators(daemon, guest):
    """What the session of one request was allowed counts for no later one on the same connection."""
    admin = Session(daemon, key=daemon.admin)
    connection = daemon.connection()
    nobody = Client(daemon.port, daemon.create_key())
    path = f"/v1/guests/{guest.id}"
    assert Client(daemon.port).request("GET", path, headers={"Cookie": admin.cookie}, connection=connection).status == 200
    assert nobody.request("GET", path, connection=connection).status == 404
    connection.close()


def test_a_terminal_opened_from_the_page_is_in_the_audit_log(daemon, guest):
    admin = Session(daemon, key=daemon.admin)
    connection = Client(daemon.port).connection()
    connection.request("POST", f"/v1/guests/{guest.id}/terminal", "{}",
                       {"Cookie": admin.cookie, "X-Cordon-CSRF": admin.csrf, "Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.readline())["type"] == "started"
    answer.close()
    connection.close()
    entries = admin.request("GET", "/v1/admin/audit").json()["entries"]
    assert ("terminal.open", guest.id) in [(entry["action"], entry["subject"]) for entry in entries]
