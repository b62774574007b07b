# SPDX-License-Identifier: Apache-2.0
"""
The check of the source (off by default), and the 17 cases of RAGFlow's own security test, rebuilt: their verdict with the
check on, and off, where isolation has to hold what the check only refuses.
"""

import concurrent.futures

import pytest
from lib import executor_manager as em
from lib.daemon import Daemon
from lib.executor_manager import TOKEN, run, value

OPTIONS = {"SANDBOX_EXECUTOR_MANAGER_API_TOKEN": TOKEN, "SANDBOX_RUN_RATE_LIMIT": "100000/minute", "SANDBOX_TIMEOUT": "6s"}


@pytest.fixture(scope="module")
def checked():
    with Daemon(CORDON_EXECUTOR_CHECK="true", **OPTIONS) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def unchecked():
    with Daemon(**OPTIONS) as daemon:
        yield daemon


def findings(daemon, code, language="python"):
    """What the check found, or None where the program ran."""
    result = run(daemon, code, language)
    if result["exit_code"] != -999:
        return None
    assert (result["status"], result["detail"]) == ("program_runner_error", "Code is unsafe")
    return result["stderr"].split("\n")


MAIN = "\ndef main(): return 1"

PYTHON = [
    ("import os", ["1: Import: os"]),
    ("import os.path, sys as s, json", ["1: Import: os.path", "1: Import: sys"]),
    ("import http.client", None),  # only the first part is compared
    ("import http.server", None),
    ("from os import path", ["1: From Import: os"]),
    ("from os.path import join", ["1: From Import: os.path"]),
    ("def f():\n    from . import x", None),
    ("def f(): os.system('x')", ["1: Call: system", "1: Attribute Access: os.system"]),
    ("def f(): re.compile('x')", ["1: Call: compile"]),
    ("def f(): eval('1')", ["1: Call: eval"]),
    ("def f(): __builtins__.eval('1')", ["1: Call: eval"]),
    ("def f(): return sys.path", ["1: Attribute Access: sys.path"]),
    ("def f(): return a.os.path", None),
    ("x = 60 * 60", ["1: Possible unsafe string concatenation"]),
    ("x = 'a' + 'b' + 'c'", ["1: Possible unsafe string concatenation"]),
    ("x = -1 * 2", None),  # -1 is an operation, not a constant
    ("x = 2 ** -1", None),
    ("def eval(): pass", ["1: Function Definition: eval"]),
    ("class A:\n    def open(self): pass", ["2: Function Definition: open"]),
    ("async def open(): pass", None),
    ("eval = 1", ["1: Assignment to dangerous variable: eval"]),
    ("a = eval = open = 1", ["1: Assignment to dangerous variable: eval", "1: Assignment to dangerous variable: open"]),
    ("eval: int = 1", None),
    ("a, eval = 1, 2", None),
    ("f = lambda: eval('x')", ["1: Lambda with dangerous function call", "1: Call: eval"]),
    ("def f(): return [eval(x) for x in y]", ["1: List comprehension with dangerous function call", "1: Call: eval"]),
    ("def f(): return [x for x in eval('y')]", ["1: Call: eval", "1: Call: eval"]),
    ("def f(): return [open(x) for x in eval('y')]",
     ["1: Call: eval", "1: List comprehension with dangerous function call", "1: Call: open", "1: Call: eval"]),
    ("def f(): return {open(x) for x in y}", ["1: Set comprehension with dangerous function call", "1: Call: open"]),
    ("def f(): return {eval(k): open(v) for k in y}",
     ["1: Dict comprehension with dangerous function call in key", "1: Dict comprehension with dangerous function call in value",
      "1: Call: eval", "1: Call: open"]),
    ("def f(): return (eval(x) for x in y)", ["1: Call: eval"]),
    ("def f(): yield eval('x')", ["1: Yield with dangerous function call", "1: Call: eval"]),
    ("def f(): yield", None),
    ("def f():\n    importlib.import_module('os')\n    http.server.shutil.rmtree('x')\n    (eval := 1)", None),
    ("\n\nimport os\nx = 1 + 1", ["3: Import: os", "4: Possible unsafe string concatenation"]),
    ("def f(): é = 1", None),
]


@pytest.mark.parametrize("code,expected", PYTHON, ids=[repr(code)[:40] for code, _ in PYTHON])
def test_rules_of_python(checked, code, expected):
    assert findings(checked, code + MAIN) == (expected and [f"Line {line}" for line in expected])


@pytest.mark.parametrize("code,text", [
    ("x =", "invalid syntax (<unknown>, line 1)"),
    ("def f():\nx", "expected an indented block after function definition on line 1 (<unknown>, line 2)"),
    ("x = 'a", "unterminated string literal (detected at line 1) (<unknown>, line 1)"),
    ("x\0", "source code string cannot contain null bytes"),
])
def test_python_that_does_not_parse(checked, code, text):
    assert findings(checked, code) == [f"Line -1: Parsing Error: {text}"]


def test_source_that_is_too_much_for_the_check(checked):
    for code in ("x = " + "-" * 100000 + "1" + MAIN, "(" * 5000, "x = " + "(" * 150 + "1" + ")" * 150 + MAIN):
        found = findings(checked, code)
        assert found is None or "Parsing Error" in found[0] or "gave no answer" in found[0], found


