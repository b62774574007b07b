# SPDX-License-Identifier: Apache-2.0
"""The image of virtual machines for tests: build/image beside the program under test, made when it is not up to date."""
import fcntl
import functools
import os
import pathlib
import subprocess

from lib.daemon import BIN


@functools.cache
def folder():
    """Where it is. Several test processes may come at once; the first one makes it. CORDON_TEST_IMAGE names one that is
    there already."""
    if "CORDON_TEST_IMAGE" in os.environ:
        return pathlib.Path(os.environ["CORDON_TEST_IMAGE"])
    place = pathlib.Path(BIN).resolve().parent
    with open(place / ".image.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([BIN, "image", "build", "--out", str(place / "image")], capture_output=True, text=True,
                              timeout=1200, check=False)
    assert done.returncode == 0, f"the image for virtual machines could not be made:\n{done.stderr}"
    return place / "image"
