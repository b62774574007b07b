# SPDX-License-Identifier: Apache-2.0
"""A disk that is soon full: for what must be told when nothing can be stored."""

import contextlib
import os
import subprocess
import tempfile

from .daemon import PREFIX


@contextlib.contextmanager
def small():
    """A folder of 2 MiB."""
    folder = tempfile.mkdtemp(prefix=PREFIX)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none", folder], check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True, timeout=30)
        os.rmdir(folder)


def fill(folder):
    """Takes what is left; the file to remove again."""
    path = os.path.join(folder, "ballast")
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return path
