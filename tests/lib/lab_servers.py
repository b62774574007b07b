# SPDX-License-Identifier: Apache-2.0
"""The servers of the test network (lab.py starts this in the world's network namespace): a name server, web servers
with and without TLS on several addresses, and others. Each line of the log tells what arrived."""

import http.server
import json
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

FOLDER = sys.argv[1]
ZONE = json.load(open(os.path.join(FOLDER, "zone.json")))  # {name: {"A": [...], "AAAA": [...], "TXT": [...]}}
WEB = json.load(open(os.path.join(FOLDER, "web.json")))  # addresses of web servers
LOG = open(os.path.join(FOLDER, "log"), "a", buffering=1)


def log(what, **more):
    LOG.write(json.dumps({"what": what, **more}) + "\n")


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


# --- DNS ---


def dns_name(data, at):
    labels = []
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode("latin-1"))
        at += data[at] + 1
    return ".".join(labels).lower(), at + 1


TYPES = {1: "A", 28: "AAAA", 16: "TXT", 15: "MX"}
counters = {}


def records(name, kind):
    entry = ZONE.get(name)
    if entry is None:
        return None
    values = entry.get(kind, [])
    if entry.get("turns") and values:  # another answer each time
        counters[name] = counters.get(name, -1) + 1
        return [values[counters[name] % len(values)]]
    return values


def record_data(kind, value):
    if kind == "A":
        return socket.inet_aton(value)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, value)
    return bytes([len(value)]) + value.encode()


def dns_answer(data):
    name, at = dns_name(data, 12)
    kind, _ = struct.unpack_from(">HH", data, at)
    kind = TYPES.get(kind, str(kind))
    log("dns", name=name, type=kind)
    entry = ZONE.get(name, {})
    if entry.get("silent"):
        return None
    owner, alias, body = b"\xc0\x0c", "CNAME" in entry, data[12 : at + 4]
    if alias:
        name = entry["CNAME"]
        target = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
        body += owner + struct.pack(">HHIH", 5, 1, 60, len(target)) + target
        owner = target
    found = records(name, kind)
    code = 3 if found is None else 0
    found = found or []
    head = data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(found) + alias, 0, 0)
    for value in found:
        content = record_data(kind, value)
        number = {v: k for k, v in TYPES.items()}[kind]
        body += owner + struct.pack(">HHIH", number, 1, entry.get("ttl", 60), len(content)) + content
    return head + body


class Dns(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        answer = dns_answer(data)
        if answer:
            sock.sendto(answer, self.client_address)


class DnsTcp(socketserver.BaseRequestHandler):
    def handle(self):
        head = self.request.recv(2)
        answer = dns_answer(self.request.recv(int.from_bytes(head, "big")))
        self.request.sendall(struct.pack(">H", len(answer)) + answer)


# --- web ---


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        name = getattr(self.connection, "told", None)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        key = self.headers.get_all("X-Key")
        log("http", to=self.connection.getsockname()[:2], sni=name, host=self.headers.get("Host"), path=self.path, key=key)
        if self.path.startswith("/files/"):
            path = os.path.join(FOLDER, "www", self.path[len("/files/") :].split("?")[0])
            if os.path.isdir(path):
                path = os.path.join(path, "index.html")
            content, status = (open(path, "rb").read(), 200) if os.path.exists(path) else (b"", 404)
        elif self.path.startswith("/bytes/"):
            content, status = b"x" * int(self.path[7:]), 200
        else:
            told = {"server": self.connection.getsockname()[0], "sni": name, "headers": dict(self.headers.items())}
            told["received"] = len(body)
            content, status = json.dumps(told).encode(), 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if self.path.endswith("/"):
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024
    tls = False

    def __init__(self, address, port, handler):
        self.address_family = family(address)
        super().__init__((address, port), handler, bind_and_activate=False)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.server_bind()
        self.server_activate()

    def get_request(self):
        sock, peer = super().get_request()
        log("connection", to=sock.getsockname()[:2])
        return sock, peer

    def finish_request(self, request, client_address):
        if self.tls:
            told = []
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.path.join(FOLDER, "server.pem"))
            context.sni_callback = lambda sock, name, ctx: told.append(name)
            try:
                request = context.wrap_socket(request, server_side=True)
            except (ssl.SSLError, OSError):
                return
            request.told = told[0] if told else None
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


class Tls(Server):
    tls = True


class Banner(socketserver.BaseRequestHandler):
    """Speaks first, then echoes."""

    def handle(self):
        self.request.sendall(b"220 hello\r\n")
        while True:
            data = self.request.recv(65536)
            if not data:
                return
            log("said", data=data[:60].decode("latin-1"))
            self.request.sendall(data)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            log("said", data=data[:60].decode("latin-1"))
            self.request.sendall(data)


class Upgrade(socketserver.BaseRequestHandler):
    """Agrees to an upgrade or, on /no, does not, or, on /stall and /silent, never says; tells the log what comes after it."""

    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            part = self.request.recv(4096)
            if not part:
                return
            data += part
        time.sleep(0.3)
        head, rest = data.split(b"\r\n\r\n", 1)
        log("upgrade", early=rest.decode("latin-1"))
        if b" /stall " in head or b" /silent " in head:
            self.request.sendall(b"HTTP/1.1 1" if b" /stall " in head else b"")
            self.request.settimeout(60)
            try:
                log("after", data=self.request.recv(4096).decode("latin-1"))
            except OSError as error:
                log("after", data=type(error).__name__)
            return
        if b" /no " in head:
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
            self.request.settimeout(1)
            try:
                log("after", data=self.request.recv(4096).decode("latin-1"))
            except OSError:
                log("after", data=None)
            return
        self.request.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while part := self.request.recv(4096):
            self.request.sendall(b"echo:" + part)


def serve(server):
    threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True).start()


class UdpServer(socketserver.ThreadingUDPServer):
    allow_reuse_address = True
    daemon_threads = True


class AnyUdp(socketserver.BaseRequestHandler):
    def handle(self):
        log("udp", to=self.server.server_address[:2])
        self.request[1].sendto(b"udp answer", self.client_address)


for resolver in WEB["resolvers"]:
    serve(UdpServer((resolver, 53), Dns))
    serve(Server(resolver, 53, DnsTcp))
for web in WEB["web"]:
    serve(Server(web, 80, Web))
    serve(Server(web, 8080, Web))
    serve(Tls(web, 443, Web))
    serve(Tls(web, 8443, Web))
    serve(Server(web, 2222, Banner))
    serve(Server(web, 7, Echo))
    serve(Server(web, 8081, Upgrade))
    serve(Tls(web, 8444, Upgrade))
    if ":" not in web:
        serve(UdpServer((web, 443), AnyUdp))
        serve(UdpServer((web, 5000), AnyUdp))
open(os.path.join(FOLDER, "ready"), "w").close()
signal_wait = threading.Event()
signal_wait.wait()
