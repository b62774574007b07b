# SPDX-License-Identifier: Apache-2.0
"""Kept guests of the backends `e2b` and `ucloud_agent_sandbox`, by the same interface as local ones, against our own E2B
door: never the live clouds. Those of `createos`: test_remote_createos.py."""

import datetime
import http.client
import json
import os
import signal
import time

import pytest
from lib import host
from lib.admin import Terminal
from lib.daemon import Daemon
from lib.faults import Proxy
from lib.guest import Guest


@pytest.fixture(scope="module")
def door(nothing_left):
    with Daemon(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1) as made:
        yield made
        made.note_cgroups()


@pytest.fixture(scope="module")
def proxy(door):
    with Proxy(f"http://127.0.0.1:{door.port}") as made:
        yield made


@pytest.fixture(scope="module")
def daemon(door, proxy):
    """Its local pools are empty: what runs, runs there."""
    settings = {f"{name}_{what}": value for name in ("E2B", "UCLOUD_SANDBOX")
                for what, value in (("API_URL", proxy.url), ("SANDBOX_URL", proxy.url), ("API_KEY", door.key))}
    settings["UCLOUD_SANDBOX_URL"] = settings.pop("UCLOUD_SANDBOX_SANDBOX_URL")
    with Daemon(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=0, pool_max=0, **settings) as made:
        yield made
        made.note_cgroups()


@pytest.fixture
def guest(daemon):
    with Guest(daemon, backend="e2b", env={"OWN": "of the guest"}) as made:
        yield made


@pytest.fixture(params=["e2b", "ucloud_agent_sandbox"])
def either(daemon, request):
    with Guest(daemon, backend=request.param, env={"OWN": "of the guest"}) as made:
        yield made


def there(door):
    return {row["id"] for row in door.get("/v1/guests").json()["guests"] if row["state"] in ("running", "paused")}


def test_programs(either):
    guest = either
    done = guest.exec(["sh", "-c", "echo $OWN $MORE; pwd; echo no >&2; exit 3"], env={"MORE": "ä b"}, cwd="/tmp")
    assert (done["stdout"], done["stderr"], done["exit_code"]) == ("of the guest ä b\n/tmp\n", "no\n", 3), done
    done = guest.exec(["cat"], stdin="from outside\n")
    assert (done["stdout"], done["exit_code"]) == ("from outside\n", 0), done
    done = guest.exec(["sh", "-c", "kill -9 $$"])
    assert done["outcome"]["cause"] == "signalled" and done["outcome"]["signal"] == 9, done
    assert guest.exec(["id", "-u"], user="root")["stdout"] == "0\n"
    assert guest.refused("POST", "/exec", {"command": ["/nowhere/at/all"]})[0] in (400, 404)


def test_a_program_ends_at_its_time_and_what_it_wrote_comes(guest):
    done = guest.exec(["sh", "-c", "echo so far; sleep 100"], timeout_s=1)
    assert done["outcome"]["cause"] == "timeout" and done["stdout"] == "so far\n", done


def test_files(either):
    guest = either
    data = bytes(range(256)) * 5000
    guest.put("deep/in/file.bin", data)
    assert guest.read("deep/in/file.bin") == data
    assert guest.exec(["sh", "-c", "wc -c <deep/in/file.bin"])["stdout"].strip() == str(len(data))
    entries = {row["path"].rsplit("/", 1)[1]: row for row in guest.good("GET", "/entries?path=deep&depth=2")["entries"]}
    assert set(entries) == {"in", "file.bin"} and entries["file.bin"]["size"] == len(data), entries
    modified = datetime.datetime.fromisoformat(entries["file.bin"]["modified_at"].replace("Z", "+00:00"))
    assert abs(modified.timestamp() - time.time()) < 600, entries
    assert guest.call("POST", "/files/move?path=deep/in/file.bin&target=moved/file").status == 200
    assert guest.read("moved/file")[:4] == data[:4] and guest.call("GET", "/files?path=deep/in/file.bin").status == 404
    assert guest.call("POST", "/files/directory?path=moved").status == 409
    assert guest.call("DELETE", "/files?path=moved").status in (200, 204)
    assert guest.call("GET", "/files?path=moved/file").status == 404
    assert guest.call("GET", "/files?path=deep").status == 400, "a directory"


def test_programs_go_on_are_listed_and_signalled(guest):
    pid = guest.good("POST", "/exec", {"command": ["sleep", "100"], "background": True, "tag": "mine"}, status=(200, 201, 202))["pid"]
    (row,) = [row for row in guest.good("GET", "/exec")["programs"] if row["tag"] == "mine"]
    assert (row["pid"], row["running"], row["command"]) == (pid, True, ["sleep", "100"]), row
    assert guest.refused("POST", f"/exec/{pid}/signal", {"signal": "HUP"})[0] == 501
    guest.good("POST", f"/exec/{pid}/signal", {"signal": "TERM"})
    assert host.wait_for(lambda: not [row for row in guest.good("GET", "/exec")["programs"] if row["tag"] == "mine"], 30)
    assert guest.refused("POST", f"/exec/{pid}/signal", {"signal": "TERM"})[0] == 404


