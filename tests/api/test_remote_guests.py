# SPDX-License-Identifier: Apache-2.0
"""Kept guests of the backends `e2b`, `ucloud_agent_sandbox` and `createos`, by the same interface as local ones, against our own
doors: never the live clouds. First what all of them do, then what is one's own."""

import dataclasses
import datetime
import http.client
import json
import os
import re
import signal
import threading
import time

import pytest
from lib import host
from lib.admin import Terminal
from lib.client import Client
from lib.daemon import Daemon
from lib.faults import Proxy
from lib.guest import Guest

EMPTY = {"pool_python": 0, "pool_python_data": 0, "pool_javascript": 0, "pool_bash": 0, "pool_guest": 0, "pool_max": 0}


@dataclasses.dataclass(frozen=True)
class Service:
    backend: str
    urls: tuple  # names of settings
    key: str
    create: str  # the request that makes a sandbox
    lists: str  # the one that finds it again
    no_network: bytes  # in the former
    upload: int  # bytes of which one fits into a budget of 1 MiB, and two do not
    more: dict = dataclasses.field(default_factory=dict)

    def settings(self, url, key):
        return {**{name: url for name in self.urls}, self.key: key, **self.more, **EMPTY}


E2B = Service("e2b", ("E2B_API_URL", "E2B_SANDBOX_URL"), "E2B_API_KEY", "POST /(v2/)?sandboxes ", r"GET /v2/sandboxes\?",
              b'"allow_internet_access":false', 400000)
UCLOUD = dataclasses.replace(E2B, backend="ucloud_agent_sandbox", urls=("UCLOUD_SANDBOX_API_URL", "UCLOUD_SANDBOX_URL"),
                             key="UCLOUD_SANDBOX_API_KEY")
CREATEOS = Service("createos", ("CREATEOS_SANDBOX_BASE_URL",), "CREATEOS_API_KEY", "POST /v1/sandboxes ", r"GET /v1/sandboxes\?limit",
                   b'"egress":["240.0.0.0/4"]', 700000, {"LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS": True})


def of(*services):
    """A test's services; without, it is one of E2B's protocol and one of CreateOS's."""
    return pytest.mark.parametrize("service", services, ids=[one.backend for one in services], indirect=True)


@pytest.fixture(params=[E2B, CREATEOS], ids=["e2b", "createos"])
def service(request):
    return request.param


@pytest.fixture(scope="module")
def door(nothing_left):
    with Daemon(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_guest=1,
                createos_min_isolation="namespace") as made:
        yield made
        made.note_cgroups()


@pytest.fixture(scope="module")
def proxy(door):
    with Proxy(f"http://127.0.0.1:{door.port}") as made:
        yield made


@pytest.fixture(scope="module")
def daemon(door, proxy):
    """Its local pools are empty: what runs, runs there."""
    settings = {}
    for one in (E2B, UCLOUD, CREATEOS):
        settings.update(one.settings(proxy.url, door.key))
    with Daemon(**settings) as made:
        yield made
        made.note_cgroups()


@pytest.fixture
def guest(daemon, service):
    with Guest(daemon, backend=service.backend, env={"OWN": "of the guest"}) as made:
        yield made


@pytest.fixture
def fallible(own, door, service):
    """(gateway, what stands between it and the service), both of the test's own."""
    with Proxy(f"http://127.0.0.1:{door.port}") as between:
        yield own(**service.settings(between.url, door.key)), between


@pytest.fixture(params=["guest", "run"])
def making(request, service):
    """(path, body) of what makes a sandbox."""
    body = {"backend": service.backend}
    return ("/v1/guests", body) if request.param == "guest" else ("/v1/runs", {**body, "language": "python", "code": "print(1)"})


def there(door):
    return {row["id"] for row in door.get("/v1/guests").json()["guests"] if row["state"] in ("running", "paused")}


# --- what all of them do ---


