# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: one daemon for all tests that don't disturb each other, a time limit, and the look at what is left."""

import contextlib
import os
import signal
import tempfile

import pytest
from lib import backends, host, pace, vmimage
from lib import lab as network
from lib.backends import LONG
from lib.daemon import BIN, PREFIX


def pytest_addoption(parser):
    parser.addoption(
        "--weakened", default=None, help="run only the tests that must fail in a build weakened by this name"
    )


def pytest_collection_modifyitems(config, items):
    weakened = config.getoption("--weakened")
    if weakened:
        chosen = [i for i in items if weakened in {name for m in i.iter_markers("weaken") for name in m.args}]
        config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("long") and not LONG:
            item.add_marker(pytest.mark.skip(reason="full size only: set CORDON_TEST_LONG=1"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_generate_tests(metafunc):
    """A test with the mark `each_backend` is one for each of them; its daemons have that backend as their default."""
    marker = metafunc.definition.get_closest_marker("each_backend")
    if marker and "host_backend" in metafunc.fixturenames:
        names = backends.names(metafunc.definition.get_closest_marker("smoke") is not None, marker.args)
        metafunc.parametrize("host_backend", names, indirect=True, scope="session")


def kind_of(item):
    """The backend that a test is run on."""
    return backends.KINDS[getattr(item, "callspec", None) and item.callspec.params.get("host_backend") or "local"]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    pace.of_backend(kind_of(item).pace)
    yield
    pace.of_backend(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    """A time limit for every test, so that one that hangs is a failure and not the end of the suite."""
    marker = item.get_closest_marker("limit")
    seconds = int(pace.patient(marker.args[0] if marker else 90))

    def expired(*_):
        raise TimeoutError(f"the test took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


ROOTS = set()  # control groups that daemons of this session had


@pytest.fixture(scope="session", autouse=True)
def nothing_left():
    """After all tests: no process, mount, control group or temporary file of ours is left."""
    if not os.access(BIN, os.X_OK):
        pytest.exit(f"{BIN} is not there: build first (./dev build), or name it in CORDON_BIN", 3)
    host.become_subreaper()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that whoever ends us leaves time to clean up
    mounts = host.mounts()
    yield
    host.wait_for(lambda: (host.reap(), not host.descendants(os.getpid()))[1])
    left = [f"process {pid} ({host.comm(pid)}, {host.state(pid)})" for pid in host.descendants(os.getpid())]
    left += [f"control group {root}" for root in ROOTS if os.path.exists(root)]
    left += [f"mount {line}" for line in host.mounts() - mounts if PREFIX in line]
    left += [f"file {name}" for name in os.listdir(tempfile.gettempdir()) if name.startswith(PREFIX)]
    assert not left, "left behind: " + "; ".join(left)


@contextlib.contextmanager
def one_of_each():
    """of(kind, …): a daemon whose runs and guests are on this backend; the same one until the end."""
    made = {}

    def of(kind, **settings):
        if kind.name not in made:
            made[kind.name] = kind.daemon(**settings)
        return made[kind.name]

    try:
        yield of
    finally:
        for each in made.values():
            each.close()
            ROOTS.update(each.roots)


@pytest.fixture(scope="module")
def lab(nothing_left):
    """A network of the module's own with servers in it, for guests to reach (lib/lab.py)."""
    why = network.usable()
    if why:
        pytest.skip(why)
    with network.Lab() as made:
        yield made


@pytest.fixture(scope="session")
def daemons(nothing_left):
    """daemons(kind): of each backend one, for all tests that share it."""
    with one_of_each() as of:
        yield of


@pytest.fixture(scope="module")
def module_daemons(nothing_left):
    """module_daemons(kind, …): of each backend one of the module's own, with these settings."""
    with one_of_each() as of:
        yield of


@pytest.fixture(scope="session")
def host_backend(request, nothing_left):
    """The backend (lib/backends.py) that this test is run on; `local` where it doesn't ask for each."""
    kind = backends.KINDS[getattr(request, "param", "local")]
    if kind.missing:
        pytest.skip(f"{kind.name}: {kind.missing}")
    return kind


@pytest.fixture(scope="session")
def daemon(daemons, host_backend):
    """The shared daemon. Tests that kill parts of it, or need other settings, start one of their own."""
    return daemons(host_backend)


@pytest.fixture
def own(host_backend):
    """own(max_runs=1, …) starts a daemon with these settings for this test only."""
    made = []

    def start(**options):
        made.append(host_backend.daemon(**options))
        return made[-1]

    yield start
    for each in made:
        each.close()
        ROOTS.update(each.roots)
    left = [root for each in made for root in each.roots if os.path.exists(root)]
    assert not left, f"a stopped daemon left its control groups: {left}"


@pytest.fixture(scope="session")
def vm_image(nothing_left):
    """The folder of the image that virtual machines start from. Making it takes as long as it takes."""
    return vmimage.folder()


@pytest.fixture
def run(daemon):
    """run(code, language="python", **fields) -> the answer of a whole run."""
    return daemon.run


@pytest.fixture
def stream(daemon):
    return daemon.stream
