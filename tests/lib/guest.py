# SPDX-License-Identifier: Apache-2.0
"""A kept guest over the native door."""

import json
from urllib.parse import quote

from .pace import patient


class Guest:
    """Made by the constructor, ended by close(); use as a context manager."""

    def __init__(self, client, **fields):
        self.client = client
        answer = client.request("POST", "/v1/guests", fields)
        assert answer.status == 201, answer
        self.object = answer.json()
        self.id = self.object["id"]

    def call(self, method, rest="", body=None, **options):
        return self.client.request(method, f"/v1/guests/{self.id}{rest}", body, **options)

    def good(self, method, rest="", body=None, status=(200, 201, 204), **options):
        answer = self.call(method, rest, body, **options)
        assert answer.status in status, answer
        return json.loads(answer.body) if answer.body.strip() else None

    def refused(self, method, rest="", body=None):
        """(status, kind, message)"""
        answer = self.call(method, rest, body)
        assert answer.status >= 400, answer
        return (answer.status, *answer.error())

    def show(self):
        return self.good("GET")

    def exec(self, command, timeout=None, **fields):
        return self.good("POST", "/exec", {"command": command, **fields}, timeout=timeout)

    def run(self, code, language="python", timeout=None, **fields):
        return self.good("POST", "/runs", {"code": code, "language": language, **fields}, timeout=timeout)

    def cell(self, code, timeout=None, **fields):
        return self.good("POST", "/cells", {"code": code, **fields}, timeout=timeout or patient(90))

    def value(self, code, **fields):
        """The text of a cell's value."""
        answer = self.cell(code, **fields)
        assert answer["error"] is None and answer["cause"] == "exited", answer
        main = [result for result in answer["results"] if result["main"]]
        assert len(main) == 1, answer
        return main[0]["text"]

    def cell_lines(self, code, timeout=None, **fields):
        """Yields the events of a cell as they come."""
        connection = self.client.connection(timeout or patient(90))
        try:
            connection.request("POST", f"/v1/guests/{self.id}/cells", json.dumps({"code": code, **fields}),
                               self.client.headers({"Accept": "application/x-ndjson"}))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

    def put(self, path, data, **options):
        return self.good("PUT", f"/files?path={quote(path, safe='')}", data, **options)

    def read(self, path, **options):
        answer = self.call("GET", f"/files?path={quote(path, safe='')}", **options)
        assert answer.status == 200, answer
        return answer.body

    def close(self):
        self.call("DELETE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
