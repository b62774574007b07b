# SPDX-License-Identifier: Apache-2.0
"""The interpreters' drivers and the zygote, with the agent and the warden played by interpreter_peers."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interpreter_peers as peers  # noqa: E402
import pytest_tap  # noqa: E402
from interpreter_peers import FreshDriver, Guest, Pipes, Zygote, job  # noqa: E402

EXTENSION = os.environ.get("CORDON_ZYGOTE_EXT", os.path.join(peers.ROOT, "build/src/agent/_cordon_zygote.so"))
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root: makes namespaces for a uid of its own")
HAS_DATA = subprocess.run([peers.PYTHON, "-Ic", "import numpy, pandas, matplotlib"], capture_output=True).returncode == 0
needs_data = pytest.mark.skipif(not HAS_DATA, reason="python3-numpy, python3-pandas or python3-matplotlib is not installed")


@pytest.fixture(scope="module")
def guest():
    guest = Guest()
    yield guest
    guest.close()


@pytest.fixture(scope="module")
def zygote():
    zygote = Zygote("python", EXTENSION)
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def data_zygote():
    zygote = Zygote("data", EXTENSION)
    yield zygote
    zygote.close()


@pytest.fixture(params=["forked", "fresh"])
def run(request):
    """run(code, **options): a Python program's outcome, from a zygote's fork and from an executed interpreter."""
    if request.param == "fresh":
        return lambda code, **options: FreshDriver("python", cwd=options.pop("home", None)).run(code, **options)
    if not ROOT:
        pytest.skip("needs root: makes namespaces for a uid of its own")
    zygote, guest = request.getfixturevalue("zygote"), request.getfixturevalue("guest")
    return lambda code, **options: zygote.run(guest, code, **options)


@pytest.fixture
def run_alone(run, request):
    """The same in a guest of its own: what the program leaves running ends later, and its process 1 tells of it."""
    if request.node.callspec.params["run"] == "fresh":
        yield run
        return
    guest = Guest()
    yield lambda code, **options: request.getfixturevalue("zygote").run(guest, code, **options)
    guest.close()


def plain(code, *arguments):
    """What plain python makes of the same program."""
    return subprocess.run([peers.PYTHON, "-I", "-c", code, *arguments], capture_output=True, text=True)


# --- a script ---

def test_script_prints(run):
    outcome = run("print(1)\nimport sys\nprint('two', file=sys.stderr)")
    assert (outcome.out, outcome.err, outcome.exit, outcome.status) == ("1\n", "two\n", 0, 0)
    assert outcome.result_text is None and outcome.result_error is None


def test_script_is_main(run):
    outcome = run("""