@of(E2B, UCLOUD, CREATEOS)
def test_programs(guest):
    done = guest.exec(["sh", "-c", "echo $OWN $MORE; pwd; echo no >&2; exit 3"], env={"MORE": "ä b '$HOME'"}, cwd="/tmp")
    assert (done["stdout"], done["stderr"], done["exit_code"]) == ("of the guest ä b '$HOME'\n/tmp\n", "no\n", 3), done
    done = guest.exec(["printf", "%s|", "a b", "it's", "", "-n", "$(id)"])
    assert done["stdout"] == "a b|it's||-n|$(id)|", done
    assert guest.refused("POST", "/exec", {"command": ["/nowhere/at/all"]})[0] in (400, 404)


def test_a_program_ends_at_its_time_and_what_it_wrote_comes(guest):
    done = guest.exec(["sh", "-c", "echo so far; sleep 100"], timeout_s=1)
    assert done["outcome"]["cause"] == "timeout" and done["stdout"] == "so far\n", done


@of(E2B, UCLOUD, CREATEOS)
def test_files(guest):
    data = bytes(range(256)) * 5000
    guest.put("deep/in/-a file's name.bin", data)
    assert guest.read("deep/in/-a file's name.bin") == data
    answer = guest.call("GET", "/entries?path=deep&depth=2").json()
    entries = {row["path"].rsplit("/", 1)[1]: row for row in answer["entries"]}
    assert set(entries) == {"in", "-a file's name.bin"}, entries
    row = entries["-a file's name.bin"]
    assert (row["size"], row["type"], row["path"][0]) == (len(data), "file", "/"), row
    modified = datetime.datetime.fromisoformat(row["modified_at"].replace("Z", "+00:00"))
    assert abs(modified.timestamp() - time.time()) < 600, row
    assert guest.call("POST", "/files/move?path=deep/in/-a%20file's%20name.bin&target=moved/file").status == 200
    assert guest.read("moved/file")[:4] == data[:4] and guest.call("GET", "/files?path=deep/in/-a%20file's%20name.bin").status == 404
    assert guest.call("POST", "/files/directory?path=moved").status == 409
    assert guest.call("POST", "/files/directory?path=new/one").status in (200, 201)
    assert guest.call("DELETE", "/files?path=moved").status in (200, 204)
    assert guest.call("GET", "/files?path=moved/file").status == 404
    assert guest.call("GET", "/files?path=deep").status == 400, "a directory"
    assert guest.call("GET", "/entries?path=nowhere").status == 404


@of(E2B, UCLOUD, CREATEOS)
def test_a_pause_keeps_what_ran(guest):
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


def test_no_network_unless_it_is_asked_for(guest, proxy, service):
    made = [body for method, path, _, body in proxy.requests if re.match(service.create, f"{method} {path} ")]
    assert made and all(service.no_network in body for body in made)


def test_the_end_of_a_guest_is_the_end_of_its_sandbox(daemon, door, service):
    before = there(door)
    guest = Guest(daemon, backend=service.backend)
    assert len(there(door) - before) == 1
    guest.close()
    assert host.wait_for(lambda: there(door) == before)
    assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 410


@of(E2B, UCLOUD, CREATEOS)
def test_a_new_gateway_finds_its_guests_again(daemon, service):
    with Guest(daemon, backend=service.backend) as guest, Guest(daemon, backend=service.backend) as paused:
        guest.put("kept", b"mine")
        paused.good("POST", "/pause", {})
        os.kill(daemon.role("gateway"), signal.SIGKILL)
        assert daemon.wait_ready()
        assert host.wait_for(lambda: guest.call("GET", "/files?path=kept").status != 503), "it is looked for"
        assert guest.show()["state"] == "running" and paused.show()["state"] == "paused"
        assert guest.read("kept") == b"mine"
        paused.good("POST", "/resume", {})
        assert paused.exec(["echo", "again"])["stdout"] == "again\n"


