# SPDX-License-Identifier: Apache-2.0
"""cordon verify: what a backend enforces is measured, kept, shown beside what it declares, and demanded by policy."""

import json
import os
import subprocess

import pytest
from lib import lab as network
from lib.daemon import BIN
from lib.lab import ALLOWED, UNLISTED


@pytest.fixture(scope="module")
def lab(lab):
    """The network, and in it the servers that a backend is verified against."""
    command = ["nsenter", "-t", str(lab.world), "-n", BIN, "probe-server", f"{ALLOWED}:9000", f"{UNLISTED}:9000"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    yield lab
    server.kill()
    server.wait()


TARGETS = {
    "verify_listed": f"allowed.test:9000/{ALLOWED}",
    "verify_unlisted": f"unlisted.test:9000/{UNLISTED}",
}


def verify(daemon, backend):
    answer = daemon.request("POST", "/v1/verify", {"backend": backend}, timeout=90)
    assert answer.status == 200, answer
    found = answer.json()
    return found, {item["name"]: item for item in found["capabilities"]}


def test_local_holds_what_it_declares(lab):
    with lab.daemon(require_verified=True, **TARGETS) as daemon:
        status, kind, message = daemon.refused(backend="local")
        assert status == 403 and kind == "refused" and "CORDON_REQUIRE_VERIFIED" in message
        found, items = verify(daemon, "local")
        assert found["differences"] == 0, found
        for name in ("deny_all_egress", "egress_exceptions", "domain_allowlist", "memory_limit"):
            assert items[name]["declared"] is True and items[name]["verified"] is True, items[name]
        for name in ("deadline", "output_truth", "fresh_guest", "host_hidden"):
            assert items[name]["verified"] is True, items[name]
        assert daemon.run("print(1)")["stdout"] == "1\n"
        answer = daemon.run("print(2)", network=True, allowed_domains=["allowed.test"])
        assert answer["stdout"] == "2\n"
        listed = {b["name"]: b for b in daemon.get("/v1/backends").json()["backends"]}
        assert listed["local"]["verified"] == found
        assert listed["none"]["verified"] is None
        daemon.restart()
        listed = {b["name"]: b for b in daemon.get("/v1/backends").json()["backends"]}
        assert listed["local"]["verified"] == found  # kept


def test_the_list_shows_what_was_measured_and_a_difference_loudly(lab):
    with lab.daemon(**TARGETS) as daemon:
        shown = daemon.cli("backends", state=daemon.state)
        assert b"never (cordon verify local)" in shown.stdout and not shown.stderr, shown
        verify(daemon, "local")
        shown = daemon.cli("backends", state=daemon.state)
        assert b"domain_allowlist     declared yes, verified yes" in shown.stdout and b"DIFFERS" not in shown.stdout, shown
        assert shown.returncode == 0 and not shown.stderr, shown
        daemon.stop()
        path = os.path.join(daemon.state, "verified.json")
        with open(path, "r+", encoding="utf-8") as file:
            kept = json.load(file)
            entry = next(item for item in entries(kept) if item["name"] == "domain_allowlist")
            entry.update(verified=False, evidence="an unlisted name answered")
            file.seek(0)
            json.dump(kept, file)
            file.truncate()
        daemon.start()
        shown = daemon.cli("backends", state=daemon.state)
        assert b"domain_allowlist     declared yes, verified no  ** DIFFERS **: an unlisted name answered" in shown.stdout, shown
        assert b"WARNING: the backend local declares domain_allowlist" in shown.stderr, shown


def entries(kept):
    """The capabilities of all backends in the file, however deep."""
    if isinstance(kept, dict) and "evidence" in kept:
        yield kept
    for inner in kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list) else ():
        yield from entries(inner)


def test_without_targets_nothing_is_claimed(lab):
    with lab.daemon() as daemon:
        _, items = verify(daemon, "local")
        assert items["deny_all_egress"]["verified"] is None and items["domain_allowlist"]["verified"] is None
        assert items["output_truth"]["verified"] is True


def test_the_command_line_measures_without_a_daemon(lab):
    settings = {"CORDON_VERIFY_LISTED": f"allowed.test:9000/{ALLOWED}", "CORDON_VERIFY_UNLISTED": f"unlisted.test:9000/{UNLISTED}"}
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CORDON_EGRESS_RESOLVER": network.RESOLVER, **settings}
    command = ["nsenter", "-t", str(lab.host), "-n", BIN, "verify", "local"]
    done = subprocess.run(command, capture_output=True, env={**env, "CORDON_STATE": lab.folder + "/none"}, timeout=80)
    text = done.stdout.decode()
    assert done.returncode == 0, (text, done.stderr)
    assert text.startswith("The backend local, measured by cordon ") and " do not, 0 were not measured.\n" in text, text
    assert [line.split()[1:3] for line in text.splitlines() if line.startswith("domain_allowlist")] == [["yes", "yes"]]
