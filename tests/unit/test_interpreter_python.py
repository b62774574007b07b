# SPDX-License-Identifier: Apache-2.0
"""Python's driver, in a zygote's fork and in an executed interpreter: a program finds and leaves what plain python would.
The agent and the warden are played by interpreter_peers."""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interpreter_peers as peers  # noqa: E402
import pytest_tap  # noqa: E402
from interpreter_peers import FreshDriver, job  # noqa: E402
from interpreter_fixtures import IS_ROOT, needs_root  # noqa: E402

pytest_plugins = ["interpreter_fixtures"]


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
said = threading.Event()
threading.Thread(target=lambda: (said.wait(), time.sleep(.1), print('thread'))).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('main'); said.set()
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


def test_a_copy_that_rehearses_shows_nothing_of_it():
    driver, rehearse, rehearsed = FreshDriver(), struct.pack("<BBHI", 3, 0, 0, 0), struct.pack("<BBHI", 68, 0, 0, 0)
    try:
        driver.pipes.wait_ready()
        for _ in range(2):
            driver.pipes.driver.sendall(rehearse)
            driver.pipes.driver.settimeout(30)
            assert driver.pipes.driver.recv(64) == rehearsed
        outcome = driver.pipes.run(job("import os, sys\nprint(sys.argv, os.listdir(), sorted(n for n in dir() if n[0] != '_'))"))
        assert outcome.out == "['main.py'] ['main.py'] ['os', 'sys']\n" and not outcome.err and outcome.exit == 0
    finally:
        driver.close()


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


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a file system that is full")
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


# --- run by meson: one TAP line a test ---

if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
