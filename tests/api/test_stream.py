# SPDX-License-Identifier: Apache-2.0
"""NDJSON: events in order, as they happen."""

import contextlib
import time

import pytest
from lib.client import collect, event_bytes
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend

ENDLESS = {
    "python": "import signal\nprint('on', flush=True)\nsignal.pause()",
    "javascript": "console.log('on'); setInterval(() => 0, 1e6)",
    "bash": "echo on; sleep 1000",
}


@pytest.mark.parametrize("language", ENDLESS)
def test_output_comes_while_the_program_runs(stream, language):
    """It never ends, and what it printed is there before its limit."""
    with contextlib.closing(stream(ENDLESS[language], language, timeout_s=250)) as events:
        for at, event in events:
            if event["type"] == "stdout":
                break
    assert (event["type"], event.get("data")) == ("stdout", "on\n") and at < 200, (at, event)


def test_order_of_events(stream):
    code = (
        "import os, sys\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/a.txt', 'w').write('x')\n"
        "def main(n):\n    print('out', flush=True)\n    print('err', file=sys.stderr, flush=True)\n    return n + 1\n"
    )
    types = [event["type"] for _, event in stream(code, arguments={"n": 1}, artifacts=True)]
    assert types[0] == "started" and types[-1] == "outcome" and types.count("outcome") == 1
    assert sorted(types) == ["artifact", "outcome", "result", "started", "stderr", "stdout"]
    assert types.index("artifact") > types.index("stdout")


def test_the_outcome_event_has_what_the_whole_answer_has(stream, run):
    code = "import sys; print('x'); sys.exit(5)"
    _, _, others = collect(stream(code))
    outcome = others["outcome"][0]["outcome"]
    whole = run(code)["outcome"]
    assert set(outcome) == set(whole)
    assert (outcome["cause"], outcome["exit_code"]) == ("exited", 5)


def test_result_event_carries_the_value(stream):
    _, _, others = collect(stream("def main(a):\n    return {'twice': a * 2}", arguments={"a": 21}))
    assert others["result"][0]["result"] == {"twice": 42}


def test_text_cut_between_chunks_stays_text(stream):
    code = (
        "import os, time\nfor b in '\\u00e9\\u20ac\\U0001f600'.encode():\n"
        "    os.write(1, bytes([b]))\n    time.sleep(0.03)"
    )
    events = [event for _, event in stream(code) if event["type"] == "stdout"]
    assert b"".join(map(event_bytes, events)).decode() == "\u00e9\u20ac\U0001f600"
    assert all("data_b64" not in event for event in events)


def test_binary_output_comes_as_base64(stream):
    out, _, _ = collect(stream("import os\nos.write(1, bytes(range(256)))"))
    assert out == bytes(range(256))


def test_both_streams_keep_their_own_order(stream):
    code = "import os\nfor i in range(300):\n    os.write(1, b'o%d\\n' % i)\n    os.write(2, b'e%d\\n' % i)"
    out, err, _ = collect(stream(code))
    assert out == b"".join(b"o%d\n" % i for i in range(300))
    assert err == b"".join(b"e%d\n" % i for i in range(300))


def test_a_stream_of_a_timeout_ends_with_its_outcome(stream):
    events = list(stream("import time\nprint('before', flush=True)\ntime.sleep(300)", timeout_s=limit(4)))
    at, last = events[-1]
    assert last["type"] == "outcome" and last["outcome"]["cause"] == "timeout" and 0.95 * limit(4) < at < stretched(40)
    assert any(event["type"] == "stdout" and event["data"] == "before\n" for _, event in events)


def test_large_output_is_streamed_whole(stream):
    out, _, others = collect(stream("print('x' * 900000)"))
    assert len(out) == 900001
    assert others["outcome"][0]["outcome"]["stdout"]["truncated"] is False


def test_slow_reader_holds_back_the_program_and_loses_nothing(own):
    made = own(stdout_kb=16384)
    received = b""
    for count, (_, event) in enumerate(made.stream("print('y' * (8 << 20))")):
        if event["type"] == "stdout":
            received += event_bytes(event)
            if count < 20:
                time.sleep(0.02)
    assert received == b"y" * (8 << 20) + b"\n"


def test_errors_before_the_start_are_plain_errors(daemon):
    answer = daemon.post(
        {"language": "python", "code": "1", "backend": "nope"}, headers={"Accept": "application/x-ndjson"}
    )
    assert answer.status == 400 and answer.error()[0] == "invalid_request"


@pytest.mark.parametrize(
    "accept",
    [
        "application/x-ndjson",
        "application/x-ndjson, application/json;q=0.5",
        "application/json;q=0.1, application/x-ndjson",
        "APPLICATION/X-NDJSON",
    ],
)
def test_accept_spellings(daemon, accept):
    answer = daemon.post({"language": "python", "code": "print(1)"}, headers={"Accept": accept})
    assert answer.status == 200 and answer.body.strip().endswith(b"}") and b'"type"' in answer.body.splitlines()[0]
