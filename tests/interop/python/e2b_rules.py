# SPDX-License-Identifier: Apache-2.0
"""The PyPI package's own way to have a header put into a sandbox's requests. Prints what the sandbox got."""
import json
import sys

from e2b import Sandbox

FETCH = "curl -sS -m 50 https://allowed.test/bytes/2"


def network(value):
    return {
        "allow_out": lambda context: list(context.rules.keys()),
        "deny_out": lambda context: [context.all_traffic],
        "rules": {"allowed.test": [{"transform": {"headers": {"X-Key": value}}}]},
    }


sandbox = Sandbox.create(timeout=600, network=network(sys.argv[1]))
try:
    first = sandbox.commands.run(FETCH).stdout
    sandbox.update_network(network(sys.argv[2]))
    second = sandbox.commands.run(FETCH).stdout
    other = sandbox.commands.run("curl -sS -m 50 https://pypi.test/ >/dev/null 2>&1 || echo refused").stdout
    print(json.dumps([first, second, other]))
finally:
    sandbox.kill()
