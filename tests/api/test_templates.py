# SPDX-License-Identifier: Apache-2.0
"""Templates: made of packages or of a file tree, used by every way to run code, bounded, and refused when changed."""

import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time

import pytest
from lib import executor_manager, host, lab, template
from lib.client import Client
from lib.daemon import BIN, PREFIX, Daemon, cli, environment

PYTHON = "import cordon_first, cordon_second; print(cordon_first.answer(), cordon_second.NAME)"
PYTHON_SAYS = "42 second\n"
REQUIRE = "console.log(require('cordon-left')(20, 22), require('cordon-right').twice(4))"
IMPORT = "import left from 'cordon-left'; import right from 'cordon-right'; console.log(left(20, 22), right.twice(4))"
NODE_SAYS = "42 8\n"

pytestmark = pytest.mark.root


def build(state, name, *options, **settings):
    with template.package_server() as (index, registry):
        return cli(
            *("template", "create", name, "--from", "python", "--pip", "cordon-first", "--pip", "cordon_second==2.*"),
            *("--npm", "cordon-left", "--npm", "cordon-right@3.2.1", "--host-network"),
            *("--index-url", index, "--registry", registry, "--state", state, *options),
            timeout=300,
            **settings,
        )


@pytest.fixture(scope="module")
def made(nothing_left):
    """A state folder with a template `mix`, built once for all of this module."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as state:
        os.chmod(state, 0o700)
        done = build(state, "mix")
        assert done.status == 0, done
        yield state


@pytest.fixture(scope="module")
def served(made):
    """A daemon with a copy of the template."""
    images = {"SANDBOX_BASE_PYTHON_IMAGE": "registry.local/x/mix:latest", "SANDBOX_BASE_NODEJS_IMAGE": "mix"}
    small = {"pool_python": 1, "pool_python_data": 0, "pool_javascript": 1, "pool_bash": 0, "template_mb": 64}
    with Daemon(createos_min_isolation="namespace", **small, **images) as daemon:
        with open(os.path.join(made, "templates", "mix.template"), "rb") as file:
            template.place(daemon.state, "mix", file.read())
        yield daemon
        roots = daemon.note_cgroups()
    assert not [root for root in roots if os.path.exists(root)]


def says(answer):
    assert answer["outcome"]["cause"] == "exited" and answer["exit_code"] == 0, answer
    return answer["stdout"]


@pytest.mark.limit(300)
def test_packages_of_both_kinds_are_there_by_every_way(served):
    daemon = served
    assert says(daemon.run(PYTHON, template="mix", timeout=60)) == PYTHON_SAYS
    assert says(daemon.run(PYTHON, template="mix", fresh_interpreter=True)) == PYTHON_SAYS
    assert says(daemon.run(REQUIRE, "javascript", template="mix")) == NODE_SAYS
    assert says(daemon.run(IMPORT, "javascript", template="mix")) == NODE_SAYS
    assert says(daemon.run(f'python3 -c "{PYTHON}"; cordon-first', "bash", template="mix")) == PYTHON_SAYS + "tool runs\n"
    events = [event for _, event in daemon.stream(PYTHON, template="mix")]
    assert events[-1]["type"] == "outcome" and events[-1]["outcome"]["exit_code"] == 0
    by_cli = cli("run", "--template", "mix", "--state", daemon.state, "-c", PYTHON)
    assert (by_cli.status, by_cli.text) == (0, PYTHON_SAYS), by_cli


@pytest.mark.limit(300)
def test_ragflows_door_starts_from_the_images_that_its_variables_name(served):
    python = "import cordon_first, cordon_second\ndef main(): return [cordon_first.answer(), cordon_second.NAME]"
    assert executor_manager.value(executor_manager.run(served, python, token=served.key)) == [42, "second"]
    node = "const left = require('cordon-left'); function main({ a }) { return left(a, 2) }"
    assert executor_manager.value(executor_manager.run(served, node, "nodejs", served.key, arguments={"a": 40})) == 42


@pytest.mark.limit(200)
def test_kept_guests_start_from_it(served):
    headers = {"Authorization": None, "X-Api-Key": served.key}

    def call(method, path, body=None):
        answer = served.request(method, path, body, headers=headers)
        assert answer.status == 200, answer
        return answer.json()["data"]

    box = call("POST", "/v1/sandboxes", {"shape": "s-1vcpu-256mb", "egress": ["240.0.0.0/4"], "rootfs": "mix"})["id"]
    try:
        script = f"python3 -c '{PYTHON}'; cordon-first; cd /home/user; node -e \"{REQUIRE}\""
        done = call("POST", f"/v1/sandboxes/{box}/exec", {"cmd": "sh", "args": ["-c", script]})["result"]
        assert done["stdout"] == PYTHON_SAYS + "tool runs\n" + NODE_SAYS, done
    finally:
        call("DELETE", f"/v1/sandboxes/{box}")


def test_it_is_listed_by_the_doors(served, made):
    listed = served.get("/v1/templates").json()["templates"]
    assert [one["name"] for one in listed] == ["mix"] and listed[0]["pip"] == ["cordon-first", "cordon_second==2.*"], listed
    assert served.get("/v1/templates/mix").json() == listed[0]
    by_cli = cli("template", "list", "--json", "--state", made)
    assert [one["digest"] for one in json.loads(by_cli.text)] == [listed[0]["digest"]]
    for name in ("other", "..", "%2e%2e%2fstore", "A", "x" * 80):
        assert served.get(f"/v1/templates/{name}").status == 404, name
    keys = {"Authorization": None, "X-API-KEY": served.key}
    for path in ("/templates", "/v2/templates"):
        told = served.request("GET", path, headers=keys).json()
        assert [one["templateID"] for one in told] == ["base", "code-interpreter-v1", "mix"]
        assert told[2]["buildID"] == listed[0]["digest"] and told[2]["memoryMB"] > 0
    assert served.request("GET", "/templates/mix", headers=keys).json() == told[2]
    assert served.request("GET", "/templates/aliases/mix", headers=keys).json() == {"templateID": "mix", "public": False}
    assert served.request("GET", "/templates/aliases/other", headers=keys).status == 404
    assert served.request("GET", "/templates", headers={"Authorization": None}).status == 401
    assert served.request("DELETE", "/templates/mix", headers=keys).status == 501


def test_before_one_was_made_none_is_listed(daemon):
    assert daemon.get("/v1/templates").json() == {"templates": []} and daemon.get("/v1/templates/mix").status == 404


def test_one_that_cannot_be_read_is_listed_with_the_reason(served):
    template.place(served.state, "broken", b"no template at all" * 1000)
    try:
        listed = {one["name"]: one for one in served.get("/v1/templates").json()["templates"]}
        assert set(listed) == {"broken", "mix"} and "broken" in listed["broken"]["reason"], listed
    finally:
        os.unlink(os.path.join(served.state, "templates", "broken.template"))


@pytest.mark.limit(300)
def test_the_command_line_alone_runs_in_it(made):
    for language, code, said in (("python", PYTHON, PYTHON_SAYS), ("javascript", REQUIRE, NODE_SAYS)):
        done = cli("run", "--template", "mix", "--state", made, "-l", language, "-c", code)
        assert (done.status, done.text) == (0, said), done


@pytest.mark.limit(200)
def test_other_guests_see_nothing_of_it(served):
    daemon = served
    assert says(daemon.run(PYTHON, template="mix")) == PYTHON_SAYS
    for name in (None, "default", "python"):
        answer = daemon.run("import cordon_first", **({"template": name} if name else {}))
        assert answer["exit_code"] == 1 and "ModuleNotFoundError" in answer["stderr"], answer


@pytest.mark.limit(300)
def test_it_is_warm_after_the_first_run_and_survives_a_restart(served):
    daemon = served
    assert says(daemon.run(PYTHON, template="mix")) == PYTHON_SAYS

    def is_warm():
        return daemon.run(PYTHON, template="mix")["outcome"]["warm"]

    assert host.wait_for(is_warm), "guests of a made template never come out of the pool"
    daemon.restart()
    assert says(daemon.run(PYTHON, template="mix")) == PYTHON_SAYS


@pytest.mark.limit(200)
def test_one_built_for_another_base_is_refused(served):
    daemon = served
    template.place(daemon.state, "old", template.seal(template.tar(), base=b"x86_64 glibc-2.36 cpython-399"))
    status, kind, message = daemon.refused(template="old")
    assert (status, kind) == (503, "unavailable")
    assert "cpython-399" in message and "cordon template rebuild" in message, message


def test_unknown_names_and_bad_ones_are_told(served):
    daemon = served
    status, kind, message = daemon.refused(template="nobody")
    assert (status, kind) == (404, "not_found") and "nobody" in message, message
    for name in ("", "../x", "UPPER", "a" * 40, ".hidden", "a/b"):
        assert daemon.refused(template=name)[:2] == (400, "invalid_request"), name


@pytest.mark.limit(200)
def test_only_so_many_are_loaded_and_the_oldest_makes_room(own):
    daemon = own(pool_python=0, pool_python_data=0, pool_javascript=0, pool_bash=0, pool_max=0, templates=2)
    tree = template.tar(*template.bash_tree())
    for name in ("one", "two", "three"):
        template.place(daemon.state, name, template.seal(tree, kind=template.ROOTFS, language=b""))

    def nurseries():
        return sum(host.comm(pid) == "cordon-nursery" for pid in daemon.pids())

    for name in ("one", "two", "three", "one"):
        assert says(daemon.run("echo $0 runs", "bash", template=name)).endswith("runs\n")
        assert host.wait_for(lambda: nurseries() <= 3), "more templates are loaded than CORDON_TEMPLATES allows"
    held = [daemon.stream("echo up; exec 9<> <(:); read -t 20 -u 9", "bash", template=name, timeout_s=25) for name in ("one", "two")]
    for events in held:
        assert any(event["type"] == "stdout" for _, event in zip(range(3), (e for _, e in events)))
    status, kind, message = daemon.refused("echo", "bash", template="three")
    assert (status, kind) == (503, "busy") and "CORDON_TEMPLATES" in message, message
    for events in held:
        events.close()
    assert host.wait_for(lambda: daemon.post({"language": "bash", "code": ":", "template": "three"}).status == 200)


@pytest.mark.limit(200)
def test_a_template_that_is_removed_or_replaced_is_no_longer_used(served):
    daemon = served

    def layer(text):
        name = "usr/local/lib/python3.11/dist-packages/cordon_which.py"
        return template.tar(template.member(name, f"WHICH = {text!r}\n".encode()))

    code = "import sys; sys.path.insert(0, '/usr/local/lib/python3.11/dist-packages'); import cordon_which as w; print(w.WHICH)"
    base = f"{os.uname().machine} glibc-{os.confstr('CS_GNU_LIBC_VERSION').split()[1]}".encode()
    template.place(daemon.state, "which", template.seal(layer("old"), base=base))
    assert says(daemon.run(code, template="which")) == "old\n"
    template.place(daemon.state, "which", template.seal(layer("new"), base=base))
    assert says(daemon.run(code, template="which")) == "new\n"
    gone = cli("template", "rm", "which", "--state", daemon.state)
    assert gone.status == 0, gone
    assert daemon.refused(code, template="which")[:2] == (404, "not_found")


@pytest.mark.limit(300)
def test_list_show_and_rm(made):
    listed = cli("template", "list", "--state", made, "--json").json()
    assert [entry["name"] for entry in listed] == ["mix"]
    shown = cli("template", "show", "mix", "--state", made, "--json").json()
    assert shown == listed[0]
    assert shown["pip"] == ["cordon-first", "cordon_second==2.*"] and shown["npm"] == ["cordon-left", "cordon-right@3.2.1"]
    assert shown["from"] == "python" and shown["kind"] == "layer" and len(shown["digest"]) == 64
    assert "cpython-" in shown["base"] and "node-" in shown["base"]
    text = cli("template", "show", "mix", "--state", made).text
    assert shown["digest"] in text and "pip cordon-first" in text
    assert "mix" in cli("template", "list", "--state", made).text
    for action in ("show", "rm", "rebuild"):
        done = cli("template", action, "nobody", "--state", made)
        assert done.status == 2 and "nobody" in done.errors, done
    folder = os.stat(os.path.join(made, "templates"))
    assert (folder.st_uid, folder.st_mode & 0o777) == (0, 0o755)
    assert os.listdir(os.path.join(made, "templates")) == ["mix.template"]


@pytest.mark.limit(300)
def test_the_same_again_is_not_built_again_and_another_needs_replace(made):
    before = cli("template", "show", "mix", "--state", made, "--json").json()
    again = build(made, "mix")
    assert again.status == 0 and "made of just this" in again.errors, again
    other = cli("template", "create", "mix", "--from", "python", "--pip", "other", "--state", made)
    assert other.status == 125 and "--replace" in other.errors, other
    assert cli("template", "show", "mix", "--state", made, "--json").json() == before


def test_wrong_usage_is_told(made):
    lines = [
        ("create", "x"),
        ("create", "x", "--from", "cobol", "--pip", "a"),
        ("create", "x", "--from", "python"),
        ("create", "x", "--from", "python", "--pip", "--index-url"),
        ("create", "x", "--from", "python", "--pip", "a b"),
        ("create", "x", "--from", "python", "--import", "y"),
        ("create", "../x", "--from", "python", "--pip", "a"),
        ("create", "default", "--from", "python", "--pip", "a"),
        ("frobnicate",),
        ("list", "x"),
        ("rm",),
    ]
    for words in lines:
        done = cli("template", *words, "--state", made)
        assert done.status == 2 and done.errors, (words, done)


@pytest.mark.limit(200)
def test_a_build_that_fails_or_is_killed_leaves_nothing(made):
    folder = os.path.join(made, "templates")
    before = os.listdir(folder)
    with template.package_server() as (index, _):
        words = ("template", "create", "bad", "--from", "python", "--host-network", "--index-url", index, "--state", made)
        failed = cli(*words, "--pip", "no-such-package-here", timeout=120)
        assert failed.status == 125 and "no-such-package-here" in failed.errors, failed
        process = subprocess.Popen(
            [BIN, *words, "--pip", "cordon-first"], env=environment({}), stderr=subprocess.PIPE, start_new_session=True
        )
        assert process.stderr.read(1), "it said nothing"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stderr.close()
    assert os.listdir(folder) == before


@pytest.mark.limit(300)
@pytest.mark.skipif(lab.usable() is not None, reason=str(lab.usable()))
def test_a_build_has_the_network_to_its_sources(state):
    with lab.Lab() as net:
        template.write_sources(os.path.join(net.folder, "www"), "http://npm.test/files/npm")
        words = ("template", "create", "far", "--from", "javascript", "--state", state)
        words += ("--index-url", "http://pypi.test/files/simple/", "--registry", "http://npm.test/files/npm/")
        outside = {"env": {"PIP_TRUSTED_HOST": "pypi.test"}, "prefix": ["nsenter", "-t", str(net.host), "-n"]}
        mark = net.mark()
        done = cli(*words, "--pip", "cordon-first", "--npm", "cordon-left", egress_resolver=lab.RESOLVER, timeout=200, **outside)
        assert done.status == 0, done
        assert {line["host"] for line in net.arrived(mark, "http")} == {"pypi.test", "npm.test"}
        failed = cli(*words, "--replace", "--npm", "nobody-made-it", egress_resolver=lab.RESOLVER, timeout=200, **outside)
        assert failed.status == 125 and "pypi.test:80" in failed.errors and "npm.test:80" in failed.errors, failed
    run = cli("run", "--template", "far", "--state", state, "-l", "javascript", "-c", "console.log(require('cordon-left')(1, 2))")
    assert (run.status, run.text) == (0, "3\n"), run


# --- file trees ---


@pytest.fixture
def state(nothing_left):
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        os.chmod(folder, 0o700)
        yield folder


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_packed_archives_are_unpacked(state, mode):
    done = template.imported(state, template.tar(template.member("usr/only", b"x"), mode=mode))
    assert done.status == 125 and "has no interpreter" in done.errors, done


@pytest.mark.limit(200)
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_file_tree_of_its_own_is_what_guests_see(state, mode):
    done = template.imported(state, template.tar(*template.bash_tree(), mode=mode))
    assert done.status == 0, done
    code = "echo /usr/bin/*; read -r line </etc/os-release; echo $line"
    run = cli("run", "--template", "tree", "--state", state, "-l", "bash", "-c", code)
    assert (run.status, run.text) == (0, "/usr/bin/bash\nID=cordon-test\n"), run
    for language in ("python", "javascript"):
        none = cli("run", "--template", "tree", "--state", state, "-l", language, "-c", "1")
        assert none.status == 125 and "no interpreter" in none.errors, none


def test_an_empty_import_is_wrong_usage(state):
    assert template.imported(state, b"").status == 2
    assert cli("template", "create", "t", "--import", "/no/such.tar", "--state", state).status == 2


@pytest.mark.limit(200)
def test_the_default_template_has_what_ragflows_images_have(daemon, run):
    numpy = {"language": "python", "code": "import numpy"}
    assert host.wait_for(lambda: daemon.post(numpy).status == 200, 90)  # the modules may still be loading
    code = (
        "import numpy, pandas, matplotlib, requests\n"
        "print(matplotlib.rcParams['font.sans-serif'][0], matplotlib.rcParams['axes.unicode_minus'])\n"
        "from matplotlib import font_manager\n"
        "print(font_manager.findfont(font_manager.FontProperties(family=['sans-serif'])))"
    )
    code += "\nimport matplotlib.pyplot as plt\nplt.title('\u4e2d\u6587'); plt.savefig('chart.png')"
    answer = run(code)
    assert answer["stderr"] == "", answer  # each missing letter would be told there
    first, font = says(answer).splitlines()
    assert first.startswith("WenQuanYi") and first.endswith("False"), first
    assert "wqy" in font, font
    said = says(run("console.log(typeof require('axios').get)", "javascript"))
    assert said == "function\n"
    assert says(run("import axios from 'axios'; console.log(typeof axios.get)", "javascript")) == "function\n"
    assert says(run("import('axios').then((axios) => console.log(typeof axios.default.get))", "javascript")) == "function\n"
    tools = says(run("python3 -m pip --version; npm --version; git --version; tar --version", "bash"))
    assert "pip " in tools and "git version" in tools and "tar (GNU tar)" in tools


# From a folder that has no packages, nor any above it: in the program's own process, and in one that it starts.
FAR = """
const fs = require('fs'), { execFileSync } = require('child_process');
fs.mkdirSync('/tmp/far/off', { recursive: true });
fs.writeFileSync('/tmp/far/off/a.js', "console.log(typeof require('%s'))");
process.chdir('/tmp/far/off');
require('/tmp/far/off/a.js');
console.log(String(execFileSync(process.execPath, ['a.js'])).trim());
function main() { return typeof require('%s') }
"""
FAR_SHELL = "cd /tmp && echo \"console.log(typeof require('%s'))\" >b.js && node b.js"
FAR_PYTHON = "import subprocess; subprocess.run(['bash', '-c', %r])"


@pytest.mark.limit(200)
@pytest.mark.parametrize("package, name", [("axios", "default"), ("cordon-left", "mix")])
def test_nodes_packages_are_found_from_any_directory(served, package, name):
    far, shell = FAR.replace("%s", package), FAR_SHELL % package
    answer = served.run(far, "javascript", template=name, arguments={})
    assert (answer["stdout"], answer["result"]) == ("function\nfunction\n", "function"), answer
    assert says(served.run(shell, "bash", template=name)) == "function\n"
    assert says(served.run(FAR_PYTHON % shell, template=name)) == "function\n"
    own = "require('fs').writeFileSync('/tmp/own.js', 'module.exports = 1'); console.log(require('own'))"
    assert says(served.run(own, "javascript", template=name, env={"NODE_PATH": "/tmp"})) == "1\n"


def test_nodes_packages_are_found_by_ragflows_door(daemon):
    result = executor_manager.run(daemon, FAR.replace("%s", "axios"), "nodejs", daemon.key, arguments={})
    assert executor_manager.value(result) == "function"


def test_nodes_packages_do_not_lie_about(run):
    """One link in /, which ES modules can't do without, and it leads somewhere."""
    found = says(run("find / -xdev -maxdepth 3 -name node_modules -not -path '/usr/*'; ls /node_modules/", "bash")).split()
    assert found[0] == "/node_modules" and "axios" in found and not [name for name in found[1:] if "/" in name], found


def test_a_client_without_a_key_learns_nothing(served):
    daemon = served
    stranger = Client(daemon.port)
    assert stranger.post({"language": "python", "code": "1", "template": "mix"}).status == 401
