# SPDX-License-Identifier: Apache-2.0
"""Clients of POST /run that mean harm, or know no better: slow, piped, huge, many, gone."""

import concurrent.futures
import json
import socket
import threading
import time

import pytest
from lib import executor_manager as em
from lib import host
from lib.daemon import Daemon
from lib.executor_manager import TOKEN, body, post, run, value

CODE = "def main(n=1): return n"


@pytest.fixture(scope="module")
def door():
    with Daemon(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_RUN_RATE_LIMIT="100000/minute",
                SANDBOX_RUN_PREAUTH_RATE_LIMIT="1000000/minute") as daemon:
        yield daemon


def head(size, token=TOKEN, *fields):
    lines = ["POST /run HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Content-Type: application/json", *fields]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def request(n, token=TOKEN):
    sent = json.dumps(body(CODE, arguments={"n": n})).encode()
    return head(len(sent), token) + sent


def answers(daemon, data, count):
    """(status, body) of so many answers on one connection."""
    found = []
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as sock:
        sock.sendall(data)
        with sock.makefile("rb") as file:
            for _ in range(count):
                status = int(file.readline().split()[1])
                fields = {}
                while (line := file.readline().strip()):
                    name, _, text = line.partition(b":")
                    fields[name.lower()] = text.strip()
                found.append((status, file.read(int(fields[b"content-length"]))))
    return found


def test_pipelined(door):
    """Good ones, bad ones and strangers in one burst: each gets its own answer, in order."""
    bad = head(1) + b"x"
    found = answers(door, request(1) + bad + request(2, "wrong") + request(3) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 5)
    assert [status for status, _ in found] == [200, 422, 401, 200, 200]
    assert [value(json.loads(found[i][1])) for i in (0, 3)] == [1, 3]


@pytest.mark.parametrize("field", ["X-Large: " + "x" * 200_000, "Authorization: Bearer " + "x" * 200_000, "Cookie: " + "a=b;" * 50_000,
                                   "\r\n".join(f"X-{i}: y" for i in range(20_000))])
def test_huge_headers(door, field):
    received = door.raw(b"POST /run HTTP/1.1\r\nHost: x\r\n" + field.encode() + b"\r\nContent-Length: 0\r\n\r\n", timeout=60)
    assert received == b"" or received.split(b" ")[1] in (b"431", b"413", b"400")
    assert value(run(door, CODE)) == 1


def test_long_tokens(door):
    for token in ("x" * 20_000, TOKEN + "x" * 20_000, TOKEN * 500, "e2b_" + "0" * 20_000):
        assert post(door, body(CODE), token).status == 401


@pytest.mark.parametrize("fields", [["Transfer-Encoding: chunked", "Content-Length: 3"], ["Content-Length: 3", "Content-Length: 4"],
                                    ["Transfer-Encoding: gzip"], ["Content-Length: -1"], ["Content-Length : 3"]])
def test_framing_that_is_not_clear(door, fields):
    received = door.raw(head(None, TOKEN, *fields) + b"0\r\n\r\n", timeout=60)
    assert received.split(b" ")[1] == b"400"
    assert b"200 OK" not in received
    if b'{"' in received:
        assert list(json.loads(received[received.index(b"\r\n\r\n") + 4:])) == ["detail"]


def test_bodies_that_do_not_end(door):
    """Announced, begun, and left: nothing of them stays."""
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", door.port)) as sock:
            sock.sendall(head(1 << 20) + b'{"code_b64":"')
    with socket.create_connection(("127.0.0.1", door.port)) as sock:
        sock.sendall(head(None, TOKEN, "Transfer-Encoding: chunked") + b"5\r\n{\"cod\r\nffffffffffffffffff\r\n")
        sock.settimeout(60)
        first = sock.recv(1000)
        assert first == b"" or first.split(b" ")[1] in (b"400", b"413")
    assert value(run(door, CODE)) == 1


def test_expect_100(door):
    sent = json.dumps(body(CODE)).encode()
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as sock:
        sock.sendall(head(len(sent), TOKEN, "Expect: 100-continue"))
        assert b"100 Continue" in sock.recv(1000)
        sock.sendall(sent)
        received = b""
        while b'"result"' not in received:
            received += sock.recv(65536)
        assert b"200 OK" in received


@pytest.mark.limit(60)
def test_slow_strangers_do_not_lock_out_who_may(own):
    """All places taken by strangers who drip their header or body: they are closed, and calls with the token are heard."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, connections=6)
    stop = threading.Event()

    def drip(first):
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as sock:
                    sock.sendall(first)
                    while not stop.wait(0.3):
                        sock.sendall(b"1")
            except OSError:
                stop.wait(0.2)

    firsts = [b"POST /run HTTP/1.1\r\nHost: x\r\nX-A: ", head(100000, "wrong") + b"["] * 3
    threads = [threading.Thread(target=drip, args=(first,)) for first in firsts]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)

        def heard():
            try:
                return post(daemon, body(CODE), timeout=20).status == 200
            except OSError:
                return False

        assert host.wait_for(heard)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_slow_body_of_one_who_may_is_waited_for(own):
    """While strangers are closed after 5 s, since all places are taken."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, connections=1)
    sent = json.dumps(body(CODE)).encode()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as sock:
        sock.sendall(head(len(sent)))
        for at in range(0, len(sent), 12):
            sock.sendall(sent[at:at + 12])
            time.sleep(1)
        received = sock.recv(65536)
        assert b"200 OK" in received, received


def test_many_strangers_with_large_bodies(own):
    """What they send is not kept: the gateway's memory does not grow with it."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_RUN_PREAUTH_RATE_LIMIT="1000000/minute")
    assert value(run(daemon, CODE)) == 1
    gateway = daemon.role("gateway")
    before = host.status_kb(gateway, "VmHWM")
    data = b"[" * (8 << 20)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: post(daemon, data, "wrong").status, range(32))) == {401}
    assert host.status_kb(gateway, "VmHWM") - before < 32 << 10


def test_deep_and_wide_bodies(door):
    for sent in (b'{"a":' * 70 + b"1" + b"}" * 70, b"[" * 65 + b"]" * 65):
        assert em.detail(post(door, sent))[0]["type"] == "json_invalid"
    wide = b"{" + b",".join(b'"k%d":[]' % i for i in range(200_000)) + b"}"
    answer = post(door, wide)
    assert em.detail(answer)[0]["type"] == "missing" and answer.body.count(b'"k') == 200_000
    deep = b'{"code_b64":"%s","arguments":%s}' % (em.encode("def main(**a): return len(a)").encode(), b'{"a":' * 62 + b"1" + b"}" * 62)
    assert value(post(door, deep).json()) == 1


def test_a_flood_leaves_no_trace(door):
    """A thousand calls of all kinds: it still answers, and holds no more descriptors than before."""
    gateway = door.role("gateway")
    before = len(host.descriptors(gateway))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        kinds = [lambda: post(door, b"x").status, lambda: post(door, {}, "no").status, lambda: post(door, {}).status,
                 lambda: door.get("/healthz").status]
        found = list(pool.map(lambda i: kinds[i % 4](), range(1000)))
    assert found == [422, 401, 422, 200] * 250
    assert value(run(door, CODE)) == 1
    assert host.wait_for(lambda: len(host.descriptors(gateway)) <= before + 4)
