# SPDX-License-Identifier: Apache-2.0
"""
The `docker run` line that is equal to a service of a compose file.

Debian 12 has no Compose v2, and its Compose v1 knows neither `cgroup:` nor systempaths=unconfined. So that the file is
tested all the same, each of its keys has its flag here, and a key that has none is an error.
"""

import os
import re


def _each(flag):
    return lambda value, folder: [part for item in value for part in (flag, str(item))]


def _one(flag):
    return lambda value, folder: [flag, str(value)]


def _security(value, folder):
    found = []
    for item in value:
        name, _, rest = item.partition("=")
        if name == "seccomp" and rest.startswith("."):
            item = "seccomp=" + os.path.normpath(os.path.join(folder, rest))
        found += ["--security-opt", item]
    return found


KEYS = {
    "build": lambda value, folder: [],  # by `docker build`
    "image": lambda value, folder: [],  # comes last
    "restart": _one("--restart"),
    "cap_drop": _each("--cap-drop"),
    "cap_add": _each("--cap-add"),
    "security_opt": _security,
    "cgroup": _one("--cgroupns"),
    "mem_limit": _one("--memory"),
    "environment": _each("--env"),  # a name alone takes the value of who starts it, here as there
    "ports": _each("--publish"),
    "volumes": _each("--volume"),
    "stop_grace_period": lambda value, folder: ["--stop-timeout", value.rstrip("s")],
}


def _expand(item):
    """${NAME:-default} is the default: nothing is set beside the file here."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", item)


def run_line(path, name, without=()):
    """(flags, image) of the service; `without` leaves keys or single items of lists out."""
    import yaml  # Debian's python3-yaml

    with open(path, encoding="utf-8") as file:
        service = yaml.safe_load(file)["services"][name]
    flags = []
    for key, value in service.items():
        if key in without:
            continue
        if isinstance(value, list):
            value = [item for item in map(_expand, value) if item not in without]
        flags += KEYS[key](value, os.path.dirname(os.path.abspath(path)))
    return flags, service["image"]
