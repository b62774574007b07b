# SPDX-License-Identifier: Apache-2.0
"""./dev install and uninstall into a folder, the sample settings, the pkg-config file, the unit; other roots than a host's."""

import os
import re
import shutil
import subprocess
import tempfile

import pytest
from lib import host
from lib.daemon import BIN, KEY_FORM, PREFIX, Daemon, cli

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.path.abspath(BIN))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A tree with the build under test installed into it. (./dev install builds for /usr/local first, and then does this.)"""
    if not os.path.exists(f"{BUILD}/meson-private"):
        pytest.skip(f"{BUILD} is no build folder: an installed program is tested")
    tree = tmp_path_factory.mktemp("cordon-installed")
    env = {**os.environ, "DESTDIR": str(tree), "PREFIX": "/usr/local"}
    done = subprocess.run([f"{ROOT}/packaging/install", "install", BUILD], env=env, capture_output=True, text=True, check=False, timeout=80)
    assert done.returncode == 0, done
    yield tree, env
    shutil.rmtree(tree, ignore_errors=True)


def files_of(tree):
    return {os.path.relpath(os.path.join(top, name), tree) for top, _, names in os.walk(tree) for name in names}


@pytest.fixture
def open_folder(nothing_left):
    made = tempfile.mkdtemp(prefix=PREFIX + "mine-")
    os.chmod(made, 0o755)  # a plugin's process is another user
    yield made
    shutil.rmtree(made)


def test_a_backend_is_written_as_its_page_says(installed, open_folder):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    tree, _ = installed
    env = {**os.environ, "PKG_CONFIG_PATH": f"{tree}/usr/local/share/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(tree)}
    examples = subprocess.run(["pkg-config", "--variable=examples", "cordon"], env=env, capture_output=True, text=True, check=True).stdout.strip()
    mine = f"{open_folder}/mine"
    shutil.copytree(f"{tree}/usr/local/{examples.split('/usr/local/')[1]}/plugin", mine)
    plugins = f"{mine}/plugins"
    done = subprocess.run(["make", "install", f"PLUGINS={plugins}"], cwd=mine, env=env, capture_output=True, text=True,
                          check=False, timeout=80)
    assert done.returncode == 0 and "warning" not in done.stderr, done
    ran = cli("conformance", "hello", "--only", "python", backend_plugins="hello", plugin_dirs=plugins)
    assert ran.status == 0 and "ok 1 - python" in ran.text, ran


def test_what_is_installed_works_and_goes_again(installed):
    tree, env = installed
    there = files_of(tree)
    for name in ("bin/cordon", "share/man/man1/cordon.1", "share/man/man8/cordon-serve.8", "share/man/man5/cordon.conf.5",
                 "include/cordon/backend.h", "share/pkgconfig/cordon.pc", "lib/systemd/system/cordon.service", "lib/sysusers.d/cordon.conf"):
        assert f"usr/local/{name}" in there, (name, there)
    assert "etc/cordon/cordon.conf" in there
    version = subprocess.run([f"{tree}/usr/local/bin/cordon", "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("cordon ")
    with open(f"{tree}/etc/cordon/cordon.conf", "a", encoding="utf-8") as file:
        file.write("CORDON_PIDS=99\n")
    subprocess.run([f"{ROOT}/packaging/install", "install", BUILD], env=env, check=True, capture_output=True, timeout=80)
    assert "CORDON_PIDS=99" in host.read(f"{tree}/etc/cordon/cordon.conf"), "a second install keeps the settings"
    subprocess.run([f"{ROOT}/packaging/install", "uninstall"], env=env, check=True, capture_output=True, timeout=80)
    assert files_of(tree) == {"etc/cordon/cordon.conf"}, files_of(tree)
    wrong = subprocess.run([f"{ROOT}/packaging/install", "uninstall", "--purg"], env=env, capture_output=True, text=True, check=False, timeout=80)
    assert wrong.returncode == 2 and "--purge" in wrong.stderr and files_of(tree)
    os.makedirs(f"{tree}/var/lib/cordon")
    subprocess.run([f"{ROOT}/packaging/install", "uninstall", "--purge"], env=env, check=True, capture_output=True, timeout=80)
    assert files_of(tree) == set() and not os.path.exists(f"{tree}/var/lib/cordon"), "what a plain one has left goes, too"
    subprocess.run([f"{ROOT}/packaging/install", "install", BUILD], env=env, check=True, capture_output=True, timeout=80)
    subprocess.run([f"{ROOT}/packaging/install", "uninstall", "--purge"], env=env, check=True, capture_output=True, timeout=80)
    assert files_of(tree) == set()
    again = subprocess.run([f"{ROOT}/packaging/install", "uninstall"], env=env, capture_output=True, text=True, check=False, timeout=80)
    assert again.returncode == 1 and "nothing is installed" in again.stderr


def sample():
    done = subprocess.run([f"{BUILD}/docs/man/settings_document", "--sample"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("an installed program is tested")
    return done.stdout


def test_the_sample_has_every_setting_commented_out(tmp_path):
    text = sample()
    listed = {entry["name"] for entry in cli("config", "show", "--json").json()["settings"]}
    assert set(re.findall(r"^#([A-Z0-9_]+)=", text, re.M)) == listed
    assert not [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_sample_is_a_valid_file_with_all_defaults_set(tmp_path):
    path = tmp_path / "cordon.conf"
    lines = [line.removeprefix("#") if re.match(r"#[A-Z0-9_]+=.", line) else line for line in sample().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    done = cli("config", "show", "--config", path)
    assert done.status == 0, done


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = host.read(f"{BUILD}/packaging/cordon.service")
    if not text:
        pytest.skip("an installed program is tested")
    path = tmp_path / "cordon.service"
    path.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={BIN}", text, flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False, timeout=60)
    told = [line for line in done.stderr.splitlines() if "cordon.service" in line]
    assert not told, told
    for needed in ("Delegate=yes", "Type=notify", "KillMode=mixed", "OOMPolicy=continue"):
        assert needed in text


@pytest.mark.root
def test_the_first_key_does_not_go_to_a_journal():
    """What is printed to systemd's journal is kept: no key is made for that."""
    script = 'exec env JOURNAL_STREAM="$(stat -Lc %d:%i /proc/self/fd/2)" "$@"'
    with Daemon(key=False, prefix=("sh", "-c", script, "sh")) as daemon:
        assert "there is no key yet" in daemon.log() and not KEY_FORM.search(daemon.log())
        assert daemon.refused()[0] == 401