def test_a_service_that_is_silent_holds_up_neither_other_guests_nor_the_end(own, door, service):
    before = there(door)
    with Proxy(f"http://127.0.0.1:{door.port}", service.lists) as proxy:
        daemon = own(**{**service.settings(proxy.url, door.key), "pool_max": 1, "pool_guest": 1})
        far, near = (daemon.request("POST", "/v1/guests", {"backend": one}).json()["id"] for one in (service.backend, "local"))
        proxy.how = "hold"
        os.kill(daemon.role("gateway"), signal.SIGKILL)
        assert daemon.wait_ready()
        assert host.wait_for(lambda: any(re.search(service.lists, " ".join(request[:2])) for request in proxy.requests), 60)
        command = {"command": ["true"]}
        assert host.wait_for(lambda: daemon.request("POST", f"/v1/guests/{near}/exec", command).status == 200, 60), daemon.log()
        assert daemon.request("POST", f"/v1/guests/{far}/exec", command).status == 503
        daemon.stop()
        assert "did not stop in time" not in daemon.log(), daemon.log()
        proxy.released.set()
    for left in there(door) - before:
        assert door.request("DELETE", f"/v1/guests/{left}").status in (200, 204)


def test_what_a_service_refuses_is_an_error_and_leaves_nothing(daemon, proxy, door, service):
    before = there(door)
    for how in ("status_401", "status_429", "cut", "garbage", "wrong_json"):
        proxy.where, proxy.how = service.create, how
        answer = daemon.request("POST", "/v1/guests", {"backend": service.backend})
        proxy.how = None
        assert answer.status == 503 and door.key.encode() not in answer.body, (how, answer)
    assert there(door) == before


def test_a_client_that_leaves_while_one_is_made_leaves_none(fallible, door, service, making):
    before, (daemon, between), (path, body) = there(door), fallible, making
    between.where, between.how = service.create, "held"
    connection = daemon.connection()
    connection.request("POST", path, json.dumps(body), daemon.headers())
    assert host.wait_for(lambda: there(door) - before), "it was not made"
    connection.close()  # before the answer comes
    between.released.set()
    assert host.wait_for(lambda: there(door) == before), "it was made, and nobody ends it"
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


def test_uploads_hold_no_more_memory_together_than_they_may(own, door, service):
    daemon = own(**service.settings(f"http://127.0.0.1:{door.port}", door.key), remote_uploads_mb=1)
    with Guest(daemon, backend=service.backend) as guest:
        small, large = b"s" * service.upload, b"l" * 1100000

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

        assert host.wait_for(overlap) and guest.read("slow") == small
        assert host.wait_for(lambda: put("other", small) == 200) and guest.read("other") == small
        for _ in range(5):
            begin_upload(daemon, guest, "left", small).close()
        assert host.wait_for(lambda: put("other", small) == 200), "clients that left hold something"


def test_runs_in_it(guest):
    answer = guest.run("print(6 * 7)\nopen('artifacts/a.txt', 'w').write('kept')")
    assert answer["stdout"] == "42\n" and answer["outcome"]["cause"] == "exited", answer


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "after a restart"])
def test_one_whose_service_never_answers_again_can_be_given_up(fallible, door, service, restarts):
    daemon, between = fallible
    before, guest = there(door), Guest(daemon, backend=service.backend, name="mine")
    (left,) = there(door) - before
    remote = guest.show()["remote_id"]
    assert left in remote
    between.where, between.how = ".", "status_500"
    if restarts:
        os.kill(daemon.role("gateway"), signal.SIGKILL)
        assert daemon.wait_ready()
        assert host.wait_for(lambda: b"in vain" in guest.call("DELETE").body)
    status, _, message = guest.refused("DELETE")
    assert status >= 500 and "?forget=true" in message and guest.show()["state"] == "running", message
    assert guest.refused("DELETE", "?forget=perhaps")[0] == 400
    told = guest.good("DELETE", "?forget=true")
    assert (told["state"], told["cause"], told["remote_id"]) == ("gone", "forgotten", remote) and remote in told["reason"], told
    assert guest.good("DELETE", "?forget=true")["cause"] == "forgotten", "again"
    entries = Client(daemon.port, daemon.create_key("--scope", "admin")).get("/v1/admin/audit").json()["entries"]
    assert [row for row in entries if (row["action"], row["subject"]) == ("guest.forget", guest.id)], entries
    assert daemon.get("/v1/guests").json()["guests"] == [], "it counts no more"
    between.how = None
    with Guest(daemon, backend=service.backend, name="mine"):
        assert left in there(door), "which is why its name there was told"
    assert door.request("DELETE", f"/v1/guests/{left}").status in (200, 204)


