# SPDX-License-Identifier: Apache-2.0
"""One HTTP exchange with a daemon, over TCP or its unix socket. A connection a call: nothing to share, so nothing that a
fork could break."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import urllib.parse


class DaemonError(Exception):
    """The daemon answered with an error, or could not be asked (kind "unreachable")."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(timeout: float) -> http.client.HTTPConnection:
    path = os.environ.get("LANGFLOW_CORDON_SOCKET")
    if path:
        return _Unix(path, timeout)
    url = urllib.parse.urlsplit(os.environ.get("LANGFLOW_CORDON_URL", "http://127.0.0.1:9385"))
    if url.scheme == "https":
        return http.client.HTTPSConnection(url.hostname, url.port or 443, timeout=timeout, context=ssl.create_default_context())
    if url.scheme != "http" or not url.hostname:
        raise DaemonError("unreachable", "LANGFLOW_CORDON_URL must be http://HOST:PORT or https://HOST:PORT")
    return http.client.HTTPConnection(url.hostname, url.port or 80, timeout=timeout)


def call(method: str, path: str, body: dict | None = None, timeout: float = 30) -> dict:
    headers = {"Content-Type": "application/json"}
    key = os.environ.get("LANGFLOW_CORDON_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = _connection(timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        status, data = answer.status, json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DaemonError("unreachable", f"the Cordon daemon can not be asked: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if status != 200:
        error = data.get("error", {}) if isinstance(data, dict) else {}
        raise DaemonError(error.get("kind", "unreachable"), error.get("message", f"the daemon answered with status {status}"))
    return data
