# SPDX-License-Identifier: Apache-2.0
"""The admin page in a real browser (Chromium, driven by playwright-core). Cases: js/page.mjs."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest
from lib.daemon import BASE_ENV, PREFIX, ROOT, Daemon, cli

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.abspath(os.environ.get("INTEROP_CACHE", os.path.join(ROOT, "build", "interop")))
CHROMIUM = shutil.which("chromium", path="/usr/bin")
CASES = re.findall(r"async '([^']+)'\(\)", open(os.path.join(HERE, "js", "page.mjs"), encoding="utf-8").read())


def modules():
    """The folder with node_modules, installed once as the lock file pins it."""
    pins = [os.path.join(HERE, "js", name) for name in ("package.json", "package-lock.json")]
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


@pytest.fixture(scope="module")
def outcomes():
    if not CHROMIUM:
        pytest.skip("no /usr/bin/chromium: ./dev packages browser installs it")
    with Daemon(max_timeout_s=120) as daemon:
        admin = daemon.create_key("--scope", "admin")
        viewer = daemon.create_key("--scope", "view")
        link = re.search("link=([0-9a-f]{40})", cli("key", "link", "--state", daemon.state).text).group(1)
        shots = os.environ.get("CORDON_SHOTS", "")
        program = os.path.join(HERE, "js", "page.mjs")
        address = f"http://127.0.0.1:{daemon.port}"
        with tempfile.TemporaryDirectory(prefix=PREFIX) as home:
            done = subprocess.run(["node", program, address, admin, viewer, link, shots, CHROMIUM], cwd=modules(),
                                  env=dict(BASE_ENV, HOME=home), capture_output=True, text=True, timeout=500, check=False)
    found = {}
    for line in done.stdout.splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if "case" in entry:
            found[entry["case"]] = entry["error"]
    found["log"] = done.stdout[-1000:] + done.stderr[-3000:]
    return found


@pytest.mark.limit(600)
@pytest.mark.parametrize("case", CASES)
def test_page(outcomes, case):
    assert case in outcomes, outcomes["log"]
    assert outcomes[case] is None, outcomes[case]
