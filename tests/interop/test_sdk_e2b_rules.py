# SPDX-License-Identifier: Apache-2.0
"""E2B's network rules by E2B's own clients: the header arrives at its host, and at no other, and a change holds at once.
In the network of the egress tests (lib/lab.py), on whose host the clients run beside the daemon."""

import json
import os
import subprocess

import clients
import pytest


@pytest.fixture(scope="module")
def daemon(lab):
    with lab.daemon(egress_ca=True, SSL_CERT_FILE=os.path.join(lab.folder, "ca.pem")) as made:
        yield made


def python_client():
    return [clients.python("e2b"), "-I", os.path.join(clients.HERE, "python", "e2b_rules.py")]


def js_client(package):
    module = os.path.join(clients.npm(), "node_modules", package, "dist", "index.mjs")
    return ["node", os.path.join(clients.HERE, "js", "e2b_rules.mjs"), module]


CLIENTS = {
    "PyPI": python_client,
    "npm": lambda: js_client("e2b"),
    "npm 2.31": lambda: js_client("e2b-2-31"),
}


@pytest.mark.limit(500)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_header_is_put_in_and_changed(lab, daemon, client):
    argv, mark = CLIENTS[client](), lab.mark()
    done = subprocess.run(
        ["nsenter", "-t", str(lab.host), "-n", *argv, "first-secret", "second-secret"],
        env=clients.sdk_env(daemon),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == ["xx", "xx", "refused\n"], done.stdout
    assert [(line["host"], line["key"]) for line in lab.arrived(mark, "http")] == [
        ("allowed.test", ["first-secret"]),
        ("allowed.test", ["second-secret"]),
    ]