@pytest.mark.root
def test_root_of_a_user_namespace():
    """`unshare --map-root-user`: uid 0 alone is there, and neither the gateway's uid nor any of guests'."""
    prefix = ("unshare", "--map-root-user", "--")
    with Daemon(key=False, prefix=prefix) as daemon:
        key = KEY_FORM.search(daemon.log())
        assert key, daemon.log()
        daemon.key = key.group()
        answer = daemon.run("import os; print(os.getuid(), len([p for p in os.listdir('/proc') if p.isdigit()]) < 4)")
        assert answer["stdout"] == "1000 True\n", answer
        entry = next(e for e in json_backends(daemon) if e["name"] == "local")
        assert entry.get("capabilities", entry)["agent_protected"] is False


def json_backends(daemon):
    listed = daemon.get("/v1/backends").json()
    return listed["backends"] if isinstance(listed, dict) else listed


ADMIN = 21


@pytest.mark.root
def test_root_without_admin_makes_do_with_a_user_namespace():
    """As in a container: no CAP_SYS_ADMIN, but all ids. Guests have a uid range, and the agent is out of reach."""
    prefix = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--")
    with Daemon(prefix=prefix) as daemon:
        caps = int(re.search(r"^CapEff:\s+(\w+)", host.read(f"/proc/{daemon.process.pid}/status"), re.M).group(1), 16)
        assert not caps & (1 << ADMIN)
        answer = daemon.run("import os; print(os.getuid(), len([p for p in os.listdir('/proc') if p.isdigit()]) < 4)")
        assert answer["stdout"] == "1000 True\n", answer
        entry = next(e for e in json_backends(daemon) if e["name"] == "local")
        assert entry.get("capabilities", entry)["agent_protected"] is True


def masked(*more):
    """As in a container: part of /proc is covered, in a mount namespace that goes with the command."""
    script = 'mount --bind /dev/null /proc/keys && exec "$@"'
    return ("unshare", "--mount", "--", "sh", "-c", script, "sh", *more)


WITHOUT_ADMIN = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--")


def doctors_words(prefix):
    return {probe["name"]: probe for probe in cli("doctor", "--json", prefix=prefix).json()["probes"]}


@pytest.mark.root
def test_a_masked_proc_is_named():
    """No proc of its own can be mounted for a guest then: said by doctor, and by a run, which does not take place."""
    probes = doctors_words(masked(*WITHOUT_ADMIN))
    assert not probes["proc"]["ok"] and "/proc/keys" in probes["proc"]["found"] and "systempaths" in probes["proc"]["fix"], probes["proc"]
    assert not probes["outer /proc"]["ok"] and probes["outer seccomp"]["ok"] and probes["outer AppArmor"]["ok"], probes
    done = cli("run", "--json", "--state", "/nonexistent/cordon", "-c", "print(1)", prefix=masked(*WITHOUT_ADMIN))
    assert done.status == 125 and "/proc/keys" in done.text and "systempaths" in done.text, done


@pytest.mark.root
def test_a_masked_proc_is_no_obstacle_to_real_root():
    """The template's own proc is mounted before any user namespace is entered."""
    probes = doctors_words(masked())
    assert probes["proc"]["ok"] and probes["outer /proc"]["ok"] and "/proc/keys" in probes["outer /proc"]["found"], probes["outer /proc"]
    done = cli("run", "--state", "/nonexistent/cordon", "-c", "print('through')", prefix=masked())
    assert (done.status, done.text) == (0, "through\n"), done
