# SPDX-License-Identifier: Apache-2.0
"""Attacks through the E2B and CreateOS doors: tokens and URLs of others, paths, forged messages, servers that lie."""

import json
import os
import signal
import socket
import tempfile
import threading
import time
import urllib.parse

import pytest
from lib import host
from lib.daemon import PREFIX
from lib.e2b import Sandbox, envelope, envelopes, signature

pytestmark = pytest.mark.each_backend

SECRET = "host-file-5d1a"


@pytest.fixture(scope="module")
def doors(host_backend):
    with host_backend.daemon(createos_min_isolation=host_backend.isolation) as made:
        yield made
        made.note_cgroups()


@pytest.fixture
def box(doors):
    made = Sandbox(doors)
    yield made
    made.kill()


@pytest.fixture
def other(doors):
    made = Sandbox(doors, key=doors.create_key())
    yield made
    made.kill()


@pytest.fixture
def host_file():
    fd, path = tempfile.mkstemp(prefix=PREFIX)
    os.write(fd, SECRET.encode())
    os.close(fd)
    os.chmod(path, 0o644)
    yield path
    os.unlink(path)


RPCS = [
    ("process.Process/List", {}),
    ("process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGKILL"}),
    ("process.Process/SendInput", {"process": {"pid": 1}, "input": {"stdin": "eA=="}}),
    ("filesystem.Filesystem/Stat", {"path": "/"}),
    ("filesystem.Filesystem/ListDir", {"path": "/"}),
    ("filesystem.Filesystem/MakeDir", {"path": "/tmp/made"}),
    ("filesystem.Filesystem/Move", {"source": "/tmp/a", "destination": "/tmp/b"}),
    ("filesystem.Filesystem/Remove", {"path": "/tmp"}),
    ("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}),
]
STREAMS = [
    ("process.Process/Start", {"process": {"cmd": "/bin/touch", "args": ["/tmp/made"]}}),
    ("process.Process/Connect", {"process": {"pid": 1}}),
    ("filesystem.Filesystem/WatchDir", {"path": "/tmp"}),
]


def test_tokens_of_others_open_nothing(box, other):
    for token in (other.token, None, "", box.token[:-1], box.token + "0", box.token.upper(), box.id, box.key):
        for service, message in RPCS:
            answer = box.call(service, message, token=token)
            assert answer.status == 401 and answer.json()["code"] == "unauthenticated", (token, service, answer)
        for service, message in STREAMS:
            answer = box.stream(service, message, token=token)
            said = envelopes(answer.body)
            assert len(said) == 1 and said[0][0] == 2 and said[0][1]["error"]["code"] == "unauthenticated", answer
        for method, path in [("GET", box.files("/etc/passwd")), ("POST", box.files("/tmp/made")), ("GET", "/metrics")]:
            assert box.envd(method, path, b"x" if method == "POST" else None, token=token).status == 401
        for method in ("POST", "PUT", "GET"):
            assert box.envd(method, "/init", b"{}" if method != "GET" else None, token=token).status in (401, 501)
    assert box.run("ls /tmp")[1].strip() == "", "something was made"
    assert box.envd("POST", "/init", b"{}").status == 501, "/init is nobody's to call"


def test_keys_of_others_see_nothing(box, other):
    for method, path, body in [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/pause", {}),
        ("POST", "/resume", {"timeout": 5}),
        ("POST", "/connect", {"timeout": 5}),
        ("POST", "/timeout", {"timeout": 0}),
        ("POST", "/refreshes", {"duration": 5}),
        ("PUT", "/network", {}),
        ("GET", "/metrics", None),
        ("GET", "/logs", None),
    ]:
        answer = box.control(method, f"/sandboxes/{box.id}{path}", body, key=other.key)
        assert answer.status == 404 and answer.json()["code"] == 404, (path, answer)
    listed = [entry["sandboxID"] for entry in other.control("GET", "/v2/sandboxes").json()]
    assert listed == [other.id]
    many = other.control("GET", f"/sandboxes/metrics?sandbox_ids={box.id},{other.id}").json()["sandboxes"]
    assert set(many) <= {other.id}
    assert box.run("echo alive")[1] == "alive\n"


