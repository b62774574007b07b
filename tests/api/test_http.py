# SPDX-License-Identifier: Apache-2.0
"""The protocol below: requests that are wrong, late, chunked, piped, or gone."""

import http.client
import json
import re
import socket
import time

import pytest
from lib import host

GOOD = {"language": "python", "code": "print(1)"}

BAD = [  # (name, body, what the message must name)
    ("empty", b"", None),
    ("not json", b"hello", None),
    ("half", b'{"language":"python"', None),
    ("trailing", b'{"language":"python","code":"1"} x', None),
    ("two values", b'{"language":"python","code":"1"}{}', None),
    ("array", b"[]", None),
    ("string", b'"x"', None),
    ("number", b"5", None),
    ("null", b"null", None),
    ("no language", b'{"code":"1"}', "language"),
    ("no code", b'{"language":"python"}', "code"),
    ("code number", b'{"language":"python","code":5}', "code"),
    ("code null", b'{"language":"python","code":null}', "code"),
    ("code array", b'{"language":"python","code":["1"]}', "code"),
    ("language number", b'{"language":5,"code":"1"}', "language"),
    ("language unknown", b'{"language":"cobol","code":"1"}', "language"),
    ("stdin number", b'{"language":"python","code":"1","stdin":5}', "stdin"),
    ("env array", b'{"language":"python","code":"1","env":["A=b"]}', "env"),
    ("env number", b'{"language":"python","code":"1","env":{"A":5}}', "env"),
    ("files string", b'{"language":"python","code":"1","files":"x"}', "files"),
    ("files entry number", b'{"language":"python","code":"1","files":[5]}', "files"),
    ("files no path", b'{"language":"python","code":"1","files":[{"content":"x"}]}', "path"),
    ("files no content", b'{"language":"python","code":"1","files":[{"path":"x"}]}', "content"),
    ("files bad base64", b'{"language":"python","code":"1","files":[{"path":"x","content_b64":"*"}]}', "base64"),
    ("timeout string", b'{"language":"python","code":"1","timeout_s":"5"}', "timeout_s"),
    ("timeout zero", b'{"language":"python","code":"1","timeout_s":0}', "timeout_s"),
    ("timeout negative", b'{"language":"python","code":"1","timeout_s":-1}', "timeout_s"),
    ("timeout huge", b'{"language":"python","code":"1","timeout_s":1e99}', "timeout_s"),
    ("timeout beyond 64 bits", b'{"language":"python","code":"1","timeout_s":99999999999999999999}', "timeout_s"),
    ("timeout bool", b'{"language":"python","code":"1","timeout_s":true}', "timeout_s"),
    ("timeout object", b'{"language":"python","code":"1","timeout_s":{}}', "timeout_s"),
    ("memory string", b'{"language":"python","code":"1","memory_mb":"64"}', "memory_mb"),
    ("memory fraction", b'{"language":"python","code":"1","memory_mb":64.5}', "memory_mb"),
    ("network string", b'{"language":"python","code":"1","network":"yes"}', "network"),
    ("domains string", b'{"language":"python","code":"1","allowed_domains":"a.com"}', "allowed_domains"),
    ("domains numbers", b'{"language":"python","code":"1","allowed_domains":[1]}', "allowed_domains"),
    ("artifacts string", b'{"language":"python","code":"1","artifacts":"yes"}', "artifacts"),
    ("arguments array", b'{"language":"python","code":"1","arguments":[]}', "arguments"),
    ("backend number", b'{"language":"python","code":"1","backend":5}', "backend"),
    ("backend empty", b'{"language":"python","code":"1","backend":"  "}', "backend"),
    ("unknown field", b'{"language":"python","code":"1","timeout":5}', "timeout"),
    ("unknown field 2", b'{"language":"python","code":"1","Code":"2"}', "Code"),
    ("single quotes", b"{'language':'python','code':'1'}", None),
    ("comment", b'{"language":"python","code":"1"}//x', None),
    ("trailing comma", b'{"language":"python","code":"1",}', None),
    ("nan", b'{"language":"python","code":"1","timeout_s":NaN}', None),
    ("bad escape", b'{"language":"python","code":"\\q"}', None),
    ("raw newline", b'{"language":"python","code":"a\nb"}', None),
    ("bad utf-8", b'{"language":"python","code":"\xff"}', None),
    ("nul byte", b'{"language":"python","code":"1"}\0', None),
    ("utf-16", '{"language":"python","code":"1"}'.encode("utf-16"), None),
    ("deep", b'{"language":"python","code":"1","arguments":' + b'{"a":' * 100000 + b"1" + b"}" * 100000 + b"}", None),
    ("deep arrays", b"[" * 200000, None),
]
LENIENT = {"trailing comma", "raw newline", "backend empty"}  # reading these in one's favour does no harm


