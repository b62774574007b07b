# SPDX-License-Identifier: Apache-2.0
"""
Cases for the PyPI package `tenki`, unmodified, against the server of tests/lib/protocols.py that our backend is tried
with. A JSON line a case. The client speaks gRPC, our backend (as Tenki's MCP server) Connect's JSON; so between the client
and that server stands a translation by nothing but the client's own published message types: whatever the server says that
these types do not know, or say otherwise, fails.

argv: the server's URL, its key, and a file with the requests that our own backend sent: [[path, body], ...].
"""

import json
import sys
import traceback
import urllib.error
import urllib.request
from concurrent import futures

import grpc
import tenki_sandbox
from google.protobuf import json_format, message_factory
from tenki_sandbox._internal.proto.tenki.sandbox.v1 import sandbox_pb2 as pb

URL, KEY, OURS = sys.argv[1:4]
SERVICES = {service.full_name: service for service in pb.DESCRIPTOR.services_by_name.values()}
DATA = "tenki.sandbox.v1.SandboxSessionDataPlaneService"
CODES = {code.name.lower(): code for code in grpc.StatusCode}
made = []  # what the client asked for: (method, JSON)


def types(path):
    """The classes of a call's request and answer."""
    service, method = path.strip("/").split("/")
    found = SERVICES[service].methods_by_name[method]
    return message_factory.GetMessageClass(found.input_type), message_factory.GetMessageClass(found.output_type)


class Bridge(grpc.GenericRpcHandler):
    """gRPC in, Connect's unary JSON out."""

    def service(self, call):
        kind, _ = types(call.method)
        metadata = {name: value for name, value in call.invocation_metadata if name in ("authorization", "x-tenki-session-cert")}
        read = kind.FromString
        write = lambda message: message.SerializeToString()  # noqa: E731
        if call.method.endswith("/Run"):
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self.run(metadata, next(requests).frame.start, context), read, write)
        if call.method.endswith("/WaitSession"):
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self.wait(metadata, request, context), read, write)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self.unary(call.method, metadata, request, context), read, write)

    def unary(self, path, metadata, request, context):
        body = json_format.MessageToJson(request)
        made.append((path.rsplit("/", 1)[1], json.loads(body)))
        headers = {**metadata, "Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        try:
            with urllib.request.urlopen(urllib.request.Request(URL + path, body.encode(), headers)) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            told = json.loads(error.read())
            context.abort(CODES[told["code"]], told["message"])
        answer = json_format.Parse(text, types(path)[1]())  # strict: what is unknown is refused
        if getattr(answer, "data_plane_endpoint", ""):
            answer.data_plane_endpoint = BRIDGE
        return answer

    def control(self, method, metadata, request, context):
        return self.unary(f"/tenki.sandbox.v1.SandboxService/{method}", metadata, request, context)

    def wait(self, metadata, request, context):
        found = self.control("GetSession", metadata, pb.GetSessionRequest(session_id=request.session_id), context)
        yield pb.WaitSessionResponse(session=found.session)

    def run(self, metadata, start, context):
        """As our backend runs a command: its output in files, which are read when it ended."""
        command = 'out=$1; shift; "$@" >$out.out 2>$out.err </dev/null'
        ask = pb.ExecuteCommandRequest(session_id=start.session_id, command="sh",
                                       args=["-c", command, "sh", "/home/tenki/x", *start.cmd])
        ask.timeout.FromMilliseconds(start.timeout_ms or 30000)
        done = self.control("ExecuteCommand", {"authorization": "Bearer " + KEY}, ask, context).execution
        parts = {}
        for name in ("out", "err"):
            wrapped = pb.SandboxSessionDataPlaneServiceReadFileRequest(
                request=pb.ReadFileRequest(session_id=start.session_id, path="/home/tenki/x." + name))
            parts[name] = self.unary(f"/{DATA}/ReadFile", metadata, wrapped, context).response.content
        frames = [pb.RunResponse(started=pb.RunStarted()), pb.RunResponse(stdout=parts["out"]), pb.RunResponse(stderr=parts["err"]),
                  pb.RunResponse(exit=pb.RunExit(exit_code=done.exit_code, timed_out=done.status == pb.COMMAND_STATUS_TIMED_OUT))]
        for frame in frames:
            yield pb.SandboxSessionDataPlaneServiceRunResponse(frame=frame)


server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Bridge()])
BRIDGE = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"


def client(key=KEY):
    return tenki_sandbox.Client(auth_token=key, base_url=BRIDGE)


def ours(method):
    return [json.loads(body) for path, body in json.load(open(OURS, encoding="utf-8")) if path.endswith("/" + method)]


def case_who_am_i():
    assert client().who_am_i().owner_id == "o"


def case_a_wrong_key_is_said_to_be_one():
    try:
        client("tk_another").who_am_i()
    except Exception as error:
        assert "no such key" in str(error), repr(error)
        return
    raise AssertionError("a wrong key was taken")


def session():
    return client().create(allow_inbound=False, allow_outbound=False, max_duration=600, cpu_cores=2, memory_mb=4096,
                           disk_size_gb=5, metadata={"source": "cordon"}, timeout=30)


def case_a_session_from_its_making_to_its_end():
    box = session()
    assert box.state == "RUNNING"
    box.fs.write_bytes("/home/tenki/a", b"\x00\xff data")
    assert box.fs.read_bytes("/home/tenki/a") == b"\x00\xff data"
    done = box.exec("sh", "-c", "cat a >&2; echo out; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"\x00\xff data"), done
    done = box.exec("true")
    assert done.exit_code == 0 and not done.stdout, done
    box.terminate()


def case_what_our_backend_sends_are_the_published_messages():
    """Field by field, by the client's own types; project_id alone is no field of theirs any more."""
    sent = [(path, json.loads(body)) for path, body in json.load(open(OURS, encoding="utf-8"))]
    assert {path.rsplit("/", 1)[1] for path, _ in sent} >= {"WhoAmI", "CreateSession", "GetSession", "CreateSessionCredential",
                                                           "WriteFile", "ReadFile", "ExecuteCommand", "TerminateSession"}
    for path, body in sent:
        if path.endswith("/CreateSession"):
            assert body.pop("projectId") == "project-1"
        json_format.ParseDict(body, types(path)[0]())


def case_a_session_is_asked_for_as_the_client_asks():
    session().terminate()
    theirs = [body for method, body in made if method == "CreateSession"][-1]
    for body in ours("CreateSession"):
        body.pop("projectId")
        body.pop("waitReady")  # the client waits by itself, with a call that Connect's unary JSON does not have
        assert body == theirs, (body, theirs)


def case_files_and_the_end_are_asked_for_as_the_client_asks():
    theirs = dict(made)
    for method in ("WriteFile", "ReadFile", "TerminateSession", "CreateSessionCredential"):
        shape = lambda value: {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else type(value)  # noqa: E731
        for body in ours(method):
            assert shape(body) == shape(theirs[method]), (method, body, theirs[method])


def main():
    server.start()
    for name, function in list(globals().items()):
        if name.startswith("case_"):
            try:
                function()
                error = None
            except BaseException:
                error = traceback.format_exc()[-1500:]
            print(json.dumps({"case": name[5:], "error": error}), flush=True)
    server.stop(0)


main()
