# SPDX-License-Identifier: Apache-2.0
"""
The vendors' own published clients, unmodified, against what our remote backends are tried with: for Tenki and AgentRun the
servers of tests/lib/protocols.py, for CreateOS and UCloud our doors. So a server that is wrong about its protocol is found
here; and what our backends send is compared with what the clients send, request by request. Nothing here ever reached a
live cloud.
"""

import json
import os
import re
import tempfile

import clients
import pytest
from lib.daemon import BASE_ENV, PREFIX, cli
from lib.faults import Proxy
from lib.protocols import AgentRun, Tenki

PROGRAM = """
import os, sys
os.makedirs("artifacts", exist_ok=True)
open("artifacts/a.csv", "w").write("a,b")
print("out")
print("err", file=sys.stderr)
sys.exit(3)
"""


def path_of(cases):
    return os.path.join(clients.HERE, "python", cases + "_cases.py")


def names(cases):
    with open(path_of(cases), encoding="utf-8") as text:
        return re.findall(r"^def case_(\w+)", text.read(), re.M)


def our_run(backend, **settings):
    """A whole run by our own backend."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        done = cli("run", "-b", backend, "--artifacts", folder, "-c", PROGRAM, **settings)
        assert (done.status, done.text) == (3, "out\n") and "err" in done.errors, done


def their_cases(cases, *args, **env):
    program = clients.python("vendors")
    return clients.outcomes([program, "-I", path_of(cases), *args], dict(BASE_ENV, **env), "/", 300)


def check(outcomes, case):
    found, rest = outcomes
    assert case in found, f"the cases did not come to {case}: {rest}"
    assert found[case] is None, found[case]


# --- Tenki ---


@pytest.fixture(scope="module")
def tenki(nothing_left):
    with Tenki() as server, tempfile.NamedTemporaryFile("w", prefix=PREFIX, suffix=".json") as file:
        our_run("tenki", TENKI_API_URL=server.url, TENKI_API_KEY=server.KEY, tenki_project_id="project-1",
                tenki_max_lifetime_s=600, tenki_cpu_cores=2, tenki_memory_mb=4096, tenki_disk_size_gb=5)
        json.dump([[path, body.decode()] for _, path, _, body in server.requests], file)
        file.flush()
        assert not server.sandboxes, "a session was not ended"
        yield their_cases("tenki", server.url, server.KEY, file.name)


@pytest.mark.root
@pytest.mark.limit(400)
@pytest.mark.parametrize("case", names("tenki"))
def test_tenki_the_vendors_client_against_our_server_never_the_live_cloud(tenki, case):
    check(tenki, case)


# --- AgentRun ---


@pytest.fixture(scope="module")
def agentrun(nothing_left):
    with AgentRun() as server:
        our_run("aliyun_codeinterpreter", AGENTRUN_DATA_ENDPOINT=server.url, AGENTRUN_ACCESS_KEY_ID=server.KEY,
                AGENTRUN_ACCESS_KEY_SECRET=server.SECRET, AGENTRUN_ACCOUNT_ID="1", agentrun_denies_egress=True)
        ours = list(server.requests)
        assert not server.sandboxes, "a sandbox was not ended"
        outcomes = their_cases("agentrun", server.url, server.KEY, server.SECRET)
        yield outcomes, shapes(ours), shapes(server.requests[len(ours):])


@pytest.mark.root
@pytest.mark.limit(400)
@pytest.mark.parametrize("case", names("agentrun"))
def test_agentrun_the_vendors_client_against_our_server_never_the_live_cloud(agentrun, case):
    check(agentrun[0], case)


@pytest.mark.root
@pytest.mark.limit(400)
def test_agentrun_our_requests_are_the_vendors_clients(agentrun):
    compare(*agentrun[1:])


# --- CreateOS and UCloud: our doors ---


@pytest.fixture(scope="module")
def createos(served):
    with Proxy(f"http://127.0.0.1:{served.port}") as proxy:
        our_run("createos", CREATEOS_SANDBOX_BASE_URL=proxy.url, CREATEOS_API_KEY=served.key,
                LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS=True)
        ours = list(proxy.requests)
        outcomes = their_cases("createos_sdk", proxy.url, served.key)
        yield outcomes, shapes(ours), shapes(proxy.requests[len(ours):])


@pytest.mark.limit(400)
@pytest.mark.parametrize("case", names("createos_sdk"))
def test_createos_the_vendors_client_against_our_door_never_the_live_cloud(createos, case):
    check(createos[0], case)


@pytest.mark.limit(400)
def test_createos_our_requests_are_the_vendors_clients(createos):
    compare(*createos[1:])


@pytest.fixture(scope="module")
def ucloud(served):
    with Proxy(f"http://127.0.0.1:{served.port}") as proxy:
        our_run("ucloud_agent_sandbox", UCLOUD_SANDBOX_API_URL=proxy.url, UCLOUD_SANDBOX_URL=proxy.url,
                UCLOUD_SANDBOX_API_KEY=served.key)
        ours = list(proxy.requests)
        outcomes = their_cases("ucloud", UCLOUD_SANDBOX_API_URL=proxy.url, UCLOUD_SANDBOX_URL=proxy.url,
                               UCLOUD_SANDBOX_API_KEY=served.key)
        yield outcomes, shapes(ours), shapes(proxy.requests[len(ours):])


@pytest.mark.limit(400)
@pytest.mark.parametrize("case", names("ucloud"))
def test_ucloud_the_vendors_client_against_our_e2b_door_never_the_live_cloud(ucloud, case):
    check(ucloud[0], case)


@pytest.mark.limit(400)
def test_ucloud_our_requests_are_the_vendors_clients(ucloud):
    compare(*ucloud[1:])


# --- comparing ---


def compare(ours, theirs):
    """Each request of ours is one that the vendor's client makes: path, names in the query, key, body's type and fields."""
    different = {request: (shape, theirs.get(request)) for request, shape in ours.items()
                 if not like(shape, theirs.get(request))}
    assert not different, json.dumps(different, indent=1)


def like(ours, theirs):
    """The client may leave out a key where none is asked for, and set an environment, which we set with each command."""
    if theirs is None:
        return False
    fields = {name: kind for name, kind in theirs["fields"].items() if name != "envVars"}
    same = all(ours[name] == theirs[name] for name in ("query", "type", "signed"))
    return same and set(theirs["keys"]) <= set(ours["keys"]) and ours["fields"] == fields


def shapes(requests):
    """{method and path without ids: what matters of the last such request}"""
    found = {}
    for method, path, headers, body in requests:
        path, _, query = path.partition("?")
        path = re.sub(r"/(sandbox-\d+|sb_\w+|cordon-probe|[a-z0-9]{20})(?=/|$)", "/ID", path)
        lower = {name.lower(): value for name, value in headers.items()}
        signed = re.search(r"SignedHeaders=([^,]*)", lower.get("agentrun-authorization", ""))
        kind = lower.get("content-type", "").split(";")[0] if body else ""
        found[f"{method} {path}"] = {
            "query": sorted(re.findall(r"(?:^|&)([^=&]+)", query)),
            "type": kind,
            "keys": sorted(set(lower) & KEYS),
            "signed": signed and [signed.group(1), lower["x-acs-content-sha256"]],
            "fields": fields(body, kind),
        }
    return found


KEYS = {"x-api-key", "authorization", "agentrun-authorization", "x-acs-date", "x-access-token", "connect-protocol-version"}


def fields(body, kind):
    """{name: type} of a JSON body, those of objects in it as well."""
    def of(value):
        return {name: of(inner) for name, inner in value.items()} if isinstance(value, dict) else type(value).__name__

    if "json" not in kind:
        return {}
    found = of(json.loads(body[5:] if "connect" in kind else body))  # a stream's envelope
    found.pop("metadata", None)  # its names are the caller's own
    return found
