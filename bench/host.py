# SPDX-License-Identifier: Apache-2.0
"""What bench.py needs of the host: a daemon of its own, the peers' command lines, and the memory of parked guests."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

PYTHON, NODE = "/usr/bin/python3", "/usr/bin/node"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8"}


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Daemon:
    """A daemon on a port and a state folder of its own; settings as max_runs=80."""

    def __init__(self, build, **settings):
        self.binary = str(build / "cordon")
        self.state = tempfile.mkdtemp(prefix="cordon-bench-")
        self.port = free_port()
        self.env = dict(ENVIRONMENT, **{"CORDON_" + name.upper(): str(value) for name, value in settings.items()})
        made = subprocess.run([self.binary, "key", "create", "--state", self.state], env=self.env, capture_output=True,
                              text=True, check=False)
        found = re.search(r"\be2b_[0-9a-f]{40}\b", made.stdout)
        if not found:
            raise Failed(f"no key was made: {made.stdout}{made.stderr}")
        self.key = found.group()
        self.log = open(os.path.join(self.state, "log"), "wb")
        self.process = subprocess.Popen([self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--state", self.state],
                                        env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")

    def __enter__(self):
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def wait_ready(self):
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise Failed("the daemon did not become ready:\n" + pathlib.Path(self.log.name).read_text()[-2000:])

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.state, ignore_errors=True)


def descendants(root):
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def status_of(pid):
    return dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)


def kilobytes(text):
    return int(text.split()[0])


def guest_processes(root):
    """{pid: status} of the processes below root that live in a process namespace of their own, agents included."""
    found = {}
    for pid in descendants(root):
        try:
            status = status_of(pid)
        except OSError:
            continue
        if len(status.get("NSpid", "").split()) > 1 and status.get("State", "Z").split()[0] != "Z":
            found[pid] = status
    return found


def is_init(status):
    return status["NSpid"].split()[-1] == "1"


def private_kb(pid):
    try:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it ended
        return 0
    return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", rollup, re.M))


def memory_cgroup(pid):
    """The folder of the memory controller's group of pid (v1 or v2), or None."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path)
        if not controllers and os.path.exists("/sys/fs/cgroup" + path + "/memory.current"):
            return pathlib.Path("/sys/fs/cgroup" + path)
    return None


def group_bytes(folder):
    """(usage, kernel) of a memory group in bytes; None where the kernel does not tell."""
    def number(name):
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError):
            return None
    kernel = number("memory.kmem.usage_in_bytes")
    if (folder / "memory.current").exists():
        found = re.search(r"^kernel (\d+)", (folder / "memory.stat").read_text(), re.M)
        return number("memory.current"), int(found.group(1)) if found else None
    return number("memory.usage_in_bytes"), kernel


class Bundle:
    """An OCI bundle whose root is the host's /usr, read-only, for crun."""

    def __init__(self, argv):
        self.path = tempfile.mkdtemp(prefix="cordon-bench-crun-")
        root = os.path.join(self.path, "rootfs")
        for name in ("usr", "proc", "dev", "tmp", "etc"):
            os.makedirs(os.path.join(root, name))
        for name in ("bin", "lib", "lib64"):
            os.symlink("usr/" + name, os.path.join(root, name))
        config = {
            "ociVersion": "1.0.0", "root": {"path": "rootfs", "readonly": True}, "hostname": "bench",
            "process": {"user": {"uid": 0, "gid": 0}, "args": argv, "env": ["PATH=/usr/bin"], "cwd": "/",
                        "noNewPrivileges": True},
            "mounts": [{"destination": "/usr", "source": "/usr", "type": "none", "options": ["rbind", "ro"]},
                       {"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
        }
        pathlib.Path(self.path, "config.json").write_text(json.dumps(config))

    def command(self):
        return ["/usr/bin/crun", "--root", self.path + "/state", "--cgroup-manager=disabled", "run", "--bundle", self.path,
                "bench-{N}"]

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


# crun refuses hybrid control groups; an empty folder in a private mount namespace is what it accepts.
WITHOUT_CGROUPS = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   'mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"', "sh"]
BWRAP = ["/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
