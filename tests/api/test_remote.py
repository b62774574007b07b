# SPDX-License-Identifier: Apache-2.0
"""Remote backends. No test here ever reached a live cloud: each says in its name what stood in for it."""

import os
import time

import pytest
from lib import host
from lib.client import Client
from lib.daemon import cli
from lib.faults import Broken
from lib.protocols import AgentRun, Tenki
from lib.sshd import PasswordSshd, Sshd

NETWORK_CHECK = "with the network off"


def conformance(backend, *options, **settings):
    done = cli("conformance", backend, *options, timeout=280, **settings)
    failed = [line for line in done.text.splitlines() if line.startswith("not ok")]
    assert done.status == 0 and not failed, done.text[-3000:] + done.errors[-2000:]
    return done.text


@pytest.fixture(scope="module")
def doors(nothing_left):
    from lib.daemon import Daemon

    with Daemon(CORDON_CREATEOS_MIN_ISOLATION="namespace", queue_timeout_s=120) as made:
        yield made
        made.note_cgroups()


def url(daemon):
    return f"http://127.0.0.1:{daemon.port}"


@pytest.mark.limit(300)
def test_self_managed_conforms_against_our_own_door_never_a_live_ragflow(doors):
    text = conformance("self_managed", self_managed_endpoint=url(doors), self_managed_token=doors.key)
    assert "ok 1 - python" in text


@pytest.mark.limit(300)
def test_e2b_conforms_against_our_own_door_never_the_live_cloud(doors):
    text = conformance("e2b", E2B_API_URL=url(doors), E2B_SANDBOX_URL=url(doors), E2B_API_KEY=doors.key)
    assert " 0 failed, 0 skipped" in text


@pytest.mark.limit(300)
def test_ucloud_conforms_against_our_own_e2b_door_never_the_live_cloud(doors):
    text = conformance("ucloud_agent_sandbox", UCLOUD_SANDBOX_API_URL=url(doors), UCLOUD_SANDBOX_URL=url(doors),
                       UCLOUD_SANDBOX_API_KEY=doors.key)
    assert " 0 failed, 0 skipped" in text


@pytest.mark.limit(300)
def test_createos_conforms_against_our_own_door_never_the_live_cloud(doors):
    text = conformance("createos", CREATEOS_SANDBOX_BASE_URL=url(doors), CREATEOS_API_KEY=doors.key,
                       LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS=True)
    assert " 0 failed, 0 skipped" in text


@pytest.mark.root
@pytest.mark.limit(300)
def test_tenki_conforms_against_a_server_from_its_documents_never_the_live_cloud(nothing_left):
    with Tenki() as server:
        conformance("tenki", TENKI_API_URL=server.url, TENKI_API_KEY=server.KEY, tenki_project_id="project-1")
        assert not server.sandboxes, "a session was not ended"


@pytest.mark.root
@pytest.mark.limit(300)
def test_aliyun_conforms_against_a_server_from_its_documents_never_the_live_cloud(nothing_left):
    with AgentRun() as server:
        conformance("aliyun_codeinterpreter", AGENTRUN_DATA_ENDPOINT=server.url, AGENTRUN_ACCESS_KEY_ID=server.KEY,
                    AGENTRUN_ACCESS_KEY_SECRET=server.SECRET, AGENTRUN_ACCOUNT_ID="1", agentrun_denies_egress=True)
        assert not server.sandboxes, "a sandbox was not ended"


def test_what_is_not_set_up_says_what_is_missing(nothing_left):
    needed = {"ssh": "SSH host is required", "e2b": "E2B API key is required", "tenki": "Tenki API key is required",
              "ucloud_agent_sandbox": "UCloud Agent Sandbox API key is required", "createos": "a key is required",
              "aliyun_codeinterpreter": "Access key ID and secret are required"}
    for backend, text in needed.items():
        done = cli("conformance", backend, "--live", ssh_isolation="namespace")
        assert done.status == 125 and text in done.errors, (backend, done)


