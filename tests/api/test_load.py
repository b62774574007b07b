# SPDX-License-Identifier: Apache-2.0
"""Many clients at once."""

import json
import selectors
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib import host

CLIENTS = 1500


class Exchange:
    """One streaming client: sends its request, gathers its answer."""

    def __init__(self, daemon, number):
        body = json.dumps(
            {
                "language": "python",
                "timeout_s": 60,
                "code": (
                    f"import time\nfor i in range(3):\n    print('client {number} line', i, flush=True)\n"
                    f"    time.sleep(0.01)"
                ),
            }
        ).encode()
        self.number, self.received = number, b""
        self.to_send = (
            b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            + daemon.key.encode()
            + (
                b"\r\nAccept: application/x-ndjson\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: "
            )
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", daemon.port))

    def step(self, mask):
        """True when the exchange is over."""
        try:
            if mask & selectors.EVENT_WRITE and self.to_send:
                self.to_send = self.to_send[self.socket.send(self.to_send) :]
            if mask & selectors.EVENT_READ:
                part = self.socket.recv(65536)
                self.received += part
                return not part
        except BlockingIOError:
            pass
        except OSError as err:
            self.received += f"[{err}]".encode()
            return True
        return False

    def check(self):
        head, _, rest = self.received.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            return f"client {self.number}: {self.received[:200]!r}"
        body, events = b"", []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            size = int(size, 16)
            body, rest = body + rest[:size], rest[size + 2 :]
            if size == 0:
                break
        events = [json.loads(line) for line in body.splitlines()]
        text = "".join(event["data"] for event in events if event["type"] == "stdout")
        if text != "".join(f"client {self.number} line {i}\n" for i in range(3)) or events[-1]["type"] != "outcome":
            return f"client {self.number}: {events}"
        return None


def exchange_all(daemon, count, seconds):
    selector = selectors.DefaultSelector()
    exchanges = []
    for number in range(count):
        one = Exchange(daemon, number)
        exchanges.append(one)
        selector.register(one.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
        if number % 100 == 99:
            time.sleep(0.02)  # the listen backlog is not what is tested
    open_count, end = count, time.monotonic() + seconds
    while open_count and time.monotonic() < end:
        for key, mask in selector.select(1):
            one = key.data
            if one.step(mask):
                selector.unregister(one.socket)
                one.socket.close()
                open_count -= 1
            elif not one.to_send:
                selector.modify(one.socket, selectors.EVENT_READ, one)
    for one in exchanges:
        one.socket.close()
    selector.close()
    assert open_count == 0, f"{open_count} clients got no whole answer in {seconds} s"
    return exchanges


@pytest.mark.limit(200)
def test_1500_streaming_clients_at_once(own):
    made = own(timeout_s=60, queue=3000, queue_timeout_s=180)
    bad = [said for said in (one.check() for one in exchange_all(made, CLIENTS, 150)) if said]
    assert not bad, (len(bad), bad[:3])
    assert made.run("print('after')")["stdout"] == "after\n"


@pytest.mark.limit(120)
def test_a_flood_beyond_the_connection_limit_gets_a_defined_answer(own):
    made = own(connections=64, max_runs=1, queue=64, guest_start_s=120)
    body = json.dumps({"language": "python", "code": "import time; time.sleep(300)", "timeout_s": 300}).encode()
    held = []
    for _ in range(64):  # all are under way
        sock = socket.create_connection(("127.0.0.1", made.port), timeout=60)
        sock.sendall(
            b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nContent-Type: application/json\r\n"
            + f"Authorization: Bearer {made.key}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        assert sock.recv(12) == b"HTTP/1.1 200"
        held.append(sock)
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", made.port), timeout=60) as sock:
            sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 503"
    for sock in held:
        sock.close()
    assert host.wait_for(lambda: made.get("/readyz").status == 200)
    assert made.run("print('after')")["stdout"] == "after\n"


def test_many_clients_each_gets_its_own(daemon):
    def one(number):
        answer = daemon.run(f"import os\nprint({number} * 7, len(os.listdir('/tmp')))", timeout=90)
        return answer["stdout"] == f"{number * 7} 0\n"

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(one, range(400)))


def test_mixed_languages_at_once(daemon):
    programs = [
        ("python", "print('p')", "p\n"),
        ("javascript", "console.log('j')", "j\n"),
        ("bash", "echo b", "b\n"),
        ("python", "import pandas; print('d')", "d\n"),
    ]

    def one(number):
        language, code, out = programs[number % 4]
        answer = daemon.run(code, language, timeout=90)
        return answer["stdout"] == out or answer

    with ThreadPoolExecutor(16) as pool:
        assert [said for said in pool.map(one, range(64)) if said is not True] == []


def test_many_idle_connections_do_not_matter(daemon):
    idle = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(300)]
    try:
        assert daemon.run("print(1)")["stdout"] == "1\n"
    finally:
        for sock in idle:
            sock.close()


def test_clients_that_never_finish_their_request(daemon):
    slow = []
    for _ in range(100):
        sock = socket.create_connection(("127.0.0.1", daemon.port))
        sock.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        slow.append(sock)
    try:
        assert daemon.run("print(1)")["stdout"] == "1\n"
    finally:
        for sock in slow:
            sock.close()
