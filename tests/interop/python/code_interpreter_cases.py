# SPDX-License-Identifier: Apache-2.0
"""Cases for the PyPI package `e2b-code-interpreter`, unmodified, against a daemon. Prints a JSON line a case."""

import asyncio
import json
import os
import traceback

from e2b_code_interpreter import AsyncSandbox, Sandbox

ONLY = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else None


def with_sandbox(body, **options):
    sandbox = Sandbox.create(timeout=300, **options)
    try:
        body(sandbox)
    finally:
        sandbox.kill()


def case_value_and_state():
    def body(sandbox):
        assert sandbox.run_code("x = 41\nx + 1").text == "42"
        execution = sandbox.run_code("print('o')\nx")
        assert execution.text == "41" and execution.logs.stdout == ["o\n"] and execution.error is None

    with_sandbox(body)


def case_errors():
    def body(sandbox):
        execution = sandbox.run_code("def f():\n    return 1 / 0\nf()")
        assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
        assert "line 2, in f" in execution.error.traceback
        assert sandbox.run_code("import os; os._exit(1)").error.name == "UnexpectedEndOfExecution"
        assert sandbox.run_code("1").text == "1"

    with_sandbox(body)


def case_charts():
    def body(sandbox):
        execution = sandbox.run_code(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l')\nplt.title('T')\nplt.show()\n"
            "plt.pie([1, 3], labels=['p', 'q'])\nplt.show()", timeout=120)
        assert execution.error is None, execution.error
        line, pie = execution.results
        assert line.png and line.chart.type.value == "line" and line.chart.title == "T"
        assert [tuple(point) for point in line.chart.elements[0].points] == [(1, 3), (2, 4)]
        assert [element.label for element in pie.chart.elements] == ["p", "q"]

    with_sandbox(body)


def case_tables():
    def body(sandbox):
        result = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})", timeout=120).results[0]
        assert "<table" in result.html and result.data == {"a": [1, 2]} and result.is_main_result

    with_sandbox(body)


def case_contexts():
    def body(sandbox):
        context = sandbox.create_code_context(cwd="/tmp")
        sandbox.run_code("x = 1", context=context)
        assert sandbox.run_code("x", context=context).text == "1"
        assert sandbox.run_code("x").error.name == "NameError"
        assert context.id in [found.id for found in sandbox.list_code_contexts()]
        sandbox.restart_code_context(context)
        assert sandbox.run_code("x", context=context).error.name == "NameError"
        sandbox.remove_code_context(context)
        assert context.id not in [found.id for found in sandbox.list_code_contexts()]

    with_sandbox(body)


def case_javascript_and_environment():
    def body(sandbox):
        sandbox.run_code("const x = 20", language="js")
        assert sandbox.run_code("x + 1", language="js").text == "21"
        assert sandbox.run_code("import os; os.environ['A']", envs={"A": "b"}).text == "b"

    with_sandbox(body)


def case_asynchronous():
    async def body():
        sandbox = await AsyncSandbox.create(timeout=300)
        try:
            lines = []
            execution = await sandbox.run_code("print('a')\nprint('b')\n3", on_stdout=lambda message: lines.append(message.line))
            assert execution.text == "3" and "".join(lines) == "a\nb\n"
            contexts = [await sandbox.create_code_context() for _ in range(3)]
            results = await asyncio.gather(*(sandbox.run_code(f"{i} * 2", context=context) for i, context in enumerate(contexts)))
            assert [result.text for result in results] == ["0", "2", "4"]
        finally:
            await sandbox.kill()

    asyncio.run(body())


for name, case in sorted(globals().copy().items()):
    if not name.startswith("case_") or (ONLY and name[5:] not in ONLY):
        continue
    error = None
    try:
        case()
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps({"case": name[5:], "error": error}), flush=True)
