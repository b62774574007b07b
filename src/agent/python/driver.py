# SPDX-License-Identifier: Apache-2.0
"""Runs one program in a Python interpreter that is already inside its guest and has already become the code.

Either forked from a zygote, which loaded this file into a namespace of its own and calls run_forked(), or executed as
`python3 -I driver.py`. Descriptor 3 is the driver channel, 4 the ready pipe (see docs/protocol/driver.md):

    reseed -> rehearse -> close 4 -> read the JOB -> run the program -> RESULT -> flush -> EXIT -> _exit

What is measured by the program's user is only what comes after the JOB, so all that can be done before is rehearsed:
copy-on-write faults happen, streams are made. The program must find the interpreter as `python3 main.py` would give
it: a fresh __main__, default signal handlers, warnings, garbage collector and environment, tracebacks that begin in its
own code. It may break anything in this process, so that the agent believes nothing of it but "here is a result" and "I
exit with this code"; a real status, when the process dies otherwise, is the kernel's.
"""
import sys

STARTED_WITH = frozenset(sys.modules)  # also in a plain interpreter

import atexit
import collections
import gc
import io
import itertools
import json
import linecache
import os
import random
import threading
import types

DRIVER_FD = 3
READY_FD = 4
HEADER = 8
JOB, RESEED, REHEARSE, RESULT, RESULT_ERROR, EXIT, REHEARSED = 1, 2, 3, 64, 65, 67, 68
RESULT_MAX = 16 << 20
TEXT_MAX = 65536
FIELD_CODE, FIELD_ARGUMENTS, FIELD_ENV, FIELD_CWD, FIELD_LIMITS = 2, 3, 4, 5, 6
LIMITS_CPU_PERCENT = slice(72, 76)
FILENAME = "main.py"
CLAIMED, READABLE = 0o600, 0o644  # modes of the program's file, before and after it has the program
FLUSH_FAILED = 120
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
                    "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS", "PYTHON_CPU_COUNT")
ENVIRONMENT = {"HOME": "/home/user", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp",
               "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/.matplotlib",
               "NODE_PATH": "/usr/local/lib/node_modules:/usr/share/nodejs"}

process = types.SimpleNamespace(pid=0, channel=None, file=None, reseed=True, streams=None, environment=None,
                                modules=frozenset(), modules_before=0, running=False, at_fork=[], at_exit=[],
                                log_handlers=(), log_handlers_before=0, add_randomness=None, seeds=[])


# --- the channel ---

def channel_identity():
    status = os.fstat(DRIVER_FD)
    return status.st_dev, status.st_ino


