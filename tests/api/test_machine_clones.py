# SPDX-License-Identifier: Apache-2.0
"""Real machines over HTTP: copies of one template have nothing in common that must differ, and nothing of each other; and what
their outcomes say of timeouts, memory and output, by Langflow's rules (docs/exec-sandbox.md)."""

import json
import time

import pytest
from lib import vms
from lib.backends import KINDS, accelerator

pytestmark = [pytest.mark.root, pytest.mark.limit(900)]

MIB = 1 << 20

ASK = """
import json, os, random, secrets, ssl, tempfile, time, uuid
found = {
    "urandom": os.urandom(16).hex(), "getrandom": os.getrandom(16).hex(), "random": random.random(), "bits": random.getrandbits(128),
    "secrets": secrets.token_hex(16), "ssl": ssl.RAND_bytes(16).hex(), "uuid1": str(uuid.uuid1()), "uuid4": str(uuid.uuid4()),
    "system": random.SystemRandom().random(), "kernel_uuid": open("/proc/sys/kernel/random/uuid").read().strip(),
    "boot_id": open("/proc/sys/kernel/random/boot_id").read().strip(), "temporary": tempfile.mktemp(),
}
"""
TELL = 'found["time"] = time.time()\nprint(json.dumps(found))\n'
NUMPY = 'import numpy\nfound["numpy"] = numpy.random.rand()\nfound["numpy_generator"] = numpy.random.default_rng().random()\n'


@pytest.fixture(scope="module")
def made(daemons):
    found = daemons(KINDS["exec-sandbox"])
    vms.until(found, "copied", "pooled")
    return found


def clone(made, code, **fields):
    """A run in a machine that was copied, not booted."""
    found = vms.until(made, "copied", "pooled", code=code, **fields)
    assert found["exit_code"] == 0, (found["exit_code"], found["stderr"], found["outcome"])
    return found["stdout"]


def test_two_copies_draw_different_numbers_and_have_the_right_time(made):
    before = time.time()
    first, second = (json.loads(clone(made, ASK + NUMPY + TELL)) for _ in range(2))
    after = time.time()
    same = [name for name in first if name != "time" and first[name] == second[name]]
    assert not same, f"two copies have the same {same}: {first}"
    assert before - 2 < first["time"] < second["time"] < after + 2, (before, first["time"], second["time"], after)


@pytest.mark.long  # a template of its own
def test_two_copies_of_bash_draw_different_numbers(made):
    code = 'echo "$RANDOM$RANDOM$RANDOM$RANDOM" "$(head -c 16 /dev/urandom | od -An -tx1)" "$(cat /proc/sys/kernel/random/uuid)"'
    first, second = (clone(made, code, language="bash") for _ in range(2))
    same = [one for one, other in zip(first.split(), second.split(), strict=False) if one == other and len(one) > 2]
    assert not same, (first, second)


JAVASCRIPT = """
const crypto = require('crypto')
console.log(JSON.stringify({
    bytes: crypto.randomBytes(16).toString('hex'), uuid: crypto.randomUUID(), int: crypto.randomInt(2 ** 40),
    web: Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex'), web_uuid: globalThis.crypto?.randomUUID() ?? crypto.randomUUID(),
    key: crypto.generateKeySync('aes', {length: 256}).export().toString('hex'),
    math: Math.random(), more: Math.random(), kernel: require('fs').readFileSync('/proc/sys/kernel/random/uuid', 'utf8').trim(),
    time: Date.now() / 1000,
}))
"""


@pytest.mark.long  # a template of its own
def test_two_copies_of_node_draw_different_numbers_and_have_the_right_time(made):
    before = time.time()
    first, second = (json.loads(clone(made, JAVASCRIPT, language="javascript")) for _ in range(2))
    after = time.time()
    same = [name for name in first if first[name] == second[name]]
    assert not same, f"two copies have the same {same}: {first}"
    assert len({*first.values()}) == len(first), first
    assert before - 2 < first["time"] < second["time"] < after + 2, (before, first["time"], second["time"], after)


