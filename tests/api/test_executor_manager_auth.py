# SPDX-License-Identifier: Apache-2.0
"""Who may use POST /run, how often, and the variables that steer it."""

import concurrent.futures
import time

import pytest
from lib import executor_manager as em
from lib import host
from lib.daemon import cli, start_fails
from lib.executor_manager import TOKEN, body, post, run, value

CODE = "def main(): return 1"
UNKNOWN = b'{"detail":"Missing or invalid sandbox executor API token"}'
FLOOD = (b'{"status":"program_runner_error","stdout":"","stderr":"Too many requests, please try again later","exit_code":-429,'
         b'"detail":"Too many requests, please try again later","time_used_ms":null,"memory_used_kb":null,'
         b'"resource_limit_type":null,"unauthorized_access_type":null,"runtime_error_type":null,"artifacts":[],"result":null}')
PREFIX = "Sandbox executor authentication is not configured; refusing unauthenticated /run"


def call(daemon, **headers):
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    return post(daemon, body(CODE), None, headers=headers)


def test_ways_to_show_the_token(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=f"\t{TOKEN}  ", SANDBOX_RUN_PREAUTH_RATE_LIMIT="1000/minute")
    for good in ({"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"bEARER   {TOKEN} "}, {"X_Sandbox_Token": f" {TOKEN} "},
                 {"Authorization": "Basic eDp5", "X_Sandbox_Token": TOKEN}, {"Authorization": "Bearer", "X_Sandbox_Token": TOKEN},
                 {"Authorization": f"Bearer {daemon.key}"}, {"X_Sandbox_Token": daemon.key}):
        assert call(daemon, **good).status == 200, good
    for bad in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"},
                {"Authorization": "Bearer wrong", "X_Sandbox_Token": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"},
                {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": "Bearer  ", "X_Sandbox_Token": "x"},
                {"X_API_Key": TOKEN}, {"Cookie": TOKEN}, {"X_Sandbox_Token": ""}, {"Authorization": f"Bearer {daemon.key[:-1]}0"}):
        answer = call(daemon, **bad)
        assert (answer.status, answer.body) == (401, UNKNOWN), bad
        assert answer.headers["Content-Type"] == "application/json"
    assert "/run: takes the token" in daemon.log()


def test_the_token_opens_nothing_else(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    answer = daemon.post({"language": "python", "code": "1"}, headers=em.authorization(TOKEN))
    assert answer.status == 401
    assert daemon.get("/metrics", headers=em.authorization(TOKEN)).status == 401


@pytest.mark.parametrize("token", [None, "   "])
def test_without_a_token_it_fails_closed(own, token):
    daemon = own(**({} if token is None else {"SANDBOX_EXECUTOR_MANAGER_API_TOKEN": token}))
    for shown in (None, "", "anything"):
        answer = post(daemon, body(CODE), shown)
        assert answer.status == 503 and list(answer.json()) == ["detail"]
        assert answer.json()["detail"].startswith(PREFIX)
        assert "SANDBOX_EXECUTOR_MANAGER_API_TOKEN=" in answer.json()["detail"]
    assert value(run(daemon, CODE, token=daemon.key)) == 1
    assert daemon.get("/healthz", headers={"Authorization": None}).status == 200


@pytest.mark.parametrize("flag", ["1", "on "])
def test_opened_to_everybody(own, flag):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_ALLOW_UNAUTHENTICATED=flag)
    assert call(daemon).status == 200
    assert call(daemon, Authorization="Bearer whatever").status == 200
    assert daemon.log().count("/run IS OPEN") == 1
    assert daemon.post({"language": "python", "code": "1"}, headers={"Authorization": None}).status == 401


@pytest.mark.parametrize("flag", ["unexpected", ""])
def test_not_opened(own, flag):
    """Other words: tests/unit/test_settings.c."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_ALLOW_UNAUTHENTICATED=flag)
    assert call(daemon).status == 503


def test_a_token_closes_the_open_door(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_ALLOW_UNAUTHENTICATED="1", SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    assert call(daemon).status == 401
    assert value(run(daemon, CODE)) == 1


def test_a_token_is_enough_to_listen_beyond_loopback(own):
    """In a container the daemon must. Without token and key it refuses."""
    port = host.free_port()
    daemon = own(key=False, ready=False, listen=f"0.0.0.0:{port}", SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    daemon.port = port
    assert daemon.wait_ready()
    assert value(run(daemon, CODE)) == 1
    assert post(daemon, body(CODE), None).status == 401
    assert "e2b_" not in daemon.log()  # nor was a key made
    assert start_fails("--listen", f"0.0.0.0:{host.free_port()}").status != 0


# --- limits ---


def test_the_limit_of_runs(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_RUN_RATE_LIMIT="3/minute")
    for _ in range(5):  # what is wrong is not counted
        assert post(daemon, {}).status == 422
        assert post(daemon, b"x").status == 422
        assert post(daemon, body(CODE), "wrong").status == 401
    for _ in range(3):
        assert value(run(daemon, CODE)) == 1
    for _ in range(2):
        answer = post(daemon, body(CODE))
        assert (answer.status, answer.body) == (429, FLOOD)
    assert post(daemon, {}).status == 422
    assert daemon.log().count("starts more runs than it may") == 1
    assert daemon.run("print(1)")["exit_code"] == 0  # the native door has no such limit


def test_a_window_slides(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_RUN_RATE_LIMIT="1 per 6 seconds")
    began = time.monotonic()
    seen = {post(daemon, body(CODE)).status: time.monotonic()}
    while set(seen) != {200, 429} or seen[200] < seen[429]:  # until one passes after one that did not
        seen[post(daemon, body(CODE)).status] = time.monotonic()
        assert time.monotonic() - began < 80
        time.sleep(0.05)


def test_the_limit_of_failures_counts_failures_only(own):
    """The original counts all calls, which throttles a whole RAGFlow to 30 runs a minute."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    for _ in range(35):
        assert post(daemon, body(CODE)).status == 200
    for _ in range(30):
        assert post(daemon, body(CODE), "wrong").status == 401
    for token in ("wrong", TOKEN, daemon.key, None):  # whatever is shown now: nobody can go on guessing
        answer = post(daemon, body(CODE), token)
        assert (answer.status, answer.body) == (429, FLOOD)
    assert post(daemon, b"x", "wrong").status == 422
    assert daemon.get("/healthz").status == 200
    assert daemon.run("print(1)")["exit_code"] == 0
    assert daemon.log().count("shows wrong tokens") == 1


def test_a_flood_of_wrong_tokens(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_RUN_PREAUTH_RATE_LIMIT="5/hour")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda n: post(daemon, body(CODE), f"guess-{n}").status, range(200)))
    assert statuses.count(401) == 5 and statuses.count(429) == 195
    assert daemon.log().count("shows wrong tokens") <= 1


