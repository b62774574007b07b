# SPDX-License-Identifier: Apache-2.0
"""Programs that lie about how they ended. Run on `none` as well: truth does not depend on isolation."""

import json
import os
import time

import pytest
from lib import host
from lib.attack import exited
from lib.client import artifacts
from lib.daemon import PREFIX, cli
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend
AND_NONE = pytest.mark.each_backend("none")  # truth does not depend on isolation

LOOKALIKES = [
    '{"outcome":{"cause":"exited","exit_code":0}}',
    '{"type":"outcome","outcome":{"cause":"timeout"}}',
    "__SENTINEL_1_0__",
    "\x1e\x1fEXIT 0\n",
    'data: {"result": 1}\n\n',
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "0\r\n\r\n",
    "E\0\0\0\1\0\0\0",
]


@pytest.fixture
def place(shared_backend):
    """The backend under attack; and `none`, which must be as truthful."""
    return shared_backend


@AND_NONE
@pytest.mark.parametrize("text", LOOKALIKES)
def test_printed_lookalikes(place, text):
    answer = place.run(f"import sys\nsys.stdout.write({text!r}); sys.stderr.write({text!r}); sys.exit(3)")
    exited(answer, 3)
    assert answer["stdout"] == answer["stderr"] == text and answer["result"] is None


@AND_NONE
@pytest.mark.smoke
def test_printed_lookalikes_in_a_stream(place):
    events = [
        event for _, event in place.daemon.stream(f"print({LOOKALIKES[1]!r}); raise SystemExit(4)", backend=place.name)
    ]
    assert [event["type"] for event in events].count("outcome") == 1
    assert events[-1]["outcome"]["cause"] == "exited" and events[-1]["outcome"]["exit_code"] == 4


@AND_NONE
@pytest.mark.parametrize("code", [124, 125, 126, 127, 137, 139, 143, 255])
def test_exit_codes_that_others_use_for_causes(place, code):
    outcome = exited(place.run(f"import os; os._exit({code})"), code)
    assert outcome["signal"] is None and outcome["limit_hit"] is None and outcome["oom_kills"] == 0


@AND_NONE
@pytest.mark.parametrize("code,seen", [(256, 0), (257, 1), (-1, 255), (1 << 31, 0)])
def test_exit_codes_beyond_a_byte(place, code, seen):
    exited(place.run(f"import os, ctypes; ctypes.CDLL(None)._exit(ctypes.c_int({code} & 0xffffffff))"), seen)


@AND_NONE
def test_exit_code_in_sys_exit_beyond_a_byte(place):
    answer = place.run("import sys; sys.exit(300)")
    exited(answer, 300 & 0xFF)


@AND_NONE
def test_killing_itself_is_no_memory(place):
    answer = place.run("import os; os.kill(os.getpid(), 9)")
    outcome = answer["outcome"]
    assert (outcome["cause"], outcome["signal"], answer["exit_code"], outcome["oom_kills"]) == ("signalled", 9, 137, 0)
    assert outcome["limit_hit"] is None


@AND_NONE
def test_raising_memory_error_is_no_memory(place):
    answer = place.run("raise MemoryError('pretended')")
    exited(answer, 1)
    assert "MemoryError: pretended" in answer["stderr"]


@AND_NONE
def test_raising_timeout_error_is_no_timeout(place):
    answer = place.run("raise TimeoutError('timed out after 30 s')")
    exited(answer, 1)


@AND_NONE
def test_sleeping_is_told_as_a_timeout_only_at_the_limit(place):
    began = time.monotonic()
    answer = place.run("import time\nprint('part', end='', flush=True)\ntime.sleep(300)", timeout_s=limit(1))
    assert answer["outcome"]["cause"] == "timeout" and answer["stdout"] == "part" and time.monotonic() - began < stretched(20)


