# SPDX-License-Identifier: Apache-2.0
"""Headers that are put into a guest's requests: they arrive at their host, with the real clients of a guest, and what is
in them is nowhere else."""

import glob
import os
import shlex
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor as Pool

import pytest
from lib import host
from lib.daemon import start_fails
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend

SECRET = "Bearer s3cr3t-value-0f61"
HEADERS = {"allowed.test": {"X-Key": SECRET}}
RULES = ["allowed.test", "pypi.test", "npm.test"]
FETCH = "import urllib.request as u\ndef get(url, **headers): return u.urlopen(u.Request(url, headers=headers), timeout=WAIT).read()\n"


@pytest.fixture(scope="module")
def daemon(host_backend, lab):
    settings = {**host_backend.settings(), "SSL_CERT_FILE": os.path.join(lab.folder, "ca.pem")}
    with lab.daemon(**settings, egress_ca=True, guest_disk_mb=64) as made:
        yield made


def waits():
    """How long a program waits for what must come soon."""
    return f"WAIT = {stretched(20)}\n"


def run(daemon, code, language="python", **fields):
    fields = {"network": True, "allowed_domains": RULES, "egress_headers": HEADERS, "timeout_s": limit(60), **fields}
    return daemon.run(waits() + code if language == "python" else code, language, **fields)


def by_python(url):
    """A command that shows what is there; guests of each backend have python3."""
    return ["python3", "-c", f"{waits()}{FETCH}print(get('{url}').decode(), end='')"]


def keys(lab, mark):
    """The header as it came to the servers, request by request."""
    return [(line["host"], line["key"]) for line in lab.arrived(mark, "http")]


