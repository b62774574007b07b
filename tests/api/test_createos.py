# SPDX-License-Identifier: Apache-2.0
"""The CreateOS door, route by route: envelope, statuses, names, frames, and clients that race or vanish."""

import json
import socket
import threading
import time
import urllib.parse

import pytest
from lib import host
from lib.pace import stretched

SHAPE = "s-1vcpu-256mb"
DENY = ["240.0.0.0/4"]


class CreateOS:
    def __init__(self, daemon, key=None):
        self.daemon, self.key = daemon, key or daemon.key

    def request(self, method, path, body=None, **options):
        headers = {"Authorization": None, "X-Api-Key": self.key, **options.pop("headers", {})}
        return self.daemon.request(method, path, body, headers=headers, **options)

    def data(self, method, path, body=None, **options):
        answer = self.request(method, path, body, **options)
        assert answer.status == 200, answer
        told = answer.json()
        assert told["status"] == "success", told
        assert answer.headers["x-request-id"]
        return told["data"]

    def fails(self, status, method, path, body=None, **options):
        answer = self.request(method, path, body, **options)
        assert answer.status == status, answer
        told = answer.json()
        if status < 500:
            assert told["status"] == "fail" and told["data"]["code"] and told["data"]["message"], told
            return told["data"]["message"]
        assert told["status"] == "error" and told["code"] == status, told
        return told["message"]

    def create(self, **fields):
        return self.data("POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY, **fields})

    def exec(self, id_, cmd, *args, **options):
        return self.data("POST", f"/v1/sandboxes/{id_}/exec", {"cmd": cmd, "args": list(args)}, **options)["result"]

    def sh(self, id_, script, **options):
        return self.exec(id_, "sh", "-c", script, **options)

    def view(self, id_):
        return self.data("GET", f"/v1/sandboxes/{id_}")

    def delete(self, id_):
        return self.data("DELETE", f"/v1/sandboxes/{id_}")

    def frames(self, id_, script, timeout=None):
        connection = self.daemon.connection(timeout)
        try:
            connection.request(
                "POST",
                f"/v1/sandboxes/{id_}/exec?stream=true",
                json.dumps({"cmd": "sh", "args": ["-c", script], "stream": True}),
                {"X-Api-Key": self.key, "Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in iter(answer.readline, b""):
                yield json.loads(line)
        finally:
            connection.close()


@pytest.fixture(scope="module")
def createos_daemon(host_backend, module_daemons):
    return module_daemons(host_backend, createos_min_isolation=host_backend.isolation)


@pytest.fixture
def api(createos_daemon):
    made = CreateOS(createos_daemon)
    yield made
    for row in made.data("GET", "/v1/sandboxes")["data"]:
        made.delete(row["id"])


def path(name):
    return urllib.parse.quote(name, safe="")


def test_catalogues_need_no_key(api):
    shapes = api.data("GET", "/v1/shapes", headers={"X-Api-Key": None})["data"]
    assert {"id", "vcpu", "mem_mib", "default_disk_mib"} <= set(shapes[0])
    assert any(shape["mem_mib"] >= 4096 for shape in shapes)
    assert all(shape["mem_mib"] <= 4096 for shape in shapes), "a shape beyond CORDON_MAX_MEMORY_MB"
    rootfs = api.data("GET", "/v1/rootfs", headers={"X-Api-Key": None})
    assert rootfs["default"] == "devbox:1" and "devbox:1" in rootfs["rootfs"]


def test_keys_are_needed_elsewhere(api):
    for method, route in [("GET", "/v1/whoami"), ("GET", "/v1/sandboxes"), ("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes/x")]:
        api.fails(401, method, route, headers={"X-Api-Key": None})
        api.fails(401, method, route, headers={"X-Api-Key": "e2b_" + "0" * 40})


def test_whoami(api):
    before = api.data("GET", "/v1/whoami")
    assert before["user_id"] and before["stats"]["total"] == 0
    api.create()
    assert api.data("GET", "/v1/whoami")["stats"] == {"running": 1, "paused": 0, "other": 0, "total": 1}


@pytest.mark.each_backend
def test_create_and_view(api, host_backend):
    made = api.create(name="my-box_1.x", envs={"SECRET": "v4lue"}, auto_pause_after_seconds=120)
    assert made["name"] == "my-box_1.x" and made["shape"] == SHAPE and made["rootfs"] == "devbox:1"
    assert made["vcpu"] == 1 and made["mem_mib"] == 256 and made["disk_mib"] > 0 and made["egress"] == DENY
    view = api.view(made["id"])
    assert view["status"] == "running" and view["name"] == "my-box_1.x" and view["egress"] == DENY
    assert view["envs"] == ["SECRET"] and "v4lue" not in json.dumps(view)
    assert view["auto_pause_after_seconds"] == 120 and view["ingress_enabled"] is False
    assert "paused_at" not in view and "destroyed_at" not in view
    assert view["isolation"] == host_backend.isolation, "it must not be told to be more than it is"


BAD = [
    ({}, 400, "shape"),
    ({"shape": "s-none"}, 400, "shape"),
    ({"shape": 5}, 400, "shape"),
    ({"shape": SHAPE, "name": "x" * 23}, 400, "22"),
    ({"shape": SHAPE, "name": ""}, 400, "name"),
    ({"shape": SHAPE, "name": "a/b"}, 400, "name"),
    ({"shape": SHAPE, "egress": "*"}, 400, "egress"),
    ({"shape": SHAPE, "egress": ["pypi.org:https"]}, 400, "pypi.org:https"),
    ({"shape": SHAPE, "egress": ["*:443"]}, 400, "*:443"),
    ({"shape": SHAPE, "egress": ["2001:db8::1"]}, 400, "IPv6"),
    ({"shape": SHAPE, "egress": ["240.0.0.0/4", "1.2.3.4/99"]}, 400, "1.2.3.4/99"),
    ({"shape": SHAPE, "envs": {"A=B": "c"}}, 400, "A=B"),
    ({"shape": SHAPE, "envs": {"A": 1}}, 400, "envs"),
    ({"shape": SHAPE, "auto_pause_after_seconds": 59}, 400, "60"),
    ({"shape": SHAPE, "auto_pause_after_seconds": 86401}, 400, "86400"),
    ({"shape": SHAPE, "disk_mib": 0}, 400, "disk_mib"),
    ({"shape": SHAPE, "disk_mib": 5000}, 422, "disk_mib"),
    ({"shape": SHAPE, "egress": ["*"]}, 422, "ALLOW_NETWORK"),
    ({"shape": SHAPE, "egress": ["pypi.org"]}, 422, ""),
    ({"shape": SHAPE, "egress": ["1.1.1.1:53"]}, 422, ""),
    ({"shape": SHAPE, "ingress_enabled": True}, 422, "ingress_enabled"),
    ({"shape": SHAPE, "ssh_pubkeys": ["ssh-ed25519 x"]}, 422, "ssh_pubkeys"),
    ({"shape": SHAPE, "region": "eu"}, 422, "region"),
    ({"shape": SHAPE, "rootfs": "no-such-template"}, None, "no-such-template"),
    ([], 400, "object"),
]


@pytest.mark.parametrize("body,status,names", BAD, ids=[json.dumps(bad[0])[:60] for bad in BAD])
def test_what_can_not_be_held_is_refused(api, body, status, names):
    if status is None:
        answer = api.request("POST", "/v1/sandboxes", body)
        assert answer.status in (400, 404, 422), answer
        message = answer.json()["data"]["message"]
    else:
        message = api.fails(status, "POST", "/v1/sandboxes", body)
    assert names in message, message
    assert api.data("GET", "/v1/sandboxes")["data"] == [], "it was stored nevertheless"


def test_no_list_means_what_the_operator_allows_and_says_so(api):
    made = api.data("POST", "/v1/sandboxes", {"shape": SHAPE})
    assert made["egress"] == DENY
    assert api.view(made["id"])["egress"] == DENY


@pytest.mark.each_backend
def test_names_are_unique_while_alive(api):
    first = api.create(name="unique")
    message = api.fails(409, "POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY, "name": "unique"})
    assert "unique" in message
    api.data("POST", f"/v1/sandboxes/{first['id']}/pause")
    api.fails(409, "POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY, "name": "unique"})
    api.delete(first["id"])
    assert api.create(name="unique")["id"] != first["id"]


@pytest.mark.each_backend
def test_a_race_for_a_name_has_one_winner(api):
    answers = []

    def create():
        answers.append(api.request("POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY, "name": "race"}).status)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 7
    assert len(api.data("GET", "/v1/sandboxes")["data"]) == 1


def test_list_pages_and_states(api):
    ids = [api.create()["id"] for _ in range(3)]
    api.data("POST", f"/v1/sandboxes/{ids[0]}/pause")
    whole = api.data("GET", "/v1/sandboxes?limit=9999")
    assert whole["pagination"] == {"total": 3, "limit": 500, "offset": 0, "count": 3}
    assert {row["id"] for row in whole["data"]} == set(ids)
    pages = [api.data("GET", f"/v1/sandboxes?limit=2&offset={offset}") for offset in (0, 2)]
    assert [page["pagination"]["count"] for page in pages] == [2, 1]
    assert {row["id"] for page in pages for row in page["data"]} == set(ids)
    assert [row["id"] for row in api.data("GET", "/v1/sandboxes?status=paused")["data"]] == [ids[0]]
    assert {row["id"] for row in api.data("GET", "/v1/sandboxes?status=running")["data"]} == set(ids[1:])
    assert api.data("GET", "/v1/sandboxes?status=nonsense")["data"] == []


def test_keys_do_not_see_each_other(api, createos_daemon):
    other = CreateOS(createos_daemon, createos_daemon.create_key())
    made = api.create(name="mine")
    assert other.data("GET", "/v1/sandboxes")["data"] == []
    routes = [("GET", ""), ("PATCH", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/egress"), ("GET", "/metrics")]
    for method, rest in routes:
        other.fails(404, method, f"/v1/sandboxes/{made['id']}{rest}", {} if method != "GET" else None)
    other.fails(404, "POST", f"/v1/sandboxes/{made['id']}/exec", {"cmd": "true"})
    other.fails(404, "GET", f"/v1/sandboxes/{made['id']}/files?path=/etc/passwd")
    other.fails(404, "PUT", f"/v1/sandboxes/{made['id']}/files?path=/tmp/x", b"x")
    other.fails(404, "PUT", f"/v1/sandboxes/{made['id']}/egress", {"egress": DENY})
    other.fails(404, "DELETE", f"/v1/sandboxes/{made['id']}")
    theirs = other.create(name="mine")  # names are each key's own
    other.delete(theirs["id"])
    assert api.view(made["id"])["status"] == "running"


def test_delete_is_idempotent_and_told(api):
    made = api.create()
    assert api.delete(made["id"]) == {"id": made["id"], "status": "destroyed"}
    assert api.delete(made["id"]) == {"id": made["id"], "status": "destroyed"}
    view = api.view(made["id"])
    assert view["status"] == "destroyed" and view["destroyed_at"]
    for method, rest, body in [("POST", "/exec", {"cmd": "true"}), ("POST", "/pause", None), ("GET", "/files?path=/a", None)]:
        api.fails(409, method, f"/v1/sandboxes/{made['id']}{rest}", body)
    api.fails(404, "GET", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa")
    api.fails(404, "DELETE", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa")


@pytest.mark.each_backend
def test_pause_and_resume(api):
    id_ = api.create()["id"]
    assert api.data("POST", f"/v1/sandboxes/{id_}/pause")["status"] == "paused"
    assert api.data("POST", f"/v1/sandboxes/{id_}/pause")["status"] == "paused"
    assert api.view(id_)["paused_at"]
    for method, rest, body in [
        ("POST", "/exec", {"cmd": "true"}),
        ("GET", "/files?path=/etc/passwd", None),
        ("PUT", "/files?path=/tmp/x", b"x"),
    ]:
        assert "paused" in api.fails(409, method, f"/v1/sandboxes/{id_}{rest}", body)
    assert api.data("POST", f"/v1/sandboxes/{id_}/resume")["status"] == "running"
    assert api.data("POST", f"/v1/sandboxes/{id_}/resume")["status"] == "running"
    assert api.sh(id_, "echo on")["stdout"] == "on\n"
    assert "paused_at" not in api.view(id_)


@pytest.mark.each_backend
def test_exec(api):
    id_ = api.create(envs={"OWN": "a b"})["id"]
    result = api.sh(id_, "echo out; echo err >&2; echo $OWN; exit 3")
    assert result == {"stdout": "out\na b\n", "stderr": "err\n", "exit_code": 3}
    assert api.exec(id_, "echo", "$OWN; ls", "*")["stdout"] == "$OWN; ls *\n", "it went through a shell"
    assert api.exec(id_, "python3", "-c", "print(6*7)")["stdout"] == "42\n"
    assert api.exec(id_, "timeout", "--signal=KILL", "1", "sleep", "30")["exit_code"] == 137
    assert api.sh(id_, "kill -TERM $$")["exit_code"] == 143
    for tool in ("timeout", "python3", "sh", "tar"):
        assert api.sh(id_, f"command -v {tool}")["exit_code"] == 0, tool
    missing = api.exec(id_, "no-such-program")
    assert missing["exit_code"] != 0 and missing["error"]


def test_exec_that_asks_for_what_is_not_there(api):
    id_ = api.create()["id"]
    route = f"/v1/sandboxes/{id_}/exec"
    for name, value in [("env", {"A": "b"}), ("envs", {}), ("stdin", "x"), ("cwd", "/")]:
        assert name in api.fails(400, "POST", route, {"cmd": "true", name: value})
    for body in ({}, {"cmd": ""}, {"cmd": 5}, {"cmd": "true", "args": "x"}, {"cmd": "true", "args": [1]}, b"{", b"[]"):
        api.fails(400, "POST", route, body)


@pytest.mark.each_backend
def test_output_is_bounded_and_says_so(api):
    id_ = api.create()["id"]
    result = api.sh(id_, "head -c 5000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert len(result["stdout"]) == 1 << 20 and result["truncated"] is True
    assert result["stderr"] == "end\n" and result["exit_code"] == 0


@pytest.mark.each_backend
def test_frames(api):
    id_ = api.create()["id"]
    frames = list(api.frames(id_, "echo one; echo two >&2; exit 5"))
    assert "".join(frame.get("stdout", "") for frame in frames) == "one\n"
    assert "".join(frame.get("stderr", "") for frame in frames) == "two\n"
    assert frames[-1] == {"exit_code": 5}
    assert sum("exit_code" in frame or "error" in frame for frame in frames) == 1


def test_frames_hold_whole_characters(api):
    id_ = api.create()["id"]
    script = "for b in 303 244 342 202 254; do printf \"\\\\$b\"; sleep 0.05; done; printf '\\303'"
    frames = list(api.frames(id_, script))
    assert "".join(frame.get("stdout", "") for frame in frames) == "ä€\ufffd"
    assert all(frame.get("stdout") in (None, "ä", "€", "\ufffd") for frame in frames), frames


def test_heartbeats(api):
    id_ = api.create()["id"]
    frames = list(api.frames(id_, "sleep 6; echo end"))
    assert {"hb": True} in frames and frames[-1] == {"exit_code": 0}


def test_a_command_that_can_not_start_is_an_error_frame(api, createos_daemon):
    id_ = api.create()["id"]
    answer = api.request("POST", f"/v1/sandboxes/{id_}/exec?stream=true", {"cmd": "no-such-program"})
    frames = [json.loads(line) for line in answer.body.splitlines()]
    assert answer.status == 200 and len(frames) == 1 and frames[0]["error"], frames


@pytest.mark.each_backend
def test_a_stream_whose_sandbox_ends_says_so(api):
    id_ = api.create()["id"]
    frames = []
    began = threading.Event()

    def read():
        for frame in api.frames(id_, "echo begun; sleep 60"):
            frames.append(frame)
            began.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert began.wait(stretched(20))
    api.delete(id_)
    thread.join(stretched(20))
    assert not thread.is_alive()
    assert "error" in frames[-1] and "exit_code" not in frames[-1], frames


@pytest.mark.each_backend
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_vanishes_ends_its_command(api, createos_daemon, stream):
    id_ = api.create()["id"]
    body = json.dumps({"cmd": "sh", "args": ["-c", "touch /tmp/begun; sleep 611"]})
    head = (
        f"POST /v1/sandboxes/{id_}/exec{'?stream=true' if stream else ''} HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", createos_daemon.port), timeout=stretched(20)) as sock:
        sock.sendall((head + body).encode())
        assert host.wait_for(lambda: api.sh(id_, "test -e /tmp/begun")["exit_code"] == 0)
    assert host.wait_for(lambda: api.sh(id_, "ps -eo args | grep -c '[s]leep 611'")["stdout"].strip() == "0")


@pytest.mark.each_backend
def test_files(api):
    id_ = api.create()["id"]
    route = f"/v1/sandboxes/{id_}/files?path="
    content = bytes(range(256)) * 4096
    put = api.data("PUT", route + "/workspace/a/b/c.bin", content, headers={"Content-Type": "application/octet-stream"})
    assert put["size"] == len(content)
    got = api.request("GET", route + "/workspace/a/b/c.bin")
    assert got.status == 200 and got.body == content and got.headers["Content-Length"] == str(len(content))
    api.data("PUT", route + path("/tmp/odd ä?&#%.txt"), b"odd")
    assert api.request("GET", route + path("/tmp/odd ä?&#%.txt")).body == b"odd"
    api.data("PUT", route + "/tmp/empty", b"")
    empty = api.request("GET", route + "/tmp/empty")
    assert empty.status == 200 and empty.body == b"" and empty.headers["Content-Length"] == "0"
    api.fails(404, "GET", route + "/none")
    for wrong in ("", "relative", "~/x", path("a\0b"), "/" + "x" * 5000, "%zz"):
        api.fails(400, "GET", route + wrong)
        api.fails(400, "PUT", route + wrong, b"x")
    assert api.request("GET", route + "/tmp").status == 400
    api.fails(400, "GET", f"/v1/sandboxes/{id_}/files")


@pytest.mark.each_backend
def test_a_big_file_passes_the_limit_of_bodies(api):
    id_ = api.create(shape="s-1vcpu-1gb")["id"]
    content = b"0123456789abcdef" * (40 << 16)  # 40 MiB; CORDON_BODY_MB is 32
    assert api.data("PUT", f"/v1/sandboxes/{id_}/files?path=/tmp/big", content)["size"] == len(content)
    assert api.sh(id_, "wc -c < /tmp/big")["stdout"].strip() == str(len(content))
    assert api.request("GET", f"/v1/sandboxes/{id_}/files?path=/tmp/big").body == content


@pytest.mark.each_backend
def test_an_upload_that_breaks_off_leaves_nothing(api, createos_daemon):
    id_ = api.create()["id"]
    with socket.create_connection(("127.0.0.1", createos_daemon.port), timeout=stretched(20)) as sock:
        sock.sendall(
            f"PUT /v1/sandboxes/{id_}/files?path=/tmp/half HTTP/1.1\r\nHost: x\r\nX-Api-Key: {api.key}\r\n"
            "Content-Length: 100000\r\n\r\n".encode() + b"x" * 5000
        )
        time.sleep(0.3)
    assert host.wait_for(lambda: api.sh(id_, "test ! -e /tmp/half")["exit_code"] == 0)


@pytest.mark.each_backend
def test_paths_are_walked_in_the_guest(api):
    id_ = api.create()["id"]
    route = f"/v1/sandboxes/{id_}/files?path="
    marker = open("/etc/hostname", encoding="utf-8").read().strip()
    for name in ("/../../../../etc/hostname", "/tmp/../../../../../etc/hostname", "/proc/1/root/etc/hostname"):
        answer = api.request("GET", route + path(name))
        assert answer.status != 200 or marker.encode() not in answer.body
    api.sh(id_, "ln -s / /tmp/up; ln -s /proc/self/root /tmp/self")
    for name in ("/tmp/up/etc/hostname", "/tmp/self/etc/hostname"):
        answer = api.request("GET", route + path(name))
        assert answer.status != 200 or marker.encode() not in answer.body


def test_egress_of_a_running_sandbox(api):
    id_ = api.create()["id"]
    route = f"/v1/sandboxes/{id_}/egress"
    assert api.data("GET", route) == {"id": id_, "egress": DENY}
    assert api.data("PUT", route, {"egress": ["240.0.0.1"]}) == {"id": id_, "egress": ["240.0.0.1"]}
    assert api.view(id_)["egress"] == ["240.0.0.1"]
    api.fails(400, "PUT", route, {"egress": ["pypi.org:https"]})
    api.fails(422, "PUT", route, {"egress": ["*"]})
    api.fails(422, "PUT", route, {"egress": ["pypi.org"]})
    assert api.data("GET", route)["egress"] == ["240.0.0.1"], "what was refused was stored"
    assert api.data("PUT", route, {"egress": None})["egress"] == DENY


def test_patch(api):
    id_ = api.create()["id"]
    assert "auto_pause_after_seconds" not in api.view(id_)
    assert api.data("PATCH", f"/v1/sandboxes/{id_}", {"auto_pause_after_seconds": 300})["auto_pause_after_seconds"] == 300
    assert "auto_pause_after_seconds" not in api.data("PATCH", f"/v1/sandboxes/{id_}", {"disable_auto_pause": True})
    api.fails(422, "PATCH", f"/v1/sandboxes/{id_}", {"ingress_enabled": True})
    api.fails(400, "PATCH", f"/v1/sandboxes/{id_}", {"auto_pause_after_seconds": 5})
    assert api.data("PATCH", f"/v1/sandboxes/{id_}", {"ingress_enabled": False})["id"] == id_


@pytest.mark.each_backend
def test_metrics(api):
    id_ = api.create()["id"]
    told = api.data("GET", f"/v1/sandboxes/{id_}/metrics")
    assert told["mem_limit_bytes"] == 256 << 20 and 0 < told["mem_used_bytes"] < told["mem_limit_bytes"]


@pytest.mark.parametrize("route", ["fork", "resize", "ssh-pubkeys", "networks", "disks", "bandwidth", "files/x"])
def test_what_is_not_there_says_so(api, route):
    id_ = api.create()["id"]
    assert "not implemented" in api.fails(501, "POST", f"/v1/sandboxes/{id_}/{route}", {})


def test_wrong_methods(api):
    answer = api.request("PUT", "/v1/sandboxes", {})
    assert answer.status == 405 and "GET" in answer.headers["Allow"] and answer.json()["status"] == "fail"


def test_the_doors_own_floor(own):
    daemon = own()
    api = CreateOS(daemon)
    message = api.fails(422, "POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY})
    assert "CORDON_CREATEOS_MIN_ISOLATION" in message and "hardware-virtualized" in message
    assert "CORDON_CREATEOS_MIN_ISOLATION" not in daemon.log()
    lower = own(createos_min_isolation="namespace")
    assert "CORDON_CREATEOS_MIN_ISOLATION" in lower.log()
    CreateOS(lower).create()
    native = own(min_isolation="namespace")  # the native setting does not lower this door's
    CreateOS(native).fails(422, "POST", "/v1/sandboxes", {"shape": SHAPE, "egress": DENY})
