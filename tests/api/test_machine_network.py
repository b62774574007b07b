# SPDX-License-Identifier: Apache-2.0
"""The network of real virtual machines: a device only where it was asked for, whose other end is our sockets. What the
egress role does with connections has its suite in test_egress*.py, and what a hostile kernel could send is tried, without
a machine, by tests/unit/test_nic.c."""

import concurrent.futures
import json
import os
import subprocess

import pytest
from lib import host, vms
from lib.daemon import BIN
from lib.guest import Guest
from lib.lab import ALLOWED, ALLOWED6, METADATA, UNLISTED

pytestmark = [
    pytest.mark.limit(900),
    pytest.mark.skipif(not os.access("/usr/bin/qemu-system-x86_64", os.X_OK), reason="needs QEMU: apt-get install qemu-system-x86"),
    pytest.mark.skipif(not os.path.exists("/dev/net/tun"), reason="needs /dev/net/tun"),
]


@pytest.fixture(scope="module")
def daemon(lab, vm_image):
    usual = {"backend": "exec-sandbox", "vm_image": vm_image, "allow_software_emulation": True, "min_isolation": "none"}
    patient = {"max_timeout_s": 600, "timeout_s": 300, "queue_timeout_s": 600, "pool_max": 0, "guest_memory_mb": 256, "vm_pool": 1}
    trust = {"egress_ca": True, "SSL_CERT_FILE": os.path.join(lab.folder, "ca.pem")}
    langflow = {"ALLOW_NETWORK": "true", "ALLOW_SOFTWARE_EMULATION": "true", "BACKEND": "exec-sandbox", "MEMORY_MB": "256"}
    doors = {f"LANGFLOW_SANDBOX_{name}": value for name, value in langflow.items()}
    probes = {"verify_listed": f"allowed.test:9000/{ALLOWED}", "verify_unlisted": f"unlisted.test:9000/{UNLISTED}"}
    with lab.daemon(**usual, **patient, **trust, **doors, **probes, egress_registries="pypi.test") as made:
        yield made


# Each line: what was tried, and how it ended. Nothing here may end by waiting: sockets wait longer than the test does.
TRIES = """
import json, socket, ssl, urllib.request
socket.setdefaulttimeout(1000)
def told(tried):
    try:
        return tried()
    except OSError as error:
        error = getattr(error, 'reason', error)
        return type(error).__name__
def get(url):
    return urllib.request.urlopen(url, context=ssl._create_unverified_context() if url[:5] == 'https' else None).status
def connect(*to, family=socket.AF_INET):
    with socket.socket(family) as s:
        s.connect(to)
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')
        return s.recv(100) or 'closed'
def ask(*to):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(to)
        s.send(b'quic')
        return s.recv(100)
def forge():
    with socket.socket() as s:
        s.bind(('203.0.113.9', 0))
def raw(*kind):
    socket.socket(*kind).close()
    return 'made'
print(json.dumps({
    'devices': sorted(line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line),
    'http': told(lambda: get('http://allowed.test/')),
    'tls': told(lambda: get('https://allowed.test/')),
    'unlisted': told(lambda: get('https://unlisted.test/')),
    'literal': told(lambda: connect('LITERAL', 80)),
    'metadata': told(lambda: connect('METADATA', 80)),
    'literal6': told(lambda: connect('LITERAL6', 80, family=socket.AF_INET6)),
    'link6': told(lambda: connect('fe80::1', 80, 0, socket.if_nametoindex('eth0'), family=socket.AF_INET6)),
    'udp': told(lambda: ask('LITERAL', 443)),
    'forged': told(forge),
    'raw': told(lambda: raw(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)),
    'frames': told(lambda: raw(socket.AF_PACKET, socket.SOCK_RAW)),
}))
""".replace("LITERAL6", ALLOWED6).replace("LITERAL", ALLOWED).replace("METADATA", METADATA)

ENDS = {
    "devices": ["eth0", "lo"],
    "http": 200,
    "tls": 200,
    "unlisted": "gaierror",
    "literal": "ConnectionResetError",
    "metadata": "ConnectionResetError",
    "literal6": "ConnectionResetError",
    "link6": "ConnectionResetError",
    "udp": "ConnectionRefusedError",
    "forged": "OSError",
    "raw": "PermissionError",
    "frames": "OSError",
}
RULES = {"network": True, "allowed_domains": ["allowed.test"]}


def check(answer):
    assert answer["exit_code"] == 0, answer
    assert json.loads(answer["stdout"]) == ENDS
    counts = answer["outcome"]["network"]
    assert counts["connections"] >= 2 and counts["names_refused"] >= 1 and counts["refused"] >= 4, counts


def test_booted_and_copied_machines_reach_what_is_allowed_and_nothing_else(daemon, lab):
    mark = lab.mark()
    check(vms.run(daemon, TRIES, **RULES))
    vms.until(daemon, "copied", "pooled", code="pass", **RULES)
    copied = vms.run(daemon, TRIES, **RULES)
    assert copied["outcome"]["start"] in ("copied", "pooled")
    check(copied)
    assert {line["host"] for line in lab.arrived(mark, "http")} == {"allowed.test"}
    assert {line["name"] for line in lab.arrived(mark, "dns")} == {"allowed.test"} and not lab.arrived(mark, "udp")