def test_signed_urls_give_what_they_sign_and_no_more(doors, box, other):
    box.envd("POST", box.files("s.txt"), b"mine", headers={"Content-Type": "application/octet-stream"})
    other.envd("POST", other.files("s.txt"), b"theirs", headers={"Content-Type": "application/octet-stream"})
    later, past = str(int(time.time()) + 600), str(int(time.time()) - 60)

    def get(path="s.txt", method="GET", headers=None, **query):
        target = "/files?" + urllib.parse.urlencode({"path": path, **query})
        return doors.request(method, target, b"x" if method == "POST" else None, headers={"Authorization": None, **(headers or {})})

    good = signature("s.txt", "read", "", box.token)
    assert get(signature=good).body == b"mine"
    assert get(signature=signature("s.txt", "read", "", other.token)).body == b"theirs"
    assert get(signature=signature("s.txt", "read", "", box.token, later), signature_expiration=later).body == b"mine"
    for answer in (
        get(signature=signature("s.txt", "read", "", box.token, past), signature_expiration=past),
        get(signature=good, signature_expiration=later),
        get(signature=signature("s.txt", "read", "", box.token, later)),
        get(signature=signature("s.txt", "read", "", box.token, later), signature_expiration=later + "0"),
        get(signature=good, username="root"),
        get(signature=good, path="/etc/passwd"),
        get(signature=good, path="./s.txt"),
        get(signature=good, method="POST", headers={"Content-Type": "application/octet-stream"}),
        get(signature=""),
        get(signature="v1_"),
        get(signature=good[3:]),
        get(signature=signature("s.txt", "read", "", "")),
        get(signature=good, headers={"E2b-Sandbox-Id": other.id}),
        get(signature=good, headers={"Host": f"49983-{other.id}.localhost"}),
    ):
        assert answer.status == 401, answer
    assert other.envd("GET", other.files("s.txt")).body == b"theirs"


def test_a_signed_url_finds_its_sandbox_among_many_that_went_and_after_a_restart(doors, box):
    box.envd("POST", box.files("s.txt"), b"mine", headers={"Content-Type": "application/octet-stream"})

    def get(token):
        target = "/files?" + urllib.parse.urlencode({"path": "s.txt", "signature": signature("s.txt", "read", "", token)})
        return doors.request("GET", target, headers={"Authorization": None})

    gone = [Sandbox(doors) for _ in range(2)]
    assert get(box.token).body == b"mine"
    for _ in range(20):
        assert gone[-1].kill().status == 204
        gone.append(Sandbox(doors))
    assert gone[-1].kill().status == 204
    assert get(box.token).body == b"mine"
    assert all(get(sandbox.token).status in (401, 502) for sandbox in gone[1:])
    os.kill(doors.role("gateway"), signal.SIGKILL)
    assert doors.wait_ready()
    assert host.wait_for(lambda: get(box.token).body == b"mine", 60), get(box.token)
    assert get(gone[0].token).status == 404 and gone[0].kill().status == 204


def test_no_token_is_shared_and_none_is_told_to_others(box, other):
    assert len({box.token, other.token}) == 2 and len(box.token) >= 32
    for answer in (other.control("GET", "/v2/sandboxes"), box.control("GET", "/v2/sandboxes")):
        assert box.token not in answer.body.decode() and other.token not in answer.body.decode()


def paths_to(name):
    up = "../" * 40
    return [
        name,
        f"/{up}{name[1:]}",
        f"{up}{name[1:]}",
        f"~/{up}{name[1:]}",
        f"/proc/1/root{name}",
        f"/proc/self/root/{up}{name[1:]}",
        f"/tmp/up{name}",
        f"/tmp/self{name}",
        f"/dev/fd/../../../..{name}",
        name.replace("/", "//"),
    ]


