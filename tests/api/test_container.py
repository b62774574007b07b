# SPDX-License-Identifier: Apache-2.0
"""
The recipe of packaging/docker: the image is built from the package, and started as compose.yaml says, by Debian's Docker
engine in a network and a mount namespace of its own, with its own folders. Nothing is fetched: the base image is made by
mmdebstrap. (What the engine is given is derived from compose.yaml: see lib/compose.py.)
"""

import base64
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest
from lib import compose, host
from lib.daemon import BIN, KEY_FORM, PREFIX

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPOSE = os.path.join(ROOT, "packaging/docker/compose.yaml")
CACHE = os.path.join(ROOT, "build", "container")
PROGRAMS = "python3"  # of the image: enough for the recipe, and small
GREEDY = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
NEEDED = ("dockerd", "docker", "mmdebstrap", "dpkg-buildpackage", "dh", "nsenter")


def missing():
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in NEEDED if not shutil.which(name)]
    return f"not installed: {', '.join(absent)} (./dev packages container package)" if absent else None


pytestmark = [pytest.mark.limit(600), pytest.mark.skipif(missing() is not None, reason=str(missing()))]


def sh(*words, check=True, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=500, check=False, **options)
    assert not check or done.returncode == 0, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


class Engine:
    """A Docker engine of our own. Its groups are below one of our name, so that they can be told and removed."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix=PREFIX + "docker-")
        self.socket = f"unix://{self.folder}/docker.sock"
        self.parent = f"/{PREFIX}docker"
        self.log = open(f"{self.folder}/log", "wb")  # noqa: SIM115 - closed by close()
        script = "mount --make-rprivate / && ip link set lo up && exec dockerd \"$@\""
        self.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--", "sh", "-c", script, "sh", "--host", self.socket, "--data-root", f"{self.folder}/data",
             "--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/pid", "--cgroup-parent", self.parent],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not host.wait_for(lambda: self.docker("info", check=False).returncode == 0, 60, 0.2):
            text = host.read(f"{self.folder}/log")
            self.close()
            raise AssertionError(f"dockerd did not come up: {text[-2000:]}")

    def docker(self, *words, check=True, **options):
        return sh("docker", "--host", self.socket, *words, check=check, **options)

    def inside(self, *words, **options):
        """A command in the engine's network, where published ports are."""
        return sh("nsenter", "-t", self.process.pid, "-n", "--", *words, **options)

    def close(self):
        if self.process.poll() is None:
            for name in self.docker("ps", "-aq", check=False).stdout.split():
                self.docker("rm", "-f", name, check=False)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        for group in glob.glob(f"/sys/fs/cgroup{self.parent}") + glob.glob(f"/sys/fs/cgroup/*{self.parent}"):
            host.wait_for(lambda g=group: remove_group(g), 10)


def remove_group(top):
    for folder, _, _ in sorted(os.walk(top), key=lambda entry: -len(entry[0])):
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return True


def package():
    """The newest package of this tree. Built here unless one is there that is newer than the program under test."""
    found = sorted(glob.glob(f"{ROOT}/build/package/cordon_*.deb"), key=os.path.getmtime)
    if not found or os.path.getmtime(found[-1]) < os.path.getmtime(BIN):
        sh(f"{ROOT}/packaging/package", f"{ROOT}/build/package")
        found = glob.glob(f"{ROOT}/build/package/cordon_*.deb")
    return found[-1]


def base_image(deb):
    """A tar of Debian with all that the image needs, so that the build needs no network. Kept under its contents' hash."""
    depends = sh("dpkg-deb", "-f", deb, "Depends").stdout
    names = {part.split("|")[0].split("(")[0].strip() for part in depends.split(",")} - {"systemd"}
    names = sorted({name for name in names if name} | {"systemd-standalone-sysusers", "curl", *PROGRAMS.split()})
    path = f"{CACHE}/base-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}.tar"
    if not os.path.exists(path):
        os.makedirs(CACHE, exist_ok=True)
        sh("unshare", "--mount", "mmdebstrap", "--variant=minbase", "--quiet", f"--include={','.join(names)}", "--dpkgopt=path-exclude=/usr/share/doc/*",
           "--customize-hook=rm -rf $1/etc/apt/sources.list $1/etc/apt/sources.list.d", "bookworm", path + ".new.tar")
        os.rename(path + ".new.tar", path)
    return path


