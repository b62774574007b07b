# SPDX-License-Identifier: Apache-2.0
"""Templates as a way in: archives made to escape, files that were changed or put there by others, packages that write."""

import gzip
import io
import os
import sys
import tarfile
import tempfile

import pytest
from lib import template
from lib.daemon import PREFIX, Daemon, cli

pytestmark = pytest.mark.root

PACKAGES = f"usr/local/lib/python3.{sys.version_info.minor}/dist-packages"
PYTHON = "import cordon_planted; print(cordon_planted.NAME)"
SAYS = "planted\n"


def layer():
    return template.tar(
        template.member(f"{PACKAGES}/cordon_planted.py", b"NAME = 'planted'\n"),
        template.member("usr/local/bin/planted", b"#!/bin/sh\n", mode=0o4777),
        template.member("usr/bin/python3", b"not this one", mode=0o755),
        template.member("etc/passwd", b"root::0:0::/:/bin/sh\n"),
    )


@pytest.fixture(scope="module")
def served(nothing_left):
    with Daemon(pool_python=1, pool_python_data=0, pool_javascript=0, pool_bash=0, template_mb=64) as daemon:
        yield daemon
        roots = daemon.note_cgroups()
    assert not [root for root in roots if os.path.exists(root)]


@pytest.fixture
def planted(served):
    """A daemon with a template: (daemon, path of its file)."""
    base = f"{os.uname().machine} glibc-{os.confstr('CS_GNU_LIBC_VERSION').split()[1]}"
    return served, template.place(served.state, "planted", template.seal(layer(), base=base.encode()))


@pytest.fixture
def state(nothing_left):
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        os.chmod(folder, 0o700)
        yield folder


def files(state):
    return os.listdir(os.path.join(state, "templates"))


def says(answer):
    assert answer["outcome"]["cause"] == "exited" and answer["exit_code"] == 0, answer
    return answer["stdout"]


@pytest.mark.limit(200)
def test_guests_can_not_write_to_it(planted):
    daemon, _ = planted
    code = (
        "import cordon_planted, os\n"
        "here = os.path.dirname(cordon_planted.__file__)\n"
        "for path in (cordon_planted.__file__, here + '/new', '/usr/local/bin/new', '/usr/local/bin/planted'):\n"
        "    try:\n        open(path, 'w')\n        print('written', path)\n"
        "    except OSError as error:\n        print(error.errno)\n"
        "try:\n    os.unlink(cordon_planted.__file__)\n    print('gone')\nexcept OSError as error:\n    print(error.errno)\n"
        "print(oct(os.stat('/usr/local/bin/planted').st_mode & 0o7777))\n"
    )
    said = says(daemon.run(code, template="planted")).split()
    assert len(said) == 6 and set(said[:5]) <= {"30", "13", "1"} and said[5] == "0o755", said
    assert says(daemon.run(PYTHON, template="planted")) == SAYS


def test_a_layer_changes_nothing_but_its_own_places(planted):
    daemon, _ = planted
    code = "import sys; print(open('/etc/passwd').readline(), end=''); print(open(sys.executable, 'rb').read(4))"
    here, there = daemon.run(code, template="planted"), daemon.run(code)
    assert says(here) == says(there) and "nologin" in here["stdout"] and "ELF" in here["stdout"], here


@pytest.mark.weaken("template_digest")
@pytest.mark.limit(300)
@pytest.mark.parametrize("at", [-1, 16384 + 512, 200])
def test_a_changed_byte_is_refused_at_once_and_after_a_restart(planted, at):
    daemon, path = planted
    code = f"python3 -c '{PYTHON}'"
    assert says(daemon.run(code, "bash", template="planted")) == SAYS
    template.flip(path, at)
    for again in range(2):
        status, kind, message = daemon.refused(code, "bash", template="planted")
        assert (status, kind) == (503, "unavailable"), message
        assert "template planted" in message and "changed" in message, message
        if not again:
            daemon.restart()
    template.flip(path, at)
    assert says(daemon.run(code, "bash", template="planted")) == SAYS


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, b"CORDONT\0" + bytes(20000), os.urandom(40000)], ids=["empty", "short", "zeros", "random"]
)
def test_files_that_are_none_are_refused(served, data):
    template.place(served.state, "junk", data)
    status, kind, message = served.refused(template="junk")
    assert (status, kind) == (503, "unavailable") and "junk" in message, message


@pytest.mark.weaken("template_owner")
def test_what_others_could_have_put_there_is_not_trusted(planted):
    daemon, path = planted
    os.chown(path, 12345, 12345)
    assert "not trusted" in daemon.refused(template="planted")[2]
    os.chown(path, 0, 0)
    os.chmod(path, 0o666)
    assert "not trusted" in daemon.refused(template="planted")[2]
    os.unlink(path)
    os.symlink("/etc/passwd", path)
    assert daemon.refused(template="planted")[0] == 503
    os.unlink(path)
    folder = os.path.dirname(path)
    os.chown(folder, 12345, 12345)
    try:
        assert "not trusted" in daemon.refused(template="planted")[2]
    finally:
        os.chown(folder, 0, 0)