SSH = {"ssh_isolation": "namespace", "ssh_host": "h"}
ALIYUN = {"AGENTRUN_ACCESS_KEY_ID": "LTAIx", "AGENTRUN_ACCESS_KEY_SECRET": "secret-of-it"}
HTTP = "must begin with https:// (http:// only for this machine)"


@pytest.mark.parametrize("backend,settings,text", [
    ("ssh", SSH, "SSH username is required"),
    ("ssh", {**SSH, "ssh_username": "u"}, "Either password or private_key must be provided"),
    ("self_managed", {"self_managed_endpoint": "ftp://x"}, "Invalid endpoint format: ftp://x. Must start with http:// or https://"),
    ("aliyun_codeinterpreter", {**ALIYUN, "AGENTRUN_ACCESS_KEY_ID": "AKIA"}, "must start with LTAI"),
    ("aliyun_codeinterpreter", ALIYUN, "Account ID is required"),
    ("aliyun_codeinterpreter", {**ALIYUN, "AGENTRUN_ACCOUNT_ID": "1", "AGENTRUN_REGION": "eu-1"}, "region must be one of cn-hangzhou"),
    ("aliyun_codeinterpreter", {**ALIYUN, "AGENTRUN_ACCOUNT_ID": "1", "AGENTRUN_DATA_ENDPOINT": "http://far.test"}, HTTP),
    ("e2b", {"E2B_API_KEY": "e2b_00", "E2B_SANDBOX_URL": "http://far.test"}, "CORDON_E2B_SANDBOX_URL " + HTTP),
    ("ucloud_agent_sandbox", {"UCLOUD_SANDBOX_API_KEY": "k", "UCLOUD_SANDBOX_API_URL": "http://far.test"}, HTTP),
    ("createos", {"CREATEOS_API_KEY": "k", "CREATEOS_SANDBOX_BASE_URL": "http://far.test"}, "CORDON_CREATEOS_BASE_URL " + HTTP),
    ("tenki", {"TENKI_API_KEY": "tk_1", "TENKI_PROJECT_ID": "p", "TENKI_API_URL": "http://far.test"}, "CORDON_TENKI_API_URL " + HTTP),
])
def test_what_is_set_up_wrongly_is_said_in_the_documented_words(nothing_left, backend, settings, text):
    done = cli("conformance", backend, "--live", **settings)
    assert done.status == 125 and text in done.errors, done


def test_tenki_demands_a_project_unless_told_otherwise(nothing_left):
    done = cli("conformance", "tenki", "--live", TENKI_API_KEY="tk_1234")
    assert "project_id is required" in done.errors


def test_a_service_elsewhere_is_only_asked_with_live(nothing_left):
    done = cli("conformance", "e2b", E2B_API_KEY="e2b_00")
    assert done.status == 126 and "--live" in done.errors, done


@pytest.mark.parametrize("how,kind", [
    ("cut", None), ("truncate", None), ("garbage", None), ("no_json", None), ("endless", None), ("endless_header", None),
    ("slow", None), ("redirect", "unavailable"), ("status_401", "unavailable"), ("status_402", "unavailable"),
    ("status_409", "unavailable"), ("status_429", "busy"), ("status_500", None), ("status_502", None),
    ("status_503", "unavailable")])
def test_a_broken_executor_manager(own, how, kind):
    """What may have run is an outcome, what was refused an error; nothing is sent twice, and the token is never shown."""
    token = "token-that-nobody-may-see"
    with Broken(how) as server:
        daemon = own(self_managed_endpoint=server.url, self_managed_token=token)
        answer = daemon.post({"language": "python", "code": "print(1)", "backend": "self_managed", "timeout_s": 3})
        runs = [entry for entry in server.requests if entry[1] == "/run"]
        assert len(runs) == 1
        assert token.encode() not in answer.body and token not in daemon.log()
        if kind:
            assert answer.error()[0] == kind, answer
        else:
            cause = answer.json()["outcome"]["cause"]
            # An endless body ends at its limit or at the run's, whichever comes first.
            causes = {"slow": {"timeout"}, "endless": {"infrastructure", "timeout"}}.get(how, {"infrastructure"})
            assert cause in causes, answer


