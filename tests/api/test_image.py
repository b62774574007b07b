# SPDX-License-Identifier: Apache-2.0
"""cordon image: what virtual machines start from. (That it boots is test_vm_guest.py's.)"""
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from lib.daemon import BIN


def image(*words):
    return subprocess.run([BIN, "image", *map(str, words)], capture_output=True, text=True, timeout=900, check=False)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_refuses_what_it_does_not_know(tmp_path):
    for words, expected in ((("build", "--nonsense"), "no option"), (("build", "x"), 'no argument "x"'), ((), "build or show"),
                            (("show", "--minimal"), "option of build"), (("build", "--json"), "option of show")):
        done = image(*words)
        assert done.returncode == 2 and expected in done.stderr, done
    done = image("build", "--out", tmp_path / "i", "--add", "a b; c")
    assert done.returncode != 0 and "no name of a Debian package" in done.stderr
    done = image("build", "--out", tmp_path / "i", "--kernel", tmp_path / "none")
    assert done.returncode != 0 and "there is no kernel" in done.stderr
    done = image("show", "--out", tmp_path / "i")
    assert done.returncode != 0 and "cordon image build" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_tells_what_is_there(vm_image):
    folder = vm_image
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == 1 and manifest["boot"]["acpi"] is True
    for part in ("kernel", "initrd", "root"):
        row = manifest[part]
        assert digest(folder / row["file"]) == row["sha256"]
        assert (folder / row["file"]).stat().st_size == row["size"]
    assert (folder / "vmlinux").read_bytes()[:4] == b"\x7fELF"
    assert {"python3", "nodejs", "bash", "python3-pandas"} <= set(manifest["packages"])
    shown = image("show", "--out", folder)
    assert shown.returncode == 0 and "root.erofs" in shown.stdout and "linux-image" in shown.stdout
    assert json.loads(image("show", "--json", "--out", folder).stdout) == manifest


@pytest.fixture
def copy(tmp_path, vm_image):
    """A copy of the image, by links: nothing in it is written to, only replaced."""
    to = tmp_path / "image"
    to.mkdir()
    for file in vm_image.iterdir():
        try:
            os.link(file, to / file.name)
        except OSError:
            shutil.copyfile(file, to / file.name)
    return to


def test_what_is_up_to_date_is_kept_and_what_was_damaged_is_not(copy):
    before = (copy / "initrd").stat().st_ino
    done = image("build", "--out", copy)
    assert done.returncode == 0 and "up to date" in done.stderr, done
    assert (copy / "initrd").stat().st_ino == before
    # Refused before a packet leaves: the mirror is nobody.
    data = bytearray((copy / "initrd").read_bytes())
    data[1000] ^= 1
    (copy / "initrd").unlink()
    (copy / "initrd").write_bytes(data)
    nowhere = ["--mirror", "http://127.0.0.1:9/debian", "--security", "http://127.0.0.1:9/security"]
    done = image("build", "--out", copy, *nowhere)
    assert done.returncode != 0 and "up to date" not in done.stderr and "apt-get" in done.stderr
    assert (copy / "initrd").read_bytes() == data, "a failed build replaces nothing"
    assert not [file for file in copy.parent.iterdir() if file.name.startswith(".image-")]


def test_another_kernel_makes_no_root_anew(copy, tmp_path, vm_image):
    """As a changed agent doesn't, either."""
    kernel = tmp_path / "mine"
    kernel.write_bytes(b"\x7fELF" + b"\0" * 100 + b"virtio_mmio.device\0")
    root = (copy / "root.erofs").stat().st_ino
    done = image("build", "--out", copy, "--kernel", kernel)
    assert done.returncode == 0 and "fetching" not in done.stderr, done
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest["boot"] == {"acpi": False, "append": ""}
    assert (copy / "vmlinux").read_bytes() == kernel.read_bytes()
    assert (copy / "root.erofs").stat().st_ino == root
    assert b"virtio_ring" not in (copy / "initrd").read_bytes(), "its drivers are built in"
    done = image("build", "--out", copy)
    assert done.returncode == 0 and json.loads((copy / "manifest.json").read_text())["boot"]["acpi"] is True
    assert digest(copy / "initrd") == digest(vm_image / "initrd")


@pytest.mark.long
@pytest.mark.limit(1500)
def test_the_same_packages_give_the_same_bytes(tmp_path):
    made = []
    for name in ("one", "two"):
        done = image("build", "--minimal", "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        made.append({file.name: digest(file) for file in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