def test_the_hash_seed_is_the_templates_and_a_fresh_interpreter_has_its_own(made):
    code = "print(hash('a text'), end='')"
    shared = {clone(made, code) for _ in range(2)}
    answers = [vms.run(made, code, fresh_interpreter=True) for _ in range(2)]
    fresh = {answer["stdout"] for answer in answers}
    assert all(answer["exit_code"] == 0 for answer in answers), answers
    assert len(fresh) == 2 and not fresh & shared, (shared, fresh)


def test_nothing_of_one_is_in_another(made):
    leave = """
import builtins, os, sys
builtins.left = sys.left = 1
for folder in (".", "/tmp", "/var/tmp", "/dev/shm"):
    open(os.path.join(folder, "left-behind"), "w").write("x")
os.environ["LEFT"] = "1"
if os.fork() == 0:
    os.setsid()
    while True: pass
"""
    look = """
import builtins, os, sys
print([hasattr(builtins, "left"), hasattr(sys, "left"), "LEFT" in os.environ,
  [f for f in (".", "/tmp", "/var/tmp", "/dev/shm") if os.path.exists(os.path.join(f, "left-behind"))]])
"""
    for _ in range(2):
        clone(made, leave)
        assert clone(made, look) == "[False, False, False, []]\n"


def test_qemu_can_not_write_what_copies_are_made_of(made):
    """Its memory file and its devices' state are sealed, or opened for reading only."""
    import fcntl
    import os

    from lib import host

    checked = 0

    def check():
        nonlocal checked
        for pid in vms.qemus(made):
            for fd in host.descriptors(pid):
                path = f"/proc/{pid}/fd/{fd}"
                try:
                    if "memfd:" not in os.readlink(path):
                        continue
                    own = os.open(path, os.O_RDONLY)
                except OSError:
                    continue
                try:
                    seals = fcntl.fcntl(own, 1034)  # F_GET_SEALS
                finally:
                    os.close(own)
                assert seals & 0x8 or seals & 0x10, f"{os.readlink(path)} of QEMU can be written (seals {seals:#x})"
                checked += 1
        return checked > 0

    list_of = made.stream("import time; time.sleep(20)", timeout_s=60, timeout=vms.PATIENCE_S)
    for _, event in list_of:
        if event["type"] == "started":
            break
    assert host.wait_for(check), "no memory file of a copy was found"


# --- what outcomes say ---


def langflow(made, code, **fields):
    return vms.run(made, code, policy="langflow", **{"timeout_s": 300, "memory_mb": 256, **fields})  # the others' template


def test_a_timeout_is_told_from_our_clock_and_keeps_the_output(made):
    found = langflow(made, "import time\nprint('so far', flush=True)\nwhile True: time.sleep(1)", timeout_s=3)
    assert (found["outcome"]["cause"], found["exit_code"]) == ("timeout", -1), found
    assert found["stdout"] == "so far\n" and found["outcome"]["limit_hit"] == "timeout_s", found


def test_memory_that_ran_out_is_137(made):
    code = "print('so far', flush=True)\nkeep = []\nwhile True: keep.append(bytearray(b'x' * (1 << 20)))"
    found = langflow(made, code)
    told_by_python = found["exit_code"] == 1 and "MemoryError" in found["stderr"]
    assert told_by_python or (found["outcome"]["cause"], found["exit_code"]) == ("memory", 137), found
    assert found["stdout"] == "so far\n", found


def test_output_beyond_the_limit_is_cut_and_no_error(made):
    found = langflow(made, "import sys\nfor _ in range(40): sys.stdout.write('x' * 65536)\nsys.exit(4)")
    assert (found["exit_code"], len(found["stdout"])) == (4, MIB), (found["exit_code"], len(found["stdout"]))
    assert found["outcome"]["stdout"] == {"bytes": 40 * 65536, "kept": MIB, "truncated": True}, found["outcome"]


def test_the_outcome_names_the_accelerator(made):
    outcome = langflow(made, "print(1)")["outcome"]
    isolation = {"tcg": "software-emulated", "kvm": "hardware-virtualized"}[accelerator()]
    assert (outcome["accelerator"], outcome["isolation"]) == (accelerator(), isolation), outcome