import sys, __main__
assert __name__ == '__main__' and __main__ is sys.modules['__main__'] and __main__.x if 'x' in dir() else True
x = 1
print(__main__.x, sys.argv, __file__.endswith('/main.py'), __spec__, sys.path[0] == __import__('os').getcwd())
print(sorted(name for name in globals() if name != 'x'))
""")
    assert outcome.out.splitlines()[0] == "1 ['main.py'] True None True"
    assert "driver" not in outcome.out and "zygote" not in outcome.out
    assert set(json.loads(outcome.out.splitlines()[1].replace("'", '"'))) <= {
        "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__",
        "__annotations__", "__main__", "sys"}


def test_traceback_is_that_of_plain_python(run):
    code = "def f(a):\n    return a / 0\n\n\ntry:\n    f(1)\nexcept ZeroDivisionError as e:\n    raise ValueError('é') from e\n"
    with open("/tmp/cordon-test-main.py", "w") as file:
        file.write(code)
    try:
        expected = subprocess.run([peers.PYTHON, "-I", "/tmp/cordon-test-main.py"], capture_output=True, text=True).stderr
    finally:
        os.unlink("/tmp/cordon-test-main.py")
    outcome = run(code)
    assert re.sub(r"/\S*/main.py", "FILE", outcome.err) == expected.replace("/tmp/cordon-test-main.py", "FILE")
    assert (outcome.exit, outcome.stdout) == (1, b"")


def test_syntax_error_shows_the_line(run):
    outcome = run("x = 1\ny = = 2\n")
    assert 'main.py", line 2\n    y = = 2\n' in outcome.err and "Traceback" not in outcome.err
    assert outcome.exit == 1


def test_source_of_another_encoding(run):
    outcome = run("# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n1/0  # \xe9".encode("latin-1"))
    assert outcome.out == "'\\xe9'\n" and "1/0  # é" in outcome.err


def test_source_that_is_no_text(run):
    outcome = run(b"print('\xff')")
    assert "SyntaxError" in outcome.err and outcome.exit == 1
    outcome = run(b"print(1)\0")
    assert "null byte" in outcome.err and outcome.exit == 1


def test_empty_source(run):
    assert run("").exit == 0


@pytest.mark.parametrize("statement, code", [
    ("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("sys.exit(-1)", 255), ("sys.exit(256)", 0),
    ("sys.exit(True)", 1), ("sys.exit(1 << 70)", 255), ("raise SystemExit(4)", 4), ("quit(5)", 5), ("1/0", 1)])
def test_exit_codes(run, statement, code):
    outcome = run("import sys\n" + statement)
    assert outcome.exit == code and os.waitstatus_to_exitcode(outcome.status if outcome.status > 255 else 0) in (0, code)


def test_exit_with_text(run):
    outcome = run("import sys\nsys.exit('so long\\xe9')")
    assert (outcome.err, outcome.exit) == ("so longé\n", 1)


def test_os_exit_and_signals_are_not_announced(run):
    for code, status in (("import os; print('x'); os._exit(7)", 7), ("import os; os.abort()", -6),
                         ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
                         ("import ctypes; ctypes.string_at(0)", -11)):
        outcome = run(code)
        assert outcome.exit is None
        # Popen's form from the fresh one, wait's from the forked one
        assert outcome.status in (status, status << 8 if status > 0 else -status, -status | 0x80)


def test_keyboard_interrupt(run):
    outcome = run("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)")
    assert outcome.err.rstrip().endswith("KeyboardInterrupt") and outcome.exit is None
    assert outcome.status in (-2, 2)


# --- streams ---

def test_bytes_arrive_unharmed(run):
    outcome = run("import sys\nsys.stdout.buffer.write(bytes(range(256)))\nprint('\\udcff\\x00end', end='')")
    assert outcome.stdout == bytes(range(256)) + b"\xff\0end"


def test_stdin(run):
    outcome = run("import sys\nprint(input())\nprint(sys.stdin.read())", stdin="grüß\nb\udcffc".encode("utf-8", "surrogateescape"))
    assert outcome.stdout == "grüß\nb\udcffc\n".encode("utf-8", "surrogateescape")
    assert run("import sys\nprint(repr(sys.stdin.read()))").out == "''\n"
    assert "EOFError" in run("input()").err


def test_output_streams_line_by_line(run):
    code = "import sys, time\nprint('first')\nsys.stdin.readline()\nprint('second')"
    pipes = None
    try:
        if run.__closure__ and "zygote" in run.__code__.co_freevars:
            cells = dict(zip(run.__code__.co_freevars, (c.cell_contents for c in run.__closure__)))
            pipes = cells["zygote"].fork(cells["guest"])
            done = cells["guest"].status
        else:
            driver = FreshDriver("python")
            pipes, done = driver.pipes, driver.child.wait
        pipes.wait_ready()
        pipes.driver.sendall(job(code))
        assert os.read(pipes.stdout, 100) == b"first\n"
        os.write(pipes.stdin, b"\n")
        assert os.read(pipes.stdout, 100) == b"second\n"
        done()
    finally:
        os.close(pipes.stdin)
        pipes.close()


def test_large_output(run):
    outcome = run("import sys\nfor i in range(160):\n    sys.stdout.write(chr(97 + i % 26) * 65536)")
    assert len(outcome.stdout) == 160 * 65536 and outcome.exit == 0
    assert outcome.stdout == b"".join(bytes([97 + i % 26]) * 65536 for i in range(160))


def test_stderr_escapes_what_it_can_not_encode(run):
    assert run("import sys\nprint('\\ud800', file=sys.stderr)").err == "\\ud800\n"


def test_flush_that_fails_gives_120(run):
    outcome = run("import sys, os\nsys.stdout.write('x')\nos.close(1)")
    assert outcome.exit == 120 and "Bad file descriptor" in outcome.err


def test_replaced_stdout_is_left_alone(run):
    outcome = run("import sys, io\nsys.stdout.write('kept')\nsys.stdout = io.StringIO()\nprint('lost')")
    assert (outcome.out, outcome.exit) == ("kept", 0)
    assert run("import sys\nsys.stdout.close()").exit == 0
    assert run("import sys\nsys.stdout = sys.stderr = None\n1/0").exit == 1


# --- the end ---

def test_threads_and_atexit_and_destructors_in_order(run):
    outcome = run("""
