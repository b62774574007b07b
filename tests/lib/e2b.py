# SPDX-License-Identifier: Apache-2.0
"""E2B's interface spoken by hand, where no SDK would say what a test wants to say."""

import base64
import hashlib
import json
import urllib.parse

from .pace import stretched


def signature(path, operation, user, token, expiration=None):
    text = f"{path}:{operation}:{user}:{token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def envelopes(body):
    """[(flags, message)] of a whole stream."""
    found = []
    while body:
        size = int.from_bytes(body[1:5], "big")
        found.append((body[0], json.loads(body[5 : 5 + size])))
        body = body[5 + size :]
    return found


class Sandbox:
    def __init__(self, daemon, key=None, **fields):
        self.daemon, self.key = daemon, key or daemon.key
        answer = self.control("POST", "/v2/sandboxes", {"templateID": "base", "timeout": int(stretched(120)), **fields})
        assert answer.status == 201, answer
        told = answer.json()
        self.id, self.token, self.traffic = told["sandboxID"], told.get("envdAccessToken"), told["trafficAccessToken"]

    def control(self, method, path, body=None, key=None):
        return self.daemon.request(
            method, path, body, headers={"Authorization": None, "X-API-KEY": key or self.key}
        )

    def envd(self, method, path, body=None, token="own", headers=None, port=49983):
        sent = {
            "Authorization": None,
            "E2b-Sandbox-Id": self.id,
            "E2b-Sandbox-Port": str(port),
            "X-Access-Token": self.token if token == "own" else token,
            **(headers or {}),
        }
        return self.daemon.request(method, path, body, headers=sent)

    def call(self, service, message, **options):
        return self.envd("POST", "/" + service, json.dumps(message), **options)

    def stream(self, service, message, **options):
        headers = {"Content-Type": "application/connect+json", **options.pop("headers", {})}
        return self.envd("POST", "/" + service, envelope(message), headers=headers, **options)

    def run(self, command, **options):
        """(exit code, stdout) of a shell command."""
        answer = self.stream(
            "process.Process/Start",
            {"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "stdin": False},
            **options,
        )
        assert answer.status == 200, answer
        out, code = b"", None
        for _, message in envelopes(answer.body):
            event = message.get("event", {})
            out += base64.b64decode(event.get("data", {}).get("stdout", ""))
            if "end" in event:
                code = event["end"]["exitCode"]
        return code, out.decode()

    def files(self, path, **query):
        return "/files?" + urllib.parse.urlencode({"path": path, **query})

    def kill(self):
        return self.control("DELETE", f"/sandboxes/{self.id}")