@pytest.mark.parametrize("name,body,field", BAD, ids=[bad[0] for bad in BAD])
def test_bad_bodies(daemon, name, body, field):
    answer = daemon.post(body)
    if name in LENIENT and answer.status == 200:
        return
    assert answer.status == 400, answer
    kind, message = answer.error()
    assert kind == "invalid_request" and message
    if field:
        assert field in message, message


def test_duplicate_fields_do_not_confuse(daemon):
    answer = daemon.post(b'{"language":"python","code":"print(1)","code":"print(2)"}')
    assert answer.status == 400 or answer.json()["stdout"] in ("1\n", "2\n")


def test_bad_bodies_leave_the_daemon_well(daemon):
    for _, body, _ in BAD:
        daemon.post(body)
    assert daemon.run("print('well')")["stdout"] == "well\n"


class TestKeys:
    @pytest.mark.parametrize(
        "header",
        [
            None,
            "",
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Bearer e2b_" + "0" * 40,
            "Basic dTpw",
            "e2b_" + "0" * 40,
            "Bearer e2b_" + "g" * 40,
            "Bearer " + "a" * 5000,
        ],
    )
    def test_without_a_right_one(self, daemon, header):
        answer = daemon.post(GOOD, headers={"Authorization": header})
        assert answer.status == 401, answer
        assert answer.error()[0] == "unauthenticated"
        assert "WWW-Authenticate" in answer.headers

    def test_truncated_or_longer(self, daemon):
        for key in (daemon.key[:-1], daemon.key + "0", daemon.key.upper(), " " + daemon.key + " x"):
            assert daemon.post(GOOD, headers={"Authorization": f"Bearer {key}"}).status == 401, key

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
    def test_scheme_in_any_case(self, daemon, scheme):
        assert daemon.post(GOOD, headers={"Authorization": f"{scheme} {daemon.key}"}).status == 200

    def test_revoked_while_the_daemon_runs(self, own):
        from lib.daemon import cli

        made = own()
        second = made.create_key("--scope", "run")
        headers = {"Authorization": f"Bearer {second}"}
        assert made.post(GOOD, headers=headers).status == 200
        listed = cli("key", "list", "--state", made.state)
        ids = re.findall(r"\b[0-9a-f]{16}\b", listed.text)
        assert len(ids) == 2, listed
        for identity in ids:
            assert cli("key", "revoke", identity, "--state", made.state).status == 0
        assert host.wait_for(lambda: made.post(GOOD, headers=headers).status == 401)
        assert made.post(GOOD).status == 401

    def test_made_while_the_daemon_runs(self, own):
        made = own()
        fresh = made.create_key()
        assert host.wait_for(lambda: made.post(GOOD, headers={"Authorization": f"Bearer {fresh}"}).status == 200)

    def test_the_body_is_not_read_without_one(self, daemon):
        answer = daemon.post(b"not json", headers={"Authorization": None})
        assert answer.status == 401


@pytest.mark.parametrize(
    "method,path,status",
    [
        ("GET", "/nothing", 404),
        ("GET", "/nope", 404),
        ("POST", "/v1/run", 404),
        ("POST", "/v1/runs/", 404),
        ("GET", "/v1/runs", 405),
        ("PUT", "/v1/runs", 405),
        ("DELETE", "/v1/runs", 405),
        ("POST", "/metrics", 405),
        ("POST", "/readyz", 405),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/%2e%2e/etc/passwd", 404),
        ("GET", "/v1/runs%00", 404),
        ("BREW", "/v1/runs", 405),
        ("GET", "//v1//runs", 404),
        ("GET", "/" + "a" * 4000, 404),
    ],
)
def test_wrong_routes(daemon, method, path, status):
    answer = daemon.request(method, path)
    assert answer.status == status, answer
    assert answer.error()[0] in ("not_found", "invalid_request", "unsupported")
    if status == 405:
        assert answer.headers["Allow"]


def test_head(daemon):
    answer = daemon.request("HEAD", "/readyz")
    assert answer.status == 200 and answer.body == b""
    assert daemon.request("HEAD", "/nope").status == 404


