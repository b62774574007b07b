# SPDX-License-Identifier: Apache-2.0
"""Servers that answer in every wrong way: alone, or standing between a client and a good server."""

import http.client
import re
import time
import urllib.parse

from .protocols import Server, as_json

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade", "expect"}


class Faults(Server):
    """Each method is one wrong answer to one request, after which the connection is closed."""

    def fail(self, how, request):
        try:
            getattr(self, how)(request)
        except (BrokenPipeError, ConnectionResetError):
            pass
        request.close_connection = True

    def raw(self, request, data):
        request.wfile.write(data)
        request.wfile.flush()

    def cut(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\nContent-Le")

    def truncate(self, request):
        self.raw(request, b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"status":"succ')

    def garbage(self, request):
        self.raw(request, b"\x00\xffnot http at all\r\n\r\n" * 20)

    def no_json(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>hi\n")

    def endless(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4000):
            self.raw(request, b"10000\r\n" + b"x" * 65536 + b"\r\n")

    def endless_header(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\n")
        for number in range(20000):
            self.raw(request, b"X-%d: %s\r\n" % (number, b"y" * 100))

    def slow(self, request):
        time.sleep(20)

    def redirect(self, request):
        self.raw(request, b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

    def status(self, request, number):
        echoed = ",".join(request.headers.get(name, "") for name in ("Authorization", "X-Api-Key")).encode()
        text = b'{"detail":"you sent %s"}' % echoed
        self.raw(request, b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (number, len(text), text))


for code in (401, 402, 409, 429, 500, 502, 503):
    setattr(Faults, f"status_{code}", lambda self, request, number=code: self.status(request, number))


class Broken(Faults):
    """An executor manager that is well by its /healthz, and whose /run answers as `how` says."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def answer(self, request, body):
        if request.path == "/healthz":
            super().answer(request, body)
        else:
            self.fail(self.how, request)

    def handle(self, request, body):
        return as_json({"status": "ok"})


class Proxy(Faults):
    """Passes everything on to a good server, and answers itself, as `how` says, what `where` (of "METHOD PATH") matches.
    "late": passed on, a second later."""

    def __init__(self, upstream, where=None, how=None):
        super().__init__()
        self.upstream = urllib.parse.urlsplit(upstream).netloc
        self.where, self.how = where, how

    def answer(self, request, body):
        if self.how and re.search(self.where, f"{request.command} {request.path}"):
            if not self.how.startswith("late"):
                return self.fail(self.how, request)
            time.sleep(1)
        return self.forward(request, body)

    def forward(self, request, body):
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        connection = http.client.HTTPConnection(self.upstream, timeout=120)
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
