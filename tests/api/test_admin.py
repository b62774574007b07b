# SPDX-License-Identifier: Apache-2.0
"""The admin door: login, settings that are stored, test connection, history, audit, keys, RAGFlow's routes."""

import os
import re
import time

import pytest
from lib.admin import Session
from lib.client import Client
from lib.daemon import Daemon, cli

MASK = "•" * 6
PRINT = {"language": "python", "code": "print('seen')"}


def admin_daemon(**settings):
    running = Daemon(**settings)
    running.key = running.create_key("--scope", "admin")
    return running


@pytest.fixture(scope="module")
def daemon():
    with admin_daemon() as running:
        yield running


@pytest.fixture
def fresh():
    with admin_daemon() as running:
        yield running


def key_of(daemon, scope):
    made = daemon.request("POST", "/v1/admin/keys", {"name": f"a {scope} key", "scope": scope})
    assert made.status == 200, made
    return Client(daemon.port, made.json()["key"])


def setting(client, name):
    answer = client.request("GET", "/v1/admin/settings")
    assert answer.status == 200, answer
    return next(row for row in answer.json()["settings"] if row["name"] == name)


def put(client, **values):
    return client.request("PUT", "/v1/admin/settings", {"values": values})


class TestLogin:
    def test_a_key_becomes_a_session(self, daemon):
        session = Session(daemon, key=daemon.key)
        flags = session.answer.headers["Set-Cookie"]
        assert "HttpOnly" in flags and "SameSite=Strict" in flags and "Path=/" in flags
        assert daemon.key not in session.answer.body.decode()
        assert session.request("GET", "/v1/admin/session").json()["scope"] == "admin"
        assert session.request("GET", "/v1/admin/settings").status == 200
        assert session.request("POST", "/v1/runs", PRINT).json()["stdout"] == "seen\n"

    def test_without_the_csrf_token_nothing_changes(self, daemon):
        session = Session(daemon, key=daemon.key)
        for method, path, body in (("PUT", "/v1/admin/settings", {"values": {"CORDON_PIDS": 99}}), ("POST", "/v1/runs", PRINT),
                                   ("POST", "/v1/admin/keys", {"name": "x"}), ("POST", "/v1/admin/logout", None)):
            refused = session.request(method, path, body, csrf=False)
            assert (refused.status, refused.error()[0]) == (403, "forbidden")
            refused = session.request(method, path, body, csrf=False, **{"X-Cordon-CSRF": "0" * 64})
            assert refused.status == 403
        assert setting(daemon, "CORDON_PIDS")["value"] == "128"

    def test_a_cookie_of_another_host_does_not_hide_it(self, daemon):
        """A host below the daemon's, as sandboxes have them, can set one for the daemon's, which browsers may send first."""
        session = Session(daemon, key=daemon.key)
        name, value = session.cookie.split("=")
        session.cookie = f"a=b; {name}=x; {name}={'0' * len(value)}; {name}={value}; c=d"
        assert session.request("GET", "/v1/admin/settings").status == 200
        session.cookie = f"{name}={'0' * len(value)}; {name}{value}; {name}="
        assert session.request("GET", "/v1/admin/settings").status == 401

    def test_logout_ends_it(self, daemon):
        session = Session(daemon, key=daemon.key)
        assert session.request("POST", "/v1/admin/logout").status == 200
        assert session.request("GET", "/v1/admin/settings").status == 401

    def test_a_session_ends_with_its_key(self, daemon):
        made = daemon.request("POST", "/v1/admin/keys", {"name": "short", "scope": "admin"}).json()
        session = Session(daemon, key=made["key"])
        assert session.request("GET", "/v1/admin/keys").status == 200
        assert daemon.request("DELETE", f"/v1/admin/keys/{made['id']}").status == 200
        assert session.request("GET", "/v1/admin/keys").status == 401

    def test_each_login_is_a_new_session(self, daemon):
        first, second = Session(daemon, key=daemon.key), Session(daemon, key=daemon.key)
        assert first.cookie != second.cookie and first.csrf != second.csrf
        planted = Client(daemon.port).request("POST", "/v1/admin/login", {"key": daemon.key},
                                              {"Cookie": "cordon_session=" + "a" * 64})
        assert "a" * 64 not in planted.headers["Set-Cookie"]

    def test_bad_cookies_are_nobody(self, daemon):
        for cookie in ("", "cordon_session=", "cordon_session=" + "f" * 64, "cordon_session=x", "a=b; cordon_session", ";;;"):
            answer = Client(daemon.port).request("GET", "/v1/admin/settings", headers={"Cookie": cookie})
            assert answer.status == 401

    def test_only_json_logs_in(self, daemon):
        answer = Client(daemon.port).request("POST", "/v1/admin/login", b'{"key":"%s"}' % daemon.key.encode(),
                                             {"Content-Type": "text/plain"})
        assert answer.status == 400 and "Set-Cookie" not in answer.headers

    def test_a_run_key_does_not_open_the_page(self, daemon):
        run = key_of(daemon, "run")
        answer = Client(daemon.port).request("POST", "/v1/admin/login", {"key": run.key})
        assert (answer.status, answer.error()[0]) == (403, "forbidden")
        assert run.request("GET", "/v1/admin/settings").status == 403

    def test_failures_are_limited(self, fresh):
        statuses = [Client(fresh.port).request("POST", "/v1/admin/login", {"key": "e2b_" + "0" * 40}).status
                    for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        answer = Client(fresh.port).request("POST", "/v1/admin/login", {"key": fresh.key})
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1

    def test_the_link_works_once(self, daemon):
        made = cli("key", "link", "--state", daemon.state)
        link = re.search(r"http://\S+/admin/#link=([0-9a-f]{40})", made.text).group(1)
        session = Session(daemon, link=link)
        assert session.request("GET", "/v1/admin/settings").status == 200
        again = Client(daemon.port).request("POST", "/v1/admin/login", {"link": link})
        assert again.status == 401


class TestViewer:
    def test_it_sees_all_and_changes_nothing(self, daemon):
        viewer = key_of(daemon, "view")
        for path in ("settings", "audit", "history", "keys"):
            assert viewer.request("GET", "/v1/admin/" + path).status == 200
        assert viewer.request("GET", "/api/v1/admin/sandbox/config").status == 200
        for method, path, body in (("PUT", "/v1/admin/settings", {"values": {"CORDON_PIDS": 99}}), ("POST", "/v1/runs", PRINT),
                                   ("POST", "/v1/admin/keys", {"name": "x"}), ("DELETE", "/v1/admin/keys/0", None),
                                   ("POST", "/v1/admin/test", {"backend": "local"}),
                                   ("POST", "/api/v1/admin/sandbox/config", {"provider_type": "local", "config": {}})):
            assert viewer.request(method, path, body).status == 403, path
        session = Session(daemon, key=viewer.key)
        assert session.request("PUT", "/v1/admin/settings", {"values": {}}).status == 403


class TestSettings:
    def test_a_change_counts_for_the_next_run(self, fresh):
        code = {"language": "python", "code": "import time\ntime.sleep(3)"}
        assert put(fresh, CORDON_TIMEOUT_S=1).status == 200
        outcome = fresh.run(**code)["outcome"]
        assert outcome["cause"] == "timeout" and "1 s" in outcome["message"]
        row = setting(fresh, "CORDON_TIMEOUT_S")
        assert (row["value"], row["source"], row["stored"], row["overridden"]) == ("1", "stored", True, False)
        assert row["changed_s"] > time.time() - 100

    def test_it_survives_a_restart(self):
        with admin_daemon() as daemon:
            assert put(daemon, CORDON_PIDS=77).status == 200
            assert daemon.stop() == 0
            daemon.start()
            assert setting(daemon, "CORDON_PIDS")["value"] == "77"

    def test_the_command_line_forgets_what_stops_the_start(self):
        with admin_daemon() as daemon:
            assert put(daemon, CORDON_TIMEOUT_S=200).status == 200
            assert daemon.stop() == 0
            wrong = cli("serve", "--state", daemon.state, "--listen", daemon.listen, max_timeout_s=100)
            assert wrong.status != 0 and "CORDON_TIMEOUT_S" in wrong.errors and "cordon config unset" in wrong.errors
            assert cli("config", "unset", "CORDON_TIMEOUT_S", env={"CORDON_STATE": daemon.state}).status == 0
            daemon.start()
            assert setting(daemon, "CORDON_TIMEOUT_S")["value"] == "30"

    def test_the_command_line_shows_and_forgets_what_is_stored(self, fresh):
        def config(*words):
            return cli("config", *words, env={"CORDON_STATE": fresh.state})

        def audit():
            return len(fresh.get("/v1/admin/audit").json()["entries"])

        assert put(fresh, CORDON_PIDS=91).status == 200
        row = next(row for row in config("show", "--json").json()["settings"] if row["name"] == "CORDON_PIDS")
        assert (row["value"], row["source"]) == (91, "stored"), row
        assert "91 (stored: CORDON_PIDS" in config("explain", "CORDON_PIDS").text
        assert config("unset", "CORDON_PIDS").status == 0
        assert setting(fresh, "CORDON_PIDS")["value"] == "128", "the daemon that runs was told"
        before = audit()
        assert config("unset", "CORDON_PIDS").status == 0 and audit() == before, "there was nothing to forget"
        link = cli("key", "link", env={"CORDON_STATE": fresh.state, "CORDON_LISTEN": "127.9.9.9:1"})
        assert link.text.startswith(f"http://{fresh.listen}/admin/#link="), link

    def test_the_command_line_makes_no_store(self, tmp_path):
        for words in (("unset", "CORDON_PIDS"), ("show",), ("explain", "CORDON_PIDS")):
            assert cli("config", *words, env={"CORDON_STATE": str(tmp_path / "none")}).status == 0
        assert list(tmp_path.iterdir()) == []

    def test_null_forgets(self, daemon):
        assert put(daemon, CORDON_PIDS=88).status == 200
        assert setting(daemon, "CORDON_PIDS")["value"] == "88"
        assert put(daemon, CORDON_PIDS=None).status == 200
        row = setting(daemon, "CORDON_PIDS")
        assert (row["value"], row["stored"]) == ("128", False)

    @pytest.mark.parametrize("values, field, word", [
        ({"CORDON_TIMEOUT_S": 0}, "CORDON_TIMEOUT_S", "1"),
        ({"CORDON_TIMEOUT_S": "soon"}, "CORDON_TIMEOUT_S", "whole number"),
        ({"CORDON_TIMEOUT_S": {}}, "CORDON_TIMEOUT_S", "must be"),
        ({"CORDON_TIMEOUT_S": 90000}, "CORDON_TIMEOUT_S", "86400"),
        ({"CORDON_TIMEOUT_S": 600}, "CORDON_TIMEOUT_S", "CORDON_MAX_TIMEOUT_S"),
        ({"CORDON_NO_SUCH": 1}, "CORDON_NO_SUCH", "no setting"),
        ({"CORDON_LISTEN": "0.0.0.0:1"}, "CORDON_LISTEN", "not here"),
        ({"SANDBOX_TIMEOUT": "5s"}, "SANDBOX_TIMEOUT", "CORDON_TIMEOUT_S"),
        ({"CORDON_MIN_ISOLATION": "strong"}, "CORDON_MIN_ISOLATION", "namespace"),
        ({"CORDON_BACKEND_PLUGINS": "evil"}, "CORDON_BACKEND_PLUGINS", "not here"),
    ])
    def test_what_is_wrong_is_told_at_its_field_and_changes_nothing(self, daemon, values, field, word):
        answer = daemon.request("PUT", "/v1/admin/settings", {"values": dict(CORDON_PIDS=99, **values)})
        assert answer.status == 400 and answer.json()["field"] == field, answer
        assert word in answer.error()[1]
        assert setting(daemon, "CORDON_PIDS")["value"] == "128"

    def test_a_change_of_what_was_not_seen_is_refused(self, fresh):
        """Two at one form: who saves last is told, whichever route it is, also when the command line was the other."""
        def change(tag, value):
            return fresh.request("PUT", "/v1/admin/settings", {"values": {"CORDON_PIDS": value}}, {"If-Match": tag})

        seen = fresh.request("GET", "/v1/admin/settings").headers["ETag"]
        assert seen == '"0"' and change(seen, 91).status == 200
        refused = change(seen, 92)
        assert (refused.status, refused.error()[0]) == (409, "conflict") and setting(fresh, "CORDON_PIDS")["value"] == "91"
        form = {"provider_type": "local", "config": {"timeout": 9}}
        answer = fresh.request("POST", "/api/v1/admin/sandbox/config", form, {"If-Match": seen})
        assert answer.status == 409 and answer.json()["code"] == 409 and answer.json()["data"] is None
        assert setting(fresh, "CORDON_TIMEOUT_S")["value"] == "30"
        seen = fresh.request("GET", "/v1/admin/settings").headers["ETag"]
        assert cli("config", "unset", "CORDON_PIDS", env={"CORDON_STATE": fresh.state}).status == 0
        assert change(seen, 93).status == 409 and change("*", 94).status == 200
        seen = fresh.request("GET", "/v1/admin/settings").headers["ETag"]
        assert change(seen, 94).status == 200 and change(seen, 95).status == 200  # what stays as it is changes nothing
        for wrong in ("5", '"5', '"x"', '""', '"-1"', 'W/"5"', '"99999999999999999999"'):
            assert change(wrong, 96).status == 400, wrong

    def test_the_environment_goes_before(self):
        with admin_daemon(pids=60) as daemon:
            assert put(daemon, CORDON_PIDS=70).status == 200
            row = setting(daemon, "CORDON_PIDS")
            assert (row["value"], row["source"], row["stored"], row["overridden"]) == ("60", "environment", True, True)

    @pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"values":[]}', b'{"values":5}', b"{", b'{"values":{"\\ud800":1}}'])
    def test_bad_bodies(self, daemon, body):
        assert daemon.request("PUT", "/v1/admin/settings", body).status == 400

    def test_every_row_is_shown(self, daemon):
        rows = daemon.request("GET", "/v1/admin/settings").json()["settings"]
        assert len(rows) > 60 and all(row["help"] for row in rows)
        assert {row["scope"] for row in rows} == {"runtime", "deployment"}