def test_keep_alive_serves_many(daemon):
    connection = daemon.connection()
    for i in range(30):
        assert daemon.run(f"print({i})", connection=connection)["stdout"] == f"{i}\n"
    connection.close()


def test_an_error_keeps_the_connection(daemon):
    connection = daemon.connection()
    assert daemon.request("POST", "/v1/runs", b"bad", connection=connection).status == 400
    assert daemon.run("print(1)", connection=connection)["stdout"] == "1\n"
    connection.close()


def raw_request(daemon, body, extra="", method="POST", path="/v1/runs", version="HTTP/1.1"):
    head = (
        f"{method} {path} {version}\r\nHost: x\r\nAuthorization: Bearer {daemon.key}\r\n"
        f"Content-Type: application/json\r\n{extra}"
    )
    return head.encode() + (f"Content-Length: {len(body)}\r\n\r\n".encode() + body if body is not None else b"\r\n")


def responses(data, count):
    """Splits answers that have a Content-Length or are chunked."""
    import io

    class Fake:
        def __init__(self, data):
            self.file = io.BytesIO(data)

        def makefile(self, *_):
            return self.file

    fake, found = Fake(data), []
    for _ in range(count):
        response = http.client.HTTPResponse(fake)
        fake.file.close = lambda: None
        response.begin()
        found.append((response.status, response.read()))
    return found


def test_pipelined_requests_are_answered_in_order(daemon):
    bodies = [json.dumps({"language": "python", "code": f"print({i})"}).encode() for i in range(5)]
    data = b"".join(
        raw_request(daemon, body, "" if i < 4 else "Connection: close\r\n") for i, body in enumerate(bodies)
    )
    found = responses(daemon.raw(data), 5)
    assert [json.loads(body)["stdout"] for _, body in found] == [f"{i}\n" for i in range(5)]


def test_chunked_bodies(daemon):
    body = json.dumps({"language": "python", "code": "print('chunky')"}).encode()
    chunks = (
        b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
        + b"0\r\n\r\n"
    )
    data = raw_request(daemon, None, "Transfer-Encoding: chunked\r\nConnection: close\r\n") + chunks
    ((status, text),) = responses(daemon.raw(data), 1)
    assert status == 200 and json.loads(text)["stdout"] == "chunky\n"


def test_a_body_in_single_bytes(daemon):
    data = raw_request(daemon, json.dumps(GOOD).encode(), "Connection: close\r\n")
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            sock.send(data[i : i + 1])
        received = b""
        while part := sock.recv(65536):
            received += part
    assert responses(received, 1)[0][0] == 200


def test_expect_continue(daemon):
    body = json.dumps(GOOD).encode()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as sock:
        head = raw_request(daemon, body, "Expect: 100-continue\r\nConnection: close\r\n")[: -len(body)]
        sock.sendall(head)
        assert b"100" in sock.recv(1000)
        sock.sendall(body)
        received = b""
        while part := sock.recv(65536):
            received += part
    assert b"200 OK" in received


def test_http_1_0(daemon):
    answer = daemon.raw(raw_request(daemon, json.dumps(GOOD).encode(), version="HTTP/1.0"))
    assert (
        b" 200 " in answer.split(b"\r\n")[0]
        and answer.endswith(b"}")
        or b'"stdout":"1\\n"' in answer.replace(b" ", b"")
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"\0" * 1000,
    ],
)
def test_garbage_ends_its_own_connection_only(daemon, data):
    daemon.raw(data, timeout=3)
    assert daemon.run("print('well')")["stdout"] == "well\n"


def test_smuggling_two_lengths(daemon):
    inner = raw_request(daemon, json.dumps(GOOD).encode())
    data = (
        b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner
    )
    answer = daemon.raw(data, timeout=5)
    assert answer.count(b"HTTP/1.1 200") <= 1


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 0\r\nContent-Length: %d\r\n",
        b"Content-Length: %d\r\nContent-Length: %d\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length : %d\r\n",
        b"Transfer-Encoding : chunked\r\n",
    ],
)
def test_smuggling_fields_that_proxies_read_otherwise(daemon, fields):
    body = json.dumps(GOOD).encode()
    size = fields.replace(b"%d", str(len(body)).encode())
    if b"chunked" in fields:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {daemon.key}\r\n".encode()
    answer = daemon.raw(head + size + b"\r\n" + body, timeout=5)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1, answer


def fill(made, count):
    """count runs that sleep, over connections that stay open; returns the sockets."""
    sockets = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", made.port), timeout=60)
        body = json.dumps({"language": "python", "code": "import time; time.sleep(100)", "timeout_s": 100}).encode()
        sock.sendall(raw_request(made, body))
        sockets.append(sock)
    return sockets


