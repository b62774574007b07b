# SPDX-License-Identifier: Apache-2.0
"""The admin door: a browser's session, and terminals of kept guests."""

import base64
import json

from .client import Client
from .protocols import Server


class Session:
    """A browser's: a cookie, and the CSRF token where it is sent."""

    def __init__(self, daemon, **secret):
        answer = Client(daemon.port).request("POST", "/v1/admin/login", secret)
        assert answer.status == 200, answer
        self.daemon, self.answer, self.csrf = daemon, answer, answer.json()["csrf"]
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]

    def request(self, method, path, body=None, csrf=True, **headers):
        headers = dict(headers, Cookie=self.cookie)
        if csrf:
            headers["X-Cordon-CSRF"] = self.csrf
        return Client(self.daemon.port).request(method, path, body, headers)


class Terminal:
    """Open from the constructor to close(); what it showed is collected in .shown."""

    def __init__(self, client, guest, timeout=60, **fields):
        self.client, self.guest, self.shown = client, guest, b""
        self.connection = client.connection(timeout)
        self.connection.request("POST", f"/v1/guests/{guest}/terminal", json.dumps(fields), client.headers())
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        first = self.event()
        assert first["type"] == "started", first
        self.pid = first["pid"]

    def event(self):
        """The next one that is no keepalive; None: the stream is over."""
        while True:
            line = self.answer.readline()
            event = json.loads(line) if line else None
            if not event or event["type"] != "keepalive":
                return event

    def until(self, text):
        """Reads until this was shown."""
        while text not in self.shown:
            event = self.event()
            assert event and event["type"] == "output", (event, self.shown)
            self.shown += base64.b64decode(event["data_b64"])
        return self.shown

    def end(self):
        """Reads to its last event."""
        while True:
            event = self.event()
            assert event, self.shown
            if event["type"] != "output":
                return event
            self.shown += base64.b64decode(event["data_b64"])

    def to(self, what, **body):
        return self.client.request("POST", f"/v1/guests/{self.guest}/exec/{self.pid}/{what}", body)

    def type(self, text):
        answer = self.to("input", data=text)
        assert answer.status == 204, answer

    def close(self):
        self.answer.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class LyingManager(Server):
    """An executor manager that claims to keep code from the network, and whose every probe tells of the opposite, in
    words that would be a program in a page that took them for HTML."""

    ATTACK = "<img src=x onerror=\"document.title='broken'\">"

    def handle(self, request, body):
        if request.command == "GET":
            return 200, "application/json", b'{"status": "healthy"}'
        code = base64.b64decode(json.loads(body)["code_b64"]).decode()
        found = {"reached": [self.ATTACK], "exceptions": [], "done": True} if "MODE, TARGETS = 'deny'" in code else {}
        answer = {"status": "success", "stdout": json.dumps({"cordon-verify": found}) + "\n", "stderr": self.ATTACK, "exit_code": 0,
                  "time_used_ms": 1, "memory_used_kb": 1, "artifacts": [], "detail": None}
        return 200, "application/json", json.dumps(answer).encode()
