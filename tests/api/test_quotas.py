# SPDX-License-Identifier: Apache-2.0
"""What one key may have at once and start in a minute; another key's share stays its own."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib.client import Client
from lib.daemon import Daemon


def quota_error(answer):
    assert answer.status == 429, answer
    kind, message = answer.error()
    assert kind == "quota_exceeded" and int(answer.headers["Retry-After"]) >= 1
    return message


def request(code, **fields):
    return dict({"language": "python", "code": code}, **fields)


@pytest.fixture(scope="module")
def limited():
    with Daemon(key_runs=1, key_memory_mb=300, pool_python=1) as daemon:
        yield daemon


def test_runs_at_once(limited):
    events = limited.stream("import signal; print('on', flush=True); signal.pause()", timeout_s=100)
    with contextlib.closing(events):
        assert any(event["type"] == "stdout" for _, event in events)
        other = Client(limited.port, limited.create_key())
        assert "CORDON_KEY_RUNS" in quota_error(limited.post(request("print(1)")))
        assert other.run("print(2)")["stdout"] == "2\n"
    limited.wait_for_load(0)
    assert limited.run("print(3)")["stdout"] == "3\n"


def test_memory(limited):
    assert "CORDON_KEY_MEMORY_MB" in quota_error(limited.post(request("print(1)", memory_mb=512)))
    assert limited.run("print(4)", memory_mb=128)["stdout"] == "4\n"


def test_rate():
    with Daemon(key_rate=3, pool_python=1) as daemon:
        with ThreadPoolExecutor(4) as pool:  # at once: every 20 s one more may start
            answers = sorted(pool.map(daemon.post, [request("print(1)")] * 4), key=lambda answer: answer.status)
        assert [answer.status for answer in answers[:3]] == [200] * 3, answers
        assert "CORDON_KEY_RATE" in quota_error(answers[3]) and int(answers[3].headers["Retry-After"]) == 20
