# SPDX-License-Identifier: Apache-2.0
"""Calls main() of main.py in the working directory: call.py ARGUMENTS RESULT. The result, or why there is none, goes
into RESULT or RESULT.error, so that nothing that the program prints can pass for it."""
import json
import os
import sys
import types

HERE = os.getcwd()
ARGUMENTS, RESULT = sys.argv[1:3]
RESULT_MAX = 16 << 20


def write(path, text):
    with open(path, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def refuse(why):
    write(RESULT + ".error", why[:65536])
    print(why, file=sys.stderr)
    sys.exit(1)


def without_nan(value):
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    return [without_nan(item) for item in value] if isinstance(value, (list, tuple)) else value


def encode(value):
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(without_nan(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), separators=(",", ":"))
    return text


def report(kind, error, trace):
    import traceback

    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def load():
    module = types.ModuleType("main")
    module.__file__ = os.path.join(HERE, "main.py")
    sys.modules["main"] = sys.modules["__main__"] = module
    with open(module.__file__, "rb") as file:
        code = file.read()
    exec(compile(code, module.__file__, "exec", dont_inherit=True), module.__dict__)
    return module


def run():
    module = load()
    main = module.__dict__.get("main")
    if not callable(main):
        refuse("the program defines no function main(), which arguments are for")
    with open(ARGUMENTS, "rb") as file:
        arguments = json.loads(file.read())
    if not isinstance(arguments, dict):
        refuse(f"the arguments must be a JSON object, found {type(arguments).__name__}")
    value = main(**arguments)
    if hasattr(value, "__await__"):
        import asyncio

        async def awaited():
            return await value

        value = asyncio.run(awaited())
    try:
        text = encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        refuse(f"main() returned a value that is not JSON: {type(error).__name__}: {error}")
    if len(text) > RESULT_MAX:
        refuse(f"main() returned a value of {len(text)} bytes as JSON, more than {RESULT_MAX}")
    write(RESULT, text)


def start():
    sys.excepthook = report
    sys.argv = ["main.py"]
    sys.path[0] = HERE
    try:
        run()
    except SystemExit:
        if not os.path.exists(RESULT) and not os.path.exists(RESULT + ".error"):
            write(RESULT + ".error", "the program exited before main() returned")
        raise
    except BaseException as error:
        write(RESULT + ".error", f"the program ended by {type(error).__name__} before main() returned")
        raise


start()
