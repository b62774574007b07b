# SPDX-License-Identifier: Apache-2.0
"""What kept guests may reach, changed while they live: natively and by the doors of other systems; and their egress log."""

import pytest
from lib import host
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend


@pytest.fixture(scope="module")
def daemon(host_backend, lab):
    usual = {"guest_disk_mb": 64, "createos_min_isolation": host_backend.isolation, "egress_log": 20}
    with lab.daemon(**host_backend.settings(), **usual) as made:
        yield made


class Native:
    """A door by which a guest is made with rules, and given others."""

    always_network = False  # are its guests made with the network where they may reach nothing, too?

    def __init__(self, daemon):
        self.daemon = daemon

    def ask(self, method, path, body=None, headers=None):
        answer = self.daemon.request(method, path, body, headers=headers)
        assert answer.status < 300, answer
        return answer

    def make(self, *rules):
        fields = {"network": bool(rules), "allowed_domains": list(rules)}
        return self.ask("POST", "/v1/guests", fields).json()["id"]

    def change(self, guest, *rules):
        self.ask("PUT", f"/v1/guests/{guest}/egress", {"network": bool(rules), "allowed_domains": list(rules)})

    def drop(self, guest):
        self.ask("DELETE", f"/v1/guests/{guest}")


class E2b(Native):
    @property
    def key(self):
        return {"X-API-Key": self.daemon.key}

    @staticmethod
    def network(rules):
        return {"allowOut": list(rules), "denyOut": ["0.0.0.0/0"]}

    def make(self, *rules):
        body = {"templateID": "base", "timeout": 300, "network": self.network(rules)}
        return self.ask("POST", "/v2/sandboxes", body, self.key).json()["sandboxID"]

    def change(self, guest, *rules):
        self.ask("PUT", f"/sandboxes/{guest}/network", self.network(rules), self.key)

    def drop(self, guest):
        self.ask("DELETE", f"/sandboxes/{guest}", headers=self.key)


class CreateOs(Native):
    always_network = True

    @property
    def key(self):
        return {"X-Api-Key": self.daemon.key}

    def make(self, *rules):
        body = {"shape": "s-1vcpu-256mb", "rootfs": "devbox:1", "egress": list(rules) or ["127.0.0.1/32"]}
        made = self.ask("POST", "/v1/sandboxes", body, self.key).json()
        return made["data"]["id"]

    def change(self, guest, *rules):
        self.ask("PUT", f"/v1/sandboxes/{guest}/egress", {"egress": list(rules) or ["127.0.0.1/32"]}, self.key)

    def drop(self, guest):
        self.ask("DELETE", f"/v1/sandboxes/{guest}", headers=self.key)


@pytest.fixture(params=[Native, E2b, CreateOs], ids=["native", "e2b", "createos"])
def door(request, daemon):
    return request.param(daemon)


def run(daemon, guest, command, **fields):
    answer = daemon.request("POST", f"/v1/guests/{guest}/exec", {"command": command, "timeout_s": limit(40), **fields})
    assert answer.status == 200, answer
    return answer.json()


# Holds a connection to an echo server, tells when it stands, and in a file how it ended.
HOLD = """
import socket, sys
s = socket.create_connection((sys.argv[1], 7), float(sys.argv[2])); s.settimeout(2 * float(sys.argv[2]))
s.sendall(b'x\\r\\n'); assert s.recv(3, socket.MSG_WAITALL) == b'x\\r\\n'
open('/tmp/held', 'w').write('held')
try: end = 'closed' if not s.recv(1) else 'data'
except ConnectionResetError: end = 'reset'
except OSError as e: end = type(e).__name__
open('/tmp/ended', 'w').write(end)
"""


def content(daemon, guest, path):
    answer = daemon.get(f"/v1/guests/{guest}/files?path={path}")
    return answer.body.decode() if answer.status == 200 else None


FETCH = "import sys, urllib.request as u; print(len(u.urlopen(sys.argv[2], timeout=float(sys.argv[1])).read()))"


def fetch(daemon, guest, url):
    """By python3, which guests of each backend have."""
    return run(daemon, guest, ["python3", "-c", FETCH, str(stretched(20)), url])


def reaches(daemon, guest, name):
    return fetch(daemon, guest, f"http://{name}/")["exit_code"] == 0


def test_rules_change_at_once_and_cut_what_no_longer_fits(daemon, lab, door):
    guest = door.make("allowed.test", "port.test")
    try:
        assert reaches(daemon, guest, "allowed.test") and not reaches(daemon, guest, "unlisted.test")
        hold = {"command": ["python3", "-c", HOLD, "allowed.test", str(stretched(20))], "background": True}
        assert daemon.request("POST", f"/v1/guests/{guest}/exec", hold).status == 201
        assert host.wait_for(lambda: content(daemon, guest, "/tmp/held") == "held")
        door.change(guest, "allowed.test", "unlisted.test")  # it still fits, and stays
        assert reaches(daemon, guest, "unlisted.test") and not reaches(daemon, guest, "port.test")
        assert content(daemon, guest, "/tmp/ended") is None
        mark = lab.mark()
        door.change(guest, "unlisted.test")
        assert host.wait_for(lambda: content(daemon, guest, "/tmp/ended") is not None)
        assert content(daemon, guest, "/tmp/ended") == "reset"
        assert not reaches(daemon, guest, "allowed.test") and reaches(daemon, guest, "unlisted.test")
        assert {line["host"] for line in lab.arrived(mark, "http")} == {"unlisted.test"}
        door.change(guest)
        assert not reaches(daemon, guest, "unlisted.test")
    finally:
        door.drop(guest)