class TestTrial:
    def test_it_runs_with_what_is_not_saved(self, daemon):
        answer = daemon.request("POST", "/v1/admin/test", {"backend": "local", "values": {"CORDON_MEMORY_MB": 200}})
        body = answer.json()
        assert body["passed"] and "Test PASSED | Exit code: 0" in body["message"], answer
        assert "2 + 2 = 4" in body["stdout"] and "Math.sqrt(16) = 4.0" in body["stdout"]
        assert setting(daemon, "CORDON_MEMORY_MB")["value"] == "256"

    def test_a_refusal_is_told(self, daemon):
        answer = daemon.request("POST", "/v1/admin/test",
                                {"backend": "local", "values": {"CORDON_MIN_ISOLATION": "hardware-virtualized"}}).json()
        assert not answer["passed"] and answer["cause"] == "refused" and "namespace" in answer["message"]
        assert daemon.run(**PRINT)["stdout"] == "seen\n"

    def test_an_unknown_backend_is_told(self, daemon):
        answer = daemon.request("POST", "/v1/admin/test", {"backend": "nowhere"}).json()
        assert not answer["passed"] and "local" in answer["message"]

    def test_a_bad_form_is_no_test(self, daemon):
        assert daemon.request("POST", "/v1/admin/test", {"backend": "local", "values": {"CORDON_PIDS": 0}}).status == 400