def test_no_path_leads_out_of_the_guest(box, host_file):
    box.run("ln -s / /tmp/up; ln -s /proc/self/root /tmp/self; ln -s /proc/1/root /tmp/one")
    for user in ("user", "root"):
        for path in paths_to(host_file):
            answer = box.envd("GET", box.files(path, username=user))
            assert answer.status != 200 and SECRET not in answer.body.decode("utf-8", "replace"), (path, answer)
            write = box.envd(
                "POST", box.files(path, username=user), b"overwritten", headers={"Content-Type": "application/octet-stream"}
            )
            assert write.status in (200, 400, 403, 404, 413), (path, write)
            for service, message in [
                ("Stat", {"path": path}),
                ("ListDir", {"path": os.path.dirname(path)}),
                ("Move", {"source": path, "destination": "/tmp/stolen"}),
                ("Move", {"source": "/etc/passwd", "destination": path}),
                ("MakeDir", {"path": path + "/x"}),
                ("Remove", {"path": path}),
            ]:
                answer = box.call("filesystem.Filesystem/" + service, message)
                assert SECRET not in answer.body.decode("utf-8", "replace")
    with open(host_file, encoding="utf-8") as file:
        assert file.read() == SECRET, "a file of the host was written"
    assert os.listdir(os.path.dirname(host_file))


def test_names_of_uploads_are_paths_of_the_guest(box, host_file):
    body = "".join(
        f'--X\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nbad\r\n'
        for name in (host_file, "../" * 30 + host_file[1:])
    )
    headers = {"Content-Type": "multipart/form-data; boundary=X"}
    answer = box.envd("POST", "/files", (body + "--X--").encode(), headers=headers)
    assert answer.status in (200, 400, 403, 404), answer
    with open(host_file, encoding="utf-8") as file:
        assert file.read() == SECRET
    for name in ("a\0b", "~root/x"):
        part = f'--X\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nbad\r\n--X--'
        assert box.envd("POST", "/files", part.encode(), headers=headers).status == 400
    two = '--X\r\nContent-Disposition: form-data; name="file"; filename="t"\r\n\r\nx\r\n' * 2 + "--X--"
    assert box.envd("POST", "/files", two.encode(), headers=headers).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\0\0\0\0",
        b"\0\xff\xff\xff\xff{}",
        b"\0\0\0\0\2{}extra",
        envelope({}) * 2,
        envelope({}, flags=1),
        envelope({}, flags=2),
        envelope(b"{"),
        envelope(b"[]"),
        envelope({"process": {"cmd": ""}}),
        envelope({"process": {"cmd": "x", "args": "y"}}),
        envelope({"process": {"cmd": "x", "envs": {"A=": "b"}}}),
        envelope({"process": {"cmd": "true", "cwd": "a\0b"}}),
        envelope({"process": {"cmd": "true"}, "tag": "x" * 64}),
        envelope({"process": {"cmd": "true"}, "pty": {"size": {"cols": -1, "rows": 70000}}}),
        envelope(b'{"process":' * 200),
    ],
)
def test_forged_messages_start_nothing(box, body):
    answer = box.envd(
        "POST", "/process.Process/Start", body, headers={"Content-Type": "application/connect+json"}
    )
    assert answer.status == 200, answer
    said = envelopes(answer.body)
    assert len(said) == 1 and said[0][0] == 2 and said[0][1]["error"]["code"] in ("invalid_argument", "unimplemented"), said


def test_what_names_no_sandbox_reaches_none(doors, box):
    for id_ in ("../" + box.id, box.id.upper(), "", box.id + " ", "a" * 100, "aaaaaaaaaaaaaaaaaaaa"):
        answer = box.envd("GET", "/health", headers={"E2b-Sandbox-Id": id_})
        assert answer.status == 502 and answer.json()["code"] == 502, (id_, answer)
    for port in ("0", "-1", "65536", "x", "49983x"):
        assert box.envd("GET", "/health", headers={"E2b-Sandbox-Port": port}).status == 502
    answer = doors.request("POST", "/process.Process/List", b"{}", headers={"Authorization": None})
    assert answer.status == 502


def test_a_guest_of_another_door_is_no_sandbox(doors, box):
    made = doors.request(
        "POST", "/v1/sandboxes", {"shape": "s-1vcpu-256mb", "egress": ["240.0.0.0/4"]}, headers={"X-Api-Key": doors.key}
    ).json()["data"]
    try:
        for token in ("", None, "x"):
            assert box.envd("GET", "/health", token=token, headers={"E2b-Sandbox-Id": made["id"]}).status == 502
        assert box.control("GET", f"/sandboxes/{made['id']}").status == 404
        answer = doors.request("GET", f"/v1/sandboxes/{box.id}", headers={"X-Api-Key": doors.key})
        assert answer.status == 404, answer
    finally:
        doors.request("DELETE", f"/v1/sandboxes/{made['id']}", headers={"X-Api-Key": doors.key})


