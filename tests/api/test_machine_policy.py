# SPDX-License-Identifier: Apache-2.0
"""Who may use exec-sandbox without hardware virtualization. Machines are fakes (lib/fakevm.py): what counts comes before
them."""

import json
import os

import pytest
from lib import fakevm, host
from lib.backends import accelerator
from lib.daemon import cli

BACKEND = "exec-sandbox"


needs_emulation = pytest.mark.skipif(accelerator() == "kvm", reason="this host has hardware virtualization")


@pytest.fixture
def image(tmp_path):
    os.chmod(tmp_path.parent, 0o755)
    return fakevm.image(str(tmp_path / "image"))


@pytest.fixture
def fake(own, image):
    def start(**more):
        settings = fakevm.settings(image, min_isolation="namespace")
        del settings["allow_software_emulation"]
        return own(**{**settings, **more})

    return start


def refused(daemon, *words, kind="refused", **fields):
    status, found, message = daemon.refused(backend=BACKEND, **fields)
    assert (status, found) == ({"refused": 403, "unavailable": 503}[kind], kind), message
    missing = [word for word in words if word not in message]
    assert not missing, (missing, message)
    return message


def declared(daemon):
    rows = daemon.get("/v1/backends").json()["backends"]
    return next(row for row in rows if row["name"] == BACKEND)


@pytest.mark.parametrize("name", ["CORDON_VM_FORCE_EMULATION", "EXEC_SANDBOX_FORCE_EMULATION"])
def test_emulation_can_be_forced_and_needs_leave_all_the_same(fake, name):
    daemon = fake(**{name: "true"})
    refused(daemon, BACKEND, "CORDON_ALLOW_SOFTWARE_EMULATION is false")
    assert "CORDON_VM_FORCE_EMULATION is true" in json.dumps(declared(daemon)), declared(daemon)
    assert fakevm.machines(daemon) == []
    daemon = fake(**{name: "true"}, allow_software_emulation=True)
    assert declared(daemon)["capabilities"]["isolation"] == "software-emulated" and declared(daemon)["able"] is True, declared(daemon)
    probes = {probe["name"]: probe for probe in cli("doctor", "--json", **{name: "true"}).json()["probes"]}
    assert "CORDON_VM_FORCE_EMULATION is true" in probes["machines: kvm"]["found"], probes["machines: kvm"]
    assert cli("serve", **{name: "maybe"}).status == 2


@needs_emulation
def test_it_is_refused_at_each_door_where_nobody_allowed_it(fake):
    daemon = fake()
    refused(daemon, BACKEND, "emulate", "no boundary", "CORDON_ALLOW_SOFTWARE_EMULATION is false", "cordon doctor")
    refused(daemon, BACKEND, '"software-emulated"', "not a hardware-virtualized boundary", "cordon doctor",
            "LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION=true", policy="langflow")
    assert declared(daemon)["capabilities"]["isolation"] == "software-emulated"
    assert declared(daemon)["able"] is False and fakevm.machines(daemon) == []
    made = daemon.post({"backend": BACKEND}, timeout=60)  # no program either
    assert made.status == 400, made


@needs_emulation
def test_langflows_own_setting_allows_it_to_langflow_alone(fake):
    daemon = fake(LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION="yes", LANGFLOW_SANDBOX_BACKEND=BACKEND)
    found = daemon.run("pass", policy="langflow")
    outcome = found["outcome"]
    assert (outcome["backend"], outcome["isolation"], outcome["accelerator"]) == (BACKEND, "software-emulated", "tcg"), found
    refused(daemon, "CORDON_ALLOW_SOFTWARE_EMULATION is false")
    refused(daemon, "network", "LANGFLOW_SANDBOX_ALLOW_NETWORK must be true", policy="langflow", network=True)


@needs_emulation
def test_the_native_setting_allows_it_to_both(fake):
    daemon = fake(allow_software_emulation=True)
    for policy in ("native", "langflow"):
        found = daemon.run("pass", backend=BACKEND, policy=policy)
        assert found["outcome"]["isolation"] == "software-emulated", found


@needs_emulation
def test_it_never_counts_as_hardware(fake):
    daemon = fake(allow_software_emulation=True, min_isolation="hardware-virtualized")
    refused(daemon, "CORDON_MIN_ISOLATION is hardware-virtualized", '"software-emulated"')
    daemon = fake(allow_software_emulation=False)
    refused(daemon, "not a hardware-virtualized boundary", policy="langflow")


def test_langflows_memory_and_time_are_its_settings(fake):
    daemon = fake(LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION="1", LANGFLOW_SANDBOX_BACKEND=BACKEND,
                  LANGFLOW_SANDBOX_MEMORY_MB="208")
    daemon.run("pass", policy="langflow")
    assert host.wait_for(lambda: any("208M" in host.cmdline(pid) for pid in fakevm.machines(daemon))), daemon.log()


def test_an_error_is_no_reason_for_another_backend(own, tmp_path):
    """Missing things are told by the request's own backend, and the code runs nowhere."""
    daemon = own(vm_image=str(tmp_path), allow_software_emulation=True, backends=f"{BACKEND},none", allow_none=True)
    answer = daemon.post({"language": "python", "code": "print(1)"})
    assert answer.status == 503 and "cordon image build" in answer.error()[1], answer
