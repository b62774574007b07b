# SPDX-License-Identifier: Apache-2.0
"""The admin page in a real browser (Chromium, driven by playwright-core). Cases: js/cases_*.mjs; js/vt.mjs without one."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time

import pytest
from lib import host
from lib.admin import LyingManager
from lib.daemon import BASE_ENV, PREFIX, ROOT, Daemon, cli
from lib.pace import stretched
from lib.sshd import Sshd

HERE = os.path.dirname(os.path.abspath(__file__))
JS = os.path.join(HERE, "js")
CACHE = os.path.abspath(os.environ.get("INTEROP_CACHE", os.path.join(ROOT, "build", "interop")))
CHROMIUM = shutil.which("chromium", path="/usr/bin")
FILES = ("cases_page.mjs", "cases_trouble.mjs", "cases_operator.mjs", "cases_looks.mjs")
CASES = [case for name in FILES for case in re.findall(r"async '([^']+)'\(\)", host.read(os.path.join(JS, name)))]
SCREEN_CASES = re.findall(r"^  '([^']+)'\(\)", host.read(os.path.join(JS, "vt.mjs")), re.M)
TOKEN = "token-of-the-second-daemon"


def modules():
    """The folder with node_modules, installed once as the lock file pins it."""
    pins = [os.path.join(JS, name) for name in ("package.json", "package-lock.json")]
    digest = hashlib.sha256(b"".join(open(path, "rb").read() for path in pins)).hexdigest()[:16]
    folder = os.path.join(CACHE, "browser-" + digest)
    if not os.path.exists(os.path.join(folder, "ready")):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for path in pins:
            shutil.copy(path, folder)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True, timeout=300,
                       capture_output=True)
        open(os.path.join(folder, "ready"), "w").close()
    return folder


def fill_history(state, count=10000):
    """Runs of a backend that no case uses, numbered by their exit codes."""
    columns = {"at_ms": int(time.time() * 1000) - 3600000, "tenant": "default", "key": "0" * 16, "door": "native", "backend": "createos",
               "language": "bash", "cause": "exited", **{name: 1000 for name in ("queue_us", "start_us", "run_us", "total_us", "cpu_us",
               "memory_peak", "stdout_bytes", "stderr_bytes")}, "message": ""}
    marks = ", ".join("?" * (len(columns) + 1))
    with contextlib.closing(sqlite3.connect(os.path.join(state, "cordon.db"), timeout=60)) as db, db:
        db.executemany(f"INSERT INTO history ({', '.join(columns)}, exit_code) VALUES ({marks})",
                       ((*columns.values(), i) for i in range(count)))


def told(stdout):
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines if "case" in line}


def cases_run(config, folder, env):
    """What the cases print, line by line. Where all of them take too long, those that came to their end count."""
    path = os.path.join(folder, "cases.log")
    with open(path, "wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["node", os.path.join(JS, "page.mjs"), json.dumps(config)], cwd=modules(), env=env, stdout=log, stderr=log,
                       timeout=stretched(1100), check=False)
    return host.read(path)


@pytest.fixture(scope="module")
def outcomes(nothing_left):
    if not CHROMIUM:
        pytest.skip("no /usr/bin/chromium: ./dev packages browser installs it")
    if not Sshd.usable():
        pytest.skip("needs OpenSSH's server and root")
    asked = {name: os.environ.get(name, "") for name in ("CORDON_CASES", "CORDON_CASES_SLOW")}
    small = {"pool_javascript": 0, "pool_bash": 0, "guest_start_s": 60}
    sshd = Sshd()
    try:
        with LyingManager() as liar, Daemon(key=False, SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, **small) as second, Daemon(
                env={"CORDON_TIMEOUT_S": None}, max_timeout_s=120, ssh_known_hosts=sshd.known, ssh_isolation="namespace", ssh_denies_egress=True, **small) as daemon:
            fill_history(daemon.state)
            config = {
                "base": f"http://127.0.0.1:{daemon.port}", "admin": daemon.create_key("--scope", "admin"),
                "view": daemon.create_key("--scope", "view"), "shots": os.environ.get("CORDON_SHOTS", ""), "chromium": CHROMIUM,
                "link": re.search("link=([0-9a-f]{40})", cli("key", "link", "--state", daemon.state).text).group(1),
                "ssh": {"port": sshd.port, "other_port": sshd.other_port, "key": host.read(sshd.path("ed25519"))},
                "second": {"url": f"http://127.0.0.1:{second.port}", "token": TOKEN}, "liar": liar.url,
                "gateway": daemon.role("gateway"), "slow": stretched(1)}
            with tempfile.TemporaryDirectory(prefix=PREFIX) as home:
                said = cases_run(config, home, dict(BASE_ENV, HOME=home, **asked))
    finally:
        sshd.close()
    return dict(told(said), log=said[-6000:])


@pytest.mark.limit(1200)
@pytest.mark.parametrize("case", CASES)
def test_page(outcomes, case, capsys):
    assert case in outcomes, outcomes["log"]
    assert outcomes[case]["error"] is None, outcomes[case]["error"]
    if outcomes[case].get("figures"):
        with capsys.disabled():
            print(f"\n{case}: {outcomes[case]['figures']}")


@pytest.fixture(scope="module")
def screen():
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        module = shutil.copy(os.path.join(ROOT, "web", "vt.js"), os.path.join(folder, "vt.mjs"))
        done = subprocess.run(["node", os.path.join(JS, "vt.mjs"), module], capture_output=True, text=True, timeout=80, check=False)
    return dict(told(done.stdout), log=done.stderr[-2000:])


@pytest.mark.parametrize("case", SCREEN_CASES)
def test_screen(screen, case):
    assert case in screen, screen["log"]
    assert screen[case]["error"] is None, screen[case]["error"]
