# SPDX-License-Identifier: Apache-2.0
"""Third-party backends: which are loaded, which are not and why, and that nothing that one does takes the gateway down."""

import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib import host
from lib.daemon import PREFIX, ROOT, cli, start_fails

BROKEN = r"""
#define _GNU_SOURCE
#include <cordon/backend.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct cordon_run { int told; };
static const struct cordon_capabilities *capabilities(void)
{
    static const struct cordon_capabilities mine = {.struct_size = sizeof mine, .isolation = CLAIM, .deny_all_egress = 1,
                                                    .languages = "python"};
    return &mine;
}
static int run_open(const struct cordon_request *r, struct cordon_run **ret, struct cordon_error *err)
{
    if (HOW == 5) abort();
    *ret = calloc(1, sizeof **ret);
    return 0;
}
static int run_next(struct cordon_run *run, struct cordon_event *event)
{
    memset(event, 0, sizeof *event);
    if (!run->told++) { event->type = CORDON_EVENT_STARTED; return 1; }
    if (HOW == 1) abort();
    static const struct cordon_outcome exited = {.struct_size = sizeof exited, .cause = CORDON_CAUSE_EXITED, .exit_code = CODE};
    event->type = CORDON_EVENT_OUTCOME;
    event->outcome = &exited;
    if (HOW == 6) return run->told++ < 3;
    for (;;) sleep(100);
}
static void run_close(struct cordon_run *run) { free(run); }
static const struct cordon_backend it = {.abi_version = ABI, .struct_size = sizeof it, .name = NAME,
    .capabilities = capabilities, .run_open = run_open, .run_next = run_next, .run_close = run_close};
const struct cordon_backend *FACTORY(void) { if (HOW == 3) abort(); if (HOW == 4) for (;;) sleep(100); return &it; }
"""