def read_exactly(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(DRIVER_FD, min(size - len(data), 1 << 20))
        if not piece:
            os._exit(0)  # the agent is gone, so is the guest
        data += piece
    return data


def read_fields():
    header = read_exactly(HEADER)
    while header[0] in BEFORE_JOB:
        BEFORE_JOB[header[0]]()
        header = read_exactly(HEADER)
    payload = memoryview(read_exactly(int.from_bytes(header[4:], "little")))
    at = 0
    while at < len(payload):
        length = int.from_bytes(payload[at + 1:at + 5], "little")
        yield payload[at], bytes(payload[at + 5:at + 5 + length])
        at += 5 + length


def read_job():
    job = types.SimpleNamespace(code=b"", arguments=None, env=[], cwd=None, cpus=0)
    for tag, data in read_fields():
        if tag == FIELD_CODE:
            job.code = data
        elif tag == FIELD_ARGUMENTS:
            job.arguments = data
        elif tag == FIELD_ENV:
            job.env.append(data)
        elif tag == FIELD_CWD:
            job.cwd = os.fsdecode(data)
        elif tag == FIELD_LIMITS:
            job.cpus = -(-int.from_bytes(data[LIMITS_CPU_PERCENT], "little") // 100)
    return job


def send(kind, payload):
    """A frame, if this is the process that the agent started and the program left the channel alone."""
    try:
        if os.getpid() != process.pid or channel_identity() != process.channel:
            return
        rest = memoryview(bytes((kind, 0, 0, 0)) + len(payload).to_bytes(4, "little") + payload)
        while rest:
            rest = rest[os.write(DRIVER_FD, rest):]
    except OSError:
        return  # the agent still has the exit status


def send_result_error(text):
    send(RESULT_ERROR, text.encode("utf-8", "backslashreplace")[:TEXT_MAX])


# --- before the job ---

def reseed():
    """Gives this fork, or this copy of a virtual machine, random numbers of its own. (OpenSSL notices a fork by its pid, which two guests share.) What the
    zygote itself never used is not touched: a module that is looked at is a page that is copied."""
    random.Random.__base__.seed(random._inst)
    if process.add_randomness:
        process.add_randomness(os.urandom(32), 32.0)
    for seed in process.seeds:
        seed()


def find_seeds(extension):
    """In the zygote, after all modules are loaded: what reseed has to call, and a beginning for what need not be."""
    loaded = sys.modules.get
    if loaded("numpy.random"):
        process.seeds.append(numpy_seed(loaded("numpy.random"), extension))
    if loaded("multiprocessing.process"):
        current = loaded("multiprocessing.process").current_process()
        process.seeds.append(lambda: setattr(current, "authkey", os.urandom(32)))
    if loaded("tempfile"):
        loaded("tempfile")._name_sequence = None
    if loaded("uuid"):
        loaded("uuid")._node = loaded("uuid")._last_timestamp = None


def numpy_seed(module, extension):
    """What gives numpy's own generator a new state: its seed(), or what spares a fork most of that one's work."""
    module.seed()  # also forgets the second half of a pair of normal numbers
    try:
        _, key, position, *_ = module.get_state()
        if extension.keep_generator(module.mtrand._rand._bit_generator.capsule, key.astype("=u4").tobytes(), position):
            return extension.renew_generator
    except (AttributeError, TypeError, ValueError):  # another numpy
        pass
    return module.seed


# What every program does. A page that is written to here and not by the program was copied for nothing.
REHEARSAL = """
def greet(name):
    return [name, len(name)]
for name in ('x', 'y'):
    print(name, greet(name), end='\\n')
"""
# What many do, and the zygote once for all.
LONG_REHEARSAL = REHEARSAL + """
import json, math, sys
from collections import Counter
class Thing:
    def __init__(self, name, size=1):
        self.name, self.size = name, size
    def __repr__(self):
        return f'{self.name!r}: {self.size:.2f}'
def main(values, **options):
    things = [Thing(str(v), v / 3) for v in sorted(values, reverse=True) if v % 2 == 0]
    print('things', *things, len(things), sep=', ', end='\\n')
    return {'names': [t.name for t in things], 'sum': sum(values), **options}
def count(n):
    for i in range(n):
        yield i * 2
if __name__ == '__main__':
    try:
        main({1: 'a', 2: 'b'})['missing'][0]
    except (KeyError, IndexError) as error:
        print(type(error).__name__, error, sum(count(9)), f'{math.sqrt(2):>8.2f}'.upper().split('x'), file=sys.stdout)
    Counter('hello world').most_common(2)
    json.dumps(main(range(5), **json.loads('{"a": [1, 2.5, null, "x"]}')))
raise ValueError('rehearsed')
"""


class Nowhere(io.RawIOBase):
    """What rehearsed output is written to."""

    def writable(self):
        return True

    def write(self, data):
        return len(data)


def text_writer(raw, errors):
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=True)


process.nowhere = text_writer(Nowhere(), "surrogateescape")


def rehearse(program=REHEARSAL):
    """Does what a short program does, so that the pages that this writes to are this process's own already."""
    print(end="")
    kept, sys.stdout = sys.stdout, process.nowhere
    module = make_module("__main__", "/")
    try:
        exec(compile(program.encode(), module.__file__, "exec"), module.__dict__)
    finally:
        module.__dict__.clear()
        sys.stdout = kept


def rehearse_copy():
    """In a copy of a virtual machine that waits in its pool: what is done here is translated, where the machine is emulated, and its
    pages are the copy's own when the job comes. It is what every run begins with; each step more would spare a run its time, but
    take memory of each copy that waits."""
    reseed()
    send(REHEARSED, b"")


BEFORE_JOB = {RESEED: reseed, REHEARSE: rehearse_copy}


def warm_up():
    """In the zygote: as often as it takes until the interpreter has specialised the code that is used here."""
    import traceback

    for _ in range(20):
        rehearse()
        try:
            rehearse(LONG_REHEARSAL)
        except ValueError as error:
            linecache.cache["/" + FILENAME] = source_lines(LONG_REHEARSAL.encode(), "/" + FILENAME)
            traceback.print_exception(error, file=process.nowhere)
            del linecache.cache["/" + FILENAME]
        encode_result({"a": [1, 2.5, None, "x"]})


def open_streams():
    """Stream objects for what descriptors 0 to 2 are now, or will be in a fork: pipes."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(named(0, "r", "<stdin>")), encoding="utf-8",
                                                 errors="surrogateescape")
    sys.stdin.mode = "r"
    sys.stdout = sys.__stdout__ = text_writer(named(1, "w", "<stdout>"), "surrogateescape")
    sys.stderr = sys.__stderr__ = text_writer(named(2, "w", "<stderr>"), "backslashreplace")
    sys.stdout.mode = sys.stderr.mode = "w"
    process.streams = sys.stdout, sys.stderr


def named(descriptor, mode, name):
    raw = io.FileIO(descriptor, mode, closefd=False)
    raw.name = name
    return raw


# --- the program ---

def apply_environment(job):
    wanted = {}
    for entry in job.env:
        name, _, value = os.fsdecode(entry).partition("=")
        wanted[name] = value
    set_environment(wanted, str(job.cpus or len(os.sched_getaffinity(0))))
    if "TZ" in wanted:
        sys.modules["time"].tzset()


def set_environment(wanted, cpus="1"):
    """Changes only what differs: a fork of a zygote has nearly all of it already."""
    wanted = {**ENVIRONMENT, **dict.fromkeys(THREAD_VARIABLES, cpus), **wanted}
    if process.environment is None:
        os.environ.clear()
        process.environment = {}
    for name, value in wanted.items():
        if process.environment.get(name) != value:
            os.environ[name] = value
    process.environment = wanted


def apply_place(job):
    if job.cwd:
        os.chdir(job.cwd)
    cwd = os.getcwd()
    sys.argv = [FILENAME]
    sys.orig_argv = [sys.executable, FILENAME]
    sys.path.insert(0, cwd)
    return cwd


def claim_file():
    """Makes the file that __file__ will name, while parking: the working directory shows no change by us later."""
    try:
        process.file = os.open(ENVIRONMENT["HOME"] + "/" + FILENAME,
                               os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, CLAIMED)
    except OSError:
        process.file = None  # the program runs without


def write_file(code, cwd):
    """The program, for what reads it by its name: workers, reloads. What was put under that name meanwhile stays."""
    if process.file is None:
        return
    status = os.fstat(process.file)
    if status.st_size == 0 and status.st_mode & 0o777 == CLAIMED:
        fill_file(code if cwd == ENVIRONMENT["HOME"] else None)
    os.close(process.file)


def fill_file(code):
    try:
        if code is None or os.write(process.file, code) < len(code):
            os.unlink(ENVIRONMENT["HOME"] + "/" + FILENAME)
        os.fchmod(process.file, READABLE)
    except OSError:  # as when no space is left: half a program is worse than none
        quietly(os.unlink, ENVIRONMENT["HOME"] + "/" + FILENAME)


def unload_shadowed(cwd):
    """A file of the working directory comes before a module of the same name that only the zygote loaded."""
    for entry in os.listdir(cwd):
        name = entry.partition(".")[0]
        if name not in process.modules and name in sys.modules:
            for loaded in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
                del sys.modules[loaded]


def make_module(name, cwd):
    module = types.ModuleType(name)
    module.__dict__.update(__file__=cwd.rstrip("/") + "/" + FILENAME, __builtins__=sys.modules["builtins"])
    if name == "__main__":
        module.__dict__.update(__cached__=None)
    return module


def source_lines(code, filename):
    """The entry of linecache for the program: tracebacks show its lines though it is in no file."""
    encoding = "utf-8"
    if b"coding" in code[:400]:
        import tokenize

        try:
            encoding = tokenize.detect_encoding(io.BytesIO(code).readline)[0]
        except SyntaxError:
            pass
    lines = code.decode(encoding, "replace").splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"  # as linecache has it for files: the carets' place is reckoned from whole lines
    return len(code), None, lines, filename


def own_traceback(error):
    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    return trace


def report(kind, error, trace):
    """The excepthook: as the interpreter's own, which would look for the source in a file."""
    import traceback

    if sys.stderr is not None:
        traceback.print_exception(kind, error, trace)


def report_thread(args):
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else sys.modules["_thread"].get_ident()
    if sys.stderr is not None:
        print(f"Exception in thread {name}:", file=sys.stderr, flush=True)
        report(args.exc_type, args.exc_value, args.exc_traceback)
        sys.stderr.flush()


def exit_code(value):
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF if -(1 << 63) <= value < 1 << 63 else 0xFF
    try:
        print(value, file=sys.stderr)
    except Exception:
        pass  # as the interpreter does: the status is what counts
    return 1


def failed(error):
    """Reports what ended the program; its exit code, negative for a signal."""
    trace = own_traceback(error)
    error.__traceback__ = trace
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as leaving:
        return exit_code(leaving.code)
    except BaseException as broken:
        print("Error in sys.excepthook:", file=sys.stderr)
        report(type(broken), broken, own_traceback(broken))
        print("\nOriginal exception was:", file=sys.stderr)
        report(type(error), error, trace)
    return -2 if isinstance(error, KeyboardInterrupt) else 1


def run_program(job, module):
    """The program's exit code, as the interpreter would give it."""
    try:
        exec(compile(job.code, module.__file__, "exec", dont_inherit=True), module.__dict__)
        return 0 if job.arguments is None else call_main(job, module)
    except SystemExit as leaving:
        no_result(job, "the program exited before main() returned")
        return exit_code(leaving.code)
    except BaseException as error:
        no_result(job, f"the program ended by {type(error).__name__} before main() returned")
        return failed(error)


def no_result(job, why):
    if job.arguments is not None:
        send_result_error(why)


def refuse(why):
    send_result_error(why)
    print(why, file=sys.stderr)
    return 1


# --- main and its result ---

def call_main(job, module):
    try:
        arguments = decode_json(job.arguments.decode())
    except ValueError as error:
        return refuse(f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return refuse(f"the arguments must be a JSON object, found {type(arguments).__name__}")
    main = module.__dict__.get("main")
    if not callable(main):
        return refuse("the program defines no function main(), which arguments are for")
    value = main(**arguments)
    if hasattr(value, "__await__"):
        import asyncio

        value = asyncio.run(awaited(value))
    return send_result(value)


async def awaited(value):
    return await value


def send_result(value):
    try:
        text = encode_result(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        return refuse(f"main() returned a value that is not JSON: {type(error).__name__}: {error}")
    if len(text) > RESULT_MAX:
        return refuse(f"main() returned a value of {len(text)} bytes as JSON, more than {RESULT_MAX}")
    send(RESULT, text)
    return 0


def encode_result(value):
    try:
        text = encode_strict(value)
    except ValueError:
        text = encode_strict(without_nan(value, set()))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair can only travel escaped
        return encode_ascii(decode_json(text)).encode()


decode_json = json.JSONDecoder().decode
encode_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
encode_ascii = json.JSONEncoder(separators=(",", ":")).encode


def without_nan(value, inside):
    """A copy with null for what JSON has no number for. inside: the containers around this value."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in inside:
        raise ValueError("Circular reference detected")
    inside.add(id(value))
    if isinstance(value, dict):
        copy = {json_key(key): without_nan(item, inside) for key, item in value.items()}
    else:
        copy = [without_nan(item, inside) for item in value]
    inside.discard(id(value))
    return copy


def json_key(key):
    return repr(float(key)) if isinstance(key, float) and key - key != 0 else key


# --- the end ---

def finish(code, module, cwd):
    """What the interpreter does when it ends, as far as a program can tell; then the process ends at once."""
    if len(threading._active) > 1 or threading._limbo or threading._threading_atexits:
        quietly(threading._shutdown)
    quietly(atexit._run_exitfuncs)
    run_kept_at_exit()
    if not flush():
        code = FLUSH_FAILED
    quietly(drop_program, module, cwd)
    if not flush():
        code = FLUSH_FAILED
    if code < 0:
        import signal

        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    send(EXIT, code.to_bytes(4, "little", signed=True))
    os._exit(code)


def quietly(call, *arguments, **named_arguments):
    """What fails at the end is told, and changes nothing."""
    try:
        call(*arguments, **named_arguments)
    except BaseException as error:
        complain(error, call)


def complain(error, about):
    """As the interpreter does of what it can not raise: by sys.unraisablehook, whose argument only it can make."""
    class Last:
        def __del__(self):
            raise KeyError

    seen, hook = [], sys.unraisablehook
    sys.unraisablehook = seen.append
    Last()
    sys.unraisablehook = hook
    try:
        hook(type(seen[0])((type(error), error, own_traceback(error), None, about)))
    except BaseException:
        pass  # the program's own hook failed


def drop_program(module, cwd):
    """Lets destructors run, and files be written that were not closed."""
    imported = list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - process.modules_before)))
    for name in imported:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(cwd + "/"):
            del sys.modules[name]
    names = module.__dict__
    for name in [n for n in names if n.startswith("_") and not n.startswith("__")]:
        names[name] = None
    for name in [n for n in names if n != "__builtins__"]:
        names[name] = None
    gc.collect()


def flush():
    """False when output was lost. A failing stderr can not be told of, and does not count."""
    good = True
    for stream in {id(s): s for s in (sys.stdout, sys.stderr, *process.streams)}.values():
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException as error:
            if stream is not sys.stderr:
                good = False
                complain(error, stream)
    return good


# --- what modules wanted to be called at, while the zygote loaded them ---

def call_at_fork(kind, hooks):
    for hook in hooks if process.running else ():
        if kind in hook:
            quietly(hook[kind])


def register_at_fork(register):
    """One hook of each kind that calls the kept ones: a fork of the zygote is not what they were meant for."""
    hooks = process.at_fork
    register(before=lambda: call_at_fork("before", reversed(hooks)),
             after_in_child=lambda: call_at_fork("after_in_child", hooks),
             after_in_parent=lambda: call_at_fork("after_in_parent", hooks))


def keep_logging():
    """Logging's own end is needed only when the program made a handler. Its list tells, which is cheap to look at."""
    logging = sys.modules.get("logging")
    if logging:
        process.at_exit[:] = [kept for kept in process.at_exit if kept[0] is not logging.shutdown]
        process.log_handlers, process.log_shutdown = logging._handlerList, logging.shutdown
        process.log_handlers_before = len(logging._handlerList)


def run_kept_at_exit():
    """After what the program registered, since it was registered before that."""
    for call, arguments, named_arguments in reversed(process.at_exit):
        quietly(call, *arguments, **named_arguments)
    if len(process.log_handlers) > process.log_handlers_before:
        quietly(process.log_shutdown)


# --- from birth to end ---

def park():
    """Until there is a job."""
    process.pid = os.getpid()
    process.channel = channel_identity()
    os.set_inheritable(DRIVER_FD, False)
    if sys.argv[1:] != ["awaited"]:  # where a run waits already, a rehearsal takes as long as it spares
        rehearse()
    claim_file()
    os.write(READY_FD, b"1")
    os.close(READY_FD)
    return read_job()


def run(job):
    cwd = apply_place(job)
    write_file(job.code, cwd)
    apply_environment(job)
    unload_shadowed(cwd)
    name = "__main__" if job.arguments is None else "main"
    module = make_module(name, cwd)
    sys.modules["__main__"] = sys.modules[name] = module
    linecache.cache[module.__file__] = source_lines(job.code, module.__file__)
    process.modules_before = len(sys.modules)
    process.running = True
    gc.enable()
    code = run_program(job, module)
    finish(code, module, cwd)


def take_over_excepthooks():
    sys.excepthook = sys.__excepthook__ = report
    threading.excepthook = threading.__excepthook__ = report_thread


def prepare_zygote(modules, at_fork, at_exit, reseed, register):
    """Once, before other modules are loaded. register: what os.register_at_fork is when it is not replaced."""
    process.modules, process.at_fork, process.at_exit, process.reseed = modules, at_fork, at_exit, reseed
    register_at_fork(register)
    take_over_excepthooks()
    set_environment({})
    set_up_openssl()
    warm_up()


def set_up_openssl():
    """Takes its generator a millisecond. Here, since each fork writes to what is made: randomness of its own is added."""
    try:
        import _ssl
    except ImportError:
        return
    _ssl.RAND_bytes(1)
    process.add_randomness = _ssl.RAND_add


def finish_zygote(extension):
    """Once, after all modules are loaded."""
    keep_logging()
    find_seeds(extension)
    threading._counter = itertools.count(1).__next__  # of the names of threads: loading may have used some
    # The interpreter's cache of attributes is full of the loaded modules' names: each would be written to when it goes.
    getattr(sys, "_clear_type_cache", lambda: None)()
    collections.Counter("x")  # asks abstract classes, which forget their answers when modules register with them
    process.environment = None
    set_environment({})
    open_streams_of_forks()


def open_streams_of_forks():
    """In the zygote, where 0 to 2 are not what they will be in its forks."""
    kept = [os.dup(number) for number in range(3)]
    pipe = os.pipe()
    for number in range(3):
        os.dup2(pipe[number > 0], number)
    open_streams()
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
    for descriptor in (*kept, *pipe):
        os.close(descriptor)


def run_forked():
    if process.reseed:
        reseed()
    threading._main_thread._set_native_id()
    run(park())


def run_machine():
    """The zygote of a virtual machine, which is copied as a whole, runs the program itself."""
    run(park())


def run_fresh():
    process.modules = STARTED_WITH
    ENVIRONMENT["HOME"] = os.getcwd()
    take_over_excepthooks()
    open_streams()
    set_environment({})
    job = park()
    gc.freeze()
    run(job)


if __name__ == "__main__":
    run_fresh()
