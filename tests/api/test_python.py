# SPDX-License-Identifier: Apache-2.0
"""Python as its users know it, in guests that share nothing."""

import json
import subprocess
import tempfile

import pytest
from lib.client import artifacts

PYTHON = "/usr/bin/python3"


def plain(code, *, name="main.py"):
    """What plain python says of the same file."""
    with tempfile.TemporaryDirectory(prefix="cordon-plain-") as folder:
        path = f"{folder}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        done = subprocess.run([PYTHON, "-I", path], capture_output=True, text=True, timeout=30, check=False, cwd=folder)
    return done.stderr.replace(path, "FILE"), done.returncode


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return 1 / x\n\nf(0)\n",
        "import json\njson.loads('{')\n",
        "x = 1\nif x\n    pass\n",
        "raise SystemExit('a message')\n",
        "class E(Exception): pass\ntry:\n    {}['k']\nexcept KeyError as e:\n    raise E('outer') from e\n",
        "undefined_name\n",
        "  indented = 1\n",
        "print('unclosed\n",
        "def main():\n    raise ValueError('x')\nmain()\n",
        "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\n",
        "import sys\nsys.exit(None)\n",
        "raise KeyboardInterrupt\n",
        "eval('1 +')\n",
        "import warnings\nwarnings.warn('careful')\n",
        "'\\d'\n",
    ],
)
def test_tracebacks_are_those_of_plain_python(run, code):
    answer = run(code)
    said, status = plain(code)
    assert answer["stderr"].replace("/home/user/main.py", "FILE") == said
    expected = status if status >= 0 else 128 - status
    assert answer["exit_code"] == expected


def test_the_name_of_the_program(run):
    out = json.loads(
        run(

                "import sys, json\n"
                "print(json.dumps([__name__, sys.argv[1:], __file__, sys.path[0] in ('', '/home/user')]))"

        )["stdout"]
    )
    assert out == ["__main__", [], "/home/user/main.py", True]  # absolute since Python 3.9


def test_fresh_guests_share_no_files_and_no_globals(run):
    write = (
        "import os, builtins, sys\nopen('/tmp/mark', 'w').write('x'); "
        "open('mark', 'w').write('x')\nbuiltins.mark = 1; sys.modules['mark'] = sys; "
        "os.environ['MARK'] = '1'"
    )
    look = (
        "import os, builtins, sys\n"
        "print(os.path.exists('/tmp/mark'), os.path.exists('mark'), hasattr(builtins, 'mark'), 'mark' in sys.modules, "
        "'MARK' in os.environ, sorted(os.listdir('/tmp')), [n for n in sorted(os.listdir('.')) if n not in ('artifacts', 'main.py')])"
    )
    for _ in range(10):
        run(write)
        assert run(look)["stdout"] == "False False False False False [] []\n"


RANDOMS = {
    "random": "import random; print(random.random())",
    "numpy": "import numpy; print(numpy.random.rand(), numpy.random.default_rng().random())",
    "ssl": "import ssl; ssl.create_default_context(); print(ssl.RAND_bytes(16).hex())",
    "hashlib": "import os; print(os.urandom(16).hex())",
    "uuid4": "import uuid; print(uuid.uuid4())",
    "uuid1": "import uuid; print(uuid.uuid1())",
    "secrets": "import secrets; print(secrets.token_hex(16))",
    "tempfile": "import tempfile; print(tempfile.mktemp())",
    "system random": "import random; print(random.SystemRandom().random(), random.getrandbits(128))",
    "node": None,
}


@pytest.mark.parametrize("kind", RANDOMS)
def test_two_guests_never_draw_the_same(run, kind):
    language = "javascript" if kind == "node" else "python"
    code = (
        RANDOMS[kind] or "console.log(Math.random(), require('crypto').randomUUID(), require('crypto').randomBytes(8))"
    )
    drawn = [run(code, language)["stdout"] for _ in range(12)]
    assert len(set(drawn)) == 12, drawn


def test_numpy_preloaded_or_not_is_the_same_to_programs(run):
    assert run("import numpy as np; print(np.arange(6).reshape(2, 3).sum())")["stdout"] == "15\n"


def test_math_and_pandas_in_192_mb(run):
    code = "import math, pandas\nprint(pandas.DataFrame({'a': [1, 2, 3]}).a.sum(), math.pi)"
    answer = run(code, memory_mb=192)
    assert answer["stdout"].startswith("6 3.14") and answer["outcome"]["cause"] == "exited", answer