def test_a_guest_whose_service_is_not_reached_after_a_restart_is_found_later(daemon, proxy, service):
    """A failure says nothing of the sandbox, which lives, and costs: it is no tombstone."""
    for how in ("status_500", "status_404", "wrong_json"):
        with Guest(daemon, backend=service.backend) as guest:
            guest.put("kept", b"mine")
            proxy.where, proxy.how = service.lists, how
            os.kill(daemon.role("gateway"), signal.SIGKILL)
            assert daemon.wait_ready()
            vain = host.wait_for(lambda: "in vain" in (told := guest.call("GET", "/files?path=kept")).body.decode() and told, 60)
            proxy.how = None
            assert vain and vain.status == 503 and vain.headers["Retry-After"], (how, vain)
            assert guest.show()["state"] == "running", how
            assert host.wait_for(lambda: guest.call("GET", "/files?path=kept").status == 200, 120), (how, guest.show())


# --- what is E2B's protocol's own ---


@of(E2B, UCLOUD)
def test_stdin_signals_and_users(guest):
    done = guest.exec(["cat"], stdin="from outside\n")
    assert (done["stdout"], done["exit_code"]) == ("from outside\n", 0), done
    done = guest.exec(["sh", "-c", "kill -9 $$"])
    assert done["outcome"]["cause"] == "signalled" and done["outcome"]["signal"] == 9, done
    assert guest.exec(["id", "-u"], user="root")["stdout"] == "0\n"


@of(E2B)
def test_programs_go_on_are_listed_and_signalled(guest):
    pid = guest.good("POST", "/exec", {"command": ["sleep", "100"], "background": True, "tag": "mine"}, status=(200, 201, 202))["pid"]
    (row,) = [row for row in guest.good("GET", "/exec")["programs"] if row["tag"] == "mine"]
    assert (row["pid"], row["running"], row["command"]) == (pid, True, ["sleep", "100"]), row
    assert guest.refused("POST", f"/exec/{pid}/signal", {"signal": "HUP"})[0] == 501
    guest.good("POST", f"/exec/{pid}/signal", {"signal": "TERM"})
    assert host.wait_for(lambda: not [row for row in guest.good("GET", "/exec")["programs"] if row["tag"] == "mine"])
    assert guest.refused("POST", f"/exec/{pid}/signal", {"signal": "TERM"})[0] == 404


def test_ucloud_looks_from_inside_whether_there_is_a_network(own, door, proxy):
    daemon = own(**UCLOUD.settings(proxy.url, door.key))
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
    admin = Client(daemon.port, daemon.create_key("--scope", "admin"))
    answer = admin.request("POST", "/v1/admin/test", {"backend": "ucloud_agent_sandbox", "values": {"CORDON_UCLOUD_SANDBOX_TEMPLATE": "base"}})
    assert answer.status == 200 and answer.json()["passed"], answer
    assert sum(b"connect_ex" in body for _, _, _, body in proxy.requests) == 2, "a trial's settings are others"
    Guest(daemon, backend="ucloud_agent_sandbox").close()
    assert sum(b"connect_ex" in body for _, _, _, body in proxy.requests) == 3, "and what it found is not for these"


@of(E2B)
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


def check_that_its_going_is_told(daemon, door, backend):
    before = there(door)
    guest = Guest(daemon, backend=backend)
    (sandbox,) = there(door) - before
    assert door.request("DELETE", f"/v1/guests/{sandbox}").status in (200, 204)
    assert host.wait_for(lambda: guest.call("GET").json().get("state") == "gone"), guest.call("GET")
    assert guest.refused("POST", "/exec", {"command": ["true"]})[0] == 410


