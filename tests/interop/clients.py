# SPDX-License-Identifier: Apache-2.0
"""
The public clients, unmodified, as the lock files pin them: installed once into a folder outside the tree's git
(build/interop, or INTEROP_CACHE), from the npm and PyPI registries.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from lib.daemon import BASE_ENV, ROOT

HERE = os.path.join(ROOT, "tests", "interop")
CACHE = os.path.abspath(os.environ.get("INTEROP_CACHE", os.path.join(ROOT, "build", "interop")))


def _digest(*paths):
    sum_ = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            sum_.update(file.read())
    return sum_.hexdigest()[:16]


def _run(what, args, **options):
    """Who can't reach the registries is told so, by tests that are skipped; what is installed is kept."""
    if not shutil.which(args[0]):
        pytest.skip(f"{what} could not be installed: there is no {args[0]}")
    done = subprocess.run(args, capture_output=True, text=True, check=False, timeout=1500, **options)
    if done.returncode:
        pytest.skip(f"{what} could not be installed: {(done.stdout + done.stderr)[-800:]}")


def npm():
    """The folder with node_modules."""
    lock = [os.path.join(HERE, "js", name) for name in ("package.json", "package-lock.json")]
    folder = os.path.join(CACHE, "js-" + _digest(*lock))
    if os.path.exists(os.path.join(folder, "ready")):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for path in lock:
        shutil.copy(path, folder)
    _run("the npm clients", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)
    open(os.path.join(folder, "ready"), "w").close()
    return folder


def python(name):
    """The interpreter of a virtual environment with requirements NAME.txt."""
    pins = os.path.join(HERE, "python", name + ".txt")
    folder = os.path.join(CACHE, f"{name}-" + _digest(pins))
    program = os.path.join(folder, "bin", "python")
    if os.path.exists(os.path.join(folder, "ready")):
        return program
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(CACHE, exist_ok=True)
    _run("a virtual environment", [sys.executable, "-m", "venv", folder])
    _run(
        f"the PyPI clients of {name}",
        [program, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "-r", pins],
    )
    open(os.path.join(folder, "ready"), "w").close()
    return program


def sdk_env(daemon):
    """What points the clients at a daemon."""
    url = f"http://127.0.0.1:{daemon.port}"
    return dict(
        BASE_ENV,
        E2B_API_URL=url,
        E2B_SANDBOX_URL=url,
        E2B_API_KEY=daemon.key,
        CREATEOS_SANDBOX_BASE_URL=url,
        CREATEOS_SANDBOX_API_KEY=daemon.key,
    )


def outcomes(args, env, cwd, timeout):
    """{case: error or None} of a case file's run, and what it wrote besides."""
    done = subprocess.run(args, capture_output=True, text=True, check=False, timeout=timeout, env=env, cwd=cwd)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"case"'):
            entry = json.loads(line)
            found[entry["case"]] = entry["error"]
    return found, done.stdout[-2000:] + done.stderr[-4000:]
