# SPDX-License-Identifier: Apache-2.0
"""The network of guests, as its users see it: real clients, modes, what is told, limits."""

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

import pytest
from lib.lab import ALLOWED, METADATA, OPENED, PRIVATE, UNLISTED
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend


@pytest.fixture(scope="module")
def lab(lab):
    """The network, with packages in it."""
    publish(os.path.join(lab.folder, "www"))
    return lab


@pytest.fixture(scope="module")
def daemon(host_backend, lab):
    settings = {**host_backend.settings(), "timeout_s": limit(30)}
    with lab.daemon(**settings, egress_connections=520, open_files=2048) as made:
        yield made


def wheel(name):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return data.getvalue()


def publish(www):
    """A Python index, an npm registry and a git repository, as plain files."""
    os.makedirs(f"{www}/simple/labpackage")
    with open(f"{www}/simple/labpackage/labpackage-1.0-py3-none-any.whl", "wb") as file:
        file.write(wheel("labpackage"))
    with open(f"{www}/simple/labpackage/index.html", "w", encoding="ascii") as file:
        file.write('<a href="labpackage-1.0-py3-none-any.whl">labpackage-1.0-py3-none-any.whl</a>')
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in (("package.json", '{"name":"labmodule","version":"1.0.0"}'), ("index.js", "module.exports=42")):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    os.makedirs(f"{www}/npm")
    with open(f"{www}/npm/labmodule-1.0.0.tgz", "wb") as file:
        file.write(data.getvalue())
    digest = "sha512-" + base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
    dist = {"tarball": "https://npm.test/files/npm/labmodule-1.0.0.tgz", "integrity": digest}
    version = {"name": "labmodule", "version": "1.0.0", "dist": dist}
    with open(f"{www}/npm/labmodule", "w", encoding="ascii") as file:
        json.dump({"name": "labmodule", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}, file)
    work = f"{www}/work"
    env = {"PATH": "/usr/bin:/bin", "HOME": www, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*words, cwd=None):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=cwd, env=env, check=True, capture_output=True)

    git("init", "-q", work)
    with open(f"{work}/hello", "w", encoding="ascii") as file:
        file.write("hi\n")
    git("add", "hello", cwd=work)
    git("commit", "-q", "-m", "a", cwd=work)
    git("clone", "-q", "--bare", work, f"{www}/repo.git")
    git("update-server-info", cwd=f"{www}/repo.git")


CLIENTS = {
    "curl": ("pypi.test", "curl -sS -m WAIT --cacert ca.pem https://HOST/files/simple/labpackage/index.html | grep -q whl"),
    "pip": (
        "pypi.test",
        "python3 -m pip --disable-pip-version-check --timeout WAIT --retries 0 install -q --cert ca.pem "
        "-i https://HOST/files/simple/ --target here labpackage && test -f here/labpackage.py",
    ),
    "npm": (
        "npm.test",
        "mkdir -p p && echo '{}' >p/package.json && npm install --prefix ./p --silent --no-audit --no-fund --fetch-retries=0 --cafile=ca.pem "
        "--registry=https://HOST/files/npm/ labmodule && test -f p/node_modules/labmodule/index.js",
    ),
    "git": ("git.test", "git -c http.sslCAInfo=$PWD/ca.pem clone -q https://HOST/files/repo.git got && grep -q hi got/hello"),
    "requests": ("pypi.test", "python3 -c \"import requests; assert requests.get('https://HOST/', verify='ca.pem', timeout=WAIT).json()['sni'] == 'HOST'\""),
    "fetch": ("npm.test", "NODE_EXTRA_CA_CERTS=$PWD/ca.pem node -e \"fetch('https://HOST/').then(r => r.json()).then(j => process.exit(j.sni === 'HOST' ? 0 : 1), () => process.exit(1))\""),
}


