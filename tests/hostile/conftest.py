# SPDX-License-Identifier: Apache-2.0
"""Named attacks. Each is a test that takes the backend as a parameter, and asserts containment and the truthful outcome.

Rules for an attack: it is bounded, so that a sandbox that fails it (or a build weakened on purpose) does not take the
machine down; it says what it achieved on stdout as JSON; afterwards the fixture runs an ordinary program and looks at
the daemon, since an attack that breaks the next run is no contained attack.
"""

import pytest
from lib.attack import Backend


@pytest.fixture(scope="session")
def shared_backend(daemon, host_backend):
    return Backend(daemon, host_backend)


@pytest.fixture
def backend(shared_backend):
    """The backend; afterwards the daemon must be the same and an ordinary run must be well."""
    daemon = shared_backend.daemon
    roles = {role: daemon.role(role) for role in ("warden", "gateway")}
    yield shared_backend
    assert daemon.process.poll() is None, "the attack ended the daemon"
    answer = shared_backend.run("print('well')")
    assert answer["stdout"] == "well\n" and answer["exit_code"] == 0, answer
    assert {role: daemon.role(role) for role in roles} == roles, "the attack ended a part of the daemon"


@pytest.fixture
def lonely(own, host_backend):
    """lonely(setting=value) is the backend on a daemon of its own with other settings."""
    return lambda **settings: Backend(own(**settings), host_backend)