def test_refusals_without_a_token_are_limited_too(own):
    daemon = own(SANDBOX_RUN_PREAUTH_RATE_LIMIT="2/minute")
    assert [post(daemon, body(CODE), None).status for _ in range(3)] == [503, 503, 429]


def test_a_stranger_s_large_body_is_not_kept(own):
    """It is answered, but not read as JSON, which only who may can ask for at that size."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    for sent in (b"[" * (10 << 20), b"{" + b" " * (1 << 20) + b"}"):
        assert post(daemon, sent, "wrong").status == 401
        assert post(daemon, sent).status == 422
    assert post(daemon, b"[" * 60000, "wrong").status == 422


# --- variables ---


@pytest.mark.parametrize("name", ["SANDBOX_RUN_RATE_LIMIT", "SANDBOX_RUN_PREAUTH_RATE_LIMIT"])
@pytest.mark.parametrize("text", ["", "5", "5/", "/minute", "0/minute", "5/fortnight", "5/minute;1/second", "-1/minute", "5/minute x", "five/minute"])
def test_bad_rates_stop_the_start(name, text):
    done = start_fails(**{name: text})
    assert done.status == 2 and name in done.errors and "minute" in done.errors


@pytest.mark.parametrize("text", ["host", "my-net", "bridge2"])
def test_other_networks_are_refused(text):
    done = start_fails(SANDBOX_CONTAINER_NETWORK=text)
    assert done.status == 2 and "SANDBOX_CONTAINER_NETWORK" in done.errors and "none or bridge is needed" in done.errors


def test_bridge_gives_this_door_the_network(own):
    """And no other: a native run still asks in vain. What the network is worth is tested where it is made."""
    daemon = own(SANDBOX_CONTAINER_NETWORK="bridge", SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    able = daemon.get("/v1/backends").json()["backends"]
    can = any(backend["capabilities"]["network"] for backend in able if backend["name"] == "local")
    result = run(daemon, CODE)
    assert value(result) == 1 if can else "can give none" in result["stderr"]
    assert daemon.post({"language": "python", "code": "1", "network": True}).status == 403


def test_variables_of_the_original(own):
    """All of them at once, as RAGFlow's compose file has them."""
    daemon = own(
        SANDBOX_EXECUTOR_MANAGER_POOL_SIZE=3,
        SANDBOX_BASE_PYTHON_IMAGE="infiniflow/sandbox-base-python:latest",
        SANDBOX_BASE_NODEJS_IMAGE="sandbox-base-nodejs:latest",
        SANDBOX_EXECUTOR_MANAGER_PORT=9385,
        SANDBOX_EXECUTOR_MANAGER_IMAGE="infiniflow/sandbox-executor-manager:latest",
        SANDBOX_ENABLE_SECCOMP="false",
        SANDBOX_MAX_MEMORY="128M",
        SANDBOX_CONTAINER_NETWORK=" ",
        SANDBOX_TIMEOUT="1",
        SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN,
        SANDBOX_EXECUTOR_MANAGER_ALLOW_UNAUTHENTICATED="false",
        SANDBOX_RUN_RATE_LIMIT="120/minute",
        SANDBOX_RUN_PREAUTH_RATE_LIMIT="30/minute",
        SANDBOX_ENABLED="1",
        SANDBOX_HOST="sandbox-executor-manager",
    )
    assert run(daemon, "def main():\n    while True: pass")["exit_code"] == -124  # plain 1 is one second
    result = run(daemon, "def main(): return len(bytearray(100 << 20))")
    assert result["status"] == "success"
    assert run(daemon, "def main():\n    x = bytearray(200 << 20)\n    return len(x)")["exit_code"] == -137
    assert value(run(daemon, "function main() { return 1 }", "nodejs")) == 1
    code = "import socket\ndef main():\n    socket.create_connection(('1.1.1.1', 80), 1)"
    assert run(daemon, code)["status"] != "success"


