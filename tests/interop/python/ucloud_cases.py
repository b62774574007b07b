# SPDX-License-Identifier: Apache-2.0
"""Cases for UCloud's own PyPI package `ucloud-sandbox`, unmodified, against the E2B door. A JSON line a case."""

import json
import traceback

from ucloud_sandbox import CommandExitException, Sandbox


def case_a_wrong_key_is_refused():
    try:
        Sandbox.create(api_key="wrong")
    except Exception as error:
        assert "key" in str(error).lower() or "401" in str(error), error
        return
    raise AssertionError("a wrong key was taken")


def case_a_sandbox_from_its_making_to_its_end():
    box = Sandbox.create(template="base", timeout=120, allow_internet_access=False, metadata={"source": "cordon"})
    try:
        assert Sandbox.list(limit=1).next_items()[0].sandbox_id
        assert box.get_info().sandbox_id == box.sandbox_id
        box.files.write("/home/user/a", b"\x00\xffdata", user="user")
        assert bytes(box.files.read("/home/user/a", format="bytes", user="user")) == b"\x00\xffdata"
        done = box.commands.run("wc -c <a; echo no >&2", user="user")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "6\n", "no\n"), done
        try:
            box.commands.run("exit 3", user="user")
        except CommandExitException as error:
            assert error.exit_code == 3
        else:
            raise AssertionError("a failing command did not fail")
        assert [entry.name for entry in box.files.list("/home/user") if entry.name == "a"] == ["a"]
    finally:
        assert box.kill()
    assert not Sandbox.kill(box.sandbox_id)


def case_no_network_from_inside():
    box = Sandbox.create(timeout=120, allow_internet_access=False)
    try:
        code = "import socket; s = socket.socket(); s.settimeout(1); print(s.connect_ex(('1.1.1.1', 443)) != 0)"
        assert box.commands.run(f'python3 -c "{code}"', user="user").stdout == "True\n"
    finally:
        box.kill()


def case_pause_and_resume():
    box = Sandbox.create(timeout=120, allow_internet_access=False)
    try:
        box.files.write("/home/user/kept", "kept", user="user")
        box.pause()
        assert box.connect().files.read("/home/user/kept", user="user") == "kept"
    finally:
        box.kill()


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
