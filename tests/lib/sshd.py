# SPDX-License-Identifier: Apache-2.0
"""A real OpenSSH server of our own."""

import os
import shutil
import subprocess
import tempfile

from . import host
from .daemon import PREFIX


class Sshd:
    """On two ports: `known` trusts its key on the first, and knows another key for the second."""

    @staticmethod
    def usable():
        return os.path.exists("/usr/sbin/sshd") and os.geteuid() == 0

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=PREFIX + "sshd-")
        self.port, self.other_port = host.free_port(), host.free_port()
        self.keys = {"ed25519": "", "rsa": "", "locked": "open sesame"}
        for name, passphrase in {**self.keys, "host": "", "other": ""}.items():
            kind = "rsa" if name == "rsa" else "ed25519"
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", self.path(name)], check=True)
        with open(self.path("authorized"), "w", encoding="utf-8") as file:
            for name in self.keys:
                file.write(host.read(self.path(name + ".pub")))
        self.known = self.known_hosts("host")
        os.makedirs("/run/sshd", exist_ok=True)
        with open(self.path("conf"), "w", encoding="utf-8") as file:
            file.write(f"Port {self.port}\nPort {self.other_port}\nListenAddress 127.0.0.1\nHostKey {self.path('host')}\nUsePAM no\nStrictModes no\n"
                       f"AuthorizedKeysFile {self.path('authorized')}\nPidFile none\nPasswordAuthentication no\n"
                       "PermitRootLogin yes\n")
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.settings = {"ssh_host": "127.0.0.1", "ssh_port": self.port, "ssh_username": "root", "ssh_isolation": "namespace",
                         "ssh_known_hosts": self.known, "ssh_private_key_path": self.path("ed25519"),
                         "ssh_denies_egress": True}
        host.wait_for(lambda: subprocess.run(["ssh-keyscan", "-p", str(self.port), "127.0.0.1"], capture_output=True,
                                             check=False).stdout)

    def command(self):
        return ["/usr/sbin/sshd", "-D", "-e", "-f", self.path("conf")]

    def path(self, name):
        return os.path.join(self.folder, name)

    def known_hosts(self, key):
        path = self.path("known-" + key)
        with open(path, "w", encoding="utf-8") as file:
            for port, name in ((self.port, key), (self.other_port, "other")):
                file.write(f"[127.0.0.1]:{port} " + " ".join(host.read(self.path(name + ".pub")).split()[:2]) + "\n")
        return path

    def sessions(self):
        return host.descendants(self.process.pid)

    def close(self):
        for pid in [*self.sessions(), self.process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


class PasswordSshd(Sshd):
    """Takes passwords only. Its user is in a passwd and a shadow of its own, which it alone sees: in a mount namespace."""

    USER, PASSWORD, UID = "cordon-by-password", "correct horse: battery, staple", 1879047001

    def __init__(self):
        super().__init__()
        self.settings = {**self.settings, "ssh_username": self.USER, "ssh_password": self.PASSWORD}
        del self.settings["ssh_private_key_path"]

    def command(self):
        home = self.path("home")
        os.chmod(self.folder, 0o755)
        os.mkdir(home)
        os.chown(home, self.UID, self.UID)
        digest = subprocess.run(["openssl", "passwd", "-6", self.PASSWORD], check=True, capture_output=True, text=True).stdout.strip()
        self.extend("passwd", f"{self.USER}:x:{self.UID}:{self.UID}::{home}:/bin/sh", 0o644)
        self.extend("shadow", f"{self.USER}:{digest}:20000:0:99999:7:::", 0o600)
        with open(self.path("conf"), "r+", encoding="utf-8") as file:
            text = file.read().replace("PasswordAuthentication no", "PasswordAuthentication yes\nPubkeyAuthentication no")
            file.seek(0)
            file.write(text)
        mounts = " && ".join(f"mount --bind {self.path(name)} /etc/{name}" for name in ("passwd", "shadow"))
        return ["unshare", "--mount", "sh", "-c", mounts + ' && exec "$@"', "sh", *super().command()]

    def extend(self, name, line, mode):
        with open(self.path(name), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(host.read("/etc/" + name) + line + "\n")
