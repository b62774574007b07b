# SPDX-License-Identifier: Apache-2.0
"""Runs in kept guests, returned files, and the same guest found again."""

import base64
import json
import re
import threading

import pytest
from lib.guest import Guest
from lib.pace import limit

pytestmark = pytest.mark.each_backend


@pytest.fixture(scope="module")
def guest(daemon):
    with Guest(daemon, memory_mb=256) as made:
        yield made


def files(answer):
    return {a["name"]: base64.b64decode(a["content_b64"]) for a in answer["artifacts"] if "content_b64" in a}


def dropped(answer):
    return {a["name"]: a["dropped"] for a in answer["artifacts"] if a.get("dropped")}


@pytest.mark.parametrize("language, code, out", [
    ("python", "import sys; print('p', sys.stdin.read(), __file__[-3:])", "p in .py\n"),
    ("javascript", "console.log('j', require('fs').readFileSync(0, 'utf8'))", "j in\n"),
    ("javascript", "import fs from 'fs'\nconsole.log('m', fs.readFileSync(0, 'utf8'))", "m in\n"),
    ("bash", "echo b $(cat)", "b in\n")])
def test_runs(guest, host_backend, language, code, out):
    answer = guest.run(code, language, stdin="in")
    assert (answer["stdout"], answer["exit_code"], answer["outcome"]["cause"]) == (out, 0, "exited")
    assert (answer["backend"], answer["outcome"]["isolation"]) == (host_backend.name, host_backend.isolation)
    assert not any(name.startswith("main_") for name in guest.exec("ls -A")["stdout"].split())


@pytest.mark.smoke
def test_files_stay_and_interpreters_do_not(guest):
    code = "import os\nn = int(open('count').read()) + 1 if os.path.exists('count') else 1\nopen('count', 'w').write(str(n))\nprint(n)"
    assert [guest.run(code)["stdout"] for _ in range(3)] == ["1\n", "2\n", "3\n"]
    guest.run("x = 1")
    assert "NameError" in guest.run("x")["stderr"]


def test_main(guest):
    assert guest.run("async def main(a, b=2): return {'sum': a + b}", arguments={"a": 1})["result"] == {"sum": 3}
    assert guest.run("module.exports = async ({ a }) => ({ a })", "javascript", arguments={"a": [1]})["result"] == {"a": [1]}
    answer = guest.run("def main(): raise ValueError('no')", arguments={})
    assert answer["exit_code"] == 1 and "ended before main() returned" in answer["outcome"]["result_error"]
    answer = guest.run("import os\ndef main():\n    os.write(3, b'{forged')\n    os._exit(0)", arguments={})
    assert "not JSON" in answer["outcome"]["result_error"] and answer.get("result") is None


@pytest.mark.parametrize("code, cause, exit_code", [
    ("exit(3)", "exited", 3), ("import os; os.kill(os.getpid(), 9)", "signalled", 137), ("while True: pass", "timeout", -1)])
def test_ends(guest, code, cause, exit_code):
    answer = guest.run(code, timeout_s=limit(1))
    assert (answer["outcome"]["cause"], answer["exit_code"]) == (cause, exit_code)


def test_large_stdin_beside_large_output(guest):
    text = "x" * 3_000_000
    answer = guest.run("import sys\nfor line in iter(lambda: sys.stdin.read(65536), ''): sys.stdout.write(line)", stdin=text)
    assert answer["outcome"]["stdout"]["bytes"] == 3_000_000 and answer["outcome"]["stdout"]["truncated"]
    assert guest.run("import os; os.close(0); print('closed')", stdin=text)["stdout"] == "closed\n"


def test_what_is_of_the_guest_is_refused(guest):
    for field in ({"memory_mb": 64}, {"network": True}, {"backend": "none"}, {"disk_mb": 5}):
        status, kind, message = guest.refused("POST", "/runs", {"code": "1", "language": "python", **field})
        assert (status, kind) == (400, "invalid_request") and next(iter(field)) in message


# --- returned files ---


WRITE = "import os\nos.makedirs('artifacts/sub', exist_ok=True)\n"


@pytest.mark.smoke
def test_returned_files(guest):
    answer = guest.run(WRITE + "open('artifacts/a.txt', 'w').write('A')\nopen('artifacts/sub/b', 'wb').write(bytes(range(256)))", artifacts=True)
    assert files(answer) == {"a.txt": b"A", "sub/b": bytes(range(256))}
    assert files(guest.run("print(1)", artifacts=True)) == {}  # old ones never again
    assert files(guest.run(WRITE + "open('artifacts/a.txt', 'w').write('A')", artifacts=True)) == {"a.txt": b"A"}


def test_files_of_a_run_that_did_not_ask_are_old(guest):
    guest.run(WRITE + "open('artifacts/old', 'w').write('o')")
    assert files(guest.run(WRITE + "open('artifacts/new', 'w').write('n')", artifacts=True)) == {"new": b"n"}
    assert files(guest.run("open('artifacts/old', 'a').write('p')", artifacts=True)) == {"old": b"op"}


def test_files_are_returned_after_a_timeout(guest):
    answer = guest.run(WRITE + "open('artifacts/t', 'w').write('t')\nwhile True: pass", artifacts=True, timeout_s=limit(1))
    assert answer["outcome"]["cause"] == "timeout" and files(answer) == {"t": b"t"}