def metric(made, pattern):
    match = re.search(pattern + r"(?:\{[^}]*\})? (\d+(?:\.\d+)?)$", made.get("/metrics").body.decode(), re.M)
    return float(match.group(1)) if match else None


class TestDisconnect:
    def test_cancels_the_run_and_frees_the_place(self, own):
        made = own(max_runs=1)
        (sock,) = fill(made, 1)
        made.wait_for_load(1)
        sock.close()
        began = time.monotonic()
        assert made.run("print('next')")["stdout"] == "next\n"
        assert time.monotonic() - began < 60

    def test_cancels_a_queued_run_too(self, own):
        made = own(max_runs=1, queue=1)
        (running,) = fill(made, 1)
        made.wait_for_load(1)
        (queued,) = fill(made, 1)
        made.wait_for_load(1, waiting=1)
        assert made.post(GOOD).status == 503
        queued.close()
        made.wait_for_load(1)
        (third,) = fill(made, 1)  # takes the freed place in the queue
        made.wait_for_load(1, waiting=1)
        running.close()
        third.close()
        assert host.wait_for(lambda: made.post(GOOD).status == 200)

    def test_of_a_streaming_client(self, own):
        made = own(max_runs=1)
        events = made.stream("import time\nwhile True: print('x', flush=True); time.sleep(0.05)", timeout_s=200)
        for _, event in events:
            if event["type"] == "stdout":
                break
        events.close()
        began = time.monotonic()
        assert made.run("print('next')")["stdout"] == "next\n"
        assert time.monotonic() - began < 60

    def test_while_output_floods(self, own):
        made = own(max_runs=1)
        events = made.stream("while True: print('x' * 1000)", timeout_s=200)
        for count, _ in enumerate(events):
            if count > 20:
                break
        events.close()
        began = time.monotonic()
        assert made.run("print('next')")["stdout"] == "next\n"
        assert time.monotonic() - began < 60

    def test_half_close_is_a_client_that_left(self, own):
        """POLLRDHUP: a client that shuts its sending side down is taken as gone; what matters is that nothing hangs."""
        made = own(max_runs=1)
        (sock,) = fill(made, 1)
        made.wait_for_load(1)
        sock.shutdown(socket.SHUT_WR)
        made.wait_for_load(0)
        sock.close()
        assert made.run("print('next')")["stdout"] == "next\n"


class TestQueue:
    def test_runs_wait_and_say_how_long(self, own):
        from concurrent.futures import ThreadPoolExecutor

        made = own(max_runs=1)
        (first,) = fill(made, 1)
        made.wait_for_load(1)
        with ThreadPoolExecutor(2) as pool:
            others = []
            for waiting in (1, 2):
                others.append(pool.submit(made.run, "import time; time.sleep(0.4)"))
                made.wait_for_load(1, waiting)
            time.sleep(0.4)
            first.close()
            waits = [other.result()["timing"]["queue_ms"] for other in others]
        assert 400 <= waits[0] and 800 <= waits[1], waits

    def test_full_is_busy_with_a_retry_after(self, own):
        made = own(max_runs=1, queue=1)
        sockets = fill(made, 1)
        made.wait_for_load(1)
        sockets += fill(made, 1)
        made.wait_for_load(1, waiting=1)
        answer = made.post(GOOD)
        assert answer.status == 503 and answer.error()[0] == "busy"
        assert int(answer.headers["Retry-After"]) >= 1
        for sock in sockets:
            sock.close()
        assert host.wait_for(lambda: made.post(GOOD).status == 200)

    def test_too_long_a_wait_is_busy_too(self, own):
        made = own(max_runs=1, queue_timeout_s=1)
        sockets = fill(made, 1)
        made.wait_for_load(1)
        began = time.monotonic()
        answer = made.post(GOOD)
        assert answer.status == 503 and answer.error()[0] == "busy" and 0.8 < time.monotonic() - began < 60
        for sock in sockets:
            sock.close()

    def test_no_queue_at_all(self, own):
        made = own(max_runs=1, queue=0)
        sockets = fill(made, 1)
        made.wait_for_load(1)
        assert made.post(GOOD).status == 503
        for sock in sockets:
            sock.close()