import atexit, threading, time
class Thing:
    def __init__(self): self.me = self
    def __del__(self): print('destructor')
thing = Thing(); plain = open('out.txt', 'w'); plain.write('kept')
atexit.register(print, 'atexit')
threading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('main')
""")
    assert outcome.out.split() == ["main", "thread", "atexit", "destructor"] and outcome.exit == 0


def test_files_that_were_not_closed_are_written(run, tmp_path):
    outcome = run("f = open('/tmp/cordon-test-kept', 'w'); f.write('kept')")
    assert outcome.exit == 0
    if os.path.exists("/tmp/cordon-test-kept"):
        with open("/tmp/cordon-test-kept") as file:
            assert file.read() == "kept"
        os.unlink("/tmp/cordon-test-kept")
    else:
        assert run("print(open('/tmp/cordon-test-kept').read())").out == "kept\n"


def test_exception_in_thread(run):
    outcome = run("import threading\ndef f():\n    1/0\nt = threading.Thread(target=f, name='T')\nt.start()\nt.join()")
    assert "Exception in thread T:\nTraceback (most recent call last):\n" in outcome.err
    assert 'main.py", line 3, in f\n    1/0\n' in outcome.err and outcome.exit == 0
    assert run("import threading, sys\nthreading.Thread(target=sys.exit).start()").err == ""


def test_own_excepthook(run):
    outcome = run("import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1/0")
    assert (outcome.out, outcome.err, outcome.exit) == ("hook ZeroDivisionError\n", "", 1)
    outcome = run("import sys\ndef hook(*a):\n    raise KeyError('h')\nsys.excepthook = hook\n1/0")
    assert "Error in sys.excepthook:" in outcome.err and "Original exception was:" in outcome.err


def test_failing_atexit_does_not_change_the_code(run):
    outcome = run("import atexit\natexit.register(lambda: 1/0)")
    assert "ZeroDivisionError" in outcome.err and outcome.exit == 0


# --- children of the program ---

def test_fork_does_not_speak_for_the_program(run):
    outcome = run("import os, sys\nif os.fork() == 0:\n    print('child')\n    sys.exit(9)\nprint(os.wait()[1] >> 8)")
    assert outcome.out == "child\n9\n" and outcome.exit == 0
    outcome = run("import os\nif os.fork() == 0:\n    1/0\nos.wait()\nprint('parent')")
    assert outcome.out == "parent\n" and outcome.exit == 0 and "ZeroDivisionError" in outcome.err


def test_fork_reseeds(run):
    outcome = run("""
import os, random
random.seed(1)
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, repr(random.random()).encode()); os._exit(0)
os.wait(); print(os.read(r, 100).decode() != repr(random.random()))
""")
    assert outcome.out == "True\n"


@pytest.mark.parametrize("kind", ["multiprocessing.Pool(2)", "concurrent.futures.ProcessPoolExecutor(2)"])
def test_process_pools(run, kind):
    outcome = run(f"""
import multiprocessing, concurrent.futures
multiprocessing.set_start_method('fork', force=True)
def square(x): return x * x
if __name__ == '__main__':
    with {kind} as pool:
        print(list(pool.map(square, range(5))))
""")
    assert (outcome.out, outcome.err, outcome.exit) == ("[0, 1, 4, 9, 16]\n", "", 0)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("arguments", [None, {}])
def test_processes_that_import_the_program(run_alone, method, arguments):
    outcome = run_alone(f"""
import multiprocessing
def square(x): return x * x
def main():
    with multiprocessing.get_context('{method}').Pool(2) as pool:
        print(pool.map(square, range(5)), flush=True)
if __name__ == '__main__':
    main()
