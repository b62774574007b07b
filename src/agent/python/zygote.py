# SPDX-License-Identifier: Apache-2.0
"""A Python interpreter with modules loaded, from which interpreters are forked into guests.

Run by the warden as `python3 -I zygote.py NAME` (NAME: python or data), without privilege, in the template's root
tree, with the socket to the warden as descriptor 3. Beside this file are driver.py and the extension module, which
does the forking (zygote_ext.c). In a virtual machine the agent runs it as `zygote.py machine` or `machine-data`: there the
whole machine is copied, and what is loaded here runs the program itself. What is done here is done once and pays in
every run:

* modules that short programs import are loaded, since an import costs a run more than the pages of a module that it
  does not use: the list is measured, see docs/protocol/driver.md;
* the driver rehearses, so that the interpreter's inline caches are warm and the pages that every run writes are few;
* everything made so far is taken out of the garbage collector's sight, or its next pass would write to all of it.

No module may start a thread here: threads do not survive a fork. Nothing of the environment is kept.
"""
import gc
import os
import sys

CONTROL_FD = 3
RESERVED_FDS = 8
WORKDIR = "/home/user"

COMMON = """
    __future__ _collections_abc abc argparse array ast asyncio base64 bisect builtins calendar cmath codecs collections
    collections.abc contextlib copy csv dataclasses datetime decimal enum errno fractions functools glob hashlib heapq
    hmac html inspect io itertools json keyword linecache locale logging math numbers operator os os.path pathlib
    pickle platform pprint queue random re secrets shlex shutil signal statistics string struct subprocess sys tempfile
    textwrap threading time traceback types typing unicodedata urllib.parse uuid warnings weakref zlib
""".split()

DATA = """
    numpy numpy.linalg numpy.random numpy.fft pandas matplotlib matplotlib.pyplot matplotlib.backends.backend_agg
    matplotlib.dates
""".split()

EXTENSION = "_cordon_zygote"


def start_again():
    """With an environment that is nobody's, before anything read the first one. Binding all symbols now spares each
    fork the look-ups; a home spares the interpreter's start the user database and its libraries."""
    environment = {"LD_BIND_NOW": "1", "HOME": WORKDIR, "LANG": "C.UTF-8"}
    if os.environ.get("LD_BIND_NOW") != "1":
        program = os.readlink("/proc/self/exe")
        os.execve(program, [sys.executable or program, "-I", os.path.abspath(__file__), *sys.argv[1:]], environment)


def reserve_descriptors():
    """What a library opens must not have a number that the driver uses: forks put their own descriptors there."""
    while (descriptor := os.dup(CONTROL_FD)) < RESERVED_FDS:
        pass
    os.close(descriptor)


def set_environment(scratch):
    os.environ.clear()
    # Read by the numeric libraries when they are loaded. More than one thread would be lost in the fork.
    threads = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB_MAXIMUM")
    os.environ.update({name + "_NUM_THREADS": "1" for name in threads})
    os.environ.update(HOME=WORKDIR, LANG="C.UTF-8", MPLBACKEND="Agg", MPLCONFIGDIR=scratch)


def load(names):
    """Loads what is there; a template without one of these still has a zygote."""
    import importlib

    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # a broken package of the template is found by the program that imports it
            continue


def warm_up_matplotlib():
    """Draws once, then drops what must not be shared: open font files, and the folder for caches of this process."""
    if "matplotlib.pyplot" not in sys.modules:
        return
    import io

    matplotlib, plt = sys.modules["matplotlib"], sys.modules["matplotlib.pyplot"]
    figure = plt.figure(figsize=(2, 2))
    figure.add_subplot().plot([1, 2], [3, 4], label="x")
    figure.savefig(io.BytesIO(), format="png")
    plt.close("all")
    fonts = sys.modules["matplotlib.font_manager"]
    for cached in (getattr(fonts, "_get_font", None), matplotlib.get_configdir, matplotlib.get_cachedir):
        forget(cached)


def forget(cached):
    """Empties a functools cache, or matplotlib's own kind, which has its flag in a closure."""
    if hasattr(cached, "cache_clear"):
        cached.cache_clear()
    elif "called" in getattr(getattr(cached, "__code__", None), "co_freevars", ()):
        cached.__closure__[cached.__code__.co_freevars.index("called")].cell_contents = False


def load_data():
    import shutil
    import tempfile

    scratch = tempfile.mkdtemp(prefix="cordon-zygote-")
    try:
        set_environment(scratch)
        load(DATA)
        warm_up_matplotlib()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load_beside(name):
    """Runs a Python file beside this one in a namespace of its own, registered nowhere: a program may have a module
    of the same name."""
    path = __file__.rpartition("/")[0] + "/" + name
    with open(path, "rb") as file:
        code = compile(file.read(), "<cordon>", "exec")
    namespace = {"__name__": "<cordon>", "__builtins__": __builtins__}
    exec(code, namespace)
    return namespace


def load_extension():
    """The extension module, without leaving it in sys.modules."""
    from importlib import machinery, util

    path = __file__.rpartition("/")[0] + "/" + EXTENSION + ".so"
    loader = machinery.ExtensionFileLoader(EXTENSION, path)
    module = util.module_from_spec(util.spec_from_file_location(EXTENSION, path, loader=loader))
    loader.exec_module(module)
    sys.modules.pop(EXTENSION, None)
    return module


def settle():
    """Nothing may be left that a fork would lose or share: threads (matplotlib's timer ends soon) or descriptors."""
    import threading

    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    gc.collect()  # closes the files of what was dropped
    left = [name for name in os.listdir("/proc/self/fd") if int(name) >= RESERVED_FDS]
    left = [name for name in left if os.path.exists("/proc/self/fd/" + name)]
    if threading.active_count() != 1 or left:
        sys.exit(f"cordon: zygote: {threading.active_count()} threads and the descriptors {left} are left of loading")


def keep_hooks():
    """Keeps what modules register to be called at forks and at the end, instead of registering it: driver.py calls it
    for the program's forks and at the program's end. The forks here are neither. Returns what undoes this."""
    import atexit

    originals, at_fork, at_exit = (os.register_at_fork, atexit.register), [], []

    def keep_at_exit(call, *arguments, **named_arguments):
        at_exit.append((call, arguments, named_arguments))
        return call

    def restore():
        os.register_at_fork, atexit.register = originals

    os.register_at_fork, atexit.register = lambda **hooks: at_fork.append(hooks), keep_at_exit
    return at_fork, at_exit, originals[0], restore


def main():
    start_again()
    place, _, data = sys.argv[1].partition("-")
    machine = place == "machine"
    if not machine:
        reserve_descriptors()
    set_environment("/nonexistent")
    started_with = frozenset(sys.modules)
    extension = load_extension()
    gc.collect()
    pack = extension.pack if not machine else lambda step: None  # it is for forks
    pack(0)
    at_fork, at_exit, register, restore_hooks = keep_hooks()
    driver = load_beside("driver.py")
    driver["prepare_zygote"](started_with, at_fork, at_exit, bool(extension.RESEED), register)
    pack(1)
    load(COMMON)
    if "data" in (place, data):
        load_data()
    restore_hooks()
    settle()
    driver["finish_zygote"](extension)
    gc.disable()
    gc.collect()  # empties the interpreter's lists of free objects too
    gc.freeze()
    pack(2)
    if machine:
        driver["run_machine"]()
    elif extension.serve(CONTROL_FD, WORKDIR):
        driver["run_forked"]()


main()
