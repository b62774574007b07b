# SPDX-License-Identifier: Apache-2.0
"""The answer object of POST /v1/runs: every field is there, of its type, and true."""

import json

import pytest

CAUSES = {
    "exited",
    "signalled",
    "timeout",
    "memory",
    "output_limit",
    "cancelled",
    "refused",
    "unavailable",
    "infrastructure",
}
FIELDS = {
    "stdout": str,
    "stderr": str,
    "exit_code": int,
    "outcome": dict,
    "artifacts": list,
    "backend": str,
    "timing": dict,
}
NUMBER, MAYBE = (int, float), type(None)
OUTCOME = {
    "cause": str,
    "exit_code": int,
    "signal": (int, MAYBE),
    "limit_hit": (str, MAYBE),
    "message": str,
    "backend": str,
    "isolation": str,
    "warm": bool,
    "accelerator": (str, type(None)),
    "start": (str, type(None)),
    "cpu_ms": (int, float, MAYBE),
    "memory_peak_bytes": (int, MAYBE),
    "oom_kills": int,
    "processes_left": int,
    "stdout": dict,
    "stderr": dict,
    "artifacts_dropped": int,
    "syscalls_denied": int,
    "blocked_syscall": (str, MAYBE),
    "result_error": (str, MAYBE),
}
STREAM = {"bytes": int, "kept": int, "truncated": bool}
TIMING = ("queue_ms", "start_ms", "run_ms", "total_ms")

PRINTERS = [("python", "print('hi')"), ("javascript", "console.log('hi')"), ("bash", "echo hi")]


def assert_shape(answer):
    for name, kind in FIELDS.items():
        assert isinstance(answer[name], kind), (name, answer[name])
    assert "result" in answer
    for name, kind in OUTCOME.items():
        assert isinstance(answer["outcome"][name], kind), (name, answer["outcome"].get(name, "missing"))
    for stream in ("stdout", "stderr"):
        for name, kind in STREAM.items():
            assert isinstance(answer["outcome"][stream][name], kind), (stream, name)
    assert answer["outcome"]["cause"] in CAUSES
    for name in TIMING:
        assert isinstance(answer["timing"][name], NUMBER) and answer["timing"][name] >= 0, (name, answer["timing"])


@pytest.mark.parametrize("language,code", PRINTERS)
def test_every_field_of_a_good_run(run, language, code):
    answer = run(code, language)
    assert_shape(answer)
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("hi\n", "", 0)
    assert answer["backend"] == "local"
    outcome = answer["outcome"]
    assert (outcome["cause"], outcome["exit_code"], outcome["signal"]) == ("exited", 0, None)
    assert (outcome["limit_hit"], outcome["isolation"]) == (None, "namespace")
    assert (outcome["stdout"]["bytes"], outcome["stderr"]["bytes"]) == (3, 0)
    assert not outcome["stdout"]["truncated"] and not outcome["stderr"]["truncated"]
    assert outcome["processes_left"] == 0 and outcome["oom_kills"] == 0


@pytest.mark.parametrize("language,code", PRINTERS)
def test_every_field_of_a_failed_run(run, language, code):
    code = {"python": "import sys; sys.exit(3)", "javascript": "process.exit(3)", "bash": "exit 3"}[language]
    answer = run(code, language)
    assert_shape(answer)
    assert answer["exit_code"] == 3 and answer["outcome"]["cause"] == "exited"


def test_timings_add_up(run):
    timing = run("import time; time.sleep(0.3)")["timing"]
    assert 300 <= timing["run_ms"] <= 20000
    parts = timing["queue_ms"] + timing["start_ms"] + timing["run_ms"]
    assert parts <= timing["total_ms"] + 1 and timing["total_ms"] - parts < 5000


def test_cpu_time_is_not_wall_time(run):
    outcome = run("import time; time.sleep(1)")["outcome"]
    assert outcome["cpu_ms"] < 800
    busy = run("import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass")["outcome"]
    assert busy["cpu_ms"] >= 300


def test_memory_peak_is_that_of_the_run(run):
    big = run("x = bytearray(100 << 20); print(len(x))")["outcome"]["memory_peak_bytes"]
    small = run("print(1)")["outcome"]["memory_peak_bytes"]
    assert big > 100 << 20
    assert small < 60 << 20


@pytest.mark.parametrize("code", ["", " ", "\n\n", "\t \r\n  "])
@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
def test_blank_code_succeeds_without_a_guest(run, language, code):
    answer = run(code, language)
    assert_shape(answer)
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("", "", 0)
    assert answer["outcome"]["cause"] == "exited"


def test_unknown_backend_fails_even_on_blank_code(daemon):
    for code in ("", "print(1)"):
        status, kind, message = daemon.refused(code, backend="gvisor-typo")
        assert status == 400 and kind == "invalid_request"
        assert "gvisor-typo" in message and "none" in message and "local" in message


@pytest.mark.parametrize("spelling", ["local", "LOCAL", " local ", "Local\t"])
def test_backend_names_are_trimmed_and_lowered(run, spelling):
    assert run("print(1)", backend=spelling)["backend"] == "local"


def test_none_is_refused_unless_allowed(daemon):
    status, kind, message = daemon.refused(backend="none")
    assert status == 403 and kind == "refused"
    assert "none" in message and "CORDON_ALLOW_NONE" in message


def test_isolation_below_the_minimum_is_refused(own):
    status, kind, message = own(min_isolation="hardware-virtualized").refused()
    assert status == 403 and kind == "refused"
    for word in ("CORDON_MIN_ISOLATION", "hardware-virtualized", "local", "namespace"):
        assert word in message, message


def test_network_is_refused_when_it_is_not_allowed(daemon):
    status, kind, message = daemon.refused(network=True)
    assert status == 403 and kind == "refused" and "CORDON_ALLOW_NETWORK" in message


def test_names_beyond_the_settings_are_refused(own):
    made = own(allow_network=True, allowed_domains="example.com")
    status, kind, message = made.refused(network=True, allowed_domains=["example.org"])
    assert status == 403 and kind == "refused" and "CORDON_ALLOWED_DOMAINS" in message and "local" in message
    answer = made.run("print(1)", network=True)
    assert answer["stdout"] == "1\n" and answer["outcome"]["network"]["connections"] == 0 and answer["egress"] == []


def test_limits_beyond_the_ceiling_are_invalid(daemon):
    for field, value, setting in (("timeout_s", 301, "timeout_s"), ("memory_mb", 4097, "memory_mb")):
        status, kind, message = daemon.refused(**{field: value})
        assert status == 400 and kind == "invalid_request" and setting in message, message


def test_answers_are_json_with_a_length(daemon):
    answer = daemon.post({"language": "python", "code": "print(1)"})
    assert answer.headers["Content-Type"].split(";")[0] == "application/json"
    assert json.loads(answer.body)["stdout"] == "1\n"


def test_warm_guests_are_told(daemon, run):
    def warm_run():
        return run("print(1)")["outcome"]["warm"]

    assert any(warm_run() for _ in range(5))
