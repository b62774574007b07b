# SPDX-License-Identifier: Apache-2.0
"""What the tests of Python's driver and of its zygotes share: a plugin of pytest, named by those files."""
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interpreter_peers as peers  # noqa: E402
from interpreter_peers import FreshDriver, Guest, Zygote  # noqa: E402

EXTENSION = os.environ.get("CORDON_ZYGOTE_EXT", os.path.join(peers.ROOT, "build/src/agent/_cordon_zygote.so"))
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root: makes namespaces for a uid of its own")
HAS_DATA = subprocess.run([peers.PYTHON, "-Ic", "import numpy, pandas, matplotlib"], capture_output=True).returncode == 0
needs_data = pytest.mark.skipif(not HAS_DATA, reason="python3-numpy, python3-pandas or python3-matplotlib is not installed")


@pytest.fixture(scope="module")
def guest():
    guest = Guest()
    yield guest
    guest.close()


@pytest.fixture(scope="module")
def zygote():
    zygote = Zygote("python", EXTENSION)
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def data_zygote():
    zygote = Zygote("data", EXTENSION)
    yield zygote
    zygote.close()


@pytest.fixture(params=["forked", "fresh"])
def run(request):
    """run(code, **options): a Python program's outcome, from a zygote's fork and from an executed interpreter."""
    if request.param == "fresh":
        return lambda code, **options: FreshDriver("python", cwd=options.pop("home", None)).run(code, **options)
    if not IS_ROOT:
        pytest.skip("needs root: makes namespaces for a uid of its own")
    zygote, guest = request.getfixturevalue("zygote"), request.getfixturevalue("guest")
    return lambda code, **options: zygote.run(guest, code, **options)


@pytest.fixture
def run_alone(run, request):
    """The same in a guest of its own: what the program leaves running ends later, and its process 1 tells of it."""
    if request.node.callspec.params["run"] == "fresh":
        yield run
        return
    guest = Guest()
    yield lambda code, **options: request.getfixturevalue("zygote").run(guest, code, **options)
    guest.close()