def test_headers_are_put_into_requests_within_tls(daemon, lab):
    mark, secret = lab.mark(), "Bearer s3cr3t-value-77ab"
    program = "import os, urllib.request as u; print(u.urlopen('https://allowed.test/').status, os.listdir('/run/cordon'))"
    answer = vms.run(daemon, program, **RULES, egress_headers={"allowed.test": {"X-Key": secret}})
    assert answer["stdout"].startswith("200 ") and "'ca-bundle.pem'" in answer["stdout"], answer
    assert [(line["host"], line["key"]) for line in lab.arrived(mark, "http")] == [("allowed.test", [secret])]


def test_langflows_network_without_domains_is_the_package_registries(daemon):
    program = "import urllib.request as u\nfor name in ('pypi', 'allowed'): print(u.urlopen(f'http://{name}.test/').status)"
    answer = vms.run(daemon, program, policy="langflow", network=True)
    assert answer["stdout"] == "200\n" and "Name or service not known" in answer["stderr"], answer


@pytest.mark.long
def test_verify_measures_what_is_declared(daemon, lab):
    command = ["nsenter", "-t", str(lab.world), "-n", BIN, "probe-server", f"{ALLOWED}:9000", f"{UNLISTED}:9000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            answer = daemon.request("POST", "/v1/verify", {"backend": "exec-sandbox"}, timeout=900)
        finally:
            server.kill()
    found = {item["name"]: item for item in answer.json()["capabilities"]}
    for name in ("deny_all_egress", "egress_exceptions", "domain_allowlist"):
        assert found[name]["declared"] and found[name]["verified"], found


def test_without_the_network_there_is_no_device(daemon):
    answer = vms.run(daemon, "cat /proc/net/dev; echo; echo >/dev/tcp/11.0.0.10/80", "bash")
    devices = [line.split(":")[0].strip() for line in answer["stdout"].splitlines() if ":" in line]
    assert devices == ["lo"] and "Network is unreachable" in answer["stderr"], answer


def reaches(guest, name):
    program = f"import urllib.request as u; print(u.urlopen('http://{name}/', timeout=1000).status)"
    done = guest.exec(["python3", "-c", program], timeout=vms.PATIENCE_S)
    return done["stdout"] == "200\n", done


def test_rules_of_a_kept_machine_change_while_it_lives(daemon):
    with Guest(daemon, **RULES) as guest:
        assert reaches(guest, "allowed.test")[0], reaches(guest, "allowed.test")
        assert not reaches(guest, "port.test")[0]
        guest.good("PUT", "/egress", {"network": True, "allowed_domains": ["port.test"]})
        assert reaches(guest, "port.test")[0] and not reaches(guest, "allowed.test")[0]
        log = guest.good("GET", "/egress/log")
        assert {row["name"] for row in log["log"]} >= {"allowed.test", "port.test"}, log


class Known(Guest):
    """One that another door made."""

    def __init__(self, client, known):
        self.client, self.id = client, known


ECHO = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header('Content-Length', self.headers['Content-Length'])
        self.end_headers()
        self.wfile.write(self.rfile.read(int(self.headers['Content-Length'])))
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Echo).serve_forever()
"""


def test_a_kept_machine_without_the_network_can_not_be_given_it_and_has_its_ports(daemon):
    wanted = {"templateID": "base", "timeout": 3000, "allow_internet_access": False}
    made = daemon.request("POST", "/v2/sandboxes", wanted, headers={"X-API-Key": daemon.key}, timeout=vms.PATIENCE_S)
    assert made.status == 201, made
    guest = Known(daemon, made.json()["sandboxID"])
    there, closed = ({"E2b-Sandbox-Id": guest.id, "E2b-Sandbox-Port": port} for port in ("8000", "8001"))
    try:
        status, _, message = guest.refused("PUT", "/egress", RULES)
        assert status == 501 and "it has no device for it" in message
        assert guest.exec(["cat", "/proc/net/dev"], timeout=vms.PATIENCE_S)["stdout"].count(":") == 1
        guest.put("/tmp/echo.py", ECHO.encode())
        guest.exec(["sh", "-c", "python3 /tmp/echo.py >/tmp/log 2>&1 </dev/null &"], timeout=vms.PATIENCE_S)
        assert host.wait_for(lambda: daemon.request("POST", "/", b"hello", headers=there).body == b"hello", vms.PATIENCE_S, 0.5)
        data = os.urandom(3 << 20)

        def ask(_):
            return daemon.request("POST", "/", data, headers=there, timeout=vms.PATIENCE_S).body

        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert all(answer == data for answer in pool.map(ask, range(3)))
        assert "port 8001 is not open" in daemon.request("GET", "/", headers=closed).body.decode()
    finally:
        guest.close()