def test_an_e2b_sandbox_that_went_by_itself_is_told(own, door):
    """Its lifetime is renewed three times in a lifetime, which is when it shows."""
    daemon = own(**E2B.settings(f"http://127.0.0.1:{door.port}", door.key), e2b_timeout_s=60)
    check_that_its_going_is_told(daemon, door, "e2b")


@of(E2B)
def test_what_e2b_does_not_offer_is_said_so(guest):
    for method, rest, body in [("GET", "/metrics", None), ("POST", "/cells", {"code": "1"}), ("PUT", "/egress", {"network": True})]:
        status, kind, message = guest.refused(method, rest, body)
        assert kind in ("unsupported", "refused", "conflict", "invalid_request"), (rest, status, kind, message)
        assert status < 500 or status == 501, (rest, status, kind, message)


# --- what is CreateOS's own ---


@of(CREATEOS)
def test_words_directories_and_ends_of_programs(guest):
    assert guest.exec(["sh", "-c", "echo $MORE"], env={"MORE": "a\n b"})["stdout"] == "a b\n"
    assert guest.exec(["sh", "-c", "kill -9 $$"])["exit_code"] == 137
    assert guest.refused("POST", "/exec", {"command": ["true"], "cwd": "/nowhere"})[0] == 404
    guest.exec(["sh", "-c", "mkdir moved; echo in >moved/file; ln -s file moved/link"])
    entries = {row["type"]: row for row in guest.good("GET", "/entries?path=moved")["entries"]}
    assert entries["link"]["target"] == "file" and guest.read("moved/link") == b"in\n", entries
    guest.put("moved/file", b"new")
    assert {row["mode"] for row in guest.good("GET", "/entries?path=moved")["entries"] if row["type"] == "file"} == {"0644"}
    assert guest.call("PUT", "/files?path=/proc/version", b"x").status in (400, 403, 409, 413)


@of(CREATEOS)
def test_a_program_ends_at_its_time_with_all_that_it_started(guest):
    done = guest.exec(["sh", "-c", "setsid sleep 1000 & echo so far; sleep 100"], timeout_s=1)
    assert done["outcome"]["cause"] == "timeout" and done["stdout"] == "so far\n", done
    assert guest.exec(["sh", "-c", "cat /proc/[0-9]*/comm | grep -c sleep"])["stdout"] == "0\n"


def test_a_program_that_writes_too_much_is_ended(own, door):
    with Guest(own(**CREATEOS.settings(f"http://127.0.0.1:{door.port}", door.key), output_kill_mb=1), backend="createos") as guest:
        done = guest.exec(["sh", "-c", "yes; true"])
        assert done["outcome"]["cause"] == "output_limit", done


def running(guest):
    return [row for row in guest.good("GET", "/exec")["programs"] if row["command"][:1] == ["sleep"]]


@of(CREATEOS)
def test_a_client_that_leaves_ends_its_program(daemon, guest):
    connection = daemon.connection()
    connection.request("POST", f"/v1/guests/{guest.id}/exec", '{"command":["sleep","1000"],"timeout_s":100}', daemon.headers())
    assert host.wait_for(lambda: running(guest))
    connection.close()
    assert host.wait_for(lambda: not running(guest))


@of(CREATEOS)
def test_programs_are_listed_and_signalled(guest):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(guest.exec(["sleep", "1000"], cwd="/tmp", timeout_s=100)))
    thread.start()
    assert host.wait_for(lambda: running(guest))
    (row,) = running(guest)
    assert (row["running"], row["command"], row["cwd"]) == (True, ["sleep", "1000"], "/tmp"), row
    guest.good("POST", f"/exec/{row['pid']}/signal", {"signal": "TERM"})
    thread.join(60)
    assert answers[0]["exit_code"] == 143 and not running(guest), answers
    assert guest.refused("POST", f"/exec/{row['pid']}/signal", {"signal": "TERM"})[0] == 404