def test_a_client_that_leaves_ends_a_remote_call_at_once(own):
    with Broken("hold") as server:
        daemon = own(self_managed_endpoint=server.url, self_managed_timeout_s=300)
        connection = daemon.connection()
        connection.request("POST", "/v1/runs", '{"language":"python","code":"1","backend":"self_managed","timeout_s":200}', daemon.headers())
        assert host.wait_for(lambda: any(entry[1] == "/run" for entry in server.requests))
        connection.sock.close()
        connection.close()
        assert host.wait_for(lambda: b"cordon_running 0" in metrics(daemon) or b"running\":0" in metrics(daemon) or
                             idle(daemon), 30)
        assert not server.gave_up
        server.released.set()


def metrics(daemon):
    return daemon.get("/metrics").body


def idle(daemon):
    return daemon.get("/readyz").json().get("running", 0) == 0


def test_a_daemon_that_calls_itself_refuses(own):
    port = host.free_port()
    daemon = own(listen=f"127.0.0.1:{port}", self_managed_endpoint=f"http://127.0.0.1:{port}", ready=False)
    daemon.port = port
    assert daemon.wait_ready()
    answer = daemon.post({"language": "python", "code": "print(1)", "backend": "self_managed"})
    assert answer.status == 503 and "choose `local`" in answer.error()[1], answer


def test_failover_goes_on_only_before_the_run_began(own):
    dead = f"http://127.0.0.1:{host.free_port()}"
    daemon = own(backends="self_managed,local", self_managed_endpoint=dead)
    answer = daemon.run("print('here')")
    assert answer["stdout"] == "here\n" and answer["backend"] == "local"
    with Broken("truncate") as server:
        daemon = own(backends="self_managed,local", self_managed_endpoint=server.url)
        assert daemon.run("print('here')")["outcome"]["cause"] == "infrastructure"


def test_failover_is_no_fallback(own):
    dead = f"http://127.0.0.1:{host.free_port()}"
    daemon = own(backends="self_managed,local", self_managed_endpoint=dead, self_managed_isolation="hardware-virtualized")
    status, kind, message = daemon.refused("print(1)")
    assert kind == "unavailable" and "isolates less" in message
    assert daemon.refused("print(1)", backend="self_managed")[1] == "unavailable"  # named: no others
    daemon = own(backends="ssh,local", min_isolation="namespace")
    assert daemon.refused("print(1)")[1] == "refused"  # ssh is refused by policy, and that is the end


# --- ssh: a real OpenSSH server ---


def serving(kind):
    if not Sshd.usable():
        pytest.skip("needs OpenSSH's server and root")
    return kind()


@pytest.fixture(scope="module")
def sshd(nothing_left):
    made = serving(Sshd)
    yield made
    made.close()


@pytest.fixture(scope="module")
def password_sshd(nothing_left):
    made = serving(PasswordSshd)
    yield made
    made.close()


@pytest.mark.limit(300)
def test_ssh_conforms_against_a_real_openssh(sshd):
    conformance("ssh", **{**sshd.settings, "ssh_denies_egress": False})


@pytest.mark.parametrize("key,passphrase,good", [("rsa", "", True), ("locked", "open sesame", True), ("locked", "", False),
                                                 ("locked", "another", False)])
def test_ssh_keys(sshd, key, passphrase, good):
    settings = {**sshd.settings, "ssh_private_key_path": sshd.path(key), "ssh_passphrase": passphrase}
    done = cli("run", "-b", "ssh", "-c", "print('in')", **settings)
    assert (done.status, done.text) == ((0, "in\n") if good else (125, "")), done
    assert good or "passphrase" in done.errors


def test_ssh_by_password_against_a_real_openssh(password_sshd):
    code = "import os; print(os.getuid()); open('artifacts.txt', 'w')"
    done = cli("run", "-b", "ssh", "-c", code, **password_sshd.settings)
    assert (done.status, done.text) == (0, f"{password_sshd.UID}\n"), done