""", arguments=arguments)
    assert (outcome.out, outcome.err, outcome.exit) == ("[0, 1, 4, 9, 16]\n", "", 0)


def test_program_is_in_its_file(run):
    code = "import os, subprocess, sys\nprint(open(__file__).read().count('import'), oct(os.stat(__file__).st_mode))\n" \
        "sys.argv[1:] or subprocess.run([sys.executable, __file__, 'again'])"
    assert run(code).out.splitlines() == ["2 0o100644"] * 2


@pytest.mark.parametrize("language, code", [("python", "print(len(open(__file__).read()))"),
                                            ("javascript", "console.log(require('fs').statSync(__filename).size)")])
def test_programs_file_changes_no_folder(language, code, tmp_path):
    if language == "javascript" and not os.path.exists(peers.NODE):
        pytest.skip(f"{peers.NODE} is not installed")
    driver = FreshDriver(language, cwd=str(tmp_path))
    driver.pipes.wait_ready()
    before = os.stat(tmp_path).st_ctime_ns
    time.sleep(0.02)
    driver.pipes.wait_ready = lambda: None
    assert driver.run(code).out == f"{len(code)}\n" and os.stat(tmp_path).st_ctime_ns == before


def test_put_file_of_the_programs_name_stays(tmp_path):
    (tmp_path / "main.py").write_text("put before")
    look = "print(open(__file__).read())"
    assert FreshDriver("python", cwd=str(tmp_path)).run(look).out == "put before\n"
    (tmp_path / "main.py").unlink()
    driver = FreshDriver("python", cwd=str(tmp_path))
    driver.pipes.wait_ready()
    assert (tmp_path / "main.py").read_text() == ""
    (tmp_path / "main.py").write_text("put while parked")  # as the worker does: the file that is there, cut off
    driver.pipes.wait_ready = lambda: None
    assert driver.run(look).out == "put while parked\n"
    (tmp_path / "main.py").unlink()
    (tmp_path / "other").write_text("x")
    (tmp_path / "main.py").symlink_to("other")
    assert FreshDriver("python", cwd=str(tmp_path)).run("print(1)").out == "1\n"
    assert (tmp_path / "other").read_text() == "x"


@pytest.mark.skipif(not ROOT, reason="needs root: mounts a file system that is full")
@pytest.mark.parametrize("language, code", [("python", "import os\nprint(os.listdir('.'))"),
                                            ("javascript", "console.log(require('fs').readdirSync('.'))")])
def test_no_room_for_the_programs_file(language, code, tmp_path):
    if language == "javascript" and not os.path.exists(peers.NODE):
        pytest.skip(f"{peers.NODE} is not installed")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8192", "none", str(tmp_path)], check=True)
    try:
        filler = "#" if language == "python" else "//"
        outcome = FreshDriver(language, cwd=str(tmp_path)).run(code + "\n" + filler + "x" * 20000)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert (outcome.out, outcome.err, outcome.exit) == ("[]\n", "", 0)


def test_driver_channel_is_not_inherited(run):
    outcome = run("import subprocess, sys\nsubprocess.run(['/bin/ls', '/proc/self/fd'], close_fds=False)")
    assert outcome.out.split() == ["0", "1", "2", "3"]  # 3 is the folder itself
    assert run("import os\nprint(sorted(os.listdir('/proc/self/fd')))").out == "['0', '1', '2', '3', '4']\n"


def test_pickle_and_dataclass_and_inspect_of_main(run):
    outcome = run("""
import pickle, inspect, dataclasses, typing
@dataclasses.dataclass
class Point:
    x: int
    y: 'typing.Optional[int]' = None
assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
print(typing.get_type_hints(Point)['x'], inspect.getsource(Point).count('\\n'), Point.__module__)
""")
    assert outcome.out == "<class 'int'> 4 __main__\n"


# --- the interpreter is as a new one ---

def test_environment_is_only_what_was_given(run):
    outcome = run("import os\nprint(dict(os.environ))\nos.system('env')", env=["A=b=c", "HOME=/x", "EMPTY="], cpu_percent=150)
    seen = eval(outcome.out.splitlines()[0])
    assert seen["A"] == "b=c" and seen["HOME"] == "/x" and seen["EMPTY"] == "" and seen["OMP_NUM_THREADS"] == "2"
    assert "SECRET_OF_THE_HOST" not in outcome.out and "PYTHONPATH" not in seen
    assert {line.split("=")[0] for line in outcome.out.splitlines()[1:]} - {"PWD", "SHLVL", "_"} == set(seen)


def test_time_zone(run):
    assert run("import time\nprint(time.localtime(0).tm_hour)", env=["TZ=XYZ-5"]).out == "5\n"


def test_state_of_preloaded_modules(run):
    outcome = run("""
