# SPDX-License-Identifier: Apache-2.0
"""Servers that answer in every wrong way: alone, or standing between a client and a good server."""

import http.client
import os
import re
import select
import socket
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.parse

from .protocols import Server, as_json

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade", "expect"}


class Faults(Server):
    """Each method is one wrong answer to one request, after which the connection is closed."""

    def __init__(self):
        super().__init__()
        self.released, self.gave_up = threading.Event(), False

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

    def bad_json(self, request):
        self.raw(request, b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n{"a":[1]')

    def wrong_json(self, request):
        self.raw(request, b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{"a":[1,null]}')

    def no_json(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n<html>hi\n")

    def endless(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4000):
            self.raw(request, b"10000\r\n" + b"x" * 65536 + b"\r\n")

    def endless_header(self, request):
        self.raw(request, b"HTTP/1.1 200 OK\r\n")
        for number in range(20000):
            self.raw(request, b"X-%d: %s\r\n" % (number, b"y" * 100))

    def none_yet(self, request):
        """CreateOS's list of sandboxes, without any."""
        self.raw(request, b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 30\r\n\r\n{"status":"success","data":[]}')

    def no_such_program(self, request):
        """E2B's stream of a program that ended with 127."""
        self.raw(request, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/connect+json\r\n\r\n" + b"".join(
            bytes([flags]) + len(text).to_bytes(4, "big") + text for flags, text in (
                (0, b'{"event":{"start":{"pid":7}}}'), (0, b'{"event":{"end":{"exitCode":127}}}'), (2, b"{}"))))

    def hold(self, request):
        """Says nothing until it is released, or for 40 s."""
        self.gave_up = not self.released.wait(40)

    def slow(self, request):
        time.sleep(20)

    def redirect(self, request):
        self.raw(request, b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n"
                 b"Content-Length: 0\r\n\r\n")

    def status(self, request, number):
        echoed = ",".join(request.headers.get(name, "") for name in ("Authorization", "X-Api-Key")).encode()
        text = b'{"detail":"you sent %s"}' % echoed
        self.raw(request, b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (number, len(text), text))


for code in (401, 402, 403, 404, 409, 429, 500, 502, 503):
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
    """Passes everything on to a good server, and answers itself, as `how` says, what `where` (of "METHOD PATH BODY")
    matches. "late": passed on, a second later. "lost": passed on, and the answer kept ("lost:FAULT": instead comes that;
    else it is cut). "held": passed on, and the answer
    kept until it is released, or for 40 s. "unseen": CreateOS's lists are empty, and of all else the answer is lost.
    tls: an ssl.SSLContext of its own side."""

    def __init__(self, upstream, where=None, how=None, tls=None):
        super().__init__()
        self.upstream = urllib.parse.urlsplit(upstream).netloc
        self.where, self.how = where, how
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            self.url = self.url.replace("http:", "https:")
        self.port = self.server.server_address[1]

    def matches(self, request, body):
        text = f"{request.command} {request.path} " + body.decode("latin-1")
        return self.how and re.search(self.where, text, re.S)

    def answer(self, request, body):
        how = self.how if self.matches(request, body) else None
        if how == "late":
            time.sleep(1)
        elif how == "unseen":
            how = "lost" if request.command == "POST" else "none_yet"
        if how and how.partition(":")[0] not in ("late", "lost", "held"):
            return self.fail(how, request)
        return self.forward(request, body, how)

    def forward(self, request, body, how=None):
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        connection = http.client.HTTPConnection(self.upstream, timeout=120)
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        if how == "held":
            self.hold(request)
        if how and how.startswith("lost"):
            answer.read()
            connection.close()
            return self.fail(how.partition(":")[2] or "cut", request)
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                request.send_header(name, value)
        size = answer.getheader("Content-Length") or ("0" if answer.status == 204 else None)
        request.send_header(*(("Content-Length", size) if size else ("Transfer-Encoding", "chunked")))
        request.end_headers()
        try:
            while data := answer.read1(65536):
                self.raw(request, data if size else b"%x\r\n%s\r\n" % (len(data), data))
            if not size:
                self.raw(request, b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True
        finally:
            connection.close()


class Tunnel:
    """An HTTP proxy that knows CONNECT and nothing else, and leads every name to one port of this machine."""

    def __init__(self, port):
        self.port, self.asked, outer = port, [], self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                outer.asked.append(self.rfile.readline().decode())
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                with socket.create_connection(("127.0.0.1", outer.port)) as other:
                    outer.relay(self.connection, other)

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def relay(one, other):
        ends = {one: other, other: one}
        while True:
            for ready in select.select(list(ends), [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                ends[ready].sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Authority:
    """Certificates for the name api.cordon.test: good, expired, of another name; and the context of a server with one."""

    CONFIG = """[ca]
default_ca = own
[own]
new_certs_dir = .
database = index
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""

    def __init__(self, folder):
        self.folder = folder
        for name, text in (("conf", self.CONFIG), ("index", ""), ("serial", "01\n")):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(text)
        self.openssl("req", "-x509", *self.key("ca"), "-out", "ca.pem", "-subj", "/CN=the tests", "-days", "30")
        self.sign("good", "api.cordon.test", "20200101000000Z", "20991231000000Z")
        self.sign("expired", "api.cordon.test", "20200101000000Z", "20200201000000Z")
        self.sign("other", "another.test", "20200101000000Z", "20991231000000Z")

    def path(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    @staticmethod
    def key(name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key")

    def sign(self, name, host, begin, end):
        self.openssl("req", *self.key(name), "-out", name + ".csr", "-subj", "/CN=" + host, "-addext", "subjectAltName=DNS:" + host)
        self.openssl("ca", "-batch", "-config", "conf", "-cert", "ca.pem", "-keyfile", "ca.key", "-in", name + ".csr",
                     "-out", name + ".pem", "-startdate", begin, "-enddate", end, "-notext")

    def context(self, name):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.path(name + ".pem"), self.path(name + ".key"))
        return made