NODE = [
    ("require('child_process')", ["1: Require: child_process"]),
    ('require ( "fs" )', ["1: Require: fs"]),
    ("require(`fs')", ["1: Require: fs"]),
    ("// require('worker_threads')", ["1: Require: worker_threads"]),
    ("\n\neval ('1'); new Function('x')\nprocess . binding('x')", ["3: Call: eval", "3: Call: Function", "4: Call: process.binding"]),
    ("Function('a')\nrequire('fs')\nrequire('child_process')", ["3: Require: child_process", "2: Require: fs", "1: Call: Function"]),
    ("const medieval = (x) => x; medieval(1); 'éeval(1)'", None),
    ("const a = require('node:fs'), b = require('fs/promises')", None),
    ("process['binding']", None),
]


@pytest.mark.parametrize("code,expected", NODE, ids=[repr(code)[:40] for code, _ in NODE])
def test_rules_of_node(checked, code, expected):
    found = findings(checked, code + "\nfunction main() { return 1 }", "nodejs")
    assert found == (expected and [f"Line {line}" for line in expected])


def test_what_passes_runs(checked):
    assert value(run(checked, "def main(a): return a", arguments={"a": "é"})) == "é"
    result = run(checked, "def main():\n    raise ValueError('x')")
    assert result["status"] == "program_error" and "main.py" in result["stderr"]


def test_off_by_default(unchecked):
    assert value(run(unchecked, "import os, sys\nx = 1 + 1\ndef main(): return os.getcwd() + str(eval('1'))")).endswith("1")
    assert value(run(unchecked, "const fs = require('fs')\nfunction main() { return eval('1') }", "nodejs")) == 1


# --- RAGFlow's 17 cases. True: must succeed; False: must not; None: whatever ---

LOOP = "def main():\n    while True:\n        pass"
CASES = {
    # name: (language, code, with the check, without it, what must hold without it)
    "7 object": ("python", 'def main() -> dict:\n    return {"data": "hello, world"}', True, True, None),
    "8 pandas": ("python", "import pandas as pd\ndef main():\n    frame = pd.DataFrame({'Name': ['A', 'B', 'C'], 'Age': [1, 2, 3]})\n    print(frame)",
                 True, True, None),
    "9 https": ("nodejs", "const https = require('https');\nasync function main(args) {\n  return new Promise((resolve, reject) => {\n"
                "    const guard = setTimeout(() => reject(new Error('late')), 10000);\n"
                "    https.get('https://example.com/', (res) => { let body = ''; res.on('data', (d) => { body += d; });\n"
                "      res.on('end', () => { clearTimeout(guard); console.log(body); resolve(body); }); }).on('error', reject);\n  });\n}\n"
                "module.exports = { main };", False, False, "no network"),
    "10 axios": ("nodejs", "const axios = require('axios');\nasync function main(args) {\n  try {\n    const answer = await axios.get('https://example.com/');\n"
                 "    console.log('Body:', answer.data);\n  } catch (error) {\n    console.error('Error:', error.message);\n  }\n}", False, False, None),
    "11 import os": ("python", "import os\ndef main():\n    return os.getuid()", False, True, "harmless in a guest"),
    "12 subprocess": ("python", "from subprocess import Popen\ndef main():\n    return 1", False, True, "harmless in a guest"),
    "13 eval": ("python", "def main():\n    eval(\"__import__('os').system('echo hello')\")", False, True, "harmless in a guest"),
    "14 rmtree": ("python", "import shutil\n\ndef main():\n    shutil.rmtree('/some/path')", False, False, "there is no such path"),
    "15 concatenation": ("python", "def main():\n    code = 'os.' + 'system'\n    return eval(code)", False, False, "os is not defined"),
    "16 own function": ("python", "def eval_function(code):\n    return eval(code)\ndef main():\n    return eval_function('1')", False, True,
                        "harmless in a guest"),
    "17 memory": ("python", "def main():\n    a = ['a' * 1024 * 1024] * 300\n    return len(a)", False, True, "it is 1 MiB, 300 times the same"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cases(checked, unchecked, name):
    language, code, with_check, without, _ = CASES[name]
    if "pandas" in code:
        if not em.guests_have("pandas"):
            pytest.skip("the host's python3 has no pandas")
    assert (run(checked, code, language)["status"] == "success") is with_check
    assert (run(unchecked, code, language)["status"] == "success") is without


@pytest.mark.parametrize("which", ["checked", "unchecked"])
def test_cases_1_to_6_loops_at_the_same_time(which, request):
    """All within the client's 15 s: 6 s each here, with as many places as there are."""
    daemon = request.getfixturevalue(which)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: run(daemon, LOOP, timeout=60), range(6)))
    assert {(r["status"], r["exit_code"], r["resource_limit_type"]) for r in results} == {("resource_limit_exceeded", -124, "time")}


@pytest.mark.parametrize("code,lines", [
    (CASES["14 rmtree"][1], ["Line 1: Import: shutil", "Line 4: Attribute Access: shutil.rmtree"]),
    (CASES["15 concatenation"][1], ["Line 2: Possible unsafe string concatenation", "Line 3: Call: eval"]),
    (CASES["12 subprocess"][1], ["Line 1: From Import: subprocess"]),
])
def test_what_the_cases_are_told(checked, code, lines):
    assert findings(checked, code) == lines


def test_a_real_test_of_memory(unchecked):
    """What case 17 meant to be."""
    result = run(unchecked, "def main():\n    a = [str(i) * 1024 * 1024 for i in range(300)]\n    return len(a)")
    assert result["exit_code"] == -137 and result["resource_limit_type"] == "memory"
