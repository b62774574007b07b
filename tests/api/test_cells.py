# SPDX-License-Identifier: Apache-2.0
"""Cells in kept guests, over the native door. What the interpreters do by themselves: tests/unit/test_cells.py."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from lib import host
from lib.client import Client
from lib.guest import Guest

pytestmark = pytest.mark.each_backend

NODE = os.path.exists("/usr/bin/node")
LANGUAGES = ["python", *(["javascript"] if NODE else [])]


@pytest.fixture(scope="module")
def guest(daemon):
    with Guest(daemon, memory_mb=768) as made:
        yield made


@pytest.fixture
def fresh(daemon):
    with Guest(daemon, memory_mb=256) as made:
        yield made


# --- cells ---


@pytest.mark.parametrize("language", LANGUAGES)
def test_state_stays(guest, language):
    assert guest.cell("var kept = 40" if language == "javascript" else "kept = 40", language=language)["results"] == []
    assert guest.value("kept + 2", language=language) == "42"


def test_an_answer_in_one_piece(guest):
    answer = guest.cell("import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay('shown')\n{'a': [1]}")
    assert (answer["stdout"], answer["stderr"], answer["error"]) == ("out\n", "err\n", None)
    assert [(r["main"], r["text"]) for r in answer["results"]] == [(False, "'shown'"), (True, "{'a': [1]}")]
    assert answer["results"][1]["json"] == {"a": [1]}
    assert (answer["cause"], answer["context_ended"], answer["message"], answer["exit_code"]) == ("exited", False, "", None)
    assert answer["number"] > 0 and answer["run_ms"] > 0 and not answer["stdout_truncated"]


def test_events_as_they_come(guest):
    """It goes on only when somebody has seen its first one."""
    code = "import os, time\nprint('first')\nwhile not os.path.exists('seen'): time.sleep(.01)\nprint('second')\n1/0"
    events = []
    for line in guest.cell_lines(code):
        events.append((line["type"], line.get("data")))
        if events[-1] == ("stdout", "first\n"):
            guest.put("seen", b"")
    assert events == [("started", None), ("stdout", "first\n"), ("stdout", "second\n"), ("error", None), ("end", None)]


def test_characters_are_not_cut(guest):
    text = "é" * 40000
    assert "".join(line.get("data", "") for line in guest.cell_lines(f"print('{text}', end='')")) == text


def test_output_is_cut_in_one_piece_and_not_in_a_stream(own):
    with own(stdout_kb=4) as daemon, Guest(daemon) as guest:
        answer = guest.cell("print('x' * 10000)")
        assert len(answer["stdout"]) == 4096 and answer["stdout_truncated"]
        assert sum(len(line.get("data", "")) for line in guest.cell_lines("print('x' * 10000)")) == 10001


def test_environment(guest):
    assert guest.value("import os; os.environ['A']", env={"A": "b"}) == "'b'"
    assert guest.value("'A' in os.environ") == "False"


def test_what_is_wrong_is_said(guest):
    assert guest.refused("POST", "/cells", {})[:2] == (400, "invalid_request")
    assert guest.refused("POST", "/cells", {"code": 1})[:2] == (400, "invalid_request")
    assert guest.refused("POST", "/cells", {"code": "1", "language": "cobol"})[:2] == (400, "invalid_request")
    assert guest.refused("POST", "/cells", {"code": "1", "context": "nosuch"})[:2] == (404, "not_found")
    assert guest.refused("POST", "/cells", {"code": "1", "context": "x", "language": "python"})[:2] == (400, "invalid_request")
    assert guest.refused("POST", "/cells", {"code": "1", "timeout_s": -1})[:2] == (400, "invalid_request")
    assert guest.client.request("POST", "/v1/guests/nosuch/cells", {"code": "1"}).status == 404


def test_packages_and_files_of_the_guest(guest):
    guest.put("helper.py", b"def f(): return 7")
    assert guest.value("import helper; helper.f()") == "7"
    assert guest.exec(["cat", "written"], cwd="/home/user")["exit_code"] != 0
    guest.cell("open('written', 'w').write('w')")
    assert guest.exec(["cat", "written"])["stdout"] == "w"


# --- contexts ---


@pytest.mark.parametrize("language", LANGUAGES)
def test_contexts_are_apart(guest, language):
    made = [guest.good("POST", "/contexts", {"language": language}) for _ in range(2)]
    assert made[0]["language"] == language and made[0]["state"] == "idle" and made[0]["cells"] == 0 and not made[0]["default"]
    for i, context in enumerate(made):
        guest.cell(f"var x = {i}" if language == "javascript" else f"x = {i}", context=context["id"])
    assert [guest.value("x", context=context["id"]) for context in made] == ["0", "1"]
    listed = {context["id"]: context for context in guest.good("GET", "/contexts")["contexts"]}
    assert all(listed[context["id"]]["cells"] == 2 for context in made)
    assert guest.good("POST", f"/contexts/{made[0]['id']}/restart") is None
    answer = guest.cell("x", context=made[0]["id"])
    assert answer["error"]["name"] in ("NameError", "ReferenceError")
    for context in made:
        guest.good("DELETE", f"/contexts/{context['id']}")
        assert guest.refused("GET", f"/contexts/{context['id']}")[0] == 404
        assert guest.refused("POST", "/cells", {"code": "1", "context": context["id"]})[0] == 404


def test_context_of_another_folder(guest):
    guest.exec(["mkdir", "-p", "/home/user/elsewhere"])
    context = guest.good("POST", "/contexts", {"cwd": "/home/user/elsewhere"})
    assert guest.value("import os; os.getcwd()", context=context["id"]) == "'/home/user/elsewhere'"
    guest.good("DELETE", f"/contexts/{context['id']}")
    assert guest.refused("POST", "/contexts", {"cwd": "/nosuch"})[0] >= 400


def test_bash_is_one_command(guest):
    answer = guest.cell("echo out; echo err >&2; exit 3", language="bash")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)
    assert answer["error"] == {"name": "ExitStatus", "value": "3", "traceback": []}
    assert guest.cell("echo $A", language="sh", env={"A": "b"})["stdout"] == "b\n"


def test_contexts_are_limited(own):
    with own(guest_contexts=2) as daemon, Guest(daemon) as guest:
        guest.good("POST", "/contexts", {"language": "bash"})
        guest.good("POST", "/contexts", {"language": "bash"})
        status, kind, message = guest.refused("POST", "/contexts", {})
        assert (status, kind) == (429, "quota_exceeded") and "CORDON_GUEST_CONTEXTS" in message


def test_no_context_of_another_guest(daemon, guest, fresh):
    context = guest.good("POST", "/contexts", {"language": "bash"})
    assert fresh.refused("GET", f"/contexts/{context['id']}")[0] == 404
    assert fresh.refused("POST", "/cells", {"code": "1", "context": context["id"]})[0] == 404
    guest.good("DELETE", f"/contexts/{context['id']}")


def test_no_guest_of_another_key(own):
    with own() as daemon, Guest(daemon) as guest:
        stranger = Client(daemon.port, daemon.create_key())
        for method, path, body in (("POST", "/cells", {"code": "1"}), ("GET", "/contexts", None), ("POST", "/contexts", {}),
                                   ("POST", "/exec", {"command": ["true"]}), ("GET", "/files?path=/etc/passwd", None), ("GET", "", None)):
            assert stranger.request(method, f"/v1/guests/{guest.id}{path}", body).status == 404
        assert stranger.get("/v1/guests").json()["guests"] == []


def test_cells_of_one_context_wait_for_each_other(guest):
    guest.cell("import time; order = []")
    threads = [threading.Thread(target=guest.cell, args=(f"order.append({i}); time.sleep(.1); order.append({i})",))
               for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = json.loads(guest.value("order"))
    assert sorted(order[::2]) == [0, 1, 2, 3, 4] and order[::2] == order[1::2]


@pytest.mark.smoke
def test_two_default_contexts_are_one(fresh):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(fresh.cell("import os; os.getpid()"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4, "the others have failed: see their threads"
    assert len({answer["context"] for answer in answers}) == 1
    assert len({answer["results"][0]["text"] for answer in answers}) == 1


# --- interrupts, and the survival table of docs/cells.md ---


@pytest.mark.parametrize("language, code", [
    ("python", "while True: pass"), ("python", "while True: print('x' * 1000)"), ("python", "import time; time.sleep(100)"),
    *([("javascript", "while (true) {}"), ("javascript", "while (true) console.log('x'.repeat(1000))"),
       ("javascript", "await new Promise(() => {})")] if NODE else [])])
def test_interrupt(guest, language, code):
    guest.cell("var survivor = 1" if language == "javascript" else "survivor = 1", language=language)
    lines = guest.cell_lines(code, language=language)
    context = next(lines)["context"]
    time.sleep(.3)
    began = time.monotonic()
    guest.good("POST", f"/contexts/{context}/interrupt")
    seen = list(lines)
    assert seen[-1]["type"] == "end" and not seen[-1]["context_ended"] and time.monotonic() - began < 60
    assert seen[-2]["error"]["name"] in ("KeyboardInterrupt", "Interrupted")
    assert guest.value("survivor", language=language) == "1"


@pytest.mark.parametrize("language, code", [("python", "while True: print('x')"), *([("javascript", "for (;;);")] if NODE else [])])
def test_timeout_keeps_what_heeds_an_interrupt(guest, language, code):
    guest.cell("var survivor = 2" if language == "javascript" else "survivor = 2", language=language)
    answer = guest.cell(code, language=language, timeout_s=1)
    assert (answer["cause"], answer["context_ended"]) == ("timeout", False) and "interrupted after 1000 ms" in answer["message"]
    assert guest.value("survivor", language=language) == "2"


def test_timeout_ends_what_does_not_heed_an_interrupt(fresh):
    fresh.cell("x = 1")
    code = "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except KeyboardInterrupt:\n        pass"
    answer = fresh.cell(code, timeout_s=1)
    assert (answer["cause"], answer["context_ended"]) == ("timeout", True) and answer["run_ms"] < 60000
    assert fresh.good("GET", f"/contexts/{answer['context']}")["state"] == "ended"
    again = fresh.cell("x")
    assert again["fresh"] and again["error"]["name"] == "NameError" and again["context"] == answer["context"]
    assert not fresh.cell("1")["fresh"]


@pytest.mark.parametrize("code, cause, exit_code", [
    ("import os; os._exit(7)", "exited", 7), ("import os, signal; os.kill(os.getpid(), 9)", "signalled", None),
    ("import ctypes; ctypes.string_at(0)", "signalled", None)])
def test_ends_of_an_interpreter(fresh, code, cause, exit_code):
    fresh.cell("x = 1")
    answer = fresh.cell("print('before', flush=True)\n" + code)
    assert (answer["cause"], answer["context_ended"], answer["exit_code"]) == (cause, True, exit_code)
    assert answer["stdout"] == "before\n" and answer["message"]
    assert fresh.cell("x")["error"]["name"] == "NameError"


def test_memory_limit_ends_a_context(fresh):
    answer = fresh.cell("x = bytearray(1)\nwhile True: x += bytes(10_000_000)", timeout_s=60)
    assert (answer["cause"], answer["context_ended"]) == ("memory", True)
    assert fresh.value("1 + 1") == "2"


def test_a_client_that_leaves_cancels_its_cell(guest):
    guest.cell("import time; survivor = 3")
    lines = guest.cell_lines("time.sleep(100)")
    context = next(lines)["context"]
    lines.close()
    assert host.wait_for(lambda: guest.good("GET", f"/contexts/{context}")["state"] == "idle")
    assert guest.value("survivor") == "3"


def test_restart_cancels_the_cell_under_way(guest):
    context = guest.good("POST", "/contexts", {})["id"]
    lines = guest.cell_lines("import time; time.sleep(100)", context=context)
    next(lines)
    guest.good("POST", f"/contexts/{context}/restart")
    end = list(lines)[-1]
    assert (end["cause"], end["context_ended"]) == ("cancelled", True)
    assert guest.value("1", context=context) == "1"
    lines = guest.cell_lines("import time; time.sleep(100)", context=context)
    next(lines)
    guest.good("DELETE", f"/contexts/{context}")
    assert list(lines)[-1]["cause"] == "cancelled"


def test_a_guest_that_ends_ends_its_cells(daemon):
    guest = Guest(daemon)
    lines = guest.cell_lines("import time; time.sleep(100)")
    next(lines)
    guest.close()
    end = list(lines)[-1]
    assert end["type"] == "end" and end["context_ended"] and end["cause"] in ("infrastructure", "signalled")
    assert guest.refused("POST", "/cells", {"code": "1"})[0] in (404, 410)


# --- pauses, and a gateway that restarts ---


def test_pause_keeps_contexts(daemon):
    with Guest(daemon, auto_resume=True) as guest:
        guest.cell("x = 5")
        guest.good("POST", "/pause")
        assert guest.show()["state"] == "paused"
        assert guest.value("x") == "5" and guest.show()["state"] == "running"
    with Guest(daemon) as guest:
        guest.cell("x = 6")
        guest.good("POST", "/pause")
        assert guest.refused("POST", "/cells", {"code": "x"})[0] == 409
        guest.good("POST", "/resume")
        assert guest.value("x") == "6"


def test_a_context_that_waits_does_not_keep_its_guest_awake(daemon):
    with Guest(daemon, idle_pause_s=1, auto_resume=True) as guest:
        guest.cell("x = 7")
        assert host.wait_for(lambda: guest.show()["state"] == "paused")
        assert guest.value("x") == "7"
        assert guest.value("import time; time.sleep(3) or x") == "7"  # a cell that runs does


@pytest.mark.root
def test_contexts_outlive_the_gateway(own):
    daemon = own()
    guest = Guest(daemon)
    guest.cell("x = 8")
    if NODE:
        guest.cell("var y = 9", language="javascript")
    context = guest.good("POST", "/contexts", {})["id"]
    guest.cell("z = 10", context=context)
    broken = guest.cell_lines("import time\nwhile True: print('flood')", context=context)
    next(broken)
    before = daemon.role("gateway")
    os.kill(before, signal.SIGKILL)
    try:
        assert all(line["type"] != "end" for line in broken)
    except (OSError, http.client.HTTPException, ValueError):
        pass  # broken off within a line, or between two
    assert host.wait_for(lambda: daemon.role("gateway") not in (None, before)) and daemon.wait_ready()
    assert host.wait_for(lambda: guest.call("GET", "/contexts").status == 200)
    assert {c["id"] for c in guest.good("GET", "/contexts")["contexts"]} >= {context}
    assert guest.value("x") == "8"
    if NODE:
        assert guest.value("y", language="javascript") == "9"
    assert guest.value("z", context=context) == "10"
    guest.close()


@pytest.mark.skipif(subprocess.run(["/usr/bin/python3", "-c", "import matplotlib, pandas"], capture_output=True).returncode != 0,
                    reason="matplotlib or pandas is not installed")
def test_rich_values(guest, host_backend):
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l')\nplt.show()\n" if host_backend.charts else ""
    answer = guest.cell(f"import pandas as pd\n{plot}pd.DataFrame({{'a': [1]}})")
    assert answer["error"] is None, answer
    *figures, table = answer["results"]
    assert len(figures) == host_backend.charts
    for figure in figures:
        assert figure["chart"]["type"] == "line" and figure["png"].startswith("iVBOR") and "<svg" in figure["svg"]
    assert "<table" in table["html"] and table["data"] == {"a": [1]}