def test_a_guest_made_without_network_gets_one(daemon, host_backend, door):
    guest = door.make()
    try:
        assert not reaches(daemon, guest, "allowed.test")
        if not (host_backend.network_later or door.always_network):
            refused = daemon.request("PUT", f"/v1/guests/{guest}/egress", {"network": True, "allowed_domains": ["allowed.test"]})
            assert refused.status == 501 and "it has no device for it" in refused.error()[1], refused
            return
        door.change(guest, "allowed.test")
        assert reaches(daemon, guest, "allowed.test")
    finally:
        door.drop(guest)


def test_bad_rules_change_nothing(daemon):
    door = Native(daemon)
    guest = door.make("allowed.test")
    try:
        for bad in (["a..b"], ["http://a.test"], ["allowed.test"] * 300, "allowed.test"):
            answer = daemon.request("PUT", f"/v1/guests/{guest}/egress", {"network": True, "allowed_domains": bad})
            assert answer.status == 400, (bad, answer)
        assert daemon.get(f"/v1/guests/{guest}").json()["allowed_domains"] == ["allowed.test"]
        assert reaches(daemon, guest, "allowed.test")
    finally:
        door.drop(guest)


def test_reuse_refuses_a_guest_whose_rules_have_drifted(daemon):
    door = Native(daemon)
    asked = {"flow": "f", "component": "drift", "network": True, "allowed_domains": ["allowed.test"]}
    first = daemon.request("POST", "/v1/reuse", asked).json()
    guest = first["guest"]["id"]
    try:
        again = daemon.request("POST", "/v1/reuse", asked).json()
        assert again["reused"] and again["guest"]["id"] == guest
        door.change(guest, "allowed.test", "unlisted.test")
        refused = daemon.request("POST", "/v1/reuse", asked)
        assert refused.status == 403 and guest in refused.error()[1], refused
        door.change(guest, "allowed.test")
        assert daemon.request("POST", "/v1/reuse", asked).json()["guest"]["id"] == guest
    finally:
        door.drop(guest)


def test_a_sandbox_that_drifted_says_so_to_createos_clients(daemon):
    """They compare what they asked for with what holds before they use a sandbox again."""
    door = CreateOs(daemon)
    guest = door.make("allowed.test")

    def told():
        view = door.ask("GET", f"/v1/sandboxes/{guest}", headers=door.key).json()["data"]["egress"]
        own = door.ask("GET", f"/v1/sandboxes/{guest}/egress", headers=door.key).json()["data"]["egress"]
        assert view == own
        return own

    try:
        assert told() == ["allowed.test"]
        Native(daemon).change(guest, "allowed.test", "unlisted.test")
        assert told() == ["allowed.test", "unlisted.test"]
        Native(daemon).change(guest)
        assert told() == ["240.0.0.0/4"]
        Native(daemon).change(guest, "allowed.test")
        assert told() == ["allowed.test"]
        door.change(guest, "*")
        assert told() == ["*"]
        door.change(guest)
        assert told() == ["127.0.0.1/32"] and not reaches(daemon, guest, "allowed.test")
    finally:
        door.drop(guest)


def test_the_log_tells_and_is_bounded(daemon):
    door = Native(daemon)
    guest = door.make("allowed.test:80")
    path = f"/v1/guests/{guest}/egress"
    try:
        assert daemon.get(path + "/log").json()["log"] == []
        for url in ("http://allowed.test/bytes/5000", "https://allowed.test/", "http://unlisted.test/"):
            fetch(daemon, guest, url)
        told = daemon.get(path + "/log").json()
        allowed = next(entry for entry in told["log"] if entry["decision"] == "allowed")
        assert (allowed["name"], allowed["port"], allowed["rule"]) == ("allowed.test", 80, "allowed.test:80")
        assert allowed["bytes_received"] > 5000 and allowed["bytes_sent"] > 0
        refused = [(entry["name"], entry["port"]) for entry in told["log"] if entry["decision"] == "refused"]
        assert ("allowed.test", 443) in refused and any(name == "unlisted.test" for name, _ in refused), told
        assert told["counts"]["connections"] == 1 and told["counts"]["refused"] == 1 and told["open"] == 0
        counts = daemon.get(path).json()
        assert counts["counts"] == told["counts"] and "log" not in counts and counts["allowed_domains"] == ["allowed.test:80"]
        run(daemon, guest, "for i in $(seq 60); do getent hosts n$i.test; done; true")
        told = daemon.get(path + "/log").json()
        assert len(told["log"]) == 20 and told["counts"]["names_refused"] >= 60, told
    finally:
        door.drop(guest)


def test_the_log_of_another_keys_guest_is_not_told(host_backend):
    with host_backend.daemon(allow_network=True, guest_disk_mb=64) as daemon:  # by TCP: who is at the unix socket is the operator
        other = {"Authorization": f"Bearer {daemon.create_key()}"}
        guest = Native(daemon).make("allowed.test")
        for method, rest in (("GET", "/egress"), ("GET", "/egress/log"), ("PUT", "/egress")):
            body = {"network": False} if method == "PUT" else None
            assert daemon.request(method, f"/v1/guests/{guest}{rest}", body, headers=other).status == 404
        assert daemon.get(f"/v1/guests/{guest}/egress").json()["network"] is True


def test_the_routes_are_documented(daemon):
    paths = daemon.get("/openapi.json").json()["paths"]
    assert {"get", "put"} <= set(paths["/v1/guests/{guest}/egress"]) and "get" in paths["/v1/guests/{guest}/egress/log"]
