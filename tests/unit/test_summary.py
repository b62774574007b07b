# SPDX-License-Identifier: Apache-2.0
"""tools/summary: what failed is counted, and its reason is told in few lines."""
import json
import os
import pathlib
import subprocess
import sys
from xml.sax.saxutils import quoteattr

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pytest_tap  # noqa: E402

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "summary"
TRACEBACK = """api/test_it.py:7: in test_it
    deep(1)
api/lib.py:3: in deep
    int("x")
E   ValueError: the first one

During handling of the above exception, another exception occurred:
api/lib.py:9: in deep
    assert found == wanted
E   AssertionError: deep
""" + "".join(f"E   line {i}\n" for i in range(9)) + "----- Captured stdout call -----\nmuch\n"


def summary(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    done = subprocess.run([sys.executable, "-I", SUMMARY, folder], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def case(name, inner=""):
    return f'<testcase classname="api.test_it" name="{name}">{inner}</testcase>'


def test_a_traceback_ends_as_its_last_place_and_what_was_wrong(tmp_path):
    failure = f"<failure message={quoteattr('AssertionError: deep')}>{TRACEBACK.replace('<', '&lt;')}</failure>"
    skip = '<skipped type="pytest.skip" message="not here"/>'
    code, said = summary(tmp_path, api_xml=f'<a>{case("one", failure)}{case("two")}{case("three", skip)}'
                                           f'{case("four", "<error>no E line, only words</error>")}</a>')
    assert code == 1 and said == [
        "SKIPPED api.test_it.three: not here",
        "FAILED  api.test_it.one",
        "        api/lib.py:9: in deep", "        AssertionError: deep", "        line 0", "        line 1", "        line 2",
        "FAILED  api.test_it.four",
        "        no E line, only words",
        "1 passed, 2 failed, 1 skipped"], said


def test_a_programs_failure_says_what_stood_behind_it(tmp_path):
    log = [{"name": "t", "result": "FAIL",
            "stdout": "1..3\nnot ok 1 - a\n# 0x1 != 0x2\n# t.c:6: error: Failure!\nok 2 - b\nnot ok 3 - c\n# t.c:9: error: Failure!\n"},
           {"name": "hangs", "result": "TIMEOUT", "stdout": "", "stderr": "the last word\n"}]
    code, said = summary(tmp_path, unit_json="\n".join(map(json.dumps, log)))
    assert code == 1 and said == [
        "FAILED  t: a", "        0x1 != 0x2", "        t.c:6: error: Failure!",
        "FAILED  t: c", "        t.c:9: error: Failure!",
        "FAILED  hangs (TIMEOUT)", "        the last word",
        "1 passed, 3 failed"], said


def test_what_failed_once_and_then_held_is_told_and_passes(tmp_path):
    log = [{"name": "t", "result": "FAIL", "stdout": "1..2\nnot ok 1 - a\n# t.c:6: error: Failure!\nok 2 - b\n"}]
    files = {"api_xml": f'<a>{case("one", "<failure>E   once</failure>")}{case("two", "<failure>E   always</failure>")}</a>',
             "unit_json": "\n".join(map(json.dumps, log)), "unstable": "api.test_it.one\nt\n"}
    code, said = summary(tmp_path, **files)
    assert code == 1 and said == ["UNSTABLE api.test_it.one", "        once", "FAILED  api.test_it.two", "        always",
                                  "UNSTABLE t: a", "        t.c:6: error: Failure!", "3 passed, 1 failed"], said


def test_a_suite_that_was_cut_off_is_a_failure(tmp_path):
    code, said = summary(tmp_path, api_xml="", hostile_xml=f"<a>{case('good')}</a>")
    assert code == 1 and said[0].startswith("FAILED  api.xml: its results can't be read") and said[1:] == ["1 passed, 1 failed"], said


def test_nothing_is_no_success(tmp_path):
    assert summary(tmp_path) == (1, ["FAILED  nothing ran", "0 passed, 0 failed"])
    assert summary(tmp_path, api_xml=f"<a>{case('good')}</a>") == (0, ["1 passed, 0 failed"])


if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