def slow_stream(made, body):
    """A stream whose head has come, on a socket that takes little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", made.port))
    sock.sendall(raw_request(made, body).replace(b"\r\n\r\n", b"\r\nAccept: application/x-ndjson\r\n\r\n", 1))
    assert sock.recv(15, socket.MSG_PEEK).startswith(b"HTTP/1.1 200")
    return sock


class TestStrangersAndSnails:
    def test_idle_connections_without_a_key_lock_nobody_out(self, own):
        made = own(connections=8)
        held = []
        for _ in range(300):
            sock = socket.create_connection(("127.0.0.1", made.port), timeout=60)
            sock.sendall(b"GET /readyz HTTP/1.1\r\n")
            held.append(sock)
        assert made.run("print('in')")["stdout"] == "in\n"
        for sock in held:
            sock.close()

    def test_a_reader_that_does_not_read_keeps_no_place(self, own):
        made = own(max_runs=1, stdout_kb=20000)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", made.port))
            code = json.dumps({"language": "python", "code": "print('x' * 15000000)"}).encode()
            sock.sendall(raw_request(made, code))
            assert sock.recv(15, socket.MSG_PEEK).startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            assert made.run("print('next')")["stdout"] == "next\n" and time.monotonic() - began < 60

    @pytest.mark.parametrize("after", ["", "while True: time.sleep(9)"], ids=["ends", "deadline"])
    def test_a_stream_that_is_not_read_keeps_no_place(self, own, after):
        made = own(max_runs=1, stdout_kb=20000)
        code = f"import time\nfor _ in range(150): print('x' * 100000, flush=True)\n{after}"
        body = json.dumps({"language": "python", "code": code, "timeout_s": 8 if after else 100}).encode()
        with slow_stream(made, body) as sock:
            began = time.monotonic()
            assert made.run("print('next')")["stdout"] == "next\n" and time.monotonic() - began < 60
            rest = http.client.HTTPResponse(sock)
            rest.begin()
            events = [json.loads(line) for line in rest.read().splitlines()]
            text = "".join(event["data"] for event in events if event["type"] == "stdout")
            assert text == ("x" * 100000 + "\n") * 150
            outcome = events[-1]["outcome"]
            assert outcome["cause"] == ("timeout" if after else "exited"), outcome
            assert outcome["stdout"] == {"bytes": 15000150, "kept": 15000150, "truncated": False}

    def test_a_stream_that_is_not_read_ends_with_its_client(self, own):
        made = own(max_runs=1, stdout_kb=20000)
        code = "import time\nprint('x' * 15000000, flush=True)\ntime.sleep(200)"
        body = json.dumps({"language": "python", "code": code, "timeout_s": 200}).encode()
        with slow_stream(made, body):
            time.sleep(2)
        began = time.monotonic()
        assert made.run("print('next')")["stdout"] == "next\n" and time.monotonic() - began < 60

    def test_a_stream_that_is_not_read_ends_with_the_idle_timeout(self, own):
        made = own(max_runs=1, stdout_kb=20000, idle_timeout_s=1)
        code = "import time\nprint('x' * 15000000, flush=True)\ntime.sleep(200)"
        body = json.dumps({"language": "python", "code": code, "timeout_s": 200}).encode()
        with slow_stream(made, body):
            began = time.monotonic()
            assert made.run("print('next')")["stdout"] == "next\n" and time.monotonic() - began < 60

    def test_bodies_of_waiting_streams_are_counted(self, own):
        made = own(max_runs=1, body_mb=1, disk_mb=64)
        (first,) = fill(made, 1)
        made.wait_for_load(1)
        body = json.dumps({"language": "python", "code": "1", "stdin": "x" * 1000000}).encode()
        held, statuses = [first], []
        for _ in range(20):  # 16 times the largest body may be there at once
            sock = socket.create_connection(("127.0.0.1", made.port), timeout=60)
            sock.sendall(raw_request(made, body).replace(b"\r\n\r\n", b"\r\nAccept: application/x-ndjson\r\n\r\n", 1))
            statuses.append(sock.recv(12))
            held.append(sock)
        assert statuses[0] == b"HTTP/1.1 200" and statuses[-1] == b"HTTP/1.1 503", statuses
        for sock in held:
            sock.close()


def test_idle_connections_are_closed(own):
    made = own(idle_timeout_s=1)
    with socket.create_connection(("127.0.0.1", made.port), timeout=60) as sock:
        began = time.monotonic()
        assert sock.recv(100) == b"" or True
        assert time.monotonic() - began < 50
    # a run longer than that is no idle connection
    assert made.run("import time; time.sleep(2.5); print(1)")["stdout"] == "1\n"