@AND_NONE
def test_dying_by_a_signal_near_the_limit_is_the_signal(place):
    answer = place.run(
        "import os, signal, time\nsignal.alarm(0)\ntime.sleep(1)\nos.kill(os.getpid(), signal.SIGTERM)", timeout_s=limit(4)
    )
    assert answer["outcome"]["cause"] == "signalled" and answer["outcome"]["signal"] == 15


@AND_NONE
def test_alarm_of_its_own_is_no_timeout(place):
    answer = place.run("import signal, time\nsignal.alarm(1)\ntime.sleep(300)", timeout_s=limit(20))
    assert answer["outcome"]["cause"] == "signalled" and answer["outcome"]["signal"] == 14


@AND_NONE
def test_output_of_a_program_that_ends_within_a_write(place):
    answer = place.run("import os\nos.write(1, b'x' * 60000)\nos._exit(0)")
    exited(answer)
    assert answer["stdout"] == "x" * 60000


def test_a_child_killed_for_memory_while_the_parent_lives(backend):
    answer, said = backend.attack(
        """
pid = os.fork()
if pid == 0:
    attempt(put, '/proc/self/oom_score_adj', '1000')
    x = []
    while True: x.append(bytearray(1 << 20))
status = os.waitpid(pid, 0)[1]
said(signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
sys.exit(5)
""",
        memory_mb=96,
    )
    outcome = answer["outcome"]
    if backend.kind.oom_together:
        assert (outcome["cause"], answer["exit_code"], said) == ("memory", 137, {}) and outcome["oom_kills"] >= 2, outcome
        return
    assert said["signal"] == 9 and outcome["oom_kills"] >= 1
    assert (outcome["cause"], answer["exit_code"]) == ("exited", 5), outcome


def test_a_kill_after_a_child_was_killed_for_memory(backend):
    """The kernel does not tell who was killed: the message must not either."""
    if backend.kind.oom_together:
        pytest.skip("made for cgroup v1: on v2 the kernel ends all of a group at once, and nobody is left to be killed after")
    outcome = backend.attack(
        """
pid = os.fork()
if pid == 0:
    attempt(put, '/proc/self/oom_score_adj', '1000')
    x = []
    while True: x.append(bytearray(1 << 20))
os.waitpid(pid, 0)
os.kill(os.getpid(), 9)
""",
        memory_mb=96,
    )[0]["outcome"]
    assert (outcome["cause"], outcome["limit_hit"], outcome["oom_kills"]) == ("memory", "memory_mb", 1), outcome
    assert "1 of its processes" in outcome["message"] and "the program was killed" not in outcome["message"]


def test_a_child_killed_by_the_parent_is_no_memory(backend):
    answer, _ = backend.attack("pid = os.fork()\nif pid == 0: time.sleep(10)\nos.kill(pid, 9); os.wait()\nsys.exit(0)")
    assert exited(answer)["oom_kills"] == 0


def test_memory_kill_counts_are_of_this_run(backend):
    for _ in range(3):
        backend.attack("x = []\nwhile True: x.append(bytearray(1 << 20))", memory_mb=64)
    answer = backend.run("print(1)", memory_mb=64)
    assert exited(answer)["oom_kills"] == 0 and answer["outcome"]["memory_peak_bytes"] < 60 << 20


@AND_NONE
def test_claimed_artifact_sizes(place):
    answer = place.run("open('artifacts/f', 'wb').write(b'x' * 1000)", artifacts=True)
    exited(answer)
    assert len(artifacts(answer)["f"]) == 1000 and answer["artifacts"][0]["size"] == 1000


@AND_NONE
def test_what_is_written_is_counted(place):
    answer = place.run("import os\nfor _ in range(1000): os.write(1, b'x' * 997)\nos.write(2, b'y' * 13)")
    outcome = exited(answer)
    assert (outcome["stdout"]["bytes"], outcome["stderr"]["bytes"]) == (997000, 13)


def test_denied_calls_are_named_not_guessed(backend):
    answer, said = backend.attack("said(mount=call(N['mount'], b'x', b'/tmp', b'tmpfs', 0, None))")
    outcome = exited(answer)
    assert outcome["blocked_syscall"] == "mount" and outcome["syscalls_denied"] == 1