def test_only_regular_files(guest):
    answer = guest.run(WRITE + "os.symlink('/etc/passwd', 'artifacts/link')\nos.mkfifo('artifacts/fifo')\n"
                       "os.symlink('/etc', 'artifacts/dir')\nopen('artifacts/plain', 'w').write('p')", artifacts=True)
    assert files(answer) == {"plain": b"p"}


def test_at_most_256_files(guest):
    answer = guest.run(WRITE + "for i in range(300): open(f'artifacts/{i:03}', 'w').write('x')", artifacts=True)
    assert len(files(answer)) == 256 and len(dropped(answer)) + answer["outcome"]["artifacts_dropped"] >= 44
    guest.exec("rm -rf artifacts")


def test_bytes_are_capped(own):
    with own(artifacts_mb=1) as daemon, Guest(daemon) as guest:
        answer = guest.run(WRITE + "open('artifacts/a', 'wb').write(b'a' * 700_000)\nopen('artifacts/b', 'wb').write(b'b' * 700_000)\n"
                           "open('artifacts/c', 'wb').write(b'c' * 100_000)", artifacts=True)
        assert sorted(files(answer)) == ["a", "c"] and "larger than what is left" in dropped(answer)["b"]


def test_a_folder_that_is_a_file(guest):
    answer = guest.run("import shutil\nshutil.rmtree('artifacts')\nopen('artifacts', 'w').write('x')", artifacts=True)
    assert answer["outcome"]["cause"] == "exited" and files(answer) == {}
    guest.exec("rm -f artifacts")


# --- the same guest again ---


def reuse(daemon, **fields):
    answer = daemon.request("POST", "/v1/reuse", fields)
    assert answer.status in (200, 201), answer
    found = answer.json()
    return found["guest"]["id"], found["reused"], found["guest"]


def test_reuse_finds_the_same_guest(daemon):
    first, reused, guest = reuse(daemon, flow="f1", component="c1")
    try:
        assert not reused and re.fullmatch("lf-c-[0-9a-f]{17}", guest["name"]) and guest["ends_at"] is None and guest["auto_resume"]
        assert guest["idle_pause_s"] == 900
        assert reuse(daemon, flow="f1", component="c1")[:2] == (first, True)
        daemon.request("POST", f"/v1/guests/{first}/pause", {})
        again, reused, guest = reuse(daemon, flow="f1", component="c1")
        assert (again, reused, guest["state"]) == (first, True, "running")
        others = [reuse(daemon, flow="f2", component="c1")[0], reuse(daemon, flow="f1", component="c2")[0], reuse(daemon, component="c1")[0]]
        assert len({first, *others}) == 4
        for other in others:
            daemon.request("DELETE", f"/v1/guests/{other}")
    finally:
        daemon.request("DELETE", f"/v1/guests/{first}")
    new, reused, _ = reuse(daemon, flow="f1", component="c1")
    assert new != first and not reused
    daemon.request("DELETE", f"/v1/guests/{new}")


def test_reuse_counts_one_two_three(daemon):
    """Three runs, one guest: what Langflow's component does."""
    code = "import os\nn = int(open('count').read()) + 1 if os.path.exists('count') else 1\nopen('count', 'w').write(str(n))\nprint(n)"
    seen = []
    for _ in range(3):
        found = reuse(daemon, flow="counting", component="c")[0]
        answer = daemon.request("POST", f"/v1/guests/{found}/runs", {"code": code, "language": "python"}).json()
        seen.append((found, answer["stdout"]))
    assert [out for _, out in seen] == ["1\n", "2\n", "3\n"] and len({found for found, _ in seen}) == 1
    daemon.request("DELETE", f"/v1/guests/{seen[0][0]}")


def test_racing_workers_adopt_one(daemon):
    found = []
    threads = [threading.Thread(target=lambda: found.append(reuse(daemon, flow="race", component="c"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({entry[0] for entry in found}) == 1 and sum(not entry[1] for entry in found) == 1
    daemon.request("DELETE", f"/v1/guests/{found[0][0]}")


def test_a_drifted_guest_is_refused(daemon):
    first, _, guest = reuse(daemon, flow="drift", component="c")
    name = guest["name"]
    daemon.request("DELETE", f"/v1/guests/{first}")
    with Guest(daemon, name=name, metadata={"made": "by hand"}):
        assert reuse(daemon, flow="drift", component="c")[1] is True  # the same policy: adopted
    answer = daemon.request("POST", "/v1/reuse", {"flow": "x"})
    assert answer.status == 400 and "component" in answer.error()[1]


def test_names_depend_on_the_policy(daemon):
    """With network off only the name can differ; that it does is seen by its refusal or by its name."""
    plain = reuse(daemon, flow="p", component="c")
    answer = daemon.request("POST", "/v1/reuse", {"flow": "p", "component": "c", "network": True})
    if answer.status < 300:
        assert answer.json()["guest"]["id"] != plain[0]
        daemon.request("DELETE", f"/v1/guests/{answer.json()['guest']['id']}")
    else:
        assert answer.error()[0] == "refused"
    daemon.request("DELETE", f"/v1/guests/{plain[0]}")


def test_openapi_has_it(daemon):
    document = daemon.get("/openapi.json").json()
    for path in ("/v1/guests", "/v1/guests/{guest}/cells", "/v1/guests/{guest}/runs", "/v1/reuse", "/v1/guests/{guest}/contexts"):
        assert path in document["paths"]
    names = set(document["components"]["schemas"])
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document))) <= names
