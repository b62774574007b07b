# SPDX-License-Identifier: Apache-2.0
"""A Python interpreter with modules loaded, from which interpreters are forked into guests.

Run by the warden as `python3 -I zygote.py NAME` (NAME: python or data), without privilege, in the template's root
tree, with the socket to the warden as descriptor 3. Beside this file are driver.py and the extension module, which
does the forking (zygote_ext.c). What is done here is done once and pays in every run:

* modules that short programs import are loaded, since an import costs a run more than the pages of a module that it
  does not use: the list is measured, see docs/protocol/driver.md;
* the driver rehearses, so that the interpreter's inline caches are warm and the pages that every run writes are few;
* everything made so far is taken out of the garbage collector's sight, or its next pass would write to all of it.

No module may start a thread here: threads do not survive a fork. Nothing of the environment is kept.
"""
import sys

CONTROL_FD = 3
WORKDIR = "/home/user"

COMMON = """
    __future__ _collections_abc abc argparse array ast base64 bisect builtins calendar cmath codecs collections
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


def clear_environment():
    import os

    os.environ.clear()
    # Read by the numeric libraries when they are loaded. More than one thread would be lost in the fork.
    threads = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB_MAXIMUM")
    os.environ.update({name + "_NUM_THREADS": "1" for name in threads})
    os.environ.update(HOME=WORKDIR, LANG="C.UTF-8", MPLBACKEND="Agg", MPLCONFIGDIR="/tmp/.matplotlib")


def load(names):
    """Loads what is there; a template without one of these still has a zygote."""
    import importlib

    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # a broken package of the template is found by the program that imports it
            continue


def warm_up_data():
    """First uses that would otherwise be paid in each run: matplotlib's font list, and its first figure."""
    if "matplotlib.pyplot" not in sys.modules:
        return
    import io

    plt = sys.modules["matplotlib.pyplot"]
    figure = plt.figure(figsize=(2, 2))
    figure.add_subplot().plot([1, 2], [3, 4], label="x")
    figure.savefig(io.BytesIO(), format="png")
    plt.close("all")


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


def main():
    import gc

    clear_environment()
    extension = load_extension()
    load(COMMON)
    if sys.argv[1:] == ["data"]:
        load(DATA)
        warm_up_data()
    driver = load_beside("driver.py")
    driver["warm_up"]()
    sys.path_importer_cache.clear()
    gc.collect()
    gc.disable()
    gc.freeze()
    if extension.serve(CONTROL_FD, WORKDIR):
        driver["run_forked"]()


main()