@pytest.fixture(scope="module")
def engine(nothing_left):
    deb = package()
    base = base_image(deb)
    made = Engine()
    try:
        made.docker("import", base, "cordon-test-base")
        made.docker("build", "--network", "none", "--build-arg", "BASE=cordon-test-base", "--build-arg", f"PROGRAMS={PROGRAMS}", "-t", "cordon",
                    "-f", f"{ROOT}/packaging/docker/Dockerfile", f"{ROOT}/build/package")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def service(engine):
    """The service of the recipe, with a key, up and healthy."""
    flags, image = compose.run_line(COMPOSE, "cordon")
    made = engine.docker("run", "--rm", *flags_for_once(flags), image, "key", "create", "--name", "ragflow")
    name = engine.docker("run", "-d", *flags, image).stdout.strip()

    def ready():
        return engine.inside("curl", "-sf", "http://127.0.0.1:9385/readyz", check=False).returncode == 0

    assert host.wait_for(ready, 60, 0.5), engine.docker("logs", name, check=False)
    yield engine, name, KEY_FORM.search(made.stdout).group()
    engine.docker("rm", "-f", name)


def flags_for_once(flags):
    """As `docker compose run --rm`: no restart, no ports."""
    skip = {"--restart", "--publish"}
    pairs = list(zip(flags[::2], flags[1::2], strict=True))
    return [word for pair in pairs if pair[0] not in skip for word in pair]


def doctor(engine, *flags):
    told = engine.docker("run", "--rm", *flags, "cordon", "doctor", "--json", check=False)
    return {probe["name"]: probe for probe in json.loads(told.stdout)["probes"]}


def test_a_run_over_the_published_port(service):
    engine, _, key = service
    done = engine.inside("curl", "-s", "http://127.0.0.1:9385/v1/runs", "-H", f"Authorization: Bearer {key}", "-d",
                         json.dumps({"language": "python", "code": "import os; print(os.getpid() < 20, os.listdir('/proc').count('1'))"}))
    answer = json.loads(done.stdout)
    assert answer["stdout"] == "True 0\n" and answer["outcome"]["isolation"] == "namespace", answer


def test_without_a_key_it_is_refused(service):
    engine, _, _ = service
    done = engine.inside("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:9385/v1/runs", "-d", "{}")
    assert done.stdout == "401"


def test_doctor_in_the_service_misses_nothing_that_is_needed(service):
    engine, name, _ = service
    told = json.loads(engine.docker("exec", name, "cordon", "doctor", "--json").stdout)
    assert told["ok"] is True, told
    probes = {probe["name"]: probe for probe in told["probes"]}
    for wall in ("uid range", "outer seccomp", "outer AppArmor", "outer /proc"):
        assert probes[wall]["ok"], probes[wall]


def test_the_agent_is_protected_without_admin(service):
    engine, name, _ = service
    assert "CapEff:\t00000000000401eb" not in engine.docker("exec", name, "cat", "/proc/1/status").stdout  # not Docker's own set
    caps = int(next(line.split()[1] for line in engine.docker("exec", name, "cat", "/proc/1/status").stdout.splitlines()
                    if line.startswith("CapEff:")), 16)
    assert not caps & (1 << 21), "CAP_SYS_ADMIN"
    listed = json.loads(engine.docker("exec", name, "cordon", "backends", "--json").stdout)
    entries = listed["backends"] if isinstance(listed, dict) else listed
    local = next(entry for entry in entries if entry["name"] == "local")
    assert local.get("capabilities", local)["agent_protected"] is True


