# SPDX-License-Identifier: Apache-2.0
"""A small internet of network namespaces: `host`, in which a daemon runs, and `world`, with name server and servers on
addresses that are public, private, link-local and of the metadata service. Nothing of it reaches the real network.

The daemon is reached by its unix socket, since its loopback is not ours.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from subprocess import DEVNULL

from . import host
from .client import USUAL_S
from .daemon import BIN, PREFIX, Daemon, environment
from .pace import patient

HOST = "11.0.0.1"  # of the daemon's host
HOST6 = "2a0f:1::1"
RESOLVER = "11.0.0.2"
ALLOWED = "11.0.0.10"
UNLISTED = "11.0.0.11"
PRIVATE = "10.9.9.9"
METADATA = "169.254.169.254"
CGNAT = "100.64.3.3"
OPENED = "10.8.8.8"  # private, and in CORDON_EGRESS_RANGES
ALLOWED6 = "2a0f:1::10"
UNLISTED6 = "2a0f:1::11"
METADATA6 = "fd00:ec2::254"

ADDRESSES = [RESOLVER, ALLOWED, UNLISTED, PRIVATE, METADATA, CGNAT, OPENED, ALLOWED6, UNLISTED6, METADATA6]

ZONE = {
    "allowed.test": {"A": [ALLOWED], "AAAA": [ALLOWED6]},
    "www.allowed.test": {"A": [ALLOWED]},
    "other.test": {"A": [ALLOWED]},  # on the same server as an allowed one
    "unlisted.test": {"A": [UNLISTED], "AAAA": [UNLISTED6]},
    "v6only.test": {"AAAA": [ALLOWED6]},
    "port.test": {"A": [ALLOWED]},
    "rebind.test": {"A": ["127.0.0.1"]},
    "rebind10.test": {"A": [PRIVATE]},
    "rebindmeta.test": {"A": [METADATA]},
    "rebindmeta6.test": {"AAAA": [METADATA6]},
    "rebindmapped.test": {"AAAA": ["::ffff:10.9.9.9"]},
    "rebindcgnat.test": {"A": [CGNAT]},
    "rebindhost.test": {"A": [HOST]},
    "rebindzero.test": {"A": ["0.0.0.0"]},
    "rebindloop6.test": {"AAAA": ["::1"]},
    "rebindlink6.test": {"AAAA": ["fe80::1"]},
    "rebind64.test": {"AAAA": ["64:ff9b::a09:909"]},  # 10.9.9.9 behind a translator
    "rebind6to4.test": {"AAAA": ["2002:a09:909::1"]},
    "rebindmulticast.test": {"A": ["224.0.0.1"]},
    "alias.sub.test": {"CNAME": "allowed.test"},
    "rebindcname.sub.test": {"CNAME": "rebind10.test"},
    "rebindisatap.sub.test": {"AAAA": ["2a0f:1::5efe:a09:909"]},
    "rebindteredo.sub.test": {"AAAA": ["2001:0:a09:909::1"]},
    "rebindlocal64.sub.test": {"AAAA": ["64:ff9b:1::a09:909"]},
    "rebindtranslated.sub.test": {"AAAA": ["::ffff:0:a09:909"]},
    "rebindcompatible.sub.test": {"AAAA": ["::a09:909"]},
    "rebindsite.sub.test": {"AAAA": ["fec0::1"]},
    "rebindunique.sub.test": {"AAAA": ["fc00::1"]},
    "rebindprotocol.sub.test": {"A": ["192.0.0.8"]},
    "rebindnames.sub.test": {"A": ["198.18.0.53"]},
    "rebindreserved.sub.test": {"A": ["240.0.0.1"]},
    "rebindbroadcast.sub.test": {"A": ["255.255.255.255"]},
    "flip.test": {"A": [ALLOWED, PRIVATE], "turns": True, "ttl": 0},
    "mixed.test": {"A": [PRIVATE, ALLOWED]},
    "opened.test": {"A": [OPENED]},
    "silent.test": {"silent": True},
    "down.test": {"A": ["11.0.0.99"]},
    "text.test": {"TXT": ["some text"], "A": [ALLOWED]},
    "denied.sub.test": {"A": [ALLOWED]},
    "good.sub.test": {"A": [ALLOWED]},
    "pypi.test": {"A": [ALLOWED]},
    "npm.test": {"A": [ALLOWED]},
    "git.test": {"A": [ALLOWED]},
}


def usable():
    """Why no such network can be made here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--net", "ip", "link", "add", "wire", "type", "veth", "peer", "name", "eriw"], capture_output=True)
    return None if done.returncode == 0 else "no veth devices"