import gc, sys, signal, logging, decimal, warnings, locale, random, threading, tempfile, os
print(gc.isenabled(), gc.get_threshold() == (700, 10, 10) or gc.get_threshold(), sys.getrecursionlimit())
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
      signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(logging.root.handlers, logging.root.level, decimal.getcontext().prec, sys.gettrace(), sys.getprofile())
print(threading.main_thread() is threading.current_thread(), threading.active_count(),
      threading.main_thread().native_id == os.getpid(), tempfile.gettempdir())
print(sys.stdin.encoding, sys.stdout.encoding, sys.getfilesystemencoding(), sys.stdout.line_buffering, sys.stdout.name)
print([name for name in sys.modules if 'cordon' in name or name in ('driver', 'zygote')])
""")
    assert outcome.out.splitlines() == ["True True 1000", "True True True set()", "[] 30 28 None None"[:2] + " 30 28 None None",
                                        "True 1 True /tmp", "utf-8 utf-8 utf-8 True <stdout>", "[]"], outcome.err


def test_sigpipe_of_the_program(run):
    outcome = run("import os\nr, w = os.pipe()\nos.close(r)\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError:\n    print('as python does')")
    assert outcome.out == "as python does\n"


def test_modules_of_the_program_come_first(run):
    outcome = run("""
import sys, os, subprocess
for name in ('driver', 'random', 'queue'):
    with open(name + '.py', 'w') as file: file.write('mine = True')
import driver
print(driver.mine)
""")
    assert outcome.out == "True\n", outcome.err


def test_shadowing_file_that_is_there_before(tmp_path):
    (tmp_path / "statistics.py").write_text("mine = 1")
    (tmp_path / "json.py").write_text("mine = 2")
    outcome = FreshDriver("python", cwd=str(tmp_path)).run("import statistics, json\nprint(statistics.mine, json.mine)")
    assert outcome.out == "1 2\n", outcome.err
    outcome = FreshDriver("python", cwd=str(tmp_path)).run("import json\ndef main(): return [json.mine]", arguments={})
    assert outcome.result == [2]


@needs_root
def test_shadowing_file_in_a_forks_directory(zygote, guest):
    zygote.run(guest, "open('statistics.py', 'w').write('mine = 1')")
    assert zygote.run(guest, "import statistics\nprint(statistics.mine)\nimport os\nos.unlink('statistics.py')").out == "1\n"


def test_working_directory(run):
    outcome = run("import os, sys\nprint(os.getcwd(), sys.path[0], __file__)", cwd="/usr")
    assert outcome.out == "/usr /usr /usr/main.py\n"


# --- main ---

def test_main_returns_json(run):
    outcome = run("def main(a, b=2):\n    print('said')\n    return {'sum': a + b, 'text': 'é', 'list': (1, None, True)}",
                  arguments={"a": 40})
    assert outcome.result_text == '{"sum":42,"text":"é","list":[1,null,true]}'
    assert (outcome.out, outcome.exit, outcome.result_error) == ("said\n", 0, None)


def test_main_none_and_empty_arguments(run):
    assert run("def main(): pass", arguments={}).result_text == "null"


def test_main_async(run):
    outcome = run("import asyncio\nasync def main(n):\n    await asyncio.sleep(0)\n    return n", arguments={"n": 1})
    assert outcome.result == 1
    assert run("class A:\n    def __await__(self):\n        yield from ()\n        return 5\ndef main(): return A()",
               arguments={}).result == 5


def test_main_not_a_number(run):
    outcome = run("def main(): return {'a': [float('nan'), float('inf'), -float('inf'), 1.5], float('nan'): ({'x': float('nan')},)}",
                  arguments={})
    assert outcome.result == {"a": [None, None, None, 1.5], "NaN": [{"x": None}]} or outcome.result["a"] == [None] * 3 + [1.5]
    assert "NaN" not in outcome.result_text.replace('"NaN"', "").replace('"nan"', "")


@pytest.mark.parametrize("value, kind", [
    ("{1, 2}", "TypeError"), ("object()", "TypeError"), ("(lambda l: (l.append(l), l)[1])([])", "ValueError"),
    ("{(1,): 2}", "TypeError"), ("b'x'", "TypeError"), ("float", "TypeError"), ("{'a': {1}, 'b': float('nan')}", "TypeError"),
    ("(lambda f: f(f, 100000))(lambda f, n: eval('[' * 0 + '[]'))", None)])
def test_main_values_that_are_not_json(run, value, kind):
    outcome = run(f"def main(): return {value}", arguments={})
    if kind is None:
        assert outcome.result == []
        return
    assert outcome.result_text is None and outcome.exit == 1
    assert outcome.result_error.startswith(f"main() returned a value that is not JSON: {kind}: "), outcome.result_error


def test_main_nested_too_deep(run):
    outcome = run("def main():\n    x = []\n    for _ in range(100000): x = [x]\n    return x", arguments={})
    assert outcome.result_error.startswith("main() returned a value that is not JSON: RecursionError") and outcome.exit == 1


def test_main_half_a_surrogate_pair(run):
    assert run("def main(): return 'a\\ud800b'", arguments={}).result_text == '"a\\ud800b"'


def test_main_large_result(run):
    outcome = run("def main(): return 'x' * (10 << 20)", arguments={})
    assert len(outcome.result) == 10 << 20
    outcome = run("def main(): return 'x' * (17 << 20)", arguments={})
    assert "more than" in outcome.result_error and outcome.exit == 1


def test_main_is_missing(run):
    outcome = run("x = 1", arguments={})
    assert "no function main()" in outcome.result_error and outcome.exit == 1 and outcome.result_error in outcome.err
    assert "no function main()" in run("main = 5", arguments={}).result_error


@pytest.mark.parametrize("arguments", ["[1]", "null", "5", "{", ""])
def test_arguments_must_be_an_object(run, arguments):
    outcome = run("def main(): return 1", arguments=arguments)
    assert "arguments" in outcome.result_error and outcome.exit == 1


def test_main_called_wrongly_or_raising(run):
    outcome = run("def main(a): return a", arguments={"b": 1})
    assert "unexpected keyword argument 'b'" in outcome.err and outcome.exit == 1 and "TypeError" in outcome.result_error
    outcome = run("def main():\n    raise KeyError('k')", arguments={})
    assert 'main.py", line 2, in main\n' in outcome.err and "driver" not in outcome.err
    assert outcome.result_error and outcome.exit == 1
    assert run("import sys\ndef main(): sys.exit(3)", arguments={}).exit == 3


def test_main_module_names(run):
    outcome = run("""
