# SPDX-License-Identifier: Apache-2.0
"""Python's driver: main() with its arguments and its result. The agent is played by interpreter_peers."""
import json
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pytest_tap  # noqa: E402
from interpreter_peers import FreshDriver  # noqa: E402

pytest_plugins = ["interpreter_fixtures"]


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
    assert driver.child.wait(timeout=30) == 0
    os.close(driver.pipes.stdin)
    driver.pipes.close()


# --- run by meson: one TAP line a test ---

if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