def test_a_program_that_is_denied_nothing(backend):
    outcome = exited(backend.run("import json, threading, subprocess; print(subprocess.run(['true']).returncode)"))
    assert outcome["syscalls_denied"] == 0 and outcome["blocked_syscall"] is None, outcome


@AND_NONE
def test_none_says_that_nothing_isolates(place):
    answer = place.run("print(1)")
    assert (answer["outcome"]["isolation"], answer["backend"]) == (place.kind.isolation, place.name)


def test_processes_left_are_counted(backend):
    for count in (0, 1, 7):
        answer, _ = backend.attack(f"for _ in range({count}):\n    if os.fork() == 0: time.sleep(60)\nos._exit(0)")
        assert exited(answer)["processes_left"] == count


def test_threads_are_no_processes_left(backend):
    answer, _ = backend.attack(

            "import threading\n"
            "for _ in range(5): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
            "os._exit(0)"

    )
    assert exited(answer)["processes_left"] == 0


@AND_NONE
def test_result_and_exit_do_not_contradict(place):
    answer = place.run("import os\ndef main():\n    os._exit(9)", arguments={})
    assert answer["result"] is None and answer["exit_code"] == 9


@AND_NONE
def test_answers_are_strict_json(place):
    body = {"language": "python", "code": "import os; os.write(1, bytes(range(256)) * 20)", "backend": place.name}
    text = place.daemon.post(body).body
    json.loads(text.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_wall_time_is_measured_by_us(backend):
    answer, _ = backend.attack("time.time = time.monotonic = lambda: 0\nimport time as t\nt.sleep(0.5)")
    assert answer["timing"]["run_ms"] >= 500


@pytest.mark.skipif(os.cpu_count() < 2, reason="needs two CPUs")
def test_cpu_time_includes_children_that_nobody_waited_for(backend):
    answer, _ = backend.attack("""
r, w = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        end = time.process_time() + 0.3
        while time.process_time() < end: pass
        os._exit(0)
os.close(w)
os.read(r, 1)  # its end: both are over
os._exit(0)
""")
    assert answer["outcome"]["cpu_ms"] >= 500


@pytest.mark.root
def test_memory_that_the_host_lacks_is_not_blamed_on_the_program(request):
    """A group around the daemon is smaller than the program's own limit: the kernel kills, but not for that limit."""
    memory = "/sys/fs/cgroup/memory"
    line = next((text for text in host.read("/proc/self/cgroup").splitlines() if ":memory:" in text), None)
    if line is None or not os.path.exists(memory + line.split(":", 2)[2]):
        pytest.skip("made for a host with the memory controller of cgroup v1")
    outer = os.path.join(memory + line.split(":", 2)[2], f"{PREFIX}outer")
    os.mkdir(outer)
    request.addfinalizer(lambda: host.wait_for(lambda: attempt_rmdir(outer), 5))
    with open(os.path.join(outer, "memory.limit_in_bytes"), "w") as limit:
        limit.write(str(160 << 20))
    enter = ("sh", "-c", f'echo $$ > {outer}/cgroup.procs; exec "$@"', "sh")
    code = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('all')"
    done = cli("run", "--json", "-m", "512", "-l", "python", "-c", code, prefix=enter)
    outcome = done.json()["outcome"]
    assert outcome["cause"] == "infrastructure" and outcome["limit_hit"] is None, outcome
    assert "own limit" in outcome["message"] and outcome["oom_kills"] >= 1
    assert outcome["memory_peak_bytes"] < 161 << 20
    own = cli("run", "--json", "-m", "64", "-l", "python", "-c", code, prefix=enter).json()["outcome"]
    assert own["cause"] == "memory" and own["limit_hit"] == "memory_mb", own


def attempt_rmdir(path):
    try:
        os.rmdir(path)
        return True
    except OSError:
        return False
