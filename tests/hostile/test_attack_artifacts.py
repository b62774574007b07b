# SPDX-License-Identifier: Apache-2.0
"""Attacks by way of artifacts: what lies in artifacts/, and what becomes of it, while the agent collects."""

import pytest
from lib.attack import exited
from lib.client import artifacts, dropped
from lib.pace import stretched

pytestmark = pytest.mark.each_backend

# What lies in artifacts/ when the agent collects: name, program, may anything come back?
ARTIFACT_TRAPS = {
    "link to a host file": "os.symlink('/etc/passwd', 'artifacts/x')",
    "link to shadow": "os.symlink('/etc/shadow', 'artifacts/x')",
    "link to the agent": "os.symlink('/proc/1/environ', 'artifacts/x')",
    "link to own memory": "os.symlink('/proc/self/mem', 'artifacts/x')",
    "link to a folder": "os.symlink('/etc', 'artifacts/x')",
    "link to the root": "os.symlink('/', 'artifacts/x')",
    "link loop": "os.symlink('x', 'artifacts/x')",
    "chain of links": (
        "[os.symlink(f'l{i + 1}', f'artifacts/l{i}') for i in range(60)]; os.symlink('/etc/passwd', 'artifacts/l60')"
    ),
    "fifo": "os.mkfifo('artifacts/x')",
    "socket": "s = socket.socket(socket.AF_UNIX); s.bind('artifacts/x')",
    "unreadable": "open('artifacts/x', 'w').write('y'); os.chmod('artifacts/x', 0)",
    "unreadable folder": "os.mkdir('artifacts/d'); open('artifacts/d/x', 'w').write('y'); os.chmod('artifacts/d', 0)",
    "folder replaced by a link to the root": "os.rmdir('artifacts'); os.symlink('/', 'artifacts')",
    "folder replaced by a link to etc": "os.rmdir('artifacts'); os.symlink('/etc', 'artifacts')",
    "folder replaced by a file": "os.rmdir('artifacts'); open('artifacts', 'w').write('y')",
    "folder replaced by a fifo": "os.rmdir('artifacts'); os.mkfifo('artifacts')",
    "folder gone": "os.rmdir('artifacts')",
    "working folder moved": "said(moved=attempt(os.rename, '/home/user/artifacts', '/home/user/gone'))",
}


@pytest.mark.weaken("artifact_links")
@pytest.mark.parametrize("trap", ARTIFACT_TRAPS)
def test_artifact_traps(backend, trap):
    answer, _ = backend.attack(ARTIFACT_TRAPS[trap] + "\nprint('done', flush=True)", artifacts=True)
    exited(answer)
    returned = artifacts(answer)
    assert all(b"root:" not in content for content in returned.values())
    assert all(content in (b"y", b"") for content in returned.values()), returned
    assert answer["timing"]["total_ms"] < stretched(5000)


def test_sparse_artifact_of_a_tebibyte(backend):
    answer, _ = backend.attack(
        (
            "f = open('artifacts/huge', 'wb'); said(size=attempt(f.truncate, 1 << 40)); f.close(); "
            "open('artifacts/small', 'w').write('s')"
        ),
        artifacts=True,
    )
    exited(answer)
    assert artifacts(answer) == {"small": b"s"}
    assert "huge" in dropped(answer) or answer["outcome"]["artifacts_dropped"] == 0
    assert answer["timing"]["total_ms"] < stretched(5000)


def test_hundred_thousand_files(backend):
    answer, _ = backend.attack(
        """
n = 0
try:
    while n < 100000: open(f'artifacts/f{n}', 'w').close(); n += 1
except OSError as e: said(error=_name(e.errno))
said(n=n)
""",
        artifacts=True,
        timeout_s=30,
    )
    exited(answer)
    assert len(artifacts(answer)) <= 64 and answer["outcome"]["artifacts_dropped"] >= 1
    assert answer["timing"]["total_ms"] < stretched(20000)