class Lab:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=PREFIX + "lab-")
        self.holders, self.servers = [], None
        try:
            self.host = self.namespace()
            self.world = self.namespace()
            self.wire()
            self.certificates()
            os.mkdir(os.path.join(self.folder, "www"))
            self.start_servers()
        except BaseException:
            self.close()
            raise

    def namespace(self):
        holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"], stdin=DEVNULL, stdout=DEVNULL
        )
        ours = os.readlink("/proc/self/ns/net")
        assert host.wait_for(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours)
        self.holders.append(holder)
        return holder.pid

    def inside(self, pid, *command, **options):
        return subprocess.run(["nsenter", "-t", str(pid), "-n", *command], check=True, **options)

    def ip(self, pid, text):
        self.inside(pid, "ip", "-batch", "-", input=text.encode())

    def wire(self):
        self.ip(
            self.host,
            f"""link set lo up
link add wire type veth peer name wire netns {self.world}
addr add {HOST}/8 dev wire
addr add {HOST6}/32 dev wire nodad
link set wire up
route add default dev wire
""",
        )
        adds = "".join(f"addr add {a}/{'128 dev wire nodad' if ':' in a else '32 dev wire'}\n" for a in ADDRESSES)
        self.ip(
            self.world,
            f"link set lo up\nlink set wire up\n{adds}route add {HOST} dev wire\nroute add {HOST6}/128 dev wire\n",
        )
        self.ip(self.host, "route add ::/0 dev wire\n")

    def certificates(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

        names = ",".join(f"DNS:{name}" for name in ZONE) + "," + ",".join(f"IP:{a}" for a in ADDRESSES)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=lab", "-days", "30")
        openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=allowed.test")
        with open(os.path.join(self.folder, "ext"), "w", encoding="ascii") as ext:
            ext.write(f"subjectAltName={names}\n")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-days", "30")
        openssl("x509", "-req", "-in", "server.csr", *sign, "-out", "server.crt")
        with open(os.path.join(self.folder, "server.pem"), "w", encoding="ascii") as pem:
            pem.write(self.read("server.key") + self.read("server.crt"))

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def start_servers(self):
        web = {"resolvers": [RESOLVER], "web": [a for a in ADDRESSES if a != RESOLVER]}
        for name, content in (("zone.json", ZONE), ("web.json", web)):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab_servers.py")
        self.servers = subprocess.Popen(
            ["nsenter", "-t", str(self.world), "-n", "setpriv", "--pdeathsig", "KILL", "/usr/bin/python3", program, self.folder],
            stdin=DEVNULL,
            stdout=DEVNULL,
        )
        assert host.wait_for(lambda: os.path.exists(os.path.join(self.folder, "ready")))

    def mark(self):
        """A place in the log, for arrived()."""
        return os.path.getsize(os.path.join(self.folder, "log")) if os.path.exists(os.path.join(self.folder, "log")) else 0

    def arrived(self, mark=0, *kinds):
        """What came to the servers since the mark, of these kinds."""
        time.sleep(0.05)
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            log.seek(mark)
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        return [line for line in lines if not kinds or line["what"] in kinds]

    def daemon(self, **settings):
        return LabDaemon(self, **settings)

    def close(self):
        for process in [self.servers, *self.holders]:
            if process:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class LabDaemon(Daemon):
    """A daemon whose host is the lab's."""

    def __init__(self, lab, **settings):
        self.lab = lab
        settings.setdefault("allow_network", True)
        settings.setdefault("egress_resolver", RESOLVER)
        settings.setdefault("egress_ranges", OPENED)
        super().__init__(prefix=["nsenter", "-t", str(lab.host), "-n"], **settings)

    def connection(self, timeout=None):
        return UnixConnection(os.path.join(self.state, "cordon.sock"), timeout or patient(USUAL_S))

    def pids(self):
        return super().pids()

    def cli(self, *args, **settings):
        """The command line on the lab's host, without a daemon."""
        full = environment({**{k: v for k, v in self.settings.items()}, **settings})
        return subprocess.run(
            ["nsenter", "-t", str(self.lab.host), "-n", BIN, *map(str, args)],
            capture_output=True,
            env=full,
            timeout=patient(60),
            check=False,
        )
