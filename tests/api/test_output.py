# SPDX-License-Identifier: Apache-2.0
"""What comes out: in order, unharmed, counted, capped."""

import base64

import pytest
from lib.client import stderr_bytes, stdout_bytes

KB = 1024


@pytest.mark.parametrize(
    "data",
    [
        b"no newline",
        b"\0\0nul\0",
        bytes(range(256)),
        b"\xff\xfe\xfd",
        b"\xe2\x82",
        b"a\r\nb\rc\n",
        b"\x1b[31mred\x1b[0m\x07",
        b"\xf0\x9f\x98\x80",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\n" * 1000,
    ],
)
def test_bytes_arrive_unharmed(run, data):
    code = f"import os\nos.write(1, {data!r})\nos.write(2, {data!r})"
    answer = run(code)
    assert stdout_bytes(answer) == data and stderr_bytes(answer) == data
    assert answer["outcome"]["stdout"]["bytes"] == len(data)


def test_text_form_of_bytes(run):
    answer = run("import os\nos.write(1, b'a\\xffb')")
    assert answer["stdout"] == "a\ufffdb" and base64.b64decode(answer["stdout_b64"]) == b"a\xffb"
    assert "stdout_b64" not in run("print('text')")


def test_megabyte_without_newline(run):
    answer = run("import sys\nsys.stdout.write('q' * 1000000)")
    assert answer["stdout"] == "q" * 1000000 and not answer["outcome"]["stdout"]["truncated"]


def test_order_is_kept(run):
    answer = run("for i in range(20000): print(i)")
    assert answer["stdout"] == "".join(f"{i}\n" for i in range(20000))


def test_written_by_children_and_parents_in_order(run):
    code = (
        "import subprocess, sys\nfor i in range(10):\n    print('p', i, flush=True)\n"
        "    subprocess.run(['echo', 'c', str(i)])"
    )
    assert run(code)["stdout"] == "".join(f"p {i}\nc {i}\n" for i in range(10))


@pytest.mark.parametrize("stream,fd", [("stdout", 1), ("stderr", 2)])
def test_cap_truncates_and_says_so(own, stream, fd):
    made = own(stdout_kb=64, stderr_kb=64)
    answer = made.run(f"import os\nfor i in range(300): os.write({fd}, b'%07d\\n' % i * 128)")
    outcome = answer["outcome"]
    assert outcome["cause"] == "exited" and answer["exit_code"] == 0
    assert outcome[stream]["truncated"] is True and outcome[stream]["bytes"] == 300 * KB
    kept = answer[stream]
    assert len(kept) == 64 * KB and kept.startswith("0000000\n") and outcome[stream]["kept"] == 64 * KB
    other = "stderr" if stream == "stdout" else "stdout"
    assert outcome[other]["truncated"] is False and answer[other] == ""


def test_exactly_the_cap_is_not_truncated(own):
    made = own(stdout_kb=1)
    exact = made.run("import sys; sys.stdout.write('x' * 1024)")
    assert not exact["outcome"]["stdout"]["truncated"] and len(exact["stdout"]) == 1024
    over = made.run("import sys; sys.stdout.write('x' * 1025)")
    assert (
        over["outcome"]["stdout"]["truncated"]
        and len(over["stdout"]) == 1024
        and over["outcome"]["stdout"]["bytes"] == 1025
    )


def test_cap_in_the_middle_of_a_character(own):
    made = own(stdout_kb=1)
    answer = made.run("print('x' + '\\u00e9' * 2000)")
    assert answer["outcome"]["stdout"]["truncated"]
    assert stdout_bytes(answer) == ("x" + "\u00e9" * 2000).encode()[:1024]


def test_a_stream_beyond_the_kill_limit_ends_the_run(own):
    made = own(output_kill_mb=4)
    answer = made.run("while True: print('f' * 4000)", timeout_s=30)
    outcome = answer["outcome"]
    assert outcome["cause"] == "output_limit" and outcome["limit_hit"] == "output_kill_mb" and "4 MiB" in outcome["message"]
    assert outcome["stdout"]["truncated"] and 4 << 20 <= outcome["stdout"]["bytes"] < 8 << 20
    assert answer["stdout"].startswith("ffff")


def test_output_before_a_crash_is_kept(run):
    answer = run("import os, sys\nprint('before', flush=True)\nos.kill(os.getpid(), 9)")
    assert answer["stdout"] == "before\n"


def test_unflushed_output_of_a_normal_end_is_kept(run):
    assert run("import sys\nsys.stdout.write('tail')")["stdout"] == "tail"
    assert run("import atexit\natexit.register(lambda: print('at exit'))\nprint('body')")["stdout"] == "body\nat exit\n"


def test_unflushed_output_of_sys_exit_is_kept(run):
    answer = run("import sys\nsys.stdout.write('tail'); sys.exit(4)")
    assert answer["stdout"] == "tail" and answer["exit_code"] == 4


def test_javascript_output_before_exit_is_kept(run):
    answer = run("process.stdout.write('x'.repeat(60000)); process.exit(2)", "javascript")
    assert answer["stdout"] == "x" * 60000 and answer["exit_code"] == 2


def test_closed_stdout(run):
    answer = run("import os, sys\nprint('a', flush=True)\nos.close(1)\nsys.stderr.write('still here')")
    assert answer["stdout"] == "a\n" and "still here" in answer["stderr"]


def test_streams_are_separate(run):
    answer = run("import sys\nprint('o')\nprint('e', file=sys.stderr)")
    assert (answer["stdout"], answer["stderr"]) == ("o\n", "e\n")


def test_ten_megabytes_of_output(own):
    made = own(stdout_kb=20480)
    answer = made.run("import sys\nfor i in range(10): sys.stdout.write('m' * (1 << 20))")
    assert len(answer["stdout"]) == 10 << 20


@pytest.mark.parametrize(
    "language, code",
    [
        ("bash", "echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/stdin"),
        (
            "python",
            "open('/dev/stdout', 'w').write('out\\n'); open('/dev/stderr', 'w').write('err\\n')\n"
            "print(open('/dev/stdin').read(), end='')",
        ),
        (
            "javascript",
            "const fs = require('fs'); fs.writeFileSync('/dev/stdout', 'out\\n');"
            "fs.writeFileSync('/dev/stderr', 'err\\n'); process.stdout.write(fs.readFileSync('/dev/stdin'))",
        ),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_the_three_streams_can_be_opened_by_name(run, language, code, fresh):
    """As on any host, though the pipes were made by somebody with another uid."""
    options = {"fresh_interpreter": True} if fresh and language == "python" else {}
    answer = run(code, language, stdin="in\n", **options)
    assert (answer["exit_code"], answer["stderr"]) == (0, "err\n"), answer
    assert answer["stdout"] == "out\nin\n"