def history(client, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    for _ in range(400):
        answer = client.request("GET", "/v1/admin/history?" + text)
        if answer.json()["runs"]:
            break
        time.sleep(0.1)
    return answer.json()["runs"]


class TestHistory:
    def test_runs_are_there_without_what_they_said(self, fresh):
        fresh.run(language="python", code="print('a secret of mine')")
        fresh.run(language="bash", code="exit 3")
        rows = history(fresh, language="bash")
        assert [(row["exit_code"], row["cause"], row["backend"], row["door"]) for row in rows] == [(3, "exited", "local", "native")]
        assert re.fullmatch("[0-9a-f]{16}", rows[0]["key"])
        rows = history(fresh)
        assert len(rows) == 2 and rows[0]["total_ms"] > 0
        one = fresh.request("GET", f"/v1/admin/history/{rows[-1]['id']}").json()
        assert (one["code"], one["stdout"]) == (None, None)
        assert history(fresh, limit=1)[0]["id"] == rows[0]["id"]
        assert history(fresh, before=rows[0]["id"])[0]["id"] == rows[1]["id"]
        with open(os.path.join(fresh.state, "cordon.db"), "rb") as file:
            assert b"a secret of mine" not in file.read()

    def test_texts_are_kept_where_the_operator_wants_it(self, fresh):
        assert put(fresh, CORDON_HISTORY_CODE=True).status == 200
        fresh.run(language="python", code="print('kept')\nimport sys\nprint('x' * 100000, file=sys.stderr)")
        row = history(fresh)[0]
        one = fresh.request("GET", f"/v1/admin/history/{row['id']}").json()
        assert one["code"].startswith("print('kept')") and one["stdout"] == "kept\n" and len(one["stderr"]) == 65536

    def test_it_can_be_off(self):
        with admin_daemon(history=0) as daemon:
            daemon.run(**PRINT)
            time.sleep(1.5)
            assert daemon.request("GET", "/v1/admin/history").json()["runs"] == []

    def test_what_is_not_there(self, daemon):
        assert daemon.request("GET", "/v1/admin/history/999999999").status == 404
        assert daemon.request("GET", "/v1/admin/history/x").status == 400
        assert daemon.request("GET", "/v1/admin/history?limit=501").status == 400
        assert daemon.request("GET", "/v1/admin/history?before=-1").status == 400


class TestKeysAndAudit:
    def test_who_did_what(self, fresh):
        made = fresh.request("POST", "/v1/admin/keys", {"name": "audited"}).json()
        assert made["scope"] == "run" and Client(fresh.port, made["key"]).run(**PRINT)["stdout"] == "seen\n"
        assert fresh.request("DELETE", f"/v1/admin/keys/{made['id']}").status == 200
        assert Client(fresh.port, made["key"]).request("POST", "/v1/runs", PRINT).status == 401
        assert put(fresh, CORDON_PIDS=99).status == 200
        entries = fresh.request("GET", "/v1/admin/audit").json()["entries"]
        assert [(e["action"], e["subject"], e["before"], e["after"]) for e in entries] == [
            ("setting.change", "CORDON_PIDS", "", "99"), ("key.revoke", made["id"], "", ""),
            ("key.create", made["id"], "", "run")]
        assert all(re.fullmatch("[0-9a-f]{16}", e["who"]) for e in entries)

    def test_what_a_form_leaves_as_it_is_is_no_change(self, fresh):
        assert put(fresh, CORDON_PIDS=99, CORDON_MEMORY_MB=200).status == 200
        assert put(fresh, CORDON_PIDS=99, CORDON_MEMORY_MB=300).status == 200
        entries = fresh.request("GET", "/v1/admin/audit").json()["entries"]
        assert [(e["subject"], e["before"], e["after"]) for e in entries] == [
            ("CORDON_MEMORY_MB", "200", "300"), ("CORDON_MEMORY_MB", "", "200"), ("CORDON_PIDS", "", "99")]

    def test_bad_keys(self, daemon):
        assert daemon.request("POST", "/v1/admin/keys", {"scope": "root"}).status == 400
        assert daemon.request("POST", "/v1/admin/keys", {"name": "x" * 64}).status == 400
        assert daemon.request("POST", "/v1/admin/keys", {"name": "a\u0007b"}).status == 400
        assert daemon.request("DELETE", "/v1/admin/keys/nope").status == 404


class TestPage:
    def test_it_comes_with_its_walls(self, daemon):
        page = Client(daemon.port).request("GET", "/admin/")
        assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        same = Client(daemon.port).request("GET", "/admin/", headers={"If-None-Match": page.headers["ETag"]})
        assert same.status == 304 and same.body == b""
        for path in ("/admin/nothing.js", "/admin/..%2fsecret.key", "/admin/%00", "/admin/" + "a" * 300):
            assert Client(daemon.port).request("GET", path).status == 404, path


def sandbox(client, method, path, body=None):
    answer = client.request(method, "/api/v1/admin/sandbox/" + path, body)
    return answer.status, answer.json()


class TestRagflow:
    ORDER = ["local", "exec-sandbox", "none", "self_managed", "ssh", "aliyun_codeinterpreter", "e2b", "tenki", "ucloud_agent_sandbox", "createos"]

    def test_providers_and_schemas(self, daemon):
        status, body = sandbox(daemon, "GET", "providers")
        assert status == 200 and list(body) == ["code", "message", "data"] and body["code"] == 0 and body["message"] == "Success"
        assert [row["id"] for row in body["data"]] == self.ORDER
        assert all(list(row) == ["id", "name", "description", "tags"] for row in body["data"])
        for name in self.ORDER:
            status, body = sandbox(daemon, "GET", f"providers/{name}/schema")
            assert status == 200 and all({"type", "required", "label"} <= set(field) for field in body["data"].values())
        ssh = sandbox(daemon, "GET", "providers/ssh/schema")[1]["data"]
        assert (ssh["port"]["default"], ssh["port"]["min"], ssh["port"]["max"]) == (22, 1, 65535)
        assert ssh["password"]["secret"] and ssh["private_key"]["multiline"]
        managed = sandbox(daemon, "GET", "providers/self_managed/schema")[1]["data"]
        assert managed["max_memory"]["readonly"] and managed["max_memory"]["scope"] == "deployment"
        assert sandbox(daemon, "GET", "providers/nope/schema") == (400, {"code": 400, "message": "Unknown provider: nope",
                                                                         "data": None})

    @pytest.mark.parametrize("body, message", [
        (None, "Request body is required"),
        ({}, "provider_type is required"),
        ({"provider_type": "nope", "config": {}}, "Unknown provider type: nope"),
        ({"provider_type": "local", "config": {"timeout": "5"}}, "Field 'timeout' must be an integer"),
        ({"provider_type": "local", "config": {"timeout": 0}}, "Field 'timeout' must be >= 1"),
        ({"provider_type": "local", "config": {"timeout": 86401}}, "Field 'timeout' must be <= 86400"),
        ({"provider_type": "local", "config": {"allow_network": 1}}, "Field 'allow_network' must be a boolean"),
        ({"provider_type": "ssh", "config": {"host": 5, "username": "u"}}, "Field 'host' must be a string"),
        ({"provider_type": "ssh", "config": {"port": 22}}, "Required field 'host' is missing"),
        ({"provider_type": "ssh"}, "Required field 'host' is missing"),
        ({"provider_type": "local", "config": []}, "config must be an object"),
        ({"provider_type": "local", "config": {"timeout": True}}, "Field 'timeout' must be an integer"),
        ({"provider_type": "local", "config": {"timeout": 1.5}}, "Field 'timeout' must be an integer"),
        ({"provider_type": "ssh", "config": {"host": "", "username": "u"}}, "Required field 'host' is missing"),
        ({"provider_type": "none", "config": {"timeout": 601}}, "Field 'timeout' must be <= 600"),
    ])
    def test_wrong_forms(self, daemon, body, message):
        for route in ("config", "test"):
            assert sandbox(daemon, "POST", route, body) == (400, {"code": 400, "message": message, "data": None})

    def test_what_only_the_whole_shows_is_told_as_of_the_provider(self, daemon):
        form = {"provider_type": "local", "config": {"timeout": 600}}  # more than CORDON_MAX_TIMEOUT_S
        status, body = sandbox(daemon, "POST", "config", form)
        assert (status, body["code"], body["data"]) == (400, 400, None)
        assert body["message"].startswith("Provider validation failed: CORDON_TIMEOUT_S") and "CORDON_MAX_TIMEOUT_S" in body["message"]
        assert setting(daemon, "CORDON_TIMEOUT_S")["value"] == "30"

    def test_the_words_of_a_test(self, daemon):
        data = sandbox(daemon, "POST", "test", {"provider_type": "local", "config": {}})[1]["data"]
        assert list(data) == ["success", "message", "details"]
        assert list(data["details"]) == ["exit_code", "execution_time", "stdout", "stderr"]
        assert re.fullmatch(r"Test PASSED \| Exit code: 0 \| Execution time: \d+\.\d\ds \| Output: .{1,200}", data["message"], re.S), data
        told = data["details"]["stdout"]
        assert "2 + 2 = 4" in told and "Math.sqrt(16) = 4.0" in told and "TEST_PASSED" in told and '"total": 4' in told
        assert data["details"]["stderr"] == "" and data["details"]["execution_time"] > 0

    def test_saving_chooses_and_masks(self, fresh):
        status, body = sandbox(fresh, "GET", "config")
        assert status == 200 and body["data"]["provider_type"] == "local" and body["data"]["config"]["timeout"] == 30
        form = {"provider_type": "local", "config": {"timeout": 7, "max_memory_mb": 300}}
        status, body = sandbox(fresh, "POST", "config", form)
        assert (status, body["message"]) == (200, "Sandbox configuration updated successfully")
        assert body["data"]["config"]["timeout"] == 7
        assert setting(fresh, "CORDON_TIMEOUT_S")["value"] == "7"
        status, body = sandbox(fresh, "POST", "test", form)
        data = body["data"]
        assert status == 200 and data["success"] and data["message"].startswith("Test PASSED | Exit code: 0 | Execution time: ")
        assert data["details"]["exit_code"] == 0 and "TEST_PASSED" in data["details"]["stdout"]

    def test_fields_that_are_not_known_come_back_as_they_came(self, fresh):
        """RAGFlow stores whatever its page sends; no form of it may be refused, and no secret given back."""
        odd = {"what": 1, "nested": {"a": [True, None, "é\\u0000"]}, "<b>": "<img src=x onerror=alert(1)>"}
        sent = dict(odd, timeout=7, api_key="sk-of-another-provider", max_memory="512m")
        status, body = sandbox(fresh, "POST", "config", {"provider_type": "local", "config": sent})
        assert status == 200, body
        fresh.restart()
        config = sandbox(fresh, "GET", "config")[1]["data"]["config"]
        assert {name: config.get(name) for name in odd} == odd and config["timeout"] == 7
        assert "api_key" not in config and "max_memory" not in config
        assert sandbox(fresh, "POST", "test", {"provider_type": "local", "config": config})[1]["data"]["success"]
        with open(os.path.join(fresh.state, "cordon.db"), "rb") as file:
            assert b"sk-of-another" not in file.read()
        assert setting(fresh, "CORDON_RAGFLOW_EXTRA")["value"] == MASK
        saved = {"provider_type": "self_managed", "config": {"endpoint": "http://127.0.0.1:9", "other": 2}, "set_active": False}
        assert sandbox(fresh, "POST", "config", saved)[1]["data"]["config"]["other"] == 2
        assert sandbox(fresh, "GET", "config")[1]["data"]["config"]["what"] == 1
        assert sandbox(fresh, "POST", "config", {"provider_type": "local", "config": {"timeout": 8}})[0] == 200
        config = sandbox(fresh, "GET", "config")[1]["data"]["config"]
        assert config["timeout"] == 8 and not set(odd) & set(config)

    @pytest.mark.parametrize("config", [{"x": "y" * 17000}, {"n" * 65: 1}, {f"field-{i}": "z" * 90 for i in range(200)}])
    def test_what_is_not_known_has_a_limit(self, daemon, config):
        status, body = sandbox(daemon, "POST", "config", {"provider_type": "local", "config": config})
        assert status == 400 and "field" in body["message"], body

    def test_none_needs_its_permission(self, fresh):
        form = {"provider_type": "none", "config": {"timeout": 7}}
        data = sandbox(fresh, "POST", "test", form)[1]["data"]
        assert not data["success"] and data["message"].startswith("Test FAILED | ") and "CORDON_ALLOW_NONE" in data["message"]

    def test_it_needs_an_admin(self, daemon):
        answer = Client(daemon.port).request("GET", "/api/v1/admin/sandbox/providers")
        assert answer.status == 401 and answer.json()["code"] == 401
