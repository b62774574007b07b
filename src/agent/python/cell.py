# SPDX-License-Identifier: Apache-2.0
"""A context: a Python interpreter in a kept guest that runs one cell after the other and keeps its state.

Executed by whoever holds the other end of descriptor 3, the channel, with its own source as the channel's first frame
(docs/protocol/driver.md, "Cells"). All that a cell gives travels there in the order in which it happened: what it
prints, what it displays, its value, its end.

    SOURCE… -> READY -> CELL -> OUT… SHOW… -> DONE -> CELL …

Order. sys.stdout and sys.stderr write frames. Descriptors 1 and 2, which child processes and C code write to, are pipes
that a thread of ours relays; before anything else is told, what is in them is. A frame is one send of at most 16 KiB
on a stream socket, which the kernel takes whole or not at all: so no signal, thread or fork can tear one.

Interrupts are SIGINT. The handler raises KeyboardInterrupt in the cell, except within a send, where it waits for its
end, and between cells, where it does nothing. Output that nobody reads blocks the cell in a poll, not in a send.

Between cells nobody reads: output of threads and children is kept (up to IDLE_MAX bytes) for the next cell's begin.

Everything here is the program's own claim: it runs in the same process and may send what it likes.
"""
import ast
import importlib
import importlib.machinery
import io
import json
import linecache
import os
import select
import signal
import sys
import threading
import time
import types
import _socket
import _thread

CHANNEL = 3
HEADER = 8
CELL, SYNC, SOURCE = 2, 4, 5
READY, OUT, PART, SHOW, DONE, SYNCED = 68, 69, 70, 71, 72, 73
FIELD_NUMBER, FIELD_CODE, FIELD_ENV = 1, 2, 4
FRAME_MAX = 16384 - HEADER
SHOW_MAX = 16 << 20
IDLE_MAX = 65536
TEXT_MAX = 65536
LINES_MAX = 2000
STDOUT, STDERR = 1, 2
AWAIT, COROUTINE = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, 0x80

sources = globals().get("sources", {})
# number: of the cell that runs, 0 between cells. armed: an interrupt raises. sending: but not now. early: it came when the
# cell had not begun. reading: a cell has come, and is not armed yet.
state = types.SimpleNamespace(pid=os.getpid(), thread=_thread.get_ident(), number=0, last=0, armed=False, sending=False,
                              interrupted=False, early=False,
                              reading=False, idle=[], idle_size=0, idle_lost=0, raw={}, poller=None,
                              raw_lock=threading.RLock(), streams=(), loop=None, flags=0, names=None)
channel = _socket.socket(fileno=CHANNEL)
channel_lock = threading.RLock()  # of several frames that belong together


# --- sending ---

def send(kind, *payload):
    """One frame, whole or (when interrupted) not at all."""
    data = b"".join((bytes((kind, 0, 0, 0)), sum(map(len, payload)).to_bytes(4, "little"), *payload))
    while not try_send(data):
        select.select([], [channel], [])


def try_send(data):
    """Only the main thread has to do with interrupts."""
    if _thread.get_ident() != state.thread:
        return send_now(data)
    if state.interrupted and state.armed:
        state.interrupted = False
        raise KeyboardInterrupt
    state.sending = True
    sent = send_now(data)
    state.sending = False
    return sent


def send_now(data):
    try:
        channel.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        return True
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        os._exit(1)  # nobody is there any more


def send_object(kind, value):
    """JSON in as many frames as it takes; the last one has the kind. Forks of the context have none to send."""
    if os.getpid() != state.pid:
        return
    data = encode(value)
    with channel_lock:
        at = 0
        while len(data) - at > FRAME_MAX:
            send(PART, data[at:at + FRAME_MAX])
            at += FRAME_MAX
        send(kind, data[at:])