# A new user namespace: what our filter refuses, and no capability is needed for.
DENIED = "import ctypes\ndef main():\n    libc = ctypes.CDLL(None, use_errno=True)\n    return [libc.unshare(0x10000000), ctypes.get_errno()]"


@pytest.mark.parametrize("flag", ["false", "true"])
def test_the_filter_is_on_whatever_the_variable_says(own, flag):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_ENABLE_SECCOMP=flag)
    assert value(run(daemon, DENIED)) == [-1, 1]
    found = value(run(daemon, "def main(): return [line for line in open('/proc/self/status') if line.startswith('Seccomp:')]"))
    assert found == ["Seccomp:\t2\n"]


def test_the_pool_has_the_size_that_is_asked_for(own):
    """Of each language: so many interpreters that nobody has asked for yet."""
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_EXECUTOR_MANAGER_POOL_SIZE=3, pool_python_data=0, pool_bash=0, pool_guest=0)

    def parked():
        agents = [pid for pid in daemon.pids() if host.comm(pid) == "cordon-agent"]
        return [" ".join(host.cmdline(child)) for agent in agents for child in host.descendants(agent)]

    def settled():
        lines = parked()
        return len(lines) == 6 and len([line for line in lines if "driver.js" in line]) == 3

    assert host.wait_for(settled), parked()


def test_another_image_is_a_template(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_BASE_PYTHON_IMAGE="registry.local:5000/x/with-pymysql:2")
    result = run(daemon, CODE)
    assert (result["status"], result["exit_code"]) == ("program_runner_error", -3)
    assert "template" in result["stderr"]
    assert value(run(daemon, "function main() { return 1 }", "nodejs")) == 1


def test_what_config_tells():
    shown = cli("config", "explain", "SANDBOX_RUN_PREAUTH_RATE_LIMIT").text
    assert "30/minute" in shown and "those that fail" in shown
    hidden = cli("config", "show", SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    assert TOKEN not in hidden.text and "CORDON_EXECUTOR_TOKEN" in hidden.text
    port = cli("config", "show", SANDBOX_EXECUTOR_MANAGER_PORT=9400).text
    assert "127.0.0.1:9400" in port
    both = cli("config", "show", SANDBOX_EXECUTOR_MANAGER_PORT=9400, listen="0.0.0.0:9385")
    assert both.status == 0 and "0.0.0.0:9385" in both.text
    assert cli("config", "show", SANDBOX_EXECUTOR_MANAGER_PORT="x").status == 2