def test_the_health_check_passes(service):
    engine, name, _ = service
    test = json.loads(engine.docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", name).stdout)
    assert test[0] == "CMD"
    engine.docker("exec", name, *test[1:])


def test_limits_are_held_or_declared_absent(service):
    """On a host with cgroup v1 a container without CAP_SYS_ADMIN has none to give, and says so; it never pretends."""
    engine, name, _ = service
    listed = json.loads(engine.docker("exec", name, "cordon", "backends", "--json").stdout)
    entries = listed["backends"] if isinstance(listed, dict) else listed
    local = next(entry for entry in entries if entry["name"] == "local")
    done = engine.docker("exec", name, "cordon", "run", "--json", "-m", "64", "-c", GREEDY, check=False)
    cause = json.loads(done.stdout)["outcome"]["cause"]
    assert cause == ("memory" if local.get("capabilities", local)["memory_limit"] else "refused"), done


def test_with_admin_the_limits_of_cgroup_v1_are_held(engine):
    flags, image = compose.run_line(COMPOSE, "cordon")
    done = engine.docker("run", "--rm", *flags_for_once(flags), "--cap-add", "SYS_ADMIN", image, "run", "--json", "--state", "/tmp/none", "-m",
                         "64", "-c", GREEDY, check=False)
    assert json.loads(done.stdout)["outcome"]["cause"] == "memory", done


def test_a_masked_proc_is_no_obstacle_to_an_admin(engine):
    """The template's own proc is mounted before any user namespace is entered."""
    flags, image = compose.run_line(COMPOSE, "cordon", without=("systempaths=unconfined",))
    once = [*flags_for_once(flags), "--cap-add", "SYS_ADMIN"]
    done = engine.docker("run", "--rm", *once, image, "run", "--state", "/tmp/none", "-c", "print('through')", check=False)
    assert done.stdout == "through\n", done
    probes = doctor(engine, *once)
    assert probes["proc"]["ok"] and probes["outer /proc"]["ok"] and "/proc/" in probes["outer /proc"]["found"], probes["outer /proc"]


def test_doctor_names_a_masked_proc(engine):
    flags, image = compose.run_line(COMPOSE, "cordon", without=("systempaths=unconfined",))
    probes = doctor(engine, *flags_for_once(flags))
    assert not probes["proc"]["ok"] and "/proc/" in probes["proc"]["found"] and "systempaths" in probes["proc"]["fix"], probes["proc"]
    assert not probes["outer /proc"]["ok"] and probes["outer seccomp"]["ok"], probes
    done = engine.docker("run", "--rm", *flags_for_once(flags), image, "run", "--json", "--state", "/tmp/none", "-c", "print(1)", check=False)
    assert done.returncode == 125 and "masked" in done.stdout, done


def test_doctor_names_the_engines_filter(engine):
    flags, _ = compose.run_line(COMPOSE, "cordon")
    at = next(i for i, word in enumerate(flags) if word.startswith("seccomp="))
    probes = doctor(engine, *flags_for_once(flags[: at - 1] + flags[at + 1 :]))
    assert not probes["user namespaces"]["ok"] and "seccomp" in probes["user namespaces"]["found"], probes["user namespaces"]
    assert not probes["outer seccomp"]["ok"] and "seccomp=" in probes["outer seccomp"]["fix"], probes["outer seccomp"]
    assert "user namespaces" in probes["outer seccomp"]["found"]


def test_a_stop_is_in_order(engine):
    flags, image = compose.run_line(COMPOSE, "cordon")
    # A folder of its own: the service has the other one.
    flags = [word.replace("state:", "stopped:") for word in flags_for_once(flags)]
    engine.docker("run", "--rm", *flags, image, "key", "create")
    name = engine.docker("run", "-d", *flags, image).stdout.strip()
    assert host.wait_for(lambda: "serving" in engine.docker("logs", name).stderr, 60, 0.5)
    engine.docker("stop", name)
    assert engine.docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
    engine.docker("rm", name)


def test_ragflows_door_over_the_published_port(service):
    engine, _, key = service
    call = {"code_b64": base64.b64encode(b"def main(n): return n * 2").decode(), "arguments": {"n": 21}}
    done = engine.inside("curl", "-s", "http://127.0.0.1:9385/run", "-H", f"Authorization: Bearer {key}",
                         "-H", "Content-Type: application/json", "-d", json.dumps(call))
    assert json.loads(done.stdout)["result"] == {"present": True, "value": 42, "type": "json"}