# --- archives ---


HOSTILE = {
    "dotdot": ([template.member("../escaped", b"x")], '".."'),
    "dotdot inside": ([template.member("usr/../../escaped", b"x")], '".."'),
    "absolute": ([template.member("/tmp/cordon-escaped", b"x")], "absolutely"),
    "behind a link": (
        [template.member("out", type=tarfile.SYMTYPE, linkname="/tmp"), template.member("out/cordon-escaped", b"x")],
        "out/cordon-escaped",
    ),
    "behind a relative link": (
        [template.member("out", type=tarfile.SYMTYPE, linkname="../../tmp"), template.member("out/escaped", b"x")],
        "out/escaped",
    ),
    "hard link outside": ([template.member("pw", type=tarfile.LNKTYPE, linkname="/etc/passwd")], "absolutely"),
    "hard link by dotdot": ([template.member("pw", type=tarfile.LNKTYPE, linkname="../../etc/passwd")], '".."'),
    "hard link to nothing": ([template.member("pw", type=tarfile.LNKTYPE, linkname="etc/shadow")], "pw"),
    "hard link through a link": (
        [
            template.member("out", type=tarfile.SYMTYPE, linkname="/etc"),
            template.member("pw", type=tarfile.LNKTYPE, linkname="out/passwd"),
        ],
        "pw",
    ),
    "long name": ([template.member("a/" * 2500 + "x", b"x")], "too long"),
}


@pytest.mark.weaken("unpack_names")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_members_refuse_the_whole_archive(state, case):
    members, words = HOSTILE[case]
    done = template.imported(state, template.tar(*template.bash_tree(), *members))
    assert done.status == 125 and words in done.errors, done
    assert files(state) == []
    assert not os.path.exists("/tmp/cordon-escaped")


@pytest.mark.weaken("unpack_types")
def test_devices_are_left_out_and_setuid_is_lost(state):
    members = [
        template.member("usr/dev0", type=tarfile.CHRTYPE, devmajor=1, devminor=5, mode=0o666),
        template.member("usr/disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o666),
        template.member("usr/pipe", type=tarfile.FIFOTYPE),
        template.member("usr/bin/su", b"#!/bin/bash\n", mode=0o6755, uid=0, gid=0),
        template.member("usr/open", b"x", mode=0o777),
        template.member("usr/link", type=tarfile.SYMTYPE, linkname="/etc/../../../etc/passwd"),
    ]
    done = template.imported(state, template.tar(*template.bash_tree(*members)))
    assert done.status == 0, done
    assert "left_out=3" in done.errors and "lost_bits=1" in done.errors, done
    code = (
        "for f in /usr/dev0 /usr/disk /usr/pipe; do [ -e $f ] && echo there $f; done\n"
        "[ -u /usr/bin/su ] && echo setuid; [ -g /usr/bin/su ] && echo setgid; [ -x /usr/bin/su ] && echo executable\n"
        "echo x >/usr/open || echo read-only\n"
        "read -r line </usr/link; echo ${line%%:*}"
    )
    run = cli("run", "--template", "tree", "--state", state, "-l", "bash", "-c", code)
    assert (run.status, run.text) == (0, "executable\nread-only\nroot\n"), run


def bomb(size):
    """A gzip of a tar with a file of nothing."""
    out = io.BytesIO()
    info = tarfile.TarInfo("usr/zeros")
    info.size = size
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as packed:
        packed.write(info.tobuf(tarfile.GNU_FORMAT))
        block = bytes(1 << 20)
        for _ in range(size >> 20):
            packed.write(block)
    return out.getvalue()


@pytest.mark.limit(200)
def test_bombs_end_at_the_limits(state):
    done = template.imported(state, bomb(1 << 28), template_mb=16)
    assert done.status == 125 and "CORDON_TEMPLATE_MB" in done.errors, done
    many = template.tar(*[template.member(f"usr/{i}") for i in range(5000)], mode="w:gz")
    done = template.imported(state, many, template_mb=16)
    assert done.status == 125 and "CORDON_TEMPLATE_MB" in done.errors, done
    done = template.imported(state, os.urandom(17 << 20), template_mb=16)
    assert done.status == 2 and "CORDON_TEMPLATE_MB" in done.errors, done
    assert files(state) == []


@pytest.mark.parametrize(
    "archive",
    [
        b"x",
        os.urandom(5000),
        template.tar(template.member("usr/bin/bash", b"x" * 100000))[:20000],
        template.tar(*template.bash_tree(), mode="w:gz")[:-5000],
        template.tar(template.member("etc/only", b"x")),
    ],
)
def test_what_is_no_archive_or_has_no_interpreter_is_refused(state, archive):
    done = template.imported(state, archive)
    assert done.status == 125 and done.errors, done
    assert files(state) == []
