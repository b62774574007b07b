# SPDX-License-Identifier: Apache-2.0
"""Artifacts: what comes back, what does not and why."""

import pytest
from lib.client import artifacts, dropped
from lib.pace import limit

pytestmark = pytest.mark.each_backend

SAVE = (
    "import os\nos.makedirs('artifacts/sub', exist_ok=True)\n"
    "open('artifacts/a.txt', 'w').write('one')\n"
    "open('artifacts/sub/b.bin', 'wb').write(bytes(range(256)))\n"
)


@pytest.mark.smoke
def test_from_the_folder_with_subfolders(run):
    answer = run(SAVE, artifacts=True)
    assert artifacts(answer) == {"a.txt": b"one", "sub/b.bin": bytes(range(256))}
    assert answer["outcome"]["artifacts_dropped"] == 0
    assert all(entry["size"] == len(artifacts(answer)[entry["name"]]) for entry in answer["artifacts"])


def test_new_files_of_the_working_folder(run):
    answer = run("open('report.csv', 'w').write('a,b')", artifacts=True, files={"input.csv": "given"})
    assert artifacts(answer) == {"report.csv": b"a,b"}


@pytest.mark.smoke
def test_new_files_of_folders_in_the_working_folder(run):
    answer = run(
        "import os\n"
        "for d in ('plots/one', '.cache', 'plots/__pycache__', 'node_modules/x'): os.makedirs(d)\n"
        "for n in ('plots/a.png', 'plots/one/b', '.cache/c', 'plots/.d', 'plots/__pycache__/e', 'node_modules/x/f',"
        " 'data/new'): open(n, 'w').write(n)",
        artifacts=True,
        files={"data/input.csv": "given", "data/changed": "given"},
    )
    assert artifacts(answer) == {n: n.encode() for n in ("plots/a.png", "plots/one/b", "data/new")}
    assert answer["outcome"]["artifacts_dropped"] == 0


@pytest.mark.parametrize(
    "language,code",
    [
        ("python", "print(open(__file__).read(), end='')"),
        ("javascript", "process.stdout.write(require('fs').readFileSync(__filename))"),
        (
            "javascript",
            "import fs from 'fs'; process.stdout.write(fs.readFileSync(new URL(import.meta.url), 'utf8') + await '')",
        ),
        ("bash", "cat $0"),
    ],
)
def test_the_program_can_read_itself_and_is_no_artifact(run, language, code):
    answer = run(code, language, artifacts=True)
    assert answer["stdout"] == code and answer["artifacts"] == [], answer


def test_a_program_of_the_same_name_that_was_put_stays(run):
    answer = run("print(open(__file__).read())", files={"main.py": "given"}, artifacts=True)
    assert answer["stdout"] == "given\n" and answer["artifacts"] == []
    answer = run("open(__file__, 'w').write('changed')", files={"main.py": "given"}, artifacts=True)
    assert artifacts(answer) == {"main.py": b"changed"}


def test_changed_input_files_come_back(run):
    answer = run(
        "open('input.csv', 'a').write('+more'); open('/tmp/elsewhere', 'w').write('x')",
        artifacts=True,
        files={"input.csv": "given"},
    )
    assert set(artifacts(answer)) <= {"input.csv"}


def test_only_when_asked_for(run):
    assert run(SAVE)["artifacts"] == []


@pytest.mark.parametrize(
    "language,code",
    [("javascript", "require('fs').writeFileSync('artifacts/j.txt', 'js')"), ("bash", "echo -n sh > artifacts/s.txt")],
)
def test_other_languages(run, language, code):
    assert list(artifacts(run(code, language, artifacts=True)).values()) in ([b"js"], [b"sh"])


def test_after_failure_timeout_and_memory(run):
    for tail, fields, cause in (
        ("raise ValueError", {}, "exited"),
        ("import time; time.sleep(300)", {"timeout_s": limit(1)}, "timeout"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"memory_mb": 64}, "memory"),
        ("os.kill(os.getpid(), 9)", {}, "signalled"),
    ):
        answer = run(SAVE + tail, artifacts=True, **fields)
        assert answer["outcome"]["cause"] == cause
        assert artifacts(answer).get("a.txt") == b"one", (cause, answer)


def test_too_large_ones_are_dropped_with_the_reason(own):
    made = own(artifact_mb=1, artifacts_mb=2, disk_mb=64)
    answer = made.run("open('big', 'wb').write(b'x' * (1 << 21)); open('small', 'w').write('s')", artifacts=True)
    assert artifacts(answer) == {"small": b"s"}
    assert (
        "large" in dropped(answer)["big"] or "1 MiB" in dropped(answer)["big"] or "limit" in dropped(answer)["big"]
    ), answer["artifacts"]
    assert answer["outcome"]["artifacts_dropped"] == 1


def test_exactly_the_limit_is_returned(own):
    made = own(artifact_mb=1)
    answer = made.run("open('exact', 'wb').write(b'x' * (1 << 20))", artifacts=True)
    assert len(artifacts(answer)["exact"]) == 1 << 20


def test_all_together_are_capped(own):
    made = own(artifact_mb=1, artifacts_mb=2)
    answer = made.run("for i in range(4): open(f'f{i}', 'wb').write(bytes([i]) * (900 << 10))", artifacts=True)
    assert len(artifacts(answer)) == 2 and len(dropped(answer)) == 2 and answer["outcome"]["artifacts_dropped"] == 2


def test_too_many(own):
    made = own(artifacts=5)
    answer = made.run("for i in range(9): open(f'f{i}', 'w').write('x')", artifacts=True)
    assert len(artifacts(answer)) == 5 and answer["outcome"]["artifacts_dropped"] == 4


@pytest.mark.parametrize(
    "make,name",
    [
        ("os.symlink('/etc/passwd', 'artifacts/x')", "x"),
        ("os.mkfifo('artifacts/x')", "x"),
        ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('artifacts/x')", "x"),
        ("open('artifacts/x', 'w').write('y'); os.chmod('artifacts/x', 0)", "x"),
        ("os.symlink('.', 'artifacts/loop'); open('artifacts/fine', 'w').write('1')", "loop"),
    ],
)
def test_what_is_no_plain_file_is_dropped_with_the_reason(run, make, name):
    answer = run("import os\n" + make, artifacts=True)
    assert name not in artifacts(answer) or make.startswith("open"), answer
    assert dropped(answer).get(name) or name in artifacts(answer), answer


@pytest.mark.parametrize(
    "name", ["sp ace", "\u00e9\u20ac", "quote\"'", "-rf", "new\nline", "back\\slash", "\x01ctl", "n" * 255, ".hidden"]
)
def test_names_survive_or_are_told(run, name):
    answer = run(f"open('artifacts/' + {name!r}, 'w').write('n')", artifacts=True)
    assert artifacts(answer).get(name) == b"n" or answer["outcome"]["artifacts_dropped"] == 1, answer


def test_empty_files_and_folders(run):
    answer = run("import os\nopen('artifacts/empty', 'w').close(); os.makedirs('artifacts/folder')", artifacts=True)
    assert artifacts(answer) == {"empty": b""}


def test_ten_megabytes(run):
    answer = run("import os\nopen('artifacts/ten', 'wb').write(os.urandom(1 << 20) * 10)", artifacts=True)
    assert len(artifacts(answer)["ten"]) == 10 << 20


def test_they_are_deterministic_in_order(run):
    answer = run("for n in ('c', 'a', 'b'): open('artifacts/' + n, 'w').write(n)", artifacts=True)
    names = [entry["name"] for entry in answer["artifacts"]]
    assert sorted(names) == ["a", "b", "c"]