@pytest.mark.parametrize("password", ["another", "", "Correct horse: battery, staple"])
def test_ssh_a_wrong_password_is_refused_and_none_is_shown(password_sshd, password):
    done = cli("run", "-b", "ssh", "-c", "print('in')", **{**password_sshd.settings, "ssh_password": password})
    assert (done.status, done.text) == (125, ""), done
    assert "does not accept the password" in done.errors if password else "Either password or private_key" in done.errors, done
    assert not password or password not in done.errors


@pytest.mark.parametrize("known,text", [("other", "another one"), (None, "refused")])
def test_ssh_refuses_hosts_that_it_does_not_know(sshd, known, text):
    path = sshd.known_hosts(known) if known else "/nonexistent"
    done = cli("run", "-b", "ssh", "-c", "print('in')", **{**sshd.settings, "ssh_known_hosts": path})
    assert done.status == 125 and text in done.errors and done.text == "", done


def test_ssh_a_runs_folder_is_its_users_alone(sshd):
    """Others have users on that host, too: neither the program and its variables nor what it left are theirs to read."""
    code = "import os\nfolder = os.path.abspath('..')\nfor path in (folder, folder + '.py'): print(oct(os.stat(path).st_mode & 0o777))"
    done = cli("run", "-b", "ssh", "-c", code, **sshd.settings)
    assert (done.status, done.text) == (0, "0o700\n0o600\n"), done


def marked(word):
    return [pid for pid in host.processes() if word.encode() in host.read(f"/proc/{pid}/cmdline").encode()]


@pytest.mark.limit(120)
def test_ssh_really_kills_at_the_deadline_what_the_program_started(sshd):
    word = f"cordon-orphan-{os.getpid()}"
    code = f"""
import os, time
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sh", ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done # {word}"])
        os._exit(0)
print("started", flush=True)
time.sleep(100)
"""
    done = cli("run", "-b", "ssh", "-t", "6", "-c", code, **sshd.settings)
    assert done.status == 124 and done.text == "started\n", done
    assert host.wait_for(lambda: not marked(word)), "processes were left on the host"


@pytest.mark.limit(120)
def test_ssh_a_connection_that_drops_under_way_is_told_and_leaves_nothing(own, sshd):
    word = f"cordon-dropped-{os.getpid()}"
    daemon = own(**sshd.settings, ssh_timeout_s=300)
    events = daemon.stream(f"import time\nprint('on', flush=True)\ntime.sleep(100) # {word}", backend="ssh", timeout_s=200)
    outcome = None
    for _, event in events:
        if event["type"] == "stdout":
            for pid in sshd.sessions():
                if host.comm(pid) == "sshd":
                    os.kill(pid, 9)
        outcome = event
    assert outcome["type"] == "outcome" and outcome.get("cause", outcome.get("outcome", {}).get("cause")) == "infrastructure"
    assert host.wait_for(lambda: not marked(word)), "the program was left on the host"


def test_ssh_can_be_set_up_while_the_daemon_runs(own, sshd):
    """Files are out of the gateway's reach by then: the known hosts were read at the start, a key is given as text."""
    daemon = own(ssh_known_hosts=sshd.known, ssh_isolation="namespace", ssh_denies_egress=True)
    admin = Client(daemon.port, daemon.create_key("--scope", "admin"))

    def put(**values):
        named = {"CORDON_SSH_" + name.upper(): value for name, value in values.items()}
        assert admin.request("PUT", "/v1/admin/settings", {"values": named}).status == 200

    put(host="127.0.0.1", port=sshd.port, username="root", private_key=host.read(sshd.path("ed25519")))
    assert daemon.run("print('in')", backend="ssh")["stdout"] == "in\n"
    put(port=sshd.other_port)
    assert "another one" in daemon.refused("print('in')", backend="ssh")[2]
    put(port=sshd.port, private_key=sshd.path("ed25519"))
    assert "is read when the daemon starts" in daemon.refused("print('in')", backend="ssh")[2]