@of(CREATEOS)
def test_one_that_the_service_paused_by_itself_is_woken_by_its_next_use(guest, door):
    guest.put("kept", b"mine")
    (id_,) = [row["id"] for row in door.get("/v1/guests").json()["guests"] if row["state"] == "running"]
    for use in (lambda: guest.exec(["echo", "on"])["stdout"] == "on\n", lambda: guest.read("kept") == b"mine",
                lambda: guest.put("kept", b"mine")):
        assert door.request("POST", f"/v1/guests/{id_}/pause", {}).status == 200
        assert use()


def test_a_createos_sandbox_that_went_by_itself_is_told(daemon, door):
    check_that_its_going_is_told(daemon, door, "createos")


@of(CREATEOS)
def test_one_whose_making_was_answered_to_nobody_is_found_and_ended(fallible, door, making):
    before, (daemon, between), (path, body) = there(door), fallible, making
    between.where, between.how = "POST /v1/sandboxes ", "lost"
    answer = daemon.request("POST", path, body)
    assert answer.status == 503, answer
    made = [row for row in between.requests if row[:2] == ("POST", "/v1/sandboxes")]
    assert made and any(method == "DELETE" for method, _, _, _ in between.requests), between.requests
    assert host.wait_for(lambda: there(door) == before), "it was made, and nobody ends it"


@of(CREATEOS)
def test_one_that_the_service_shows_late_is_ended_when_it_does(fallible, door):
    before, (daemon, between) = there(door), fallible
    between.where, between.how = r"(POST /v1/sandboxes |GET /v1/sandboxes\?limit)", "unseen"
    answer = daemon.request("POST", "/v1/guests", {"backend": "createos"})
    assert answer.status == 503, answer
    assert there(door) - before and not any(method == "DELETE" for method, *_ in between.requests), "it was seen"
    between.how = None
    assert host.wait_for(lambda: there(door) == before, 120), "it has appeared, and nobody ends it"


@of(CREATEOS)
@pytest.mark.parametrize("how", ["cut", "truncate", "garbage", "status_500", "status_401"])
def test_a_service_that_fails_under_way_is_told(guest, proxy, how):
    proxy.where, proxy.how = "/exec.*touch", how
    answer = guest.call("POST", "/exec", {"command": ["touch", "here"]})
    proxy.how = None
    told = answer.json()
    assert answer.status >= 500 or told["outcome"]["cause"] == "infrastructure", answer
    assert guest.call("GET", "/files?path=here").status == 404, "it was answered by the proxy"


@of(CREATEOS)
def test_what_createos_does_not_offer_is_said_so(guest):
    for method, rest, body in [("GET", "/metrics", None), ("POST", "/cells", {"code": "1"}), ("PUT", "/egress", {"network": True}),
                               ("POST", "/exec", {"command": ["sleep", "9"], "background": True}),
                               ("POST", "/exec", {"command": ["cat"], "stdin": "x"}), ("POST", "/terminal", {"cols": 80, "rows": 24})]:
        status, kind, message = guest.refused(method, rest, body)
        assert (status, kind) == (501, "unsupported"), (rest, message)


@of(CREATEOS)
def test_a_use_while_it_is_being_paused_does_not_undo_that(guest, proxy):
    """The service has paused it, which takes us a second to hear: a program that is refused meanwhile (409) wakes nothing."""
    before, answers = len(proxy.requests), []
    asked = lambda verb: [path for method, path, *_ in proxy.requests[before:] if method == "POST" and path.endswith(verb)]
    proxy.where, proxy.how = "GET /v1/sandboxes/[^/?]+ ", "late"
    thread = threading.Thread(target=lambda: answers.append(guest.call("POST", "/pause", {})))
    thread.start()
    assert host.wait_for(lambda: asked("/pause"))
    used = guest.call("POST", "/exec", {"command": ["true"]})
    thread.join(60)
    proxy.how = None
    assert answers[0].status == 200 and guest.show()["state"] == "paused"
    assert not asked("/resume"), used
    guest.good("POST", "/resume", {})
    assert guest.exec(["echo", "on"])["stdout"] == "on\n"