def shell(daemon, lab, command, domains, **fields):
    fields = {"timeout_s": limit(60), "memory_mb": 512, **fields}
    return daemon.run(
        f"cd; export HOME=$PWD; {command}",
        "bash",
        files={"ca.pem": lab.read("ca.pem")},
        network=True,
        allowed_domains=domains,
        **fields,
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_real_clients_pass_under_a_list_and_fail_fast_outside_it(daemon, lab, host_backend, client):
    host, command = CLIENTS[client]
    if client in host_backend.absent:
        assert shell(daemon, lab, f"command -v {client}", [host])["exit_code"] == 1
        pytest.skip(f"the image of {host_backend.name} has no {client}; cordon image build --add {client} puts it in")
    command = "cd \"$OLDPWD\" 2>/dev/null; cp ca.pem /tmp/ca.pem 2>/dev/null; cd /tmp; " + command.replace("HOST", host).replace("WAIT", f"{stretched(8):.0f}")
    answer = shell(daemon, lab, command, [host])
    assert answer["exit_code"] == 0, (answer["stdout"][-600:], answer["stderr"][-1500:], answer.get("egress"))
    assert answer["outcome"]["network"]["connections"] >= 1 and answer["outcome"]["network"]["bytes_received"] > 0
    mark = lab.mark()
    answer = shell(daemon, lab, command, ["elsewhere.test"])
    assert answer["exit_code"] not in (0, -1), answer
    assert answer["outcome"]["network"]["names_refused"] >= 1
    assert answer["timing"]["run_ms"] < stretched(12000), answer["timing"]
    assert not lab.arrived(mark)


def waits():
    """How long a program waits for what must come soon."""
    return f"WAIT = {stretched(20)}\n"


def fetch():
    return waits() + "import urllib.request as u\ndef get(url): return u.urlopen(url, timeout=WAIT).read()\n"


def test_open_reaches_everything_but_special_ranges(daemon, lab):
    answer = daemon.run(
        fetch()
        + f"""
print(b'"server"' in get('http://{UNLISTED}:8080/'), b'"server"' in get('http://unlisted.test/'))
for where in ({METADATA!r}, {PRIVATE!r}, '11.0.0.1', '[fd00:ec2::254]'):
    try: get('http://%s/' % where); print('reached', where)
    except Exception as e: print(type(e).__name__)
print(b'"server"' in get('http://{OPENED}/'))
""",
        network=True,
    )
    lines = answer["stdout"].split("\n")
    assert lines[0] == "True True" and lines[5] == "True" and "reached" not in answer["stdout"], answer
    assert answer["outcome"]["network"]["refused"] == 4


def test_what_happened_is_told(daemon, lab):
    answer = daemon.run(
        fetch() + "get('http://allowed.test/bytes/1000')\ntry: get('http://unlisted.test/')\nexcept Exception: pass",
        network=True,
        allowed_domains=["allowed.test:80"],
    )
    allowed, refused = answer["egress"]
    assert (allowed["name"], allowed["port"], allowed["decision"], allowed["rule"]) == ("allowed.test", 80, "allowed", "allowed.test:80")
    assert allowed["bytes_received"] > 1000 and allowed["bytes_sent"] > 50
    assert (refused["name"], refused["decision"]) == ("unlisted.test", "refused") and refused["count"] >= 1
    told = answer["outcome"]["network"]
    assert told["connections"] == 1 and told["names_refused"] >= 1 and "unlisted.test" in told["first_refused"]
    metrics = daemon.get("/metrics").body.decode()
    assert "cordon_egress_connections_total" in metrics and "cordon_egress_names_refused_total" in metrics


def test_a_closed_port_is_not_refused_by_the_rules(daemon, lab):
    code = fetch() + "try: get('http://allowed.test:9/')\nexcept OSError: print('closed')"
    answer = daemon.run(code, network=True, allowed_domains=["allowed.test"])
    told = answer["outcome"]["network"]
    assert answer["stdout"] == "closed\n" and told["refused"] == 0 and told["first_refused"] is None, answer
    entry = answer["egress"][0]
    assert (entry["decision"], entry["port"]) == ("allowed", 9) and "connected to" in entry["why"], entry


def test_many_connections_are_bounded_and_all_work(daemon, lab):
    answer = daemon.run(
        waits()
        + """
import socket
socks, cut = [], 0
where = socket.gethostbyname('allowed.test'), 7
for i in range(500): socks.append(socket.create_connection(where, WAIT))
for s in socks: s.sendall(b'xxxxxxxx\\r\\n')
got = 0
for s in socks:
    s.settimeout(WAIT)
    got += s.recv(10) == b'xxxxxxxx\\r\\n'
for i in range(60):
    try:
        s = socket.create_connection(where, WAIT); s.settimeout(WAIT); socks.append(s)
        s.sendall(b'y\\r\\n'); cut += not s.recv(1)
    except OSError: cut += 1
print(got, cut)
""",
        network=True,
        allowed_domains=["allowed.test:7"],
        timeout_s=limit(60),
    )
    assert answer["exit_code"] == 0, answer
    got, cut = answer["stdout"].split()
    assert int(got) == 500 and int(cut) >= 40, answer


def test_large_transfers_arrive_whole(daemon, lab):
    answer = daemon.run(
        fetch() + "d = get('http://allowed.test/bytes/30000000'); print(len(d), d == b'x' * len(d))",
        network=True,
        allowed_domains=["allowed.test"],
    )
    assert answer["stdout"] == "30000000 True\n", answer


def test_a_websocket_is_agreed_to_before_anything_more_is_said(daemon, lab):
    mark = lab.mark()
    answer = daemon.run(
        waits()
        + """
import socket
def upgrade(path):
    s = socket.create_connection(('allowed.test', 8081), WAIT); s.settimeout(WAIT)
    s.sendall(b'GET %s HTTP/1.1\\r\\nHost: allowed.test:8081\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n' % path + b'more')
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
        network=True,
        allowed_domains=["allowed.test"],
    )
    assert answer["stdout"] == "True True\n", answer
    said = lab.arrived(mark, "upgrade", "after")
    assert all(not a["early"] for a in said if a["what"] == "upgrade"), said
    assert [a["data"] for a in said if a["what"] == "after"] in ([""], [None]), said


def test_an_upgrade_that_is_never_answered_is_cut(daemon, lab):
    mark = lab.mark()
    answer = daemon.run(
        waits()
        + """
import socket
s = socket.create_connection(('allowed.test', 8081), WAIT); s.settimeout(3 * WAIT)
s.sendall(b'GET /stall HTTP/1.1\\r\\nHost: allowed.test:8081\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n' + b'more')
try: print(s.recv(100))
except OSError as e: print(type(e).__name__)
""",
        network=True,
        allowed_domains=["allowed.test"],
        timeout_s=limit(60),
    )
    assert answer["stdout"] == "ConnectionResetError\n", answer
    assert [e["why"] for e in answer["egress"]] == ["the server did not answer the upgrade in time"], answer["egress"]
    assert answer["egress"][0]["bytes_received"] == 0 and "more" not in str(lab.arrived(mark)), (answer, lab.arrived(mark))


def test_the_egress_process_is_replaced(lab, host_backend):
    with lab.daemon(**{**host_backend.settings(), "timeout_s": limit(30)}) as made:
        code = fetch() + "print(b'server' in get('http://allowed.test/'))"
        assert made.run(code, network=True, allowed_domains=["allowed.test"])["stdout"] == "True\n"
        old = made.role("egress")
        os.kill(old, 9)
        answer = made.run(code, network=True, allowed_domains=["allowed.test"])
        assert answer["stdout"] == "True\n", answer
        assert made.role("egress") != old


def test_a_run_of_the_command_line_has_the_network_without_a_daemon(lab, daemon):
    done = daemon.cli(
        "run", "--allow-domain", "allowed.test", "-c", fetch() + "print(b'server' in get('http://allowed.test/'))",
        state=lab.folder + "/none",
    )
    assert done.returncode == 0 and done.stdout == b"True\n", done


def test_the_process_has_no_privilege(daemon):
    pid = daemon.role("egress")
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    assert "0" not in status["Uid"].split() and int(status["CapEff"], 16) == 0 and status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
