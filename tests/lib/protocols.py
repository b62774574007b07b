# SPDX-License-Identifier: Apache-2.0
"""Small servers that speak the protocols of Tenki and of Aliyun's AgentRun, written from what is documented of them, and
held true by the vendors' own clients (tests/interop/test_vendors.py). They prove what our backends send and make of
answers; they are not the clouds."""

import base64
import hashlib
import hmac
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse

from .daemon import PREFIX


class Sandbox:
    """A folder that stands for /home, and commands that see it there: in namespaces of their own, without network."""

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix=PREFIX + "home-")
        for user in ("tenki", "user"):
            os.mkdir(os.path.join(self.home, user))

    def path(self, path):
        assert path.startswith("/home/") and ".." not in path, path
        return self.home + path[len("/home") :]

    def run(self, argv, seconds, cwd):
        """(exit code or None when its time was over, stdout, stderr)"""
        inner = f'mount --bind {self.home} /home && cd {cwd} && exec "$@"'
        process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inner, "sh", *argv],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=seconds)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return None, out, err

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)


class Server:
    """Serves handle(request, body) -> (status, content type, bytes) on a port of its own; keeps what was asked."""

    def __init__(self):
        self.requests, self.sandboxes = [], {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                body = b"".join(self.chunks()) if "Transfer-Encoding" in self.headers else self.rfile.read(
                    int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                outer.answer(self, body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve

            def chunks(self):
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, request, body):
        status, kind, data = self.handle(request, body)
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for sandbox in self.sandboxes.values():
            sandbox.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def as_json(value, status=200):
    return status, "application/json", json.dumps(value).encode()


class Tenki(Server):
    KEY, CREDENTIAL = "tk_test_key_of_tenki", "credential-of-a-session"
    created = "CREATING"  # a session's state when it was just made
    made = 0

    def handle(self, request, body):
        self.host = request.headers["Host"]  # its data is found where it was asked for, which may be a proxy
        service, method = request.path.strip("/").split("/")
        message = json.loads(body)
        if request.headers.get("Connect-Protocol-Version") != "1":
            return as_json({"code": "invalid_argument", "message": "no Connect"}, 400)
        if "DataPlane" in service:
            if request.headers.get("x-tenki-session-cert") != self.CREDENTIAL:
                return as_json({"code": "unauthenticated", "message": "no credential"}, 401)
            return self.data(method, message["request"])
        if request.headers.get("Authorization") != "Bearer " + self.KEY:
            return as_json({"code": "unauthenticated", "message": "no such key " + self.KEY}, 401)
        return getattr(self, method)(message)

    def WhoAmI(self, message):
        return as_json({"ownerType": "SERVICE", "ownerId": "o"})

    def CreateSession(self, message):
        self.made += 1
        name = f"session-{self.made}"
        self.sandboxes[name] = Sandbox()
        return as_json({"session": {"id": name, "state": "SESSION_STATE_" + self.created}})

    def GetSession(self, message):
        return as_json({"session": {"id": message["sessionId"], "state": "SESSION_STATE_RUNNING"}})

    def CreateSessionCredential(self, message):
        return as_json({"credential": {"credential": self.CREDENTIAL}, "dataPlaneEndpoint": "http://" + self.host})

    def ExecuteCommand(self, message):
        seconds = float(message["timeout"].rstrip("s"))
        code, _, _ = self.sandboxes[message["sessionId"]].run([message["command"], *message["args"]], seconds,
                                                                 "/home/tenki")
        if code is None:
            return as_json({"execution": {"status": "COMMAND_STATUS_TIMED_OUT", "exitCode": -1}})
        return as_json({"execution": {"status": "COMMAND_STATUS_FAILED" if code else "COMMAND_STATUS_SUCCEEDED",
                                      **({"exitCode": code} if code else {})}})

    def TerminateSession(self, message):
        found = self.sandboxes.pop(message["sessionId"], None)
        if found is None:
            return as_json({"code": "not_found", "message": "gone"}, 404)
        found.close()
        return as_json({})

    def data(self, method, message):
        path = self.sandboxes[message["sessionId"]].path(message["path"])
        if method == "WriteFile":
            with open(path, "wb") as file:
                file.write(base64.b64decode(message["content"]))
            return as_json({"response": {}})
        with open(path, "rb") as file:
            return as_json({"response": {"content": base64.b64encode(file.read()).decode()}})


class AgentRun(Server):
    KEY, SECRET, REGION = "LTAItestkey", "secret-of-the-access-key", "cn-hangzhou"
    made = 0

    def signature(self, request):
        """Computed anew from the request: the reference, in another language than what it judges."""
        url = urllib.parse.urlsplit(request.path)
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}"
                         for k, v in sorted(urllib.parse.parse_qsl(url.query, keep_blank_values=True)))
        date = request.headers["x-acs-date"]
        signed = {"host": request.headers["Host"], "x-acs-content-sha256": "UNSIGNED-PAYLOAD", "x-acs-date": date}
        canonical = "\n".join([request.command, url.path or "/", query,
                               "".join(f"{k}:{v}\n" for k, v in sorted(signed.items())),
                               ";".join(sorted(signed)), "UNSIGNED-PAYLOAD"])
        text = "AGENTRUN4-HMAC-SHA256\n" + hashlib.sha256(canonical.encode()).hexdigest()
        day = re.sub(r"[-:]", "", date)[:8]
        key = ("aliyun_v4" + self.SECRET).encode()
        for part in (day, self.REGION, "agentrun", "aliyun_v4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return (f"AGENTRUN4-HMAC-SHA256 Credential={self.KEY}/{day}/{self.REGION}/agentrun/aliyun_v4_request,"
                f"SignedHeaders={';'.join(sorted(signed))},"
                f"Signature={hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}")

    def handle(self, request, body):
        if request.headers.get("Agentrun-Authorization") != self.signature(request):
            return as_json({"code": "SignatureDoesNotMatch", "message": "the signature is another one"}, 403)
        url = urllib.parse.urlsplit(request.path)
        parts = url.path.strip("/").split("/")
        if len(parts) == 1 and request.command == "POST":
            self.made += 1
            name = f"sandbox-{self.made}"
            self.sandboxes[name] = Sandbox()
            return as_json({"code": "SUCCESS", "data": {"sandboxId": name}, "requestId": "r"})
        sandbox = self.sandboxes.get(parts[1])
        if sandbox is None:
            return as_json({"code": "NotFound", "message": "no such sandbox", "requestId": "r"}, 404)
        if len(parts) == 2:
            if request.command == "DELETE":
                self.sandboxes.pop(parts[1]).close()
            return as_json({"code": "SUCCESS", "data": {"sandboxId": parts[1]}, "requestId": "r"})
        return self.within(sandbox, "/".join(parts[2:]), url.query, body)

    def within(self, sandbox, what, query, body):
        if what == "health":
            return as_json({"status": "ok"})
        if what == "files":
            message = json.loads(body)
            with open(sandbox.path(message["path"]), "w", encoding="utf-8") as file:
                file.write(message["content"])
            return as_json({"code": "SUCCESS", "data": {}})
        if what == "filesystem/download":
            with open(sandbox.path(urllib.parse.parse_qs(query)["path"][0]), "rb") as file:
                return 200, "application/octet-stream", file.read()
        assert what == "processes/cmd", what
        message = json.loads(body)
        assert message["timeout"] <= 30
        code, out, err = sandbox.run(["sh", "-c", message["command"]], message["timeout"], message["cwd"])
        if code is None:
            return as_json({"status": "timeout", "result": {"exitCode": -1, "stdout": out.decode(), "stderr": ""}})
        return as_json({"executionId": "e", "status": "completed", "result": {
            "exitCode": code, "stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")}})