import pickle, sys, main as me, __main__
def main(): return [__name__, me is __main__, pickle.loads(pickle.dumps(helper)) is helper]
def helper(): pass
if __name__ == '__main__': print('not this')
""", arguments={})
    assert outcome.result == ["main", True, True] and outcome.out == ""


def test_printing_is_no_result(run):
    outcome = run("import sys\nprint('{\"forged\": 1}')\ndef main(): return 2", arguments={})
    assert outcome.result == 2


def test_replaced_json_module(run):
    outcome = run("import json\njson.dumps = json.loads = None\nimport sys\nsys.modules['json'] = None\ndef main(a): return a",
                  arguments={"a": 1})
    assert outcome.result == 1


def test_closed_or_replaced_channel(run):
    assert run("import os\nos.close(3)").status == 0
    outcome = run("import os\nos.close(3)\nf = open('/tmp/cordon-test-three', 'wb')\nassert f.fileno() == 3\n"
                  "def end():\n    assert open('/tmp/cordon-test-three').read() == ''\n    print('nothing written')\n"
                  "import atexit\natexit.register(end)")
    assert outcome.exit is None and outcome.status == 0 and outcome.out == "nothing written\n"
    if os.path.exists("/tmp/cordon-test-three"):
        assert os.path.getsize("/tmp/cordon-test-three") == 0
        os.unlink("/tmp/cordon-test-three")


def test_agent_that_goes_ends_the_parked_driver():
    driver = FreshDriver("python")
    driver.pipes.wait_ready()
    driver.pipes.driver.close()
    assert driver.child.wait(timeout=5) == 0
    os.close(driver.pipes.stdin)
    driver.pipes.close()


# --- zygotes ---

PROGRAM_OF_RANDOM_NUMBERS = """
import random, ssl, uuid, secrets, tempfile, os, multiprocessing.process
print(random.random(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8), tempfile.mktemp(),
      random.SystemRandom().random(), multiprocessing.process.current_process().authkey.hex(), sep='\\n')
