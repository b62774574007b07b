# SPDX-License-Identifier: Apache-2.0
"""A daemon of our own, on a port of its own, with a state folder of its own; and the command line."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from . import host
from .client import USUAL_S, Client
from .pace import SLOW, patient, stretched

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get("CORDON_BIN", os.path.join(ROOT, "build", "cordon")))
KEY_FORM = re.compile(r"\be2b_[0-9a-f]{40}\b")
BASE_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
GUEST_START_S = min(600, int(60 * SLOW))  # beside other work a guest may take long to begin
if SLOW > 1:  # as an operator of a slow host would set it; and no more guests in stock than one test needs
    BASE_ENV["CORDON_TIMEOUT_S"] = str(min(300, int(30 * SLOW)))
    BASE_ENV.update({f"CORDON_POOL_{kind}": "0" for kind in ("PYTHON_DATA", "JAVASCRIPT", "BASH", "GUEST")})
PREFIX = f"cordon-test-{os.getpid()}-"  # of our temporary files; others may run these tests beside us
SECRET = "host-secret-7c1f0a"  # stands in the daemon's environment; no guest may ever see it


def environment(settings):
    """settings: max_runs=2 becomes CORDON_MAX_RUNS=2; names in capitals are taken as they are."""
    env = dict(BASE_ENV, AWS_SECRET_ACCESS_KEY=SECRET)
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        env[name if name.isupper() else "CORDON_" + name.upper()] = text
    return env


class Result:
    def __init__(self, status, stdout, stderr, seconds):
        self.status, self.out, self.err, self.seconds = status, stdout, stderr, seconds

    @property
    def text(self):
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self):
        return self.err.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"<status {self.status} out={self.out[:500]!r} err={self.err[:800]!r}>"


def cli(*args, stdin=b"", env=None, cwd=None, timeout=None, prefix=(), **settings):
    """Runs the command line to its end."""
    full = environment(settings)
    full.update(env or {})
    if not os.path.exists(os.path.join(full.get("CORDON_STATE", "/var/lib/cordon"), "cordon.sock")):
        full.setdefault("CORDON_GUEST_START_S", str(GUEST_START_S))  # a daemon would have its own
    began = time.monotonic()
    done = subprocess.run(
        [*prefix, BIN, *map(str, args)],
        input=stdin,
        capture_output=True,
        env=full,
        cwd=cwd,
        timeout=timeout or patient(USUAL_S),
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


class Daemon(Client):
    """Started by the constructor, ready when it returns; use as a context manager."""

    def __init__(
        self,
        *,
        key=True,
        flags=(),
        state=None,
        listen=None,
        prefix=(),
        nofile=None,
        ready=True,
        tls=None,
        env=None,
        **settings,
    ):
        self.own_state = state is None
        self.state = state or tempfile.mkdtemp(prefix=PREFIX)
        port = host.free_port()
        super().__init__(port, tls=tls)
        self.listen = listen or f"127.0.0.1:{port}"
        self.settings = settings
        usual = environment({"guest_start_s": GUEST_START_S, **settings})
        self.env = {name: value for name, value in {**usual, **(env or {})}.items() if value is not None}
        self.flags, self.prefix, self.nofile = list(flags), list(prefix), nofile
        self.process, self.roots = None, set()
        self.log_path = tempfile.mkstemp(prefix=PREFIX + "log-")[1]
        if key:
            self.key = self.create_key()
        self.start(ready)

    def create_key(self, *options):
        made = cli("key", "create", "--state", self.state, *options)
        found = KEY_FORM.findall(made.text)
        assert made.status == 0 and len(found) == 1, made
        return found[0]

    def start(self, ready=True):
        def prepare():
            if self.nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.nofile, self.nofile))

        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, BIN, "serve", "--listen", self.listen, "--state", self.state, *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd="/",
                preexec_fn=prepare if self.nofile else None,
            )
        if ready and not self.wait_ready():
            text = self.log()
            self.close()
            raise AssertionError(f"the daemon did not become ready:\n{text[-3000:]}")

    def wait_ready(self, seconds=60):
        def is_ready():
            if self.process.poll() is not None:
                return "ended"
            try:
                return self.get("/readyz", timeout=stretched(20)).status == 200
            except OSError:
                return False

        return host.wait_for(is_ready, seconds) is True

    def log(self):
        return host.read(self.log_path)

    def pids(self):
        """All processes of this daemon, the supervisor first."""
        if self.process is None or self.process.poll() is not None:
            return []
        return [self.process.pid, *host.descendants(self.process.pid)]

    def role(self, name):
        """The pid of the role ('warden', 'gateway'), or None."""
        for pid in self.pids()[1:]:
            words = host.cmdline(pid)
            if "--role" in words and words[words.index("--role") + 1] == name and host.alive(pid):
                return pid
        return None

    def note_cgroups(self):
        """Remembers the control groups of the guests that are there now, to look for them after the end."""
        self.roots |= host.cgroup_roots(self.pids())
        return self.roots

    def stop(self, seconds=15):
        """A clean stop; returns the exit status (None: it had to be killed)."""
        if self.process is None:
            return None
        self.note_cgroups()
        status = self.process.poll()
        if status is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.process.wait(patient(seconds))
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None
        return status

    def kill(self):
        """Ends every process of the daemon at once, by pid."""
        pids = self.pids()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(patient(10))

    def restart(self, ready=True):
        self.stop()
        self.start(ready)

    def close(self):
        self.stop()
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)
        try:
            os.unlink(self.log_path)
        except FileNotFoundError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def start_fails(*flags, timeout=None, state=None, **settings):
    """The result of a `serve` that must not come up."""
    own = state or tempfile.mkdtemp(prefix=PREFIX)
    try:
        return cli("serve", "--state", own, *flags, timeout=timeout or patient(20), **settings)
    finally:
        if state is None:
            shutil.rmtree(own, ignore_errors=True)
