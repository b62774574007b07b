# SPDX-License-Identifier: Apache-2.0
"""Connections to what a program of a kept guest listens on: each direction ends by itself, as TCP has it. They are reached
through E2B's door, as an upgraded connection, which passes bytes on as they come."""

import contextlib
import socket
import threading

import pytest
from lib import host
from lib.e2b import Sandbox
from lib.pace import stretched

pytestmark = pytest.mark.each_backend

PORT = 8000

# It agrees to the upgrade; what is talked about behind that is the test's.
SERVER = f"""
import socket
server = socket.create_server(("127.0.0.1", {PORT}))
open("/tmp/listens", "w").close()
conn, _ = server.accept()
head = b""
while b"\\r\\n\\r\\n" not in head:
    head += conn.recv(4096)
def all_of(conn):
    got = b""
    while part := conn.recv(65536):
        got += part
    return got
conn.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: words\\r\\nConnection: Upgrade\\r\\n\\r\\n")
"""


@pytest.fixture
def box(daemon):
    made = Sandbox(daemon)
    yield made
    made.kill()


@contextlib.contextmanager
def serving(box, talk):
    """A server in the sandbox, which is awaited behind the block."""
    box.envd("POST", box.files("/tmp/server.py"), (SERVER + talk).encode(), headers={"Content-Type": "application/octet-stream"})
    ended = []
    thread = threading.Thread(target=lambda: ended.append(box.run("exec python3 /tmp/server.py")))
    thread.start()
    assert host.wait_for(lambda: box.run("test -e /tmp/listens")[0] == 0, stretched(20))
    yield
    thread.join(stretched(30))
    assert ended and ended[0][0] == 0, ended


def connect(box):
    """A connection to it that was upgraded."""
    sock = socket.create_connection(("127.0.0.1", box.daemon.port), stretched(20))
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {PORT}-{box.id}.localhost\r\nUpgrade: words\r\nConnection: Upgrade\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = sock.recv(1)
        assert part, head
        head += part
    assert head.startswith(b"HTTP/1.1 101 "), head
    return sock


def all_of(sock):
    got = b""
    while part := sock.recv(65536):
        got += part
    return got


def test_a_server_that_sends_no_more_reads_on(box):
    talk = """
conn.sendall(b"all that I say")
conn.shutdown(socket.SHUT_WR)
open("/tmp/heard", "wb").write(all_of(conn))
"""
    words = b"and this is for you. " * 10000
    with serving(box, talk), connect(box) as sock:
        assert all_of(sock) == b"all that I say"
        sock.sendall(words)
        sock.shutdown(socket.SHUT_WR)
    assert box.envd("GET", box.files("/tmp/heard")).body == words


def test_a_caller_that_sends_no_more_reads_on(box):
    talk = """
got = all_of(conn)
conn.sendall(got[::-1])
conn.close()
"""
    words = b"say that backwards. " * 10000
    with serving(box, talk), connect(box) as sock:
        sock.sendall(words)
        sock.shutdown(socket.SHUT_WR)
        assert all_of(sock) == words[::-1]
