# SPDX-License-Identifier: Apache-2.0
"""Secrets sealed with a key that the operator gives (CORDON_SECRET_KEY): it opens them again, another one is refused and harms
nothing, and no process but the gateway has it."""

import base64
import os
import threading

import pytest
from lib import host
from lib.daemon import Daemon, cli, start_fails

KEY, OTHER = "5e" * 32, "a7" * 32
SECRET = "hush-sealed-40127"
SETTINGS = "/v1/admin/settings"
QUIET = {"pool_javascript": 0, "pool_bash": 0, "pool_python_data": 0, "pool_guest": 0}


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # it ended meanwhile
        return b""


@pytest.fixture
def daemon(nothing_left):
    with Daemon(secret_key=KEY, log_level="debug", **QUIET) as running:
        running.key = running.create_key("--scope", "admin")
        assert running.request("PUT", SETTINGS, {"values": {"CORDON_SSH_PASSWORD": SECRET}}).status == 200
        yield running


def rows(daemon):
    return {row["name"]: row for row in daemon.request("GET", SETTINGS).json()["settings"]}


def still_refused(daemon, *said, **settings):
    """Another start on the same state folder, which must end with a sentence."""
    done = start_fails("--listen", daemon.listen, state=daemon.state, **QUIET, **settings)
    assert done.status not in (0, 124), done
    assert all(part in done.errors for part in said), done
    assert SECRET not in done.errors + done.text and OTHER not in done.errors + done.text
    return done


def test_the_same_key_opens_and_another_is_refused(daemon):
    assert not os.path.exists(daemon.state + "/secret.key")
    daemon.restart()
    assert rows(daemon)["CORDON_SSH_PASSWORD"]["stored"]
    daemon.stop()
    told = "CORDON_SSH_PASSWORD does not open with CORDON_SECRET_KEY", "another key", "STATE/secret.key", "cordon config unset"
    still_refused(daemon, *told, secret_key=OTHER)
    still_refused(daemon, "secret.key is missing", "CORDON_SECRET_KEY")
    assert not os.path.exists(daemon.state + "/secret.key")
    daemon.env["CORDON_SECRET_KEY"] = base64.b64encode(bytes.fromhex(KEY)).decode()  # the other form of the same
    daemon.start()
    assert rows(daemon)["CORDON_SSH_PASSWORD"]["stored"]


def test_who_lost_the_key_forgets_the_secret(daemon):
    daemon.stop()
    assert cli("config", "unset", "CORDON_SSH_PASSWORD", env={"CORDON_STATE": daemon.state, "CORDON_SECRET_KEY": OTHER}).status == 0
    daemon.env["CORDON_SECRET_KEY"] = OTHER
    daemon.start()
    assert not rows(daemon)["CORDON_SSH_PASSWORD"]["stored"]
    assert daemon.request("PUT", SETTINGS, {"values": {"CORDON_SSH_PASSWORD": SECRET}}).status == 200


def test_a_malformed_key_is_refused_and_not_told():
    for bad in ("5e5e5e-not-a-key", KEY[:-2], KEY + "00", base64.b64encode(b"x" * 31).decode()):
        done = start_fails(secret_key=bad)
        assert done.status == 2 and "CORDON_SECRET_KEY" in done.errors and "64 hex digits" in done.errors, done
        assert bad not in done.errors


def test_it_stands_in_no_environment(daemon):
    """Of the daemon's processes and of their children: a gateway's, a doctor's, guests'."""
    guest = daemon.request("POST", "/v1/guests", {}).json()["id"]
    program = "import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())"
    ran = daemon.request("POST", "/v1/runs", {"language": "python", "code": program}).json()
    assert ran["exit_code"] == 0 and "SECRET_KEY" not in ran["stdout"], ran
    looked = {}
    doctor = threading.Thread(target=daemon.request, args=("GET", "/v1/admin/doctor"))
    doctor.start()
    while doctor.is_alive():
        looked.update({pid: environment_of(pid) for pid in daemon.pids()})
    looked.update({pid: environment_of(pid) for pid in daemon.pids()})
    assert {daemon.process.pid, *(daemon.role(name) for name in ("gateway", "warden", "egress"))} <= set(looked)
    assert any(looked.values())
    for pid, text in looked.items():
        assert KEY.encode() not in text, (pid, host.cmdline(pid))
        assert KEY not in " ".join(host.cmdline(pid))
    assert daemon.request("DELETE", f"/v1/guests/{guest}").status in (200, 204)


def test_it_is_shown_to_nobody_and_changed_by_nobody(daemon):
    row = rows(daemon)["CORDON_SECRET_KEY"]
    assert (row["scope"], row["source"], row["secret"]) == ("deployment", "environment", True) and row["value"] == "•" * 6
    refused = daemon.request("PUT", SETTINGS, {"values": {"CORDON_SECRET_KEY": OTHER}})
    assert refused.status == 400 and OTHER not in refused.body.decode()
    for path in ("settings", "audit", "doctor", "history"):
        assert KEY not in daemon.request("GET", "/v1/admin/" + path).body.decode()
    for words in (("show",), ("show", "--json"), ("explain", "CORDON_SECRET_KEY")):
        assert KEY not in cli("config", *words, secret_key=KEY).text
    assert KEY not in daemon.log()


def test_a_key_of_the_file_of_settings(daemon, tmp_path):
    """The same key, given in the other place; after a death of the gateway as well."""
    daemon.stop()
    conf = tmp_path / "cordon.conf"
    conf.write_text(f"secret_key = {KEY}\n")
    del daemon.env["CORDON_SECRET_KEY"]
    daemon.flags = ["--config", str(conf)]
    daemon.start()
    assert rows(daemon)["CORDON_SECRET_KEY"]["source"] == "file" and rows(daemon)["CORDON_SSH_PASSWORD"]["stored"]


def test_a_gateway_that_is_started_again_has_it(daemon):
    before = daemon.role("gateway")
    os.kill(before, 9)
    assert host.wait_for(lambda: daemon.role("gateway") not in (None, before) and daemon.wait_ready())
    assert rows(daemon)["CORDON_SSH_PASSWORD"]["stored"] and rows(daemon)["CORDON_SECRET_KEY"]["source"] == "environment"
    assert KEY.encode() not in environment_of(daemon.role("gateway"))


def test_a_setting_is_forgotten_where_the_daemon_can_not_open_it(nothing_left):
    """Its key was lost while it runs: what helps then must not need the key."""
    with Daemon(**QUIET) as daemon:
        daemon.key = daemon.create_key("--scope", "admin")
        assert daemon.request("PUT", "/v1/admin/settings", {"values": {"CORDON_SSH_PASSWORD": "sealed"}}).status == 200
        os.unlink(os.path.join(daemon.state, "secret.key"))
        done = cli("config", "unset", "CORDON_SSH_PASSWORD", env={"CORDON_STATE": daemon.state})
        assert done.status == 0 and "the daemon did not forget it" in done.errors, done
        daemon.stop()
        daemon.start()
        assert daemon.run("print('starts')")["stdout"] == "starts\n"