try:
    import numpy
    print(numpy.random.rand(), numpy.random.default_rng().random(), sep='\\n')
except ImportError:
    pass
"""
USE_OF_RANDOM_NUMBERS = """
    import random, ssl, uuid, tempfile, multiprocessing.process
    ssl.create_default_context(); ssl.RAND_bytes(8); random.random(); uuid.getnode(); tempfile.mktemp()
    try:
        import numpy; numpy.random.rand()
    except ImportError:
        pass
"""


@needs_root
@pytest.mark.parametrize("name", ["python", pytest.param("data", marks=needs_data)])
def test_random_numbers_differ_between_forks(name):
    """Fails in a build with -Dweaken=reseed."""
    zygote, guests = Zygote(name, EXTENSION, before_fork=USE_OF_RANDOM_NUMBERS), [Guest(), Guest()]
    try:
        first, second = (zygote.run(guest, PROGRAM_OF_RANDOM_NUMBERS) for guest in guests)
        assert first.exit == second.exit == 0, first.err
        rows = list(zip(first.out.splitlines(), second.out.splitlines()))
        assert len(rows) >= 8 and [row for row in rows if row[0] == row[1]] == []
        assert rows[3][0][-12:] != rows[3][1][-12:] or rows[3][0][:8] != rows[3][1][:8]
    finally:
        zygote.close()
        for guest in guests:
            guest.close()


@needs_root
def test_fork_is_inside_the_guest(zygote, guest):
    outcome = zygote.run(guest, """
