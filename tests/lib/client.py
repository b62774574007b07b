# SPDX-License-Identifier: Apache-2.0
"""A client of the native door: one request an HTTP exchange, or a stream of events as they come."""

import base64
import http.client
import json
import socket
import ssl
import time

from .pace import patient

NDJSON = "application/x-ndjson"
USUAL_S = 60  # before it is stretched


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """(kind, message) of an error answer."""
        error = self.json()["error"]
        return error["kind"], error["message"]

    def __repr__(self):
        return f"<{self.status} {self.body[:600]!r}>"


class Client:
    def __init__(self, port, key=None, host="127.0.0.1", tls=None):
        self.port, self.key, self.host, self.tls = port, key, host, tls

    def connection(self, timeout=None):
        timeout = timeout or patient(USUAL_S)
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.tls)
        context.check_hostname = False
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def headers(self, extra=None):
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        headers.update(extra or {})
        return {name: value for name, value in headers.items() if value is not None}

    def request(self, method, path, body=None, headers=None, timeout=None, connection=None):
        """One exchange. body: bytes, text, or anything that JSON can hold. A header that is None is left out."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        used = connection or self.connection(timeout)
        try:
            used.request(method, path, body, self.headers(headers))
            answer = used.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            if connection is None:
                used.close()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, body, **options):
        return self.request("POST", "/v1/runs", body, **options)

    def wait_for_load(self, running, waiting=0, seconds=30):
        """Until just so many runs are under way, and so many wait."""
        end = time.monotonic() + patient(seconds)
        while True:
            now = self.get("/readyz").json()
            if (now["running"], now["waiting"]) == (running, waiting):
                return
            assert time.monotonic() < end, now
            time.sleep(0.02)

    def run(self, code, language="python", *, timeout=None, connection=None, **fields):
        """A whole run; the answer must be HTTP 200 and is returned as a dict."""
        answer = self.post(request_body(code, language, fields), timeout=timeout, connection=connection)
        assert answer.status == 200, answer
        return answer.json()

    def refused(self, code="print(1)", language="python", **fields):
        """(status, kind, message) of a run that must not take place."""
        answer = self.post(request_body(code, language, fields))
        assert answer.status >= 400, answer
        return (answer.status, *answer.error())

    def stream(self, code, language="python", *, timeout=None, **fields):
        """Yields (seconds since the request, event)."""
        connection = self.connection(timeout)
        began = time.monotonic()
        try:
            connection.request(
                "POST", "/v1/runs", json.dumps(request_body(code, language, fields)), self.headers({"Accept": NDJSON})
            )
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            assert answer.headers["Content-Type"].split(";")[0] == NDJSON
            while True:
                line = answer.readline()
                if not line:
                    return
                assert line.endswith(b"\n"), line
                yield time.monotonic() - began, json.loads(line)
        finally:
            connection.close()

    def raw(self, data, timeout=None, until_close=True):
        """Sends bytes as they are, returns all bytes that come back until the peer closes (or nothing more comes)."""
        with socket.create_connection((self.host, self.port), timeout=timeout or patient(20)) as sock:
            sock.sendall(data)
            received = b""
            try:
                while True:
                    part = sock.recv(65536)
                    if not part:
                        break
                    received += part
                    if not until_close:
                        break
            except (TimeoutError, ConnectionResetError):
                pass
            return received


def request_body(code, language, fields):
    body = {"language": language, "code": code}
    if "files" in fields and isinstance(fields["files"], dict):
        fields = dict(fields, files=files(fields["files"]))
    body.update(fields)
    return body


def files(contents):
    """{path: bytes or text} as the request has it."""
    return [file_entry(path, content) for path, content in contents.items()]


def file_entry(path, content):
    if isinstance(content, bytes):
        return {"path": path, "content_b64": base64.b64encode(content).decode()}
    return {"path": path, "content": content}


def text_or_bytes(holder, name):
    """The bytes of a field that is text where it is UTF-8 and <name>_b64 else."""
    if holder.get(name + "_b64") is not None:
        return base64.b64decode(holder[name + "_b64"])
    return holder[name].encode()


def stdout_bytes(answer):
    return text_or_bytes(answer, "stdout")


def stderr_bytes(answer):
    return text_or_bytes(answer, "stderr")


def event_bytes(event):
    if event.get("data_b64") is not None:
        return base64.b64decode(event["data_b64"])
    return event["data"].encode()


def artifacts(answer):
    """{name: bytes} of the returned artifacts."""
    return {
        entry["name"]: base64.b64decode(entry["content_b64"]) for entry in answer["artifacts"] if "content_b64" in entry
    }


def dropped(answer):
    """{name: reason} of the artifacts that were not returned."""
    return {entry["name"]: entry["dropped"] for entry in answer["artifacts"] if "dropped" in entry}


def collect(events):
    """The parts of a stream: stdout, stderr, other events by type."""
    stdout, stderr, others = b"", b"", {}
    for _, event in events:
        if event["type"] == "stdout":
            stdout += event_bytes(event)
        elif event["type"] == "stderr":
            stderr += event_bytes(event)
        else:
            others.setdefault(event["type"], []).append(event)
    return stdout, stderr, others
