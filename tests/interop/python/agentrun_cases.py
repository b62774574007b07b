# SPDX-License-Identifier: Apache-2.0
"""
Cases for the PyPI package `agentrun-sdk`, unmodified, against the server of tests/lib/protocols.py that our backend is
tried with. A JSON line a case. argv: the URL, the access key's id and secret.
"""

import base64
import json
import os
import sys
import tempfile
import traceback

os.environ["DISABLE_BREAKING_CHANGES_WARNING"] = "1"
from agentrun.sandbox.api.code_interpreter_data import CodeInterpreterDataAPI  # noqa: E402
from agentrun.sandbox.api.sandbox_data import SandboxDataAPI  # noqa: E402
from agentrun.utils.config import Config  # noqa: E402
from agentrun.utils.exception import ClientError  # noqa: E402


def config(secret=sys.argv[3]):
    return Config(access_key_id=sys.argv[2], access_key_secret=secret, account_id="1", region_id="cn-hangzhou",
                  data_endpoint=sys.argv[1])


def case_a_wrong_secret_is_refused():
    try:
        SandboxDataAPI(config=config("another")).create_sandbox("t", config=config("another"))
    except ClientError as error:
        assert error.status_code == 403 and "signature" in str(error), error
        return
    raise AssertionError("a wrong signature was taken")


def case_a_sandbox_from_its_making_to_its_end():
    control = SandboxDataAPI(config=config())
    answer = control.create_sandbox("ragflow-python-default", sandbox_idle_timeout_seconds=130, config=config())
    assert answer["code"] == "SUCCESS", answer
    name = answer["data"]["sandboxId"]
    box = CodeInterpreterDataAPI(name, config=config())
    assert box.check_health()["status"] == "ok"
    box.write_file("/home/user/a.b64", base64.b64encode(b"\x00\xffdata").decode())
    done = box.cmd("base64 -d a.b64 >a; cat a | wc -c; echo no >&2; exit 3", "/home/user", 30)["result"]
    assert (done["exitCode"], done["stdout"], done["stderr"]) == (3, "6\n", "no\n"), done
    with tempfile.TemporaryDirectory() as folder:
        to = os.path.join(folder, "a")
        box.download_file("/home/user/a", to)
        assert open(to, "rb").read() == b"\x00\xffdata"
    assert control.get_sandbox(name, config=config())["data"]["sandboxId"] == name
    assert control.delete_sandbox(name, config=config())["code"] == "SUCCESS"
    try:
        control.get_sandbox(name, config=config())
    except ClientError as error:
        assert error.status_code == 404 and error.error_code == "NotFound", error
        return
    raise AssertionError("a sandbox that was ended is there")


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
