# SPDX-License-Identifier: Apache-2.0
"""
What remote backends make of networks and services that fail. Between each backend and a good server (our own door, or that
of tests/lib/protocols.py, never the live cloud) stands a proxy that answers wrongly in one stage of a run. Whatever it does:
the answer is a defined one, the program runs at most once, no secret is shown, and what was made is ended.
"""

import collections
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib import host
from lib.daemon import PREFIX, cli
from lib.faults import Authority, Proxy, Tunnel
from lib.protocols import AgentRun, Tenki

LONG = os.environ.get("CORDON_TEST_LONG") == "1"
SECRET = "e2b_5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7"

Service = collections.namedtuple("Service", "stages settings")

# In which requests each stage of a run is seen.
SERVICES = {
    "e2b": Service({"create": r"POST /(v2/)?sandboxes ", "put": r"POST /files", "program": r"Process/Start .*run\.sh",
                    "get": r"GET /files", "destroy": r"DELETE /sandboxes/"},
                   lambda url, key: {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": key}),
    "ucloud_agent_sandbox": Service(
        {"create": r"POST /(v2/)?sandboxes ", "put": r"POST /files", "program": r"Process/Start .*run\.sh", "get": r"GET /files",
         "destroy": r"DELETE /sandboxes/"},
        lambda url, key: {"UCLOUD_SANDBOX_API_URL": url, "UCLOUD_SANDBOX_URL": url, "UCLOUD_SANDBOX_API_KEY": key}),
    "createos": Service(
        {"create": r"POST /v1/sandboxes ", "put": r"PUT /v1/.*/files", "program": r"POST /v1/.*/exec.*run\.sh", "get": r"GET /v1/.*/files",
         "destroy": r"DELETE /v1/"},
        lambda url, key: {"CREATEOS_SANDBOX_BASE_URL": url, "CREATEOS_API_KEY": key,
                          "LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS": True}),
    "tenki": Service({"create": "/CreateSession ", "put": "/WriteFile ", "program": r"/ExecuteCommand .*run\.sh", "get": r"/ReadFile .*\.tar",
                      "destroy": "/TerminateSession "},
                     lambda url, key: {"TENKI_API_URL": url, "TENKI_API_KEY": key, "tenki_project_id": "p"}),
    "aliyun_codeinterpreter": Service(
        {"create": "POST /sandboxes ", "put": "POST /sandboxes/[^/]*/files", "program": r"processes/cmd .*run\.sh",
         "get": "filesystem/download", "destroy": "DELETE /sandboxes/"},
        lambda url, key: {"AGENTRUN_DATA_ENDPOINT": url, "AGENTRUN_ACCESS_KEY_ID": AgentRun.KEY, "AGENTRUN_ACCESS_KEY_SECRET": key,
                          "AGENTRUN_ACCOUNT_ID": "1", "agentrun_denies_egress": True}),
}
STATUSES = ["status_401", "status_402", "status_409", "status_429", "status_500", "status_503"]
BODIES = ["cut", "truncate", "garbage", "no_json", "wrong_json"]
ALL = [*BODIES, "endless", "endless_header", "redirect", "late", *STATUSES, "status_403", "status_404", "status_502", "bad_json"]

# What is tried by default; all of all with CORDON_TEST_LONG.
CASES = {
    "create": ALL if LONG else [*BODIES, *STATUSES, "redirect", "endless", "late"],
    "put": ALL if LONG else ["cut", "status_401", "status_500"],
    "program": [*ALL, "slow"] if LONG else [*BODIES, *STATUSES, "endless", "slow"],
    "get": ALL if LONG else ["cut", "truncate", "garbage", "status_500"],
    "destroy": ALL if LONG else ["cut", "status_500"],
}

PROGRAM = """
import os
import re
os.makedirs("artifacts", exist_ok=True)
open("artifacts/a.csv", "w").write("a,b")
print("ran")
"""


@pytest.fixture(scope="module")
def door(nothing_left):
    from lib.daemon import Daemon

    with Daemon(CORDON_CREATEOS_MIN_ISOLATION="namespace", queue_timeout_s=120) as made:
        yield made
        made.note_cgroups()


@pytest.fixture
def upstream(request, door):
    """(URL, key, what is alive there) of the good server of a backend."""
    made = {"tenki": Tenki, "aliyun_codeinterpreter": AgentRun}.get(request.param)
    if not made:
        yield f"http://127.0.0.1:{door.port}", door.key, lambda: [row["id"] for row in door.get("/v1/guests").json()["guests"]]
        return
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with made() as server:
        server.created = "RUNNING"
        yield server.url, server.SECRET if made is AgentRun else server.KEY, lambda: list(server.sandboxes)


def check_create(how, error, outcome):
    """Nothing was run, so it is an error, for which another backend may be tried."""
    assert error, outcome
    assert error[0] == ("busy" if how == "status_429" else "unavailable"), error


def check_program(how, error, outcome):
    """What may have run is an outcome; what was refused is an error."""
    if error:
        assert how.startswith(("status_4", "status_503", "redirect")) and error[0] in ("unavailable", "busy"), (how, error)
    elif how == "slow":
        assert outcome["cause"] in ("timeout", "infrastructure"), outcome
    else:
        assert outcome["cause"] in ("infrastructure", "timeout"), (how, outcome)


def check_after(how, error, outcome):
    """The program ended, and how it did is told, whatever became of its files or of its guest."""
    assert not error and (outcome["cause"], outcome["exit_code"]) == ("exited", 0), (how, error, outcome)


CHECKS = {"create": check_create, "put": check_create, "program": check_program, "get": check_after, "destroy": check_after}


@pytest.mark.limit(900 if LONG else 300)
@pytest.mark.parametrize("backend,upstream", [(name, name) for name in SERVICES], indirect=["upstream"])
def test_services_that_fail_in_each_stage_never_the_live_cloud(own, backend, upstream):
    url, key, alive = upstream
    service = SERVICES[backend]
    with Proxy(url) as proxy:
        daemon = own(**service.settings(proxy.url, key))
        wrong = []
        for stage, faults in CASES.items():
            for how in faults:
                del proxy.requests[:]
                before = set(alive())
                proxy.where, proxy.how = service.stages[stage], how
                answer = daemon.post({"language": "python", "code": PROGRAM, "backend": backend, "artifacts": True,
                                      "timeout_s": 1 if how == "slow" else 4 if how == "endless" else 20})
                proxy.how = None
                try:
                    check(service, stage, how, answer, proxy)
                    assert key.encode() not in answer.body and key not in daemon.log(), "a secret was shown"
                    ended = stage == "destroy" or host.wait_for(lambda known=before: set(alive()) <= known, 30)
                    assert ended, "what was made was not ended"
                except AssertionError as error:
                    wrong.append(f"{stage} {how}: {str(error)[:400]}")
        assert not wrong, "\n".join(wrong)
        good = daemon.run(PROGRAM, backend=backend, artifacts=True)
        assert good["stdout"] == "ran\n" and [a["name"] for a in good["artifacts"]], good


def check(service, stage, how, answer, proxy):
    programs = sum(1 for method, path, _, body in proxy.requests
                   if re.search(service.stages["program"], f"{method} {path} " + body.decode("latin-1"), re.S))
    assert programs <= 1, f"the program was sent {programs} times"
    if how == "late":
        assert answer.json()["stdout"] == "ran\n", answer
        return
    error = answer.error() if answer.status >= 400 else None
    outcome = None if error else answer.json()["outcome"]
    CHECKS[stage](how, error, outcome)


# --- TLS and proxies ---


@pytest.fixture(scope="module")
def authority(nothing_left):
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        yield Authority(folder)


def via(tunnel, authority, trusted=True):
    """The environment in which every name is reached by the tunnel."""
    env = {"https_proxy": tunnel.url, "no_proxy": ""}
    return {**env, "SSL_CERT_FILE": authority.path("ca.pem")} if trusted else env


@pytest.mark.parametrize("certificate,trusted,text", [("good", False, "certificate"), ("expired", True, "expired"),
                                                      ("other", True, "api.cordon.test")])
@pytest.mark.parametrize("backend", [*SERVICES, "self_managed"])
def test_a_server_that_can_not_prove_its_name_is_refused_before_a_word_is_said(door, authority, backend, certificate, trusted, text):
    with Proxy(f"http://127.0.0.1:{door.port}", tls=authority.context(certificate)) as proxy, Tunnel(proxy.port) as tunnel:
        settings = settings_of(backend, "https://api.cordon.test", SECRET)
        done = cli("run", "-b", backend, "-c", "print('ran')", env=via(tunnel, authority, trusted), **settings)
        assert done.status == 125 and done.text == "" and text in done.errors, done
        assert SECRET not in done.errors and not proxy.requests
        assert tunnel.asked[0].startswith("CONNECT api.cordon.test:443")


def settings_of(backend, url, key):
    if backend == "self_managed":
        return {"self_managed_endpoint": url, "self_managed_token": key}
    return SERVICES[backend].settings(url, key)


@pytest.mark.parametrize("backend", ["e2b", "createos", "self_managed"])
def test_through_a_proxy_of_the_environment_with_an_authority_that_is_trusted(door, authority, backend):
    with Proxy(f"http://127.0.0.1:{door.port}", tls=authority.context("good")) as proxy, Tunnel(proxy.port) as tunnel:
        settings = settings_of(backend, "https://api.cordon.test", door.key)
        done = cli("run", "-b", backend, "-c", "print('ran')", env=via(tunnel, authority), **settings)
        assert (done.status, done.text) == (0, "ran\n"), done
        assert proxy.requests and tunnel.asked


def test_a_call_that_hangs_holds_up_its_own_run_only(own, door):
    with Proxy(f"http://127.0.0.1:{door.port}", "GET /v1/shapes", "hold") as proxy, ThreadPoolExecutor(1) as other:
        daemon = own(**SERVICES["createos"].settings(proxy.url, door.key))
        program = {"language": "python", "code": "print('ran')", "backend": "createos"}
        hangs = other.submit(daemon.post, program)
        assert host.wait_for(lambda: any(request[1].startswith("/v1/shapes") for request in proxy.requests))
        proxy.how = None
        assert daemon.post(program).json()["stdout"] == "ran\n"
        assert not hangs.done() and not proxy.gave_up, "it had to wait for the other one"
        proxy.released.set()
        hangs.result()


def test_no_proxy_is_heeded(door, authority):
    with Tunnel(1) as tunnel:
        settings = settings_of("self_managed", f"http://127.0.0.1:{door.port}", door.key)
        done = cli("run", "-b", "self_managed", "-c", "print('ran')", env={"http_proxy": tunnel.url, "no_proxy": "127.0.0.1"}, **settings)
        assert (done.status, done.text) == (0, "ran\n") and not tunnel.asked, done