import os
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines() if ':' in line)
print(os.getppid(), os.getpid() < 1000, os.getuid(), os.getgid(), os.getgroups(), os.getcwd())
print([status[name].strip() for name in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs')], os.getsid(0) == os.getpid())
print(sorted(os.listdir('/proc/self/fd')), [n for n in os.listdir('/proc') if n.isdigit()] == ['1', str(os.getpid())])
import resource
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
try:
    os.kill(1, 0)
except PermissionError:
    print('agent is protected')
""")
    lines = outcome.out.splitlines()
    assert lines[0] == "1 True 1000 1000 [] /home/user", outcome.err
    assert lines[1] == "['0000000000000000', '0000000000000000', '0000000000000000', '1'] True"
    assert lines[2] == "['0', '1', '2', '3', '4'] True"
    assert lines[3:] == ["(256, 256) (0, 0)", "agent is protected"]


@needs_root
def test_namespaces_are_the_guests(zygote, guest):
    outcome = zygote.run(guest, "import os\nprint(*[os.stat('/proc/self/ns/' + n).st_ino for n in 'user net pid mnt ipc uts cgroup'.split()])")
    assert outcome.out.split() == [str(os.fstat(fd).st_ino) for fd in guest.fds]


@needs_root
def test_exit_status_comes_to_process_one(zygote, guest):
    for code, status in (("print(1)", 0), ("raise SystemExit(7)", 7 << 8), ("import os; os.kill(os.getpid(), 9)", 9)):
        assert zygote.run(guest, code).status == status


@needs_root
def test_many_forks_and_nothing_left(zygote, guest):
    def descriptors():
        return sorted(os.listdir(f"/proc/{zygote.child.pid}/fd"))

    zygote.run(guest, "print(1)")
    before = descriptors()
    for number in range(100):
        assert zygote.run(guest, f"print({number})").out == f"{number}\n"
    assert descriptors() == before
    with open(f"/proc/{zygote.child.pid}/task/{zygote.child.pid}/children") as file:
        assert file.read() == ""


@needs_root
def test_cgroups_are_joined(zygote, guest):
    folder = f"/sys/fs/cgroup/cpuacct/cordon-test-{os.getpid()}"
    try:
        os.mkdir(folder)
    except OSError as error:
        pytest.skip(f"{folder}: {error}")
    try:
        procs = os.open(folder + "/cgroup.procs", os.O_WRONLY)
        pipes = zygote.fork(guest, [procs])
        os.close(procs)
        pipes.wait_ready()
        with open(folder + "/cgroup.procs") as file:
            inside = file.read().split()
        assert len(inside) == 1 and int(inside[0]) != zygote.child.pid
        assert pipes.run(job("print(1)")).out == "1\n"
        guest.status()
        pipes.close()
    finally:
        os.rmdir(folder)


@needs_root
def test_failing_steps_are_told(zygote, guest):
    def answer(fds, cgroups=(), **options):
        pipes = Pipes()
        zygote.send(fds, pipes, cgroups, **options)
        seq, status, stage = zygote.reply()
        pipes.give()
        os.close(pipes.stdin)
        pipes.close()
        assert seq in (zygote.seq, 0)
        return status, stage

    nothing = os.open("/dev/null", os.O_RDONLY)
    for number, name in enumerate(("user", "net", "pid", "mnt", "ipc", "uts", "cgroup")):
        fds = list(guest.fds)
        fds[number] = nothing
        assert answer(fds) == (-22, "setns " + name)
    assert answer(guest.fds, [nothing]) == (-9, "enter the cgroup")
    assert answer(guest.fds, version=9) == (-71, "job: version")
    assert answer(guest.fds[:5]) == (-71, "job: descriptors")
    os.close(nothing)
    assert zygote.run(guest, "print('still there')").out == "still there\n"


@needs_root
def test_child_that_can_not_become_the_code_says_why(zygote, guest):
    filter_fd, zygote.filter = zygote.filter, os.memfd_create("no filter program")
    os.write(zygote.filter, b"abc")
    try:
        pipes = zygote.fork(guest)
        outcome = pipes.run(b"")
        assert "could not enter its guest" in outcome.err and guest.status() == 125 << 8
        pipes.close()
    finally:
        os.close(zygote.filter)
        zygote.filter = filter_fd


@needs_root
def test_zygote_ends_with_the_warden():
    zygote = Zygote("python", EXTENSION)
    zygote.control.close()
    assert zygote.child.wait(timeout=5) == 0
    zygote.close()


@needs_root
def test_parked_fork_is_small(zygote, guest):
    pipes = zygote.fork(guest)
    pipes.wait_ready()
    pid = max(int(p) for p in os.listdir("/proc") if p.isdigit() and _pid_namespace(p) == os.fstat(guest.fds[2]).st_ino
              and int(p) != guest.init)
    with open(f"/proc/{pid}/smaps_rollup") as file:
        rollup = file.read()
    with open(f"/proc/{pid}/status") as file:
        tables = int(re.search(r"VmPTE:\s+(\d+)", file.read())[1])
    private = sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+)", rollup))
    pipes.driver.close()
    guest.status()
    os.close(pipes.stdin)
    pipes.close()
    assert private + tables < 2560, (private, tables)


def _pid_namespace(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


@needs_root
@needs_data
def test_data_modules(data_zygote, guest):
    outcome = data_zygote.run(guest, """
import os, threading
import numpy as np, pandas as pd, matplotlib, matplotlib.pyplot as plt
assert threading.Thread().name == 'Thread-1' and plt.get_fignums() == []
print(matplotlib.get_backend().lower(), pd.DataFrame({'a': np.arange(4)})['a'].sum(), threading.active_count(),
      len(os.listdir('/proc/self/task')))
plt.plot([1, 2]); plt.title('x'); plt.savefig('/tmp/plot.png'); plt.show()
print(os.path.getsize('/tmp/plot.png') > 1000, matplotlib.get_configdir())
print(np.linalg.inv(np.eye(3)).sum())
""")
    assert outcome.out.splitlines() == ["agg 6 1 1", "True /tmp/.matplotlib", "3.0"] and outcome.err == "", outcome.err
    assert outcome.exit == 0


@needs_data
def test_matplotlib_in_a_fresh_interpreter():
    outcome = FreshDriver("python").run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.savefig('p.png'); plt.show()\nprint('ok')",
                                        env=["MPLCONFIGDIR=" + os.environ.get("TMPDIR", "/tmp") + "/cordon-test-mpl"])
    subprocess.run(["rm", "-rf", os.environ.get("TMPDIR", "/tmp") + "/cordon-test-mpl"], check=True)
    assert outcome.out == "ok\n" and outcome.exit == 0, outcome.err


# --- run by meson: one TAP line a test ---

if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
