# SPDX-License-Identifier: Apache-2.0
"""Langflow's policy over HTTP ("policy": "langflow"): each refusal, in its order, with its words. The backends are the real
ones; none is reached, since policy comes before."""

import pytest
from lib.daemon import Daemon, cli

TIMEOUT_S = 40  # more than some of the backends can do


@pytest.fixture(scope="module")
def daemon(nothing_left):
    settings = {"LANGFLOW_SANDBOX_TIMEOUT_SECONDS": TIMEOUT_S}
    with Daemon(**settings) as made:
        yield made


def answer(daemon, code="print(1)", **fields):
    body = {"language": "python", "code": code, "policy": "langflow", **fields}
    return daemon.request("POST", "/v1/runs", body)


def refused(daemon, *words, **fields):
    found = answer(daemon, **fields)
    error = found.json()["error"]
    assert found.status == 403 and error["kind"] == "refused", (found.status, error)
    assert error["message"].startswith("the code was refused and not run: "), error
    missing = [word for word in words if word not in error["message"]]
    assert not missing, (missing, error)


def test_without_a_backend_nothing_is_run_not_even_blank_code(daemon):
    for code in ("print(1)", " \n"):
        refused(daemon, "LANGFLOW_SANDBOX_BACKEND is none", "exec-sandbox would be accepted", code=code)


def test_blank_code_needs_a_known_backend_and_asks_no_policy(daemon):
    found = answer(daemon, code=" \n\t", backend="local")
    assert found.status == 200 and found.json()["outcome"]["cause"] == "exited", found.json()
    found = answer(daemon, code=" \n\t", backend="nowhere")
    assert found.status == 400 and "nowhere" in found.json()["error"]["message"], found.json()


@pytest.mark.parametrize("backend,isolation", [("none", "none"), ("local", "namespace"), ("self_managed", "namespace")])
def test_first_the_isolation(daemon, backend, isolation):
    words = ("LANGFLOW_SANDBOX_BACKEND", backend, f'"{isolation}"', "not a hardware-virtualized boundary")
    refused(daemon, *words, backend=backend, allowed_domains=["example.com"])


def test_then_the_network_that_can_not_be_closed(daemon):
    words = ("LANGFLOW_SANDBOX_ALLOW_NETWORK is false", "aliyun_codeinterpreter cannot block all egress")
    refused(daemon, *words, backend="aliyun_codeinterpreter", allowed_domains=["example.com"])


def test_then_the_domains_that_can_not_be_held(daemon):
    words = ("allowed_domains", "tenki cannot restrict egress by domain")
    refused(daemon, *words, backend="tenki", allowed_domains=["example.com"])


def test_then_the_time_that_is_too_long(daemon):
    words = (f"LANGFLOW_SANDBOX_TIMEOUT_SECONDS or the request's timeout_s is {TIMEOUT_S} s", "tenki can run for 30 s at most")
    refused(daemon, *words, backend="tenki")
    found = answer(daemon, backend="tenki", timeout_s=30)  # equal passes, and the next is that it is not set up
    assert found.json()["error"]["kind"] == "unavailable", found.json()


def test_the_domains_of_the_setting_count_with_the_network_off(nothing_left):
    settings = {"LANGFLOW_SANDBOX_BACKEND": "tenki", "LANGFLOW_SANDBOX_ALLOWED_DOMAINS": " a.example.com, ,b.example.com"}
    with Daemon(**settings) as made:
        refused(made, "LANGFLOW_SANDBOX_ALLOWED_DOMAINS names a.example.com", "tenki cannot restrict egress by domain")


def test_the_command_line_asks_by_the_same_rules():
    done = cli("run", "--policy", "langflow", "-c", "print(1)", LANGFLOW_SANDBOX_BACKEND="local")
    assert done.status == 126 and "not a hardware-virtualized boundary" in done.errors, done
    done = cli("run", "--policy", "langflow", "-c", "print(1)")
    assert done.status == 126 and "LANGFLOW_SANDBOX_BACKEND is none" in done.errors, done
    done = cli("run", "--policy", "createos", "-c", "print(1)")
    assert done.status == 2 and "policy must be native or langflow" in done.errors, done


@pytest.mark.parametrize("name", ["exec_sandbox", "execsandbox", "Locl"])
def test_a_misspelt_backend_stops_the_start(name):
    done = cli("run", "-c", "print(1)", LANGFLOW_SANDBOX_BACKEND=name)
    assert done.status == 2 and "LANGFLOW_SANDBOX_BACKEND must name one of these backends: none, " in done.errors, done