def encode(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair can only travel escaped
        return json.dumps(value, separators=(",", ":")).encode()


def emit(stream, data):
    """Output of the cell that runs, or kept for the next one."""
    if not state.number:
        keep(stream, data)
        return
    for at in range(0, len(data), FRAME_MAX - 1):
        send(OUT, bytes((stream,)), data[at:at + FRAME_MAX - 1])


def keep(stream, data):
    room = max(0, IDLE_MAX - state.idle_size)
    state.idle_lost += max(0, len(data) - room)
    if room:
        state.idle.append((stream, bytes(data[:room])))
        state.idle_size += min(len(data), room)


def emit_kept():
    kept, lost = state.idle, state.idle_lost
    state.idle, state.idle_size, state.idle_lost = [], 0, 0
    for stream, data in kept:
        emit(stream, data)
    if lost:
        emit(STDERR, b"[%d bytes that were printed between cells were dropped]\n" % lost)


# --- output ---

class Output(io.RawIOBase):
    """What sys.stdout and sys.stderr write to. In a fork of the context: the pipe that the context relays."""

    def __init__(self, stream):
        self.stream = stream
        self.name = ("<stdin>", "<stdout>", "<stderr>")[stream]
        self.mode = "w"

    def writable(self):
        return True

    def fileno(self):
        return self.stream

    def write(self, data):
        if os.getpid() != state.pid:
            return os.write(self.stream, data)
        data = bytes(data[:FRAME_MAX - 1])
        if state.number:
            relay_raw()
            send(OUT, bytes((self.stream,)), data)
        else:
            keep(self.stream, data)
        return len(data)


def open_streams():
    pipes = {}
    for stream in (STDOUT, STDERR):
        read, write = os.pipe()
        os.dup2(write, stream)
        os.close(write)
        os.set_blocking(read, False)
        pipes[read] = stream
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    writers = [io.TextIOWrapper(io.BufferedWriter(Output(stream)), encoding="utf-8", errors="backslashreplace",
                                line_buffering=True) for stream in (STDOUT, STDERR)]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = state.streams = tuple(writers)
    state.raw, state.poller = pipes, select.poll()
    for read in pipes:
        state.poller.register(read, select.POLLIN)
    os.register_at_fork(after_in_child=in_fork)
    _thread.start_new_thread(pump, ())  # not one of the program's threads


def in_fork():
    for read in state.raw:
        os.close(read)
    state.raw_lock = threading.RLock()


def pump():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    waiter = select.poll()
    for read in state.raw:
        waiter.register(read, select.POLLIN)
    while True:
        waiter.poll()
        relay_raw()


def relay_raw():
    """Tells what child processes and C code wrote, up to now."""
    if not state.poller:
        return
    with state.raw_lock:  # also when there is nothing: the other thread may have read, and not yet told
        for read, _ in state.poller.poll(0):
            try:
                data = os.read(read, FRAME_MAX - 1)
            except BlockingIOError:
                continue
            emit(state.raw[read], data)


def flush():
    for stream in {id(s): s for s in (sys.stdout, sys.stderr, *state.streams)}.values():
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            pass  # the program replaced or closed it
    for _ in range(64):  # more than a pipe holds
        relay_raw()
        if not state.poller.poll(0):
            break


# --- the cell ---

def on_interrupt(number, frame):
    if os.getpid() != state.pid:
        raise KeyboardInterrupt
    if not state.armed:
        state.early |= state.reading or not state.number and bool(select.select([channel], [], [], 0)[0])
        return
    if not state.sending:
        state.interrupted = False
        raise KeyboardInterrupt
    state.interrupted = True
    _thread.start_new_thread(interrupt_again, ())


def interrupt_again():
    """An interrupt that met a send is delivered after it, or raised by the next send, whatever comes first."""
    time.sleep(.001)
    if state.interrupted:
        os.kill(state.pid, signal.SIGINT)


def parse(code, filename):
    flags = AWAIT | state.flags
    try:
        return compile(code, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        if not any(line.lstrip()[:1] in ("!", "%") or "= !" in line for line in code.split("\n")):
            raise
        changed = load("magic").translate(code)
        if changed is None:
            raise
        try:
            return compile(changed, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError:
            raise error from None


def compile_tree(tree, filename, mode):
    code = compile(tree, filename, mode, AWAIT | state.flags, dont_inherit=True)
    state.flags |= code.co_flags & FUTURES
    return code


FUTURES = 0
for _name in __import__("__future__").all_feature_names:
    FUTURES |= getattr(__import__("__future__"), _name).compiler_flag


def evaluate(code):
    value = eval(code, state.names)
    return run_coroutine(value) if code.co_flags & COROUTINE else value


def run_coroutine(coroutine):
    """In the context's own event loop; its other tasks go on meanwhile."""
    loop = event_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            import asyncio

            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


def event_loop():
    import asyncio

    if state.loop is None or state.loop.is_closed():
        state.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(state.loop)
    return state.loop


def run_code(code, filename):
    tree = parse(code, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        evaluate(compile_tree(tree, filename, "exec"))
    if last is None:
        return
    value = evaluate(compile_tree(ast.Expression(last.value), filename, "eval"))
    if value is not None and not code.rstrip().endswith(";"):
        state.names["_"] = value
        load("show").show(value, True)


def run_cell(number, code, environment):
    filename = f"<cell {number}>"
    lines = code.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"  # as linecache has it for files
    linecache.cache[filename] = (len(code), None, lines, filename)
    signal.signal(signal.SIGINT, on_interrupt)
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    state.number, state.interrupted = number, False
    failed = None
    try:
        try:
            state.armed = True
            state.reading = False
            if state.early:
                raise KeyboardInterrupt
            emit_kept()
            run_code(code, filename)
            finish_cell()
            state.armed = False
        except BaseException as error:
            state.armed = False
            failed = error
            finish_failed()
    except KeyboardInterrupt as error:  # came within the lines above
        state.armed = False
        failed = error
    restore_environment(before)
    done = {"number": number, **({"error": describe(failed)} if failed else {})}
    state.reading = False
    state.last, state.number, state.early = number, 0, False
    send_object(DONE, done)


def finish_cell():
    flush()
    plot = sys.modules.get("cordon_cell_plot") or ("matplotlib.pyplot" in sys.modules and load("plot"))
    if plot:
        plot.show_open()


def finish_failed():
    """What it printed and drew is shown all the same."""
    try:
        state.armed = True
        finish_cell()
    except BaseException:
        pass  # the first error is the one to tell
    state.armed = False


def restore_environment(before):
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def describe(error):
    """Name, value and lines of a traceback that begins in the program's own code."""
    import traceback

    own, trace = globals(), error.__traceback__
    while trace and trace.tb_frame.f_globals is own:
        trace = trace.tb_next
    error.__traceback__ = at = trace
    while at:
        while at.tb_next and at.tb_next.tb_frame.f_globals is own:  # the interrupt's handler
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    name = type(error).__name__
    try:
        value = str(error)
    except Exception as broken:
        value = f"(its text can't be had: {type(broken).__name__})"
    lines = "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n").split("\n")
    if len(lines) > LINES_MAX:
        lines = lines[:LINES_MAX // 2] + ["…"] + lines[-LINES_MAX // 2:]
    return {"name": name, "value": value[:TEXT_MAX], "traceback": [line[:TEXT_MAX] for line in lines]}


# --- parts of this driver that are loaded when they are needed, and hooks into what the program imports ---

class Finder:
    """Finds the driver's own parts, matplotlib (which then draws for us), and IPython's display where there is none."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("cordon_cell_") and name[12:] in sources:
            return importlib.machinery.ModuleSpec(name, self)
        if name == "matplotlib":
            return self.hooked(name, path)
        if name in ("IPython", "IPython.display", "IPython.core.display", "IPython.core") and not real_ipython():
            return importlib.machinery.ModuleSpec(name, self, is_package=name in ("IPython", "IPython.core"))
        return None

    def hooked(self, name, path):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.rcParams["backend"] = "module://cordon_cell_plot"

            spec.loader.exec_module = exec_module
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        if name.startswith("cordon_cell_"):
            module.__dict__["driver"] = sys.modules["cordon_cell"]
            exec(compile(sources[name[12:]], f"<{name}>", "exec"), module.__dict__)
        else:
            load("show").fill_ipython(module)


def real_ipython():
    return importlib.machinery.PathFinder.find_spec("IPython") is not None


def load(part):
    return importlib.import_module("cordon_cell_" + part)


# --- from birth to end ---

def read_exactly(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(CHANNEL, min(size - len(data), 1 << 20))
        if not piece:
            os._exit(0)  # the other end is gone
        data += piece
    return data


def read_fields(payload):
    at = 0
    while at < len(payload):
        length = int.from_bytes(payload[at + 1:at + 5], "little")
        yield payload[at], bytes(payload[at + 5:at + 5 + length])
        at += 5 + length


def read_cell(payload):
    code, environment, number = b"", {}, 1
    for tag, data in read_fields(payload):
        if tag == FIELD_CODE:
            code = data
        elif tag == FIELD_ENV:
            name, _, value = os.fsdecode(data).partition("=")
            environment[name] = value
        elif tag == FIELD_NUMBER:
            number = int.from_bytes(data, "little")
    return number, code.decode("utf-8", "replace"), environment


def wait_for_frame():
    """Meanwhile the tasks that cells left in the context's event loop go on."""
    asyncio = sys.modules.get("asyncio")
    while state.loop is not None and not state.loop.is_closed() and asyncio.all_tasks(state.loop):
        ready = state.loop.create_future()
        state.loop.add_reader(CHANNEL, lambda: ready.done() or ready.set_result(None))
        try:
            state.loop.run_until_complete(ready)
        except BaseException:
            continue  # of a task; asyncio tells it on stderr
        finally:
            state.loop.remove_reader(CHANNEL)
        break
    header = read_exactly(HEADER)
    state.reading = header[0] == CELL
    if header[0] == SYNC:
        state.early = False  # it was for a cell that has ended
    payload = read_exactly(int.from_bytes(header[4:], "little"))
    if header[0] == SOURCE and state.early:
        state.early = False  # what had come was this, unless there is more: one that comes meanwhile sets it itself
        if select.select([channel], [], [], 0)[0]:
            state.early = True
    return header[0], payload


def run_guarded(number, code, environment):
    try:
        run_cell(number, code, environment)
    except KeyboardInterrupt as error:  # two of them at once; the cell's end is not told yet
        state.armed, state.reading, state.number, state.early = False, False, 0, False
        send_object(DONE, {"number": number, "error": describe(error)})


def serve():
    while True:
        kind, payload = wait_for_frame()
        if kind == CELL:
            run_guarded(*read_cell(payload))
        elif kind == SYNC:
            send(SYNCED, bytes(payload), state.last.to_bytes(4, "little"))
        elif kind == SOURCE:
            name, _, text = bytes(payload).partition(b"\0")
            sources[name.decode()] = text


def make_main():
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = module
    state.names = module.__dict__
    sys.argv = [""]
    sys.path[:0] = [""] if "" not in sys.path else []


def display(*values, **options):
    """Shows values in all the forms they have (as IPython's)."""
    load("show").display(*values, **options)


def main():
    me = types.ModuleType("cordon_cell")
    me.__dict__.update(globals())
    me.state = state
    sys.modules["cordon_cell"] = me
    os.set_inheritable(CHANNEL, False)
    signal.signal(signal.SIGINT, on_interrupt)
    open_streams()
    make_main()
    sys.meta_path.insert(0, Finder())
    sys.modules["builtins"].display = display
    send_object(READY, {"language": "python", "version": sys.version.split()[0], "pid": os.getpid()})
    serve()


if __name__ == "cordon_cell":
    main()
