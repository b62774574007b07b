# SPDX-License-Identifier: Apache-2.0
"""Virtual machines without a machine: a QEMU that is a small program of ours (tests/unit/fake_qemu.c) and an image of
three small files. What the warden, the vmm and the gateway do is real, and fast."""

import hashlib
import json
import os

from . import host
from .daemon import BIN

QEMU = os.path.join(os.path.dirname(os.path.realpath(BIN)), "tests", "unit", "fake_qemu")
PARTS = {"kernel": "vmlinux", "initrd": "initrd", "root": "root.erofs"}


def image(folder, *, mark="", languages=("python", "javascript", "bash"), **manifest):
    """Writes an image into folder; mark makes it another one."""
    os.makedirs(folder, mode=0o755, exist_ok=True)
    made = {"format": 1, "boot": {"acpi": True, "append": "tsc=reliable"}, "languages": list(languages)}
    for part, name in PARTS.items():
        data = (name + mark).encode()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        made[part] = {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    made.update(manifest)
    with open(os.path.join(folder, "manifest.new"), "w", encoding="utf-8") as file:
        json.dump(made, file)
    os.rename(os.path.join(folder, "manifest.new"), os.path.join(folder, "manifest.json"))
    return folder


def settings(folder, **more):
    """For a daemon whose exec-sandbox is a fake."""
    return {"vm_image": folder, "vm_qemu": QEMU, "allow_software_emulation": True, "min_isolation": "none", **more}


def machines(daemon, name="fake_qemu"):
    """The pids of the QEMUs of a daemon, the oldest first."""
    return sorted(pid for pid in daemon.pids() if host.comm(pid) == name[:15])


def is_clone(pid):
    return "-incoming" in host.cmdline(pid)
