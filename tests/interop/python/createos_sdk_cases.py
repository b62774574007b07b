# SPDX-License-Identifier: Apache-2.0
"""Cases for CreateOS's own PyPI package `createos-sandbox`, unmodified. A JSON line a case. argv: the URL and the key."""

import json
import sys
import traceback

import createos
from createos import CreateSandboxRequest, RunCommandRequest


def client(key=None):
    return createos.Client(api_key=key or sys.argv[2], base_url=sys.argv[1])


def made(**fields):
    return client().create_sandbox(CreateSandboxRequest(
        shape="s-2vcpu-4gb", rootfs="devbox:1", egress_rules=["240.0.0.0/4"], auto_pause_after_seconds=180, **fields))


def case_a_wrong_key_is_refused():
    try:
        client("wrong").who_am_i()
    except createos.APIError as error:
        assert "401" in str(error), error
        return
    raise AssertionError("a wrong key was taken")


def case_who_am_i_and_shapes():
    assert client().who_am_i().user_id
    assert any(shape.memory_mib >= 4096 for shape in client().list_shapes())


def case_a_sandbox_from_its_making_to_its_end():
    box = made(name="vendor-1")
    box.files.upload("/tmp/a", b"\x00\xffdata")
    with box.files.download("/tmp/a") as stream:
        assert stream.read() == b"\x00\xffdata"
    done = box.run_command(RunCommandRequest(command="/bin/sh", arguments=["-c", "cat /tmp/a | wc -c; echo no >&2; exit 3"]))
    assert (done.result.exit_code, done.result.standard_output.strip(), done.result.standard_error) == (3, "6", "no\n"), done
    box.destroy()
    assert not [row for row in client().list_sandboxes() if row.name == "vendor-1" and row.status not in ("destroying", "destroyed")]


def case_a_stream_of_output():
    box = made(name="vendor-2")
    try:
        with box.stream_command(RunCommandRequest(command="/bin/sh", arguments=["-c", "echo out; echo err >&2; exit 4"])) as stream:
            events = list(stream)
        text = repr(events)
        assert "out" in text and "err" in text and "4" in text, text
    finally:
        box.destroy()


def case_pause_and_resume():
    box = made(name="vendor-3")
    try:
        box.pause()
        assert box.wait_until_paused().status == "paused"
        box.resume()
        assert box.wait_until_running().status == "running"
    finally:
        box.destroy()


def main():
    for name, function in list(globals().items()):
        if name.startswith("case_"):
            try:
                function()
                error = None
            except BaseException:
                error = traceback.format_exc()[-1500:]
            print(json.dumps({"case": name[5:], "error": error}), flush=True)


main()