class Plugins:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=PREFIX + "plugins-")
        os.chmod(self.folder, 0o755)

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, source, library, **macros):
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-fPIC", "-shared", f"-I{ROOT}/include", *defines, "-o",
                        self.path(library), source], check=True, capture_output=True)
        os.chmod(self.path(library), 0o755)

    def manifest(self, file, **lines):
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        with open(self.path(file), "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(self.path(file), 0o644)

    def hello(self, file="hello.plugin", **changes):
        if not os.path.exists(self.path("hello.so")):
            self.compile(f"{ROOT}/examples/plugin/hello.c", "hello.so")
        self.manifest(file, **{"name": "hello", "distribution": "hello 1", "abi": 1, "library": "hello.so", **changes})

    def broken(self, how, claim="CORDON_ISOLATION_NAMESPACE", abi=1, factory="cordon_backend_factory", name="broken", code=0):
        with open(self.path("broken.c"), "w", encoding="utf-8") as file:
            file.write(BROKEN)
        macros = {"HOW": how, "CLAIM": claim, "ABI": abi, "FACTORY": factory, "NAME": f'"{name}"', "CODE": code}
        self.compile(self.path("broken.c"), f"{name}.so", **macros)
        self.manifest(f"{name}.plugin", name=name, distribution=f"{name} 1", abi=1, library=f"{name}.so")

    def settings(self, *names):
        # A busy host is none of what is tried here.
        return {"backend_plugins": ",".join(names), "plugin_dirs": self.folder, "guest_start_s": 120}

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def plugins(nothing_left):
    made = Plugins()
    yield made
    made.close()


def refused(plugins, *texts, name="hello"):
    """The plugin is not there, and the log says why."""
    done = cli("conformance", name, **plugins.settings(name))
    assert done.status == 2 and "must name one of these backends" in done.errors, done
    for text in texts:
        assert text in done.errors, done


@pytest.mark.limit(200)
def test_the_example_conforms(plugins):
    plugins.hello()
    done = cli("conformance", "hello", timeout=180, **plugins.settings("hello"))
    assert done.status == 0 and " 0 failed" in done.text, done.text + done.errors


def test_nothing_is_opened_that_is_not_listed(plugins):
    plugins.hello()
    done = cli("conformance", "hello", plugin_dirs=plugins.folder)
    assert done.status == 2 and "plugin" not in done.errors.replace("CORDON_BACKEND_PLUGINS", ""), done


def test_two_that_claim_a_name_are_both_refused_and_named(plugins):
    plugins.hello()
    plugins.hello("other.plugin", distribution="impostor 2")
    refused(plugins, "hello 1, impostor 2")


@pytest.mark.parametrize("name", ["local", "e2b"])
def test_a_builtin_name_is_never_replaced(plugins, name):
    plugins.hello(name=name)
    done = cli("conformance", "tenki", "--live", **plugins.settings(name))
    assert "claims the name of a built-in backend" in done.errors, done


def test_a_link_is_refused(plugins):
    plugins.hello()
    os.rename(plugins.path("hello.so"), plugins.path("real.so"))
    os.symlink("real.so", plugins.path("hello.so"))
    refused(plugins, "its library is a link")


def test_what_others_can_write_is_refused(plugins):
    plugins.hello()
    os.chmod(plugins.path("hello.so"), 0o777)
    refused(plugins, "nobody else can write")
    os.chmod(plugins.path("hello.so"), 0o755)
    os.chmod(plugins.folder, 0o777)
    refused(plugins, "nobody else may write")


def test_another_interface_version_is_refused_before_anything_is_loaded(plugins):
    plugins.hello(abi=2)
    refused(plugins, "built for version 2")


@pytest.mark.parametrize("options,text", [({"how": 0, "abi": 9}, "speaks version 9"), ({"how": 0, "factory": "wrong"}, "exports no"),
                                          ({"how": 3}, "died while it was loaded")])
def test_a_plugin_that_can_not_be_loaded_is_skipped_and_named(plugins, options, text):
    plugins.broken(**options)
    refused(plugins, "broken 1", text, name="broken")


def test_a_daemon_whose_backend_did_not_load_does_not_start(plugins):
    plugins.hello(abi=7)
    done = start_fails(backend="hello", **plugins.settings("hello"))
    assert done.status == 2 and "must name one of these backends" in done.errors, done


def test_a_crash_in_a_run_costs_only_that_run(own, plugins):
    plugins.broken(how=1)
    daemon = own(**plugins.settings("broken"))
    gateway = daemon.role("gateway")
    for _ in range(2):
        answer = daemon.run("print(1)", backend="broken")
        assert answer["outcome"]["cause"] == "infrastructure" and "died" in answer["outcome"]["message"]
    assert daemon.role("gateway") == gateway and daemon.run("print(2)")["stdout"] == "2\n"


def test_a_crash_as_a_run_is_opened_is_that_runs_outcome_and_no_reason_for_another_backend(own, plugins):
    """Nobody but the plugin knows whether it had begun anything."""
    plugins.broken(how=5)
    daemon = own(backends="broken,local", **plugins.settings("broken"))
    for _ in range(2):
        answer = daemon.run("print(1)")
        assert answer["outcome"]["cause"] == "infrastructure" and "died" in answer["outcome"]["message"]
        assert answer["outcome"]["backend"] == "broken"
    assert daemon.run("print(2)", backend="local")["stdout"] == "2\n"


def hosts(daemon):
    return [pid for pid in daemon.pids() if host.cmdline(pid)[1:3] == ["--role", "plugin"]]


def sockets(pid):
    return {target for target in host.descriptors(pid).values() if target.startswith("socket:")}


def test_a_run_that_a_dying_process_never_took_is_given_to_the_next_one(own, plugins):
    """The process is stopped, so that the run waits in its queue, and killed: nothing of it began."""
    plugins.broken(how=6)
    daemon = own(**plugins.settings("broken"))
    gateway = daemon.role("gateway")
    for _ in range(3):
        (pid,) = hosts(daemon)
        os.kill(pid, signal.SIGSTOP)
        before = sockets(gateway)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(daemon.run, "print(1)", backend="broken")
            assert host.wait_for(lambda: len(sockets(gateway) - before) >= 2), "the client's, and the call's"
            os.kill(pid, signal.SIGKILL)
            outcome = answer.result()["outcome"]
        assert (outcome["cause"], outcome["backend"]) == ("exited", "broken")
        assert pid not in hosts(daemon)


@pytest.mark.limit(120)
def test_a_process_that_started_too_late_is_not_taken_for_another_plugins(own, plugins):
    """Nobody waits for it any more; the next one that is waited for may be of another plugin."""
    plugins.broken(how=6, name="slow", code=3)
    plugins.broken(how=6, name="other", code=4)
    daemon = own(**plugins.settings("slow", "other"))
    for pid in hosts(daemon):
        os.kill(pid, signal.SIGKILL)
    (launcher,) = [pid for pid in daemon.pids() if host.cmdline(pid)[1:3] == ["--role", "plugins"]]
    os.kill(launcher, signal.SIGSTOP)
    try:
        late = daemon.request("POST", "/v1/runs", {"language": "python", "code": "print(1)", "backend": "slow"})
        assert late.status == 503 and b"could not be started" in late.body, late
    finally:
        os.kill(launcher, signal.SIGCONT)
    for name, code in (("other", 4), ("slow", 3), ("other", 4)):
        assert daemon.run("print(1)", backend=name)["exit_code"] == code, name


def test_a_hang_in_a_run_is_ended(own, plugins):
    plugins.broken(how=2)
    daemon = own(**plugins.settings("broken"))
    gateway = daemon.role("gateway")
    answer = daemon.run("print(1)", backend="broken", timeout_s=1)
    assert answer["outcome"]["cause"] == "infrastructure" and "by its time" in answer["outcome"]["message"]
    assert daemon.role("gateway") == gateway and daemon.run("print(2)")["stdout"] == "2\n"


@pytest.mark.root
def test_a_plugins_process_has_a_user_of_its_own_and_no_secret(own, plugins):
    plugins.broken(how=2)
    daemon = own(E2B_API_KEY="e2b_secret_key_of_another", PLUGIN_BROKEN_TOKEN="its own", **plugins.settings("broken"))
    (pid,) = hosts(daemon)
    status = host.read(f"/proc/{pid}/status")
    gateway = host.read(f"/proc/{daemon.role('gateway')}/status")
    uid = [line for line in status.splitlines() if line.startswith("Uid:")][0]
    assert uid.split()[1] != "0" and uid not in gateway and "CapEff:\t0000000000000000" in status
    environment = host.read(f"/proc/{pid}/environ")
    assert "PLUGIN_BROKEN_TOKEN=its own" in environment and "secret" not in environment


@pytest.mark.root
def test_a_variable_is_one_plugins_alone(own, plugins):
    names = ["broken", "broken-more", "broken.even.more", "broken-even-more"]
    for name in names:
        plugins.broken(how=2, name=name)
    daemon = own(PLUGIN_BROKEN_TOKEN="a", PLUGIN_BROKEN_MORE_TOKEN="b", PLUGIN_BROKEN_EVEN_MORE_TOKEN="c",
                 **plugins.settings(*names))
    found = {}
    for pid in hosts(daemon):
        (name,) = [name for name in names if name in host.read(f"/proc/{pid}/cmdline").split("\0")]
        found[name] = [pair for pair in host.read(f"/proc/{pid}/environ").split("\0") if pair.startswith("PLUGIN_")]
    assert found == {"broken": ["PLUGIN_BROKEN_TOKEN=a"], "broken-more": ["PLUGIN_BROKEN_MORE_TOKEN=b"],
                     "broken.even.more": [], "broken-even-more": []}, found


def test_one_that_claims_more_than_it_does_fails_the_suite(plugins):
    """It says that it denies egress and runs Python, and runs nothing."""
    plugins.broken(how=1)
    done = cli("conformance", "broken", "--only", "network", **plugins.settings("broken"))
    assert done.status == 1 and "not ok" in done.text, done