def test_deep_folders(backend):
    answer, _ = backend.attack(
        """
os.chdir('artifacts')
depth = 0
try:
    while depth < 20000: os.mkdir('d'); os.chdir('d'); depth += 1
except OSError as e: said(error=_name(e.errno))
attempt(lambda: open('bottom', 'w').write('x'))
said(depth=depth)
""",
        artifacts=True,
    )
    exited(answer)
    assert answer["timing"]["total_ms"] < stretched(10000)


NAMES = [
    b"\n",
    b"a\nb",
    b"..x",
    b"...",
    b"\x1b[2J",
    b"x" * 255,
    b"\xff\xfe",
    b"-",
    b"~",
    b"*",
    b"$(id)",
    b"`id`",
    b"a;b",
]
NAMES += [b"%00", b"con", b"a\\..\\b", "\u202e".encode()]


@pytest.mark.parametrize("name", NAMES)
def test_artifact_names(backend, name):
    answer, _ = backend.attack(f"open(b'artifacts/' + {name!r}, 'w').close()", artifacts=True)
    exited(answer)
    for returned in artifacts(answer):
        assert not returned.startswith("/") and ".." not in returned.split("/") and "\0" not in returned
    assert len(artifacts(answer)) + answer["outcome"]["artifacts_dropped"] == 1


def test_files_swapped_while_they_are_read(backend):
    """A survivor that goes on swapping would race the collector; the code's processes are killed before."""
    answer, _ = backend.attack(
        """
open('artifacts/x', 'w').write('fine')
if os.fork() == 0:
    os.setsid()
    while True:
        attempt(os.symlink, '/etc/passwd', 'artifacts/t'); attempt(os.rename, 'artifacts/t', 'artifacts/x')
        attempt(lambda: open('artifacts/u', 'w').write('fine')); attempt(os.rename, 'artifacts/u', 'artifacts/x')
time.sleep(0.2)
os._exit(0)
""",
        artifacts=True,
    )
    exited(answer)
    assert all(b"root:" not in content for content in artifacts(answer).values())


def test_growing_file_while_it_is_read(backend):
    answer, _ = backend.attack(
        """
if os.fork() == 0:
    os.setsid()
    f = open('artifacts/grow', 'ab', 0)
    while True: attempt(f.write, b'x' * 4096)
time.sleep(0.2)
os._exit(0)
""",
        artifacts=True,
    )
    exited(answer)
    for entry in answer["artifacts"]:
        if "content_b64" in entry:
            assert entry["size"] == len(artifacts(answer)[entry["name"]])


@pytest.mark.weaken("kill_orphans")
def test_survivors_do_not_write_while_artifacts_are_read(backend):
    """A survivor writes one number to 60 files in turn. Seen at one moment, they differ by one at most, in that order."""
    answer, _ = backend.attack(
        """
fds = [os.open(f'artifacts/{i:02}', os.O_RDWR | os.O_CREAT) for i in range(60)]
if os.fork() == 0:
    os.setsid()
    for number in range(10**8, 10**9):
        for fd in fds: os.pwrite(fd, b'%d' % number, 0)
while not os.pread(fds[-1], 1, 0): time.sleep(0.01)
time.sleep(0.1)  # it goes on
os._exit(0)
""",
        artifacts=True,
    )
    exited(answer)
    numbers = [int(content) for _, content in sorted(artifacts(answer).items())]
    assert len(numbers) == 60 and numbers == sorted(numbers, reverse=True) and numbers[0] - numbers[-1] <= 1, numbers


def test_hard_links_by_the_thousand(backend):
    answer, _ = backend.attack(
        (
            "open('artifacts/a', 'wb').write(b'x' * (4 << 20))\n"
            "for i in range(1000): attempt(os.link, 'artifacts/a', f'artifacts/l{i}')"
        ),
        artifacts=True,
    )
    exited(answer)
    assert sum(map(len, artifacts(answer).values())) <= 32 << 20 and answer["outcome"]["artifacts_dropped"] > 900