CLIENTS = {
    "curl": ("bash", "curl -sS -m 8 https://allowed.test/bytes/10"),
    "curl with HTTP/2 wanted": ("bash", "curl -sS --http2 -m 8 https://allowed.test/bytes/10"),
    "curl in the clear": ("bash", "curl -sS -m 8 http://allowed.test/bytes/10"),
    "curl on another port": ("bash", "curl -sS -m 8 https://allowed.test:8443/bytes/10"),
    "requests": ("python", "import requests; print(requests.get('https://allowed.test/bytes/10', timeout=WAIT).text, end='')"),
    "urllib": ("python", FETCH + "print(get('https://allowed.test/bytes/10').decode(), end='')"),
    "fetch": ("javascript", "const r = await fetch('https://allowed.test/bytes/10'); process.stdout.write(await r.text())"),
    "fetch from bash": ("bash", "node -e \"fetch('https://allowed.test/bytes/10').then(r => r.text()).then(t => process.stdout.write(t))\""),
    "git": ("bash", "git ls-remote https://allowed.test/files/nothing 2>&1 | grep -q 'not found' && printf xxxxxxxxxx"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_it_arrives_with_real_clients(daemon, lab, host_backend, client):
    language, code = CLIENTS[client]
    mark, program = lab.mark(), client.split()[0]
    if program in host_backend.absent:
        assert run(daemon, f"command -v {program}", "bash")["exit_code"] == 1
        pytest.skip(f"the image of {host_backend.name} has no {program}; cordon image build --add {program} puts it in")
    answer = run(daemon, code, language, memory_mb=512)
    assert answer["stdout"] == "x" * 10, (answer["stdout"], answer["stderr"][-1500:], answer.get("egress"))
    assert keys(lab, mark), answer
    assert all(key == [SECRET] for _, key in keys(lab, mark)), keys(lab, mark)
    assert answer["outcome"]["network"]["refused"] == 0


def test_it_arrives_nowhere_else_and_replaces_the_guests_own(daemon, lab):
    mark = lab.mark()
    ca = {"ca.pem": lab.read("ca.pem")}
    answer = run(
        daemon,
        FETCH
        + """
import ssl
get('http://pypi.test/bytes/1')
u.urlopen(u.Request('https://npm.test/bytes/1', headers={'X-Key': 'mine'}), timeout=WAIT, context=ssl.create_default_context(cafile='ca.pem'))
get('https://allowed.test/bytes/1', **{'x-key': 'mine'})
get('http://allowed.test/bytes/1', **{'X-KEY': 'mine'})
""",
        files=ca,
    )
    assert answer["exit_code"] == 0, answer
    assert keys(lab, mark) == [("pypi.test", None), ("npm.test", ["mine"]), ("allowed.test", [SECRET]), ("allowed.test", [SECRET])]


PEER = """
import socket, ssl
def issuer(name, ca=None, protocols=()):
    context = ssl.create_default_context(cafile=ca)
    if protocols: context.set_alpn_protocols(list(protocols))
    with context.wrap_socket(socket.create_connection((name, 443), WAIT), server_hostname=name) as s:
        return dict(pair[0] for pair in s.getpeercert()['issuer'])['commonName'], s.selected_alpn_protocol()
"""


def test_only_hosts_with_headers_are_intercepted(daemon, lab):
    answer = run(
        daemon,
        PEER
        + """
print(issuer('allowed.test')[0], issuer('pypi.test', 'ca.pem')[0], sep='|')
try: issuer('pypi.test'); print('trusted')
except ssl.SSLCertVerificationError: print('not trusted')
try: issuer('allowed.test', 'ca.pem'); print('trusted')
except ssl.SSLCertVerificationError: print('not trusted')
""",
        files={"ca.pem": lab.read("ca.pem")},
    )
    assert answer["stdout"] == "Cordon egress authority of this installation|lab\nnot trusted\nnot trusted\n", answer


def test_guests_without_headers_do_not_trust_it(daemon, lab):
    answer = daemon.run("import os; print([n for n in os.environ if 'CA' in n or 'CERT' in n])", network=True, allowed_domains=RULES)
    assert answer["stdout"] == "[]\n", answer


def test_protocols_are_negotiated(daemon, lab):
    answer = run(
        daemon,
        PEER
        + """
print(issuer('allowed.test', None, ['h2', 'http/1.1'])[1], issuer('allowed.test')[1])
try: issuer('allowed.test', None, ['h2']); print('h2')
except (ssl.SSLError, OSError): print('refused')
""",
    )
    assert answer["stdout"] == "http/1.1 None\nrefused\n", answer


def test_bodies_of_any_size_pass(daemon, lab):
    answer = run(
        daemon,
        FETCH
        + """
import json
print(len(get('https://allowed.test/bytes/20000000')))
body = b'y' * 5000000
print(json.load(u.urlopen(u.Request('https://allowed.test/', data=body), timeout=WAIT))['received'])
""",
        memory_mb=512,
    )
    assert answer["stdout"] == "20000000\n5000000\n", (answer, daemon.log()[-500:])
    told = answer["outcome"]["network"]
    assert told["bytes_received"] > 20000000 and told["bytes_sent"] > 5000000


def test_many_connections_at_once(daemon, lab, host_backend):
    mark = lab.mark()
    at_once = max(2, 20 // host_backend.pace)  # egress gives a handshake 10 s, however slowly the guest computes
    answer = run(
        daemon,
        f"""
import ssl, urllib.request
from concurrent.futures import ThreadPoolExecutor as Pool
trusted = ssl.create_default_context()  # once: reading all authorities takes an emulated machine longer than all the rest
def get(url): return urllib.request.urlopen(url, timeout=WAIT, context=trusted).read()
with Pool({at_once}) as pool: print(sum(len(x) for x in pool.map(lambda i: get('https://allowed.test/bytes/100000'), range(60))))
""",
        memory_mb=512,
    )
    assert answer["stdout"] == "6000000\n", (answer["stdout"], answer["stderr"][-1500:], answer["outcome"])
    assert len(keys(lab, mark)) == 60 and all(key == [SECRET] for _, key in keys(lab, mark))


def test_a_websocket_within_tls(daemon, lab):
    mark = lab.mark()
    answer = run(
        daemon,
        """
import socket, ssl
def upgrade(path):
    s = ssl.create_default_context().wrap_socket(socket.create_connection(('allowed.test', 8444), WAIT), server_hostname='allowed.test')
    s.settimeout(WAIT)
    s.sendall(b'GET %s HTTP/1.1\\r\\nHost: allowed.test:8444\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n' % path + b'more')
    data = b''
    try:
        while b'echo' not in data:
            part = s.recv(4096)
            if not part: break
            data += part
    except OSError: pass
    return data
print(b'echo:more' in upgrade(b'/yes'), b'200 OK' in upgrade(b'/no'))
""",
    )
    assert answer["stdout"] == "True True\n", answer
    said = lab.arrived(mark, "upgrade", "after")
    assert all(not line["early"] for line in said if line["what"] == "upgrade"), said


def test_an_upgrade_within_tls_that_is_never_answered_is_cut(daemon):
    answer = run(
        daemon,
        """
import socket, ssl
s = ssl.create_default_context().wrap_socket(socket.create_connection(('allowed.test', 8444), WAIT), server_hostname='allowed.test')
s.settimeout(3 * WAIT)
s.sendall(b'GET /silent HTTP/1.1\\r\\nHost: allowed.test:8444\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n')
try: print(s.recv(100))
except OSError as e: print(type(e).__name__)
""",
    )
    assert answer["stdout"] in ("ConnectionResetError\n", "b''\n"), answer
    assert [e["why"] for e in answer["egress"]] == ["the server did not answer the upgrade in time"], answer["egress"]


REFUSED = {
    "another Host within TLS": "b'GET / HTTP/1.1\\r\\nHost: pypi.test\\r\\n\\r\\n'",
    "no Host within TLS": "b'GET / HTTP/1.0\\r\\n\\r\\n'",
    "two Hosts within TLS": "b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nHost: pypi.test\\r\\n\\r\\n'",
    "TRACE, which would tell the header": "b'TRACE / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'",
    "HTTP/2 by prior knowledge": "b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'",
    "no HTTP": "b'\\x00\\x01\\x02\\x03\\r\\n\\r\\n'",
    "an endless head": "b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n' + b'X: y\\r\\n' * 8000",
}


@pytest.mark.parametrize("name", REFUSED)
def test_within_tls_is_judged_as_without(daemon, lab, name):
    mark = lab.mark()
    answer = run(
        daemon,
        f"""
import socket, ssl
s = ssl.create_default_context().wrap_socket(socket.create_connection(('allowed.test', 443), WAIT), server_hostname='allowed.test')
s.settimeout(WAIT)
try:
    s.sendall({REFUSED[name]})
    print('answered' if s.recv(100) else 'closed')
except OSError as e: print('closed')
""",
    )
    assert answer["stdout"] == "closed\n", answer
    assert answer["outcome"]["network"]["refused"] == 1, answer
    assert not lab.arrived(mark, "http", "connection")


def test_a_server_that_can_not_prove_its_name_gets_nothing(lab, host_backend):
    with lab.daemon(**host_backend.settings(), egress_ca=True) as made:  # trusts the host's authorities, and so not the lab's
        mark = lab.mark()
        answer = run(made, FETCH + "get('https://allowed.test/bytes/1')")
        assert answer["exit_code"] == 1, answer
        assert not lab.arrived(mark, "http")
        assert any("TLS with the server" in (entry["why"] or "") for entry in answer["egress"]), answer["egress"]


def test_without_the_authority_only_plain_http(lab, host_backend):
    with lab.daemon(**host_backend.settings()) as made:
        refused = made.request("POST", "/v1/runs", {"language": "python", "code": "1", "network": True, "egress_headers": HEADERS, "allowed_domains": RULES})
        assert refused.status == 403 and b"CORDON_EGRESS_CA" in refused.body and SECRET.encode() not in refused.body, refused
        mark = lab.mark()
        headers = {"allowed.test:80": {"X-Key": SECRET}}
        answer = run(made, FETCH + "get('http://allowed.test/bytes/1'); get('http://allowed.test:8080/bytes/1')", egress_headers=headers)
        assert answer["exit_code"] == 0, answer
        assert keys(lab, mark) == [("allowed.test", [SECRET]), ("allowed.test:8080", None)]
        assert not os.path.exists(os.path.join(made.state, "egress"))


BAD = {
    "a host that no rule allows": {"elsewhere.test": {"X-Key": SECRET}},
    "an address": {"11.0.0.10": {"X-Key": SECRET}},
    "a header that frames": {"allowed.test": {"Content-Length": "5"}},
    "a value with a line end": {"allowed.test": {"X-Key": SECRET + "\r\nHost: b"}},
    "a name with a colon": {"allowed.test": {"X-Key: a": SECRET}},
    "a host with a space": {"allowed.test X-Key": {"X": SECRET}},
    "no object": {"allowed.test": SECRET},
    "no text": {"allowed.test": {"X-Key": 5}},
    "a list": [SECRET],
}


@pytest.mark.parametrize("name", BAD)
def test_what_can_not_be_put_is_refused_without_being_shown(daemon, name):
    body = {"language": "python", "code": "1", "network": True, "allowed_domains": RULES, "egress_headers": BAD[name]}
    for method, path, sent in (
        ("POST", "/v1/runs", body),
        ("POST", "/v1/guests", {k: v for k, v in body.items() if k not in ("language", "code")}),
    ):
        refused = daemon.request(method, path, sent)
        assert refused.status == 400 and b"s3cr3t" not in refused.body, (path, refused)


def state_of(daemon):
    """All bytes of the state folder."""
    sqlite3.connect(os.path.join(daemon.state, "cordon.db")).execute("PRAGMA wal_checkpoint")
    paths = [p for p in glob.glob(daemon.state + "/**", recursive=True) if os.path.isfile(p)]
    return b"".join(open(path, "rb").read() for path in paths)


def test_nobody_is_shown_it(daemon, lab):
    guest = daemon.request("POST", "/v1/guests", {"name": "sealed", "network": True, "allowed_domains": RULES, "egress_headers": HEADERS}).json()
    assert guest["egress_headers"] == 1
    path = f"/v1/guests/{guest['id']}"
    mark = lab.mark()
    look = (
        f"{shlex.join(by_python('https://allowed.test/bytes/3'))}; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
        "cat $(find / -xdev -newer /proc/1/stat -type f 2>/dev/null) 2>/dev/null | head -c 1000000"
    )
    try:
        ran = daemon.request("POST", path + "/exec", {"command": look, "timeout_s": limit(50)}).json()
        assert ran["stdout"].startswith("xxx"), ran
        assert keys(lab, mark) == [("allowed.test", [SECRET])]
        texts = [ran["stdout"], ran["stderr"], daemon.log()]
        for where in (path, "/v1/guests", path + "/notes", path + "/egress/log", "/metrics", "/v1/admin/audit"):
            texts.append(daemon.get(where).body.decode("utf-8", "replace"))
        assert not any("s3cr3t" in text for text in texts)
        assert b"s3cr3t" not in state_of(daemon)
    finally:
        daemon.request("DELETE", path)


def test_it_outlives_the_gateway_and_can_be_replaced(lab, host_backend):
    settings = {**host_backend.settings(), "SSL_CERT_FILE": os.path.join(lab.folder, "ca.pem")}
    with lab.daemon(**settings, egress_ca=True, guest_disk_mb=64) as made:
        fields = {"network": True, "allowed_domains": RULES, "egress_headers": HEADERS}
        answer = made.request("POST", "/v1/guests", fields)
        assert answer.status == 201, (answer, made.log()[-2500:])
        guest = answer.json()
        path = f"/v1/guests/{guest['id']}"
        fetch = {"command": by_python("https://allowed.test/bytes/1"), "timeout_s": limit(30)}

        def told():
            """A gateway that was just started may still be looking for its guests, and says so."""
            answers, mark = [], lab.mark()
            assert host.wait_for(lambda: answers.append(made.request("POST", path + "/exec", fetch)) or answers[-1].status != 503)
            assert answers[-1].status == 200, (answers[-1], made.log()[-2500:])
            ran = answers[-1].json()
            return ran["stdout"], [key for _, key in keys(lab, mark)]

        assert told() == ("x", [[SECRET]])
        for role in ("gateway", "egress"):
            old = made.role(role)
            os.kill(old, 9)
            assert host.wait_for(lambda: made.role(role) not in (None, old)) and made.wait_ready()
            assert told() == ("x", [[SECRET]]), role
        changed = made.request("PUT", path + "/egress", {**fields, "egress_headers": {"allowed.test": {"X-Key": "another"}}})
        assert changed.status == 200 and "another" not in changed.body.decode()
        assert told() == ("x", [["another"]])
        assert made.request("PUT", path + "/egress", {"network": True, "allowed_domains": RULES}).json()["egress_headers"] == 0
        assert told()[0] == ""  # the server's own certificate, which this guest does not trust


def test_the_key_is_the_starters_alone(daemon):
    folder = os.path.join(daemon.state, "egress")
    key, certificate = os.path.join(folder, "ca.key"), os.path.join(folder, "ca.pem")
    assert os.stat(key).st_mode & 0o777 == 0o600 and os.stat(key).st_uid == os.geteuid()
    assert os.stat(folder).st_mode & 0o022 == 0 and os.stat(certificate).st_uid == os.geteuid()
    before = text_of(certificate)
    daemon.restart()
    assert text_of(certificate) == before


def trap_link(folder):
    os.rename(folder, folder + ".real")
    os.symlink(folder + ".real", folder)


TRAPS = {
    "a key that others may read": lambda folder: os.chmod(os.path.join(folder, "ca.key"), 0o644),
    "a key of the gateway's": lambda folder: os.chown(os.path.join(folder, "ca.key"), 65534, 65534),
    "a certificate that others may write": lambda folder: os.chmod(os.path.join(folder, "ca.pem"), 0o666),
    "a folder of the gateway's": lambda folder: os.chown(folder, 65534, 65534),
    "a link in place of the folder": trap_link,
    "a link in place of the key": lambda folder: trap_link(os.path.join(folder, "ca.key")),
    "another key": lambda folder: subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", os.path.join(folder, "ca.key")], check=True
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_others_could_have_put_there_stops_the_start(lab, trap):
    with lab.daemon(egress_ca=True, allow_network=False) as made:
        assert made.stop() == 0
        TRAPS[trap](os.path.join(made.state, "egress"))
        failed = start_fails(state=made.state, egress_ca=True)
        assert failed.status not in (0, None) and "egress" in failed.errors, failed


def text_of(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def test_a_run_of_the_command_line(lab, daemon):
    mark = lab.mark()
    state = lab.folder + "/alone"
    settings = {"egress_ca": True, "SSL_CERT_FILE": os.path.join(lab.folder, "ca.pem"), "state": state}
    code = waits() + FETCH + "print(get('https://allowed.test/bytes/3').decode())"
    words = ("run", "--allow-domain", "allowed.test", "--header", "allowed.test X-Key: $THE_KEY", "-c", code)
    done = daemon.cli(*words, THE_KEY=SECRET, **settings)
    assert done.returncode == 0 and done.stdout == b"xxx\n", done
    assert keys(lab, mark) == [("allowed.test", [SECRET])]
    alone = code + "\ntry: get('https://pypi.test/bytes/3')\nexcept OSError: print('closed')"
    done = daemon.cli("run", "--header", "allowed.test X-Key: $THE_KEY", "-c", alone, THE_KEY=SECRET, **settings)
    assert done.returncode == 0 and done.stdout == b"xxx\nclosed\n", "a header allows its host and nothing else"
    open_words = ("run", "--network", "--header", "allowed.test:8088 X-Key: $THE_KEY", "-c", "print('ran')")
    done = daemon.cli(*open_words, THE_KEY=SECRET, **settings)
    assert done.returncode == 2 and b"80 and 443" in done.stderr and done.stdout == b"", done
    literal = daemon.cli("run", "--header", f"allowed.test X-Key: {SECRET}", "-c", "1", **settings)
    assert literal.returncode == 2 and b"s3cr3t" not in literal.stderr, literal


def test_the_guest_command_line(lab, daemon):
    path = os.path.join(lab.folder, "the-key")
    with open(path, "w", encoding="ascii") as file:
        file.write(SECRET + "\n")
    state = {"state": daemon.state}
    made = daemon.cli("guest", "create", "by-cli", "--allow-domain", "allowed.test", "--header", f"allowed.test X-Key: @{path}", **state)
    assert made.returncode == 0, made
    try:
        mark = lab.mark()
        ran = daemon.cli("guest", "exec", "by-cli", *by_python("https://allowed.test/bytes/2"), **state)
        assert ran.stdout == b"xx" and keys(lab, mark) == [("allowed.test", [SECRET])], ran
        shown = daemon.cli("guest", "egress", "by-cli", **state)
        assert shown.returncode == 0 and b"allowed.test" in shown.stdout and b"s3cr3t" not in shown.stdout, shown
        assert daemon.cli("guest", "egress", "by-cli", "--off", **state).returncode == 0
        assert b"network          false" in daemon.cli("guest", "egress", "by-cli", **state).stdout
    finally:
        daemon.cli("guest", "rm", "by-cli", **state)


def test_the_e2b_door(lab, daemon):
    rules = {"allowed.test": [{"transform": {"headers": {"X-Key": SECRET}}}]}
    network_object = {"allowOut": ["allowed.test"], "denyOut": ["0.0.0.0/0"], "rules": rules}
    key = {"X-API-Key": daemon.key}
    made = daemon.request("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 120, "network": network_object}, headers=key)
    assert made.status == 201, made
    sandbox = made.json()["sandboxID"]
    try:
        mark = lab.mark()
        ran = daemon.request("POST", f"/v1/guests/{sandbox}/exec", {"command": by_python("https://allowed.test/bytes/2"), "timeout_s": limit(30)}).json()
        assert ran["stdout"] == "xx" and keys(lab, mark) == [("allowed.test", [SECRET])], ran
        told = daemon.request("GET", f"/sandboxes/{sandbox}", headers=key).json()["network"]
        assert told == {**network_object, "rules": {"allowed.test": [{"transform": {"headers": {"X-Key": "***"}}}]}}
        other = {**network_object, "rules": {"allowed.test": [{"transform": {"headers": {"X-Key": "other"}}}]}}
        assert daemon.request("PUT", f"/sandboxes/{sandbox}/network", other, headers=key).status == 204
        mark = lab.mark()
        daemon.request("POST", f"/v1/guests/{sandbox}/exec", {"command": by_python("https://allowed.test/bytes/2"), "timeout_s": limit(30)})
        assert keys(lab, mark) == [("allowed.test", ["other"])]
        for bad in ({"allowed.test": [{"block": {}}]}, {"allowed.test": [{"transform": {"path": {}}}]}):
            assert daemon.request("PUT", f"/sandboxes/{sandbox}/network", {**network_object, "rules": bad}, headers=key).status in (400, 501)
        assert b"s3cr3t" not in state_of(daemon)
    finally:
        daemon.request("DELETE", f"/sandboxes/{sandbox}", headers=key)


LATE = """
import os, socket, ssl, time
s = socket.create_connection(('allowed.test', 8443), WAIT)
while not os.path.exists('go'): time.sleep(0.05)
s.settimeout(WAIT)
try:
    with ssl._create_unverified_context().wrap_socket(s, server_hostname='allowed.test') as t:
        t.sendall(b'GET /bytes/1 HTTP/1.1\\r\\nHost: allowed.test:8443\\r\\n\\r\\n')
        print('answered' if t.recv(100) else 'closed')
except OSError: print('closed')
"""


def connected(daemon, port):
    """The egress process's connections to that port, ended ones that it still holds among them."""
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{daemon.role('egress')}/net/{table}", encoding="ascii") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return [row for row in rows if row[2].endswith(f":{port:04X}") and row[3] in ("01", "08")]


def test_a_connection_of_before_the_headers_is_cut(daemon, lab):
    """On a port where the server may speak first it stands already when the guest says its hello: a connection that was
    begun without headers is not intercepted half way."""
    egress = daemon.role("egress")
    fields = {"network": True, "allowed_domains": RULES}
    guest = daemon.request("POST", "/v1/guests", fields).json()
    path = f"/v1/guests/{guest['id']}"
    try:
        with Pool(1) as pool:
            ran = pool.submit(daemon.request, "POST", path + "/exec", {"command": ["python3", "-c", waits() + LATE], "timeout_s": limit(50)})
            allowed = lambda: [e for e in daemon.get(path + "/egress/log").json()["log"] if e["decision"] == "allowed"]  # noqa: E731
            assert host.wait_for(allowed), daemon.get(path + "/egress/log").json()
            changed = daemon.request("PUT", path + "/egress", {**fields, "egress_headers": HEADERS})
            assert changed.status == 200, changed
            assert connected(daemon, 8443)
            daemon.request("POST", path + "/exec", {"command": "touch go"})
            assert ran.result().json()["stdout"] == "closed\n", ran.result().body
        log = daemon.get(path + "/egress/log").json()["log"]
        assert any("the rules changed" in (entry["why"] or "") for entry in log), log
    finally:
        daemon.request("DELETE", path)
    assert host.wait_for(lambda: not connected(daemon, 8443)), connected(daemon, 8443)
    assert daemon.role("egress") == egress