def test_a_pause_keeps_what_ran(either):
    guest = either
    pid = guest.exec(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"])["stdout"].strip()
    guest.good("POST", "/pause", {})
    assert guest.show()["state"] == "paused"
    assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 409
    guest.good("POST", "/resume", {})
    assert guest.exec(["kill", "-0", pid])["exit_code"] == 0


def test_a_pause_whose_answer_was_lost_is_one(guest, proxy):
    proxy.where, proxy.how = "POST .*/pause ", "lost:status_500"
    guest.good("POST", "/pause", {})
    proxy.how = None
    assert guest.show()["state"] == "paused"
    guest.good("POST", "/resume", {})
    assert guest.exec(["echo", "on"])["stdout"] == "on\n"


def test_no_network_unless_it_is_asked_for(guest, proxy):
    made = [body for method, path, _, body in proxy.requests if method == "POST" and path.endswith("/sandboxes")]
    assert made and all(b'"allow_internet_access":false' in body for body in made)


def test_the_end_of_a_guest_is_the_end_of_its_sandbox(daemon, door):
    before = there(door)
    guest = Guest(daemon, backend="e2b")
    assert len(there(door) - before) == 1
    guest.close()
    assert host.wait_for(lambda: there(door) == before, 30)
    assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 410


def test_ucloud_looks_from_inside_whether_there_is_a_network(own, door, proxy):
    url = proxy.url
    daemon = own(pool_python=0, pool_max=0, UCLOUD_SANDBOX_API_URL=url, UCLOUD_SANDBOX_URL=url, UCLOUD_SANDBOX_API_KEY=door.key)
    before, said = there(door), "could not be checked"
    proxy.where, proxy.how = "Process/Start .*connect_ex", "no_such_program"
    answer = daemon.request("POST", "/v1/guests", {"backend": "ucloud_agent_sandbox"})
    proxy.how = None
    assert answer.status == 503 and said in answer.error()[1], answer
    assert there(door) == before, "what was made was not ended"
    del proxy.requests[:]
    for _ in range(2):
        Guest(daemon, backend="ucloud_agent_sandbox").close()
    assert sum(b"connect_ex" in body for _, _, _, body in proxy.requests) == 1, "once in ten minutes"


def test_a_terminal(guest, proxy):
    del proxy.requests[:]
    terminal = Terminal(guest.client, guest.id, cols=80, rows=24)
    terminal.until(b"$")
    guest.good("POST", f"/exec/{terminal.pid}/input", {"data": "stty size; tty\n"})
    assert b"/dev/pts/" in terminal.until(b"/dev/pts/") and b"24 80" in terminal.shown, terminal.shown
    guest.good("POST", f"/exec/{terminal.pid}/resize", {"cols": 100, "rows": 30})
    guest.good("POST", f"/exec/{terminal.pid}/input", {"data": "stty size; exit 3\n"})
    terminal.until(b"30 100")
    assert terminal.end()["exit_code"] == 3
    typed = [body for _, path, _, body in proxy.requests if path.endswith("/SendInput")]
    assert typed and all(b'"input":{"pty":' in body for body in typed), "E2B takes nothing as stdin of a terminal"


def test_a_new_gateway_finds_its_guests_again(daemon):
    with Guest(daemon, backend="e2b") as guest, Guest(daemon, backend="ucloud_agent_sandbox") as paused:
        guest.put("kept", b"mine")
        paused.good("POST", "/pause", {})
        os.kill(daemon.role("gateway"), signal.SIGKILL)
        assert daemon.wait_ready()
        assert host.wait_for(lambda: guest.call("GET", "/files?path=kept").status != 503, 60), "it is looked for"
        assert guest.show()["state"] == "running" and paused.show()["state"] == "paused"
        assert guest.read("kept") == b"mine"
        paused.good("POST", "/resume", {})
        assert paused.exec(["echo", "again"])["stdout"] == "again\n"


def test_a_sandbox_that_went_by_itself_is_told(own, door):
    """Its lifetime is renewed three times in a lifetime, which is when it shows."""
    daemon = own(pool_python=0, pool_max=0, E2B_API_URL=f"http://127.0.0.1:{door.port}", E2B_SANDBOX_URL=f"http://127.0.0.1:{door.port}",
                 E2B_API_KEY=door.key, e2b_timeout_s=60)
    before = there(door)
    guest = Guest(daemon, backend="e2b")
    (sandbox,) = there(door) - before
    assert door.request("DELETE", f"/v1/guests/{sandbox}").status in (200, 204)
    assert host.wait_for(lambda: guest.call("GET").json().get("state") == "gone", 60), guest.call("GET")
    assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 410


def test_what_a_service_refuses_is_an_error_and_leaves_nothing(daemon, proxy, door):
    before = there(door)
    for how in ("status_401", "status_429", "cut", "garbage", "wrong_json"):
        proxy.where, proxy.how = "POST /(v2/)?sandboxes ", how
        answer = daemon.request("POST", "/v1/guests", {"backend": "e2b"})
        proxy.how = None
        assert answer.status == 503 and door.key.encode() not in answer.body, (how, answer)
    assert there(door) == before


@pytest.fixture
def fallible(own, door):
    """(gateway, what stands between it and the service), both of the test's own."""
    with Proxy(f"http://127.0.0.1:{door.port}") as between:
        yield own(pool_python=0, pool_max=0, E2B_API_URL=between.url, E2B_SANDBOX_URL=between.url, E2B_API_KEY=door.key), between


MAKES = {"guest": ("/v1/guests", {"backend": "e2b"}),
         "run": ("/v1/runs", {"backend": "e2b", "language": "python", "code": "print(1)"})}


@pytest.mark.parametrize("path,body", MAKES.values(), ids=MAKES)
def test_a_client_that_leaves_while_one_is_made_leaves_none(fallible, door, path, body):
    before, (daemon, between) = there(door), fallible
    between.where, between.how = "POST /(v2/)?sandboxes ", "held"
    connection = daemon.connection()
    connection.request("POST", path, json.dumps(body), daemon.headers())
    assert host.wait_for(lambda: there(door) - before, 60), "it was not made"
    connection.close()  # before the answer comes
    between.released.set()
    assert host.wait_for(lambda: there(door) == before, 60), "it was made, and nobody ends it"
    assert not between.gave_up


def begin_upload(daemon, guest, name, data):
    """A client that has sent all of a file but its last byte."""
    connection = daemon.connection()
    connection.putrequest("PUT", f"/v1/guests/{guest.id}/files?path={name}")
    for header, value in {**daemon.headers(), "Content-Type": "application/octet-stream", "Content-Length": str(len(data))}.items():
        connection.putheader(header, value)
    connection.endheaders()
    connection.send(data[:-1])
    return connection


def test_uploads_hold_no_more_memory_together_than_they_may(own, door):
    daemon = own(pool_python=0, pool_max=0, E2B_API_KEY=door.key,
                 **{f"E2B_{what}_URL": f"http://127.0.0.1:{door.port}" for what in ("API", "SANDBOX")}, remote_uploads_mb=1)
    with Guest(daemon, backend="e2b") as guest:
        small, large = b"s" * 400000, b"l" * 700000

        def put(name, data):
            answer = guest.call("PUT", f"/files?path={name}", data)
            assert answer.status in (200, 503) and (answer.status == 200 or b"REMOTE_UPLOADS_MB" in answer.body), answer
            return answer.status

        assert put("large", large) == 503
        assert [put("small", small) for _ in range(3)] == [200] * 3, "what was sent or refused is held no more"

        def overlap():
            """One waits for its last byte, another is refused for what it holds. While both come either may be refused, of
            which the first hears behind its last byte: then they try again."""
            slow = begin_upload(daemon, guest, "slow", small)
            try:
                full = host.wait_for(lambda: put("other", small) == 503, 3)
                slow.send(small[-1:])
                return slow.getresponse().status == 200 and full
            except (OSError, http.client.HTTPException):
                return False
            finally:
                slow.close()

        assert host.wait_for(overlap, 60) and guest.read("slow") == small
        assert host.wait_for(lambda: put("other", small) == 200, 60) and guest.read("other") == small
        for _ in range(5):
            begin_upload(daemon, guest, "left", small).close()
        assert host.wait_for(lambda: put("other", small) == 200, 60), "clients that left hold something"


def test_what_it_does_not_offer_is_said_so(guest):
    for method, rest, body in [("GET", "/metrics", None), ("POST", "/cells", {"code": "1"}), ("PUT", "/egress", {"network": True})]:
        status, kind, message = guest.refused(method, rest, body)
        assert kind in ("unsupported", "refused", "conflict", "invalid_request"), (rest, status, kind, message)
        assert status < 500 or status == 501, (rest, status, kind, message)


def test_runs_in_it(guest):
    answer = guest.run("print(6 * 7)")
    assert answer["stdout"] == "42\n" and answer["outcome"]["cause"] == "exited", answer