def test_ports_are_the_guests_own(doors, box):
    """What listens on the host's loopback is no port of a sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(2)
        answer = box.envd("GET", "/", port=listener.getsockname()[1])
        assert answer.status == 502, answer
        with pytest.raises(TimeoutError):
            listener.accept()
    assert box.envd("GET", "/v1/backends", port=doors.port).status == 502


SERVER = """
import socket, sys, threading, time
answer = {answer!r}
server = socket.create_server(("127.0.0.1", {port}))
def serve(conn):
    try:
        conn.recv(65536)
        conn.sendall(answer)
        {more}
    finally:
        conn.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
"""


@pytest.mark.parametrize(
    "name,answer,more",
    [
        ("garbage", b"\x00\xff" * 5000, "pass"),
        ("nothing", b"", "pass"),
        ("endless header", b"HTTP/1.1 200 OK\r\nX: ", "[conn.sendall(b'x' * 65536) for _ in range(10000)]"),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "pass"),
        ("a chunk too large", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "pass"),
        ("a second answer", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "pass"),
        ("an upgrade nobody asked", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nbad", "pass"),
        ("a status of its own", b"HTTP/1.1 999 Hm\r\n\r\n", "pass"),
        ("split fields", b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b=c\r\nContent-Length: 2\r\n\r\nok", "pass"),
    ],
)
def test_servers_of_guests_lie(doors, box, name, answer, more):
    box.envd(
        "POST",
        box.files("/tmp/server.py"),
        SERVER.format(answer=answer, port=8000, more=more).encode(),
        headers={"Content-Type": "application/octet-stream"},
    )
    thread = threading.Thread(target=lambda: box.run("python3 /tmp/server.py"), daemon=True)
    thread.start()
    assert host.wait_for(lambda: box.run("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'")[0] == 0, 20)
    raw = (
        f"GET / HTTP/1.1\r\nHost: 8000-{box.id}.localhost\r\n\r\n"
        f"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    ).encode()
    received = doors.raw(raw)
    assert received.startswith(b"HTTP/1.1 "), received[:200]
    assert b"bad" not in received and b"b=c" not in received, received
    assert len(received) < 1 << 20
    assert doors.get("/readyz").status == 200
    box.kill()
    thread.join(20)
    assert not thread.is_alive()


def test_private_ports_need_their_token(doors):
    box = Sandbox(doors, network={"allowPublicTraffic": False})
    try:
        assert box.traffic and box.traffic != box.token
        for headers in ({}, {"E2B-Traffic-Access-Token": box.token}, {"E2B-Traffic-Access-Token": ""}):
            assert box.envd("GET", "/", port=8000, headers=headers).status == 403
        assert box.envd("GET", "/", port=8000, headers={"E2B-Traffic-Access-Token": box.traffic}).status == 502
    finally:
        box.kill()


def test_a_full_disk_is_told_and_leaves_the_daemon_well(doors):
    box = Sandbox(doors)
    code, free = box.run("df -m --output=avail /tmp | tail -1")
    assert code == 0
    connection = doors.connection()
    headers = {"E2b-Sandbox-Id": box.id, "X-Access-Token": box.token, "Content-Type": "application/octet-stream"}
    chunks = iter([b"x" * (1 << 20)] * (int(free) + 20))
    try:
        connection.request("POST", box.files("/tmp/flood"), chunks, headers, encode_chunked=True)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        assert answer.status in (507, 502), (answer.status, told)
    except (BrokenPipeError, ConnectionResetError):
        pass  # its files are its memory: it may be full long before its disk, and much is still to come
    finally:
        connection.close()
    # What was full of a file is usable again without it.
    assert box.call("filesystem.Filesystem/Remove", {"path": "/tmp/flood"}).status == 200
    assert box.run("test -e /tmp/flood")[0] == 1
    assert doors.get("/readyz").status == 200
    box.kill()


def test_watchers_are_bounded_and_each_sandboxs_own(box, other):
    made = [box.call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}) for _ in range(40)]
    refused = [answer for answer in made if answer.status != 200]
    # Either we have had enough, or the guest's own limit of open files is reached first.
    assert refused and all(answer.status in (400, 429) for answer in refused), refused[:1]
    ids = [answer.json()["watcherId"] for answer in made if answer.status == 200]
    assert other.call("filesystem.Filesystem/GetWatcherEvents", {"watcherId": ids[0]}).status == 404
    assert other.call("filesystem.Filesystem/RemoveWatcher", {"watcherId": ids[0]}).status == 404
    assert box.call("filesystem.Filesystem/GetWatcherEvents", {"watcherId": ids[0]}).json() == {"events": []}
    for id_ in ids:
        assert box.call("filesystem.Filesystem/RemoveWatcher", {"watcherId": id_}).status == 200
    assert box.call("filesystem.Filesystem/RemoveWatcher", {"watcherId": ids[0]}).status == 404


def test_one_keys_watchers_are_no_others(own):
    daemon = own(key_watchers=3)
    boxes = [Sandbox(daemon), Sandbox(daemon)]  # of one key
    made = [box.call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}) for box in boxes * 2]
    assert [answer.status for answer in made] == [200, 200, 200, 429] and b"CORDON_KEY_WATCHERS" in made[3].body, made
    other = Sandbox(daemon, key=daemon.create_key())
    assert other.call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}).status == 200
    assert boxes[0].call("filesystem.Filesystem/RemoveWatcher", made[0].json()).status == 200
    assert boxes[1].call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}).status == 200


def test_all_keys_watchers_together_are_bounded_and_a_sandboxs_too(own):
    daemon = own(watchers=3, guest_watchers=2)
    boxes = [Sandbox(daemon), Sandbox(daemon, key=daemon.create_key())]
    made = [box.call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}) for box in (boxes[0],) * 3 + (boxes[1],) * 2]
    assert [answer.status for answer in made] == [200, 200, 429, 200, 429], made
    assert b"CORDON_GUEST_WATCHERS" in made[2].body and b"CORDON_WATCHERS" in made[4].body, made
    assert boxes[0].call("filesystem.Filesystem/RemoveWatcher", made[0].json()).status == 200
    assert boxes[1].call("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}).status == 200


@pytest.mark.parametrize("port,path", [(8000, "/"), (49983, "/health")], ids=["public-port", "health"])
def test_visitors_without_a_key_hold_no_places(own, port, path):
    """What passes without a key or token (here: to a port where nothing listens) gives way when all places are taken."""
    daemon = own(connections=8)
    box = Sandbox(daemon)
    held = []
    for _ in range(8):
        sock = socket.create_connection(("127.0.0.1", daemon.port), 60)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {port}-{box.id}.localhost\r\n\r\n".encode())
        assert sock.recv(12) in (b"HTTP/1.1 502", b"HTTP/1.1 200", b"HTTP/1.1 204")
        held.append(sock)
    try:
        assert [daemon.get("/v1/guests").status for _ in range(3)] == [200] * 3
    finally:
        for sock in held:
            sock.close()


@pytest.mark.parametrize(
    "wanted,told",
    [(b"X-API-Key, content-type", b"X-API-Key, content-type"), (b"a\rb", b"*"), (b"a\tb", b"*"), (b"", b"*"), (b"a;b", b"*")],
    ids=["names", "return", "tab", "empty", "other"],
)
def test_a_preflight_is_answered_with_names_only(doors, wanted, told):
    with socket.create_connection(("127.0.0.1", doors.port), 60) as sock:
        sock.sendall(
            b"OPTIONS /files HTTP/1.1\r\nHost: 49983-none.localhost\r\nConnection: close\r\n"
            b"Access-Control-Request-Headers: " + wanted + b"\r\n\r\n"
        )
        answer = b""
        while part := sock.recv(4096):
            answer += part
    fields = answer.split(b"\r\n")
    assert fields[0] == b"HTTP/1.1 204 No Content" and b"Access-Control-Allow-Headers: " + told in fields, answer