def test_matplotlib_without_a_display(run):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]); plt.title('t')\nplt.savefig('artifacts/plot.png')"
    answer = run(code, artifacts=True, memory_mb=512, timeout_s=60)
    assert answer["exit_code"] == 0, answer["stderr"]
    assert artifacts(answer)["plot.png"].startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "name,code,out",
    [
        (
            "threads",
            (
                "import threading\nr = []\n"
                "ts = [threading.Thread(target=r.append, args=(i,)) for i in range(8)]\n"
                "[t.start() for t in ts]; [t.join() for t in ts]\nprint(sorted(r))"
            ),
            "[0, 1, 2, 3, 4, 5, 6, 7]\n",
        ),
        (
            "multiprocessing",
            (
                "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
                "    with m.Pool(2) as p: print(p.map(f, range(5)))"
            ),
            "[0, 1, 4, 9, 16]\n",
        ),
        (
            "asyncio",
            (
                "import asyncio\nasync def f(i):\n    await asyncio.sleep(0.01); return i\n"
                "async def m(): return await asyncio.gather(*map(f, range(3)))\nprint(asyncio.run(m()))"
            ),
            "[0, 1, 2]\n",
        ),
        (
            "subprocess",
            (
                "import subprocess\n"
                "print(subprocess.run(['/usr/bin/python3', '-c', 'print(6*7)'], capture_output=True, text=True).stdout)"
            ),
            "42\n\n",
        ),
        ("shell", "import os\nprint(os.popen('echo hi | tr a-z A-Z').read())", "HI\n\n"),
        (
            "sqlite3",
            (
                "import sqlite3\nc = sqlite3.connect('/tmp/d.db'); c.execute('create table t(a)'); "
                "c.execute('insert into t values(5)'); c.commit()\n"
                "print(c.execute('select a from t').fetchone())"
            ),
            "(5,)\n",
        ),
        (
            "tempfile",
            (
                "import tempfile, os\n"
                "with tempfile.NamedTemporaryFile('w+', delete=False) as f: f.write('x')\n"
                "print(os.path.getsize(f.name))"
            ),
            "1\n",
        ),
        (
            "local sockets",
            (
                "import socket\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
                "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
                "c = socket.create_connection(s.getsockname()); p, _ = s.accept(); p.send(b'y'); "
                "print(c.recv(1))"
            ),
            "b'x'\nb'y'\n",
        ),
        (
            "signals",
            (
                "import signal\nsignal.signal(signal.SIGALRM, lambda *a: print('rang'))\n"
                "signal.setitimer(signal.ITIMER_REAL, 0.05)\nsignal.pause()"
            ),
            "rang\n",
        ),
        ("mmap", "import mmap\nm = mmap.mmap(-1, 4096); m[:2] = b'ok'; print(m[:2])", "b'ok'\n"),
        ("ctypes", "import ctypes\nprint(ctypes.CDLL(None).abs(-3))", "3\n"),
        (
            "dates",
            (
                "import datetime, zoneinfo\n"
                "print(datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())"
            ),
            "2:00:00\n",
        ),
        (
            "shared memory",
            (
                "from multiprocessing import shared_memory\n"
                "s = shared_memory.SharedMemory(create=True, size=10); s.buf[0] = 7; print(s.buf[0]); "
                "s.close(); s.unlink()"
            ),
            "7\n",
        ),
        (
            "futures",
            (
                "from concurrent.futures import ProcessPoolExecutor as P\ndef f(x): return x + 1\n"
                "if __name__ == '__main__':\n    with P(2) as p: print(list(p.map(f, [1, 2])))"
            ),
            "[2, 3]\n",
        ),
        (
            "dataclass, pickle",
            (
                "import pickle, dataclasses\n@dataclasses.dataclass\nclass A: x: int\n"
                "print(pickle.loads(pickle.dumps(A(3))))"
            ),
            "A(x=3)\n",
        ),
        ("locale", "print('\\u00e9\\u20ac', open('/tmp/x', 'w').encoding.lower())", "\u00e9\u20ac utf-8\n"),
        ("inspect", "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))", "def f(): return 1\n\n"),
        (
            "traceback source",
            "import traceback\ntry: 1/0\nexcept Exception: print('1/0' in traceback.format_exc())",
            "True\n",
        ),
    ],
)
def test_the_library_works(run, name, code, out):
    answer = run(code, timeout_s=30, memory_mb=512)
    assert answer["stdout"] == out, (name, answer["stderr"], answer["outcome"])
    assert answer["exit_code"] == 0


def test_hash_seed_may_be_shared_but_a_fresh_interpreter_can_be_had(daemon):
    answer = daemon.post({"language": "python", "code": "print(hash('x'))", "fresh_interpreter": True})
    if answer.status == 400:
        pytest.skip("the native door has no field fresh_interpreter")
    seeds = {daemon.run("print(hash('x'))", fresh_interpreter=True)["stdout"] for _ in range(4)}
    assert len(seeds) > 1


def test_stdout_is_text_and_line_numbers_are_right(run):
    answer = run("\n\n\nraise ValueError\n")
    assert "line 4" in answer["stderr"]


def test_identity_in_the_guest(run):
    code = (
        "import os, pwd, json, socket\n"
        "print(json.dumps([os.getuid(), os.getgid(), os.getgroups(), os.getcwd(), os.path.expanduser('~'), pwd.getpwuid(os.getuid()).pw_name]))"
    )
    uid, gid, groups, cwd, home, name = json.loads(run(code)["stdout"])
    assert uid == 1000 and gid == 1000 and groups in ([], [1000]) and cwd == home == "/home/user" and name == "user"


def test_no_bytecode_or_driver_files_lie_around(run):
    files = {"helper.py": "v = 1"}
    answer = run(
        "import helper, os\nprint(sorted(n for n in os.listdir('.') if n not in ('artifacts', '__pycache__', 'main.py')))",
        files=files,
    )
    assert answer["stdout"] == "['helper.py']\n"


@pytest.mark.parametrize("fields", [{}, {"arguments": {}}])
def test_multiprocessing_of_all_kinds(run, fields):
    answer = run(
        "import multiprocessing\n"
        "def square(x): return x * x\n"
        "def main():\n"
        "    for kind in ('fork', 'spawn', 'forkserver'):\n"
        "        with multiprocessing.get_context(kind).Pool(2) as pool:\n"
        "            print(pool.map(square, range(3)))\n"
        "if __name__ == '__main__':\n"
        "    main()\n",
        **fields,
    )
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("[0, 1, 4]\n" * 3, "", 0), answer
