# SPDX-License-Identifier: Apache-2.0
"""
The backends that a suite is run on, one after another. A test or module takes part by the mark `each_backend`; then its
fixtures `daemon`, `own` and `backend` are of each of them in turn (conftest.py):

    CORDON_TEST_BACKENDS=local,exec-sandbox      all of the suite on each of these
    CORDON_TEST_LONG=1                           the same, if that names none
    neither                                      on `local`; what has the mark `smoke` on virtual machines, too

What differs between them by nature stands here, as a property; a test asks for it by name.
"""

import dataclasses
import functools
import os

from . import host, vmimage
from .daemon import Daemon, cli
from .pace import limit, stretched

MIB = 1 << 20
CHOSEN = [name for name in os.environ.get("CORDON_TEST_BACKENDS", "").split(",") if name]
LONG = os.environ.get("CORDON_TEST_LONG") == "1"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A backend of this host, under test."""

    name: str
    machine: bool = False  # its guests are virtual machines: a kernel of their own, and few processes on the host
    kernel_shared: bool = True  # guests are processes of the host's kernel, which has one count of them all
    zygote: bool = True  # interpreters are forked from one that holds their modules, whose memory is not the guest's
    network_later: bool = True  # a kept guest that was made without the network can be given it
    absent: tuple = ()  # well-known programs that its image doesn't have
    charts: bool = True  # its image has matplotlib, where this host has it

    @property
    def isolation(self):
        return "namespace" if self.name == "local" else self.name

    @property
    def accelerator(self):
        return None

    @property
    def pace(self):
        """How much slower than on the host itself all is."""
        return 1

    @property
    def missing(self):
        """Why it can't be had here, or None."""
        return None

    @property
    def system_mb(self):
        """What of a guest's memory is not its program's: a machine's kernel and what waits warm in it."""
        return 0

    @property
    def oom_together(self):
        """Whether its kernel ends all of a group at once for want of memory (cgroup v2), or the largest process alone."""
        return "memory" in host.read("/sys/fs/cgroup/cgroup.controllers").split()

    def settings(self):
        """Of a daemon whose runs and guests are on it, unless they name another."""
        return {"guest_start_s": 60}  # the first guest waits for its zygote, and that for a busy host

    def daemon(self, **settings):
        return Daemon(**{**self.settings(), **settings})


@functools.cache
def accelerator():
    """What virtual machines of this host have: "kvm" or "tcg"."""
    probes = {probe["name"]: probe for probe in cli("doctor", "--json").json()["probes"]}
    return "kvm" if probes["machines: kvm"]["ok"] else "tcg"


@dataclasses.dataclass(frozen=True)
class Machines(Kind):
    machine: bool = True
    kernel_shared: bool = False
    zygote: bool = False
    network_later: bool = False  # it has no device then
    absent: tuple = ("curl", "git", "npm")  # by --add curl, say, they would be there
    charts: bool = False  # `cordon image build --add python3-matplotlib` would put it in

    @property
    def isolation(self):
        return {"tcg": "software-emulated", "kvm": "hardware-virtualized"}[accelerator()]

    @property
    def accelerator(self):
        return accelerator()

    @property
    def pace(self):
        return {"tcg": 10, "kvm": 1}[accelerator()]

    @property
    def missing(self):
        if not os.access("/usr/bin/qemu-system-x86_64", os.X_OK):
            return "needs QEMU: apt-get install --no-install-recommends qemu-system-x86"
        return "needs root" if os.geteuid() else None

    @property
    def system_mb(self):
        return 112

    @property
    def oom_together(self):
        return True  # of its own kernel, whatever the host has

    def settings(self):
        # Its machines have all CPUs that they ask for: what is tested is how they end, not how they wait for each other.
        more = {"vm_image": vmimage.folder(), "allow_software_emulation": True, "vm_cpu_budget_percent": 1000}
        # Nothing but machines is started, so nothing else is kept in stock.
        pools = {f"pool_{kind}": 0 for kind in ("python", "python_data", "javascript", "bash", "guest")}
        chosen = {"backend": self.name, "min_isolation": self.isolation, "LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION": True}
        chosen["timeout_s"] = limit(30)  # of runs that name none
        chosen["guest_start_s"] = min(600, int(stretched(30)))  # a cold boot beside others, at most as long as can be set
        return {**chosen, **more, **pools}


@dataclasses.dataclass(frozen=True)
class Nothing(Kind):
    """`none`: no isolation. Only what must be true without any is tested on it."""

    def settings(self):
        return {**super().settings(), "allow_none": True, "min_isolation": "none"}


KINDS = {kind.name: kind for kind in (Kind("local"), Machines("exec-sandbox"), Nothing("none"))}


def names(smoke, more=()):
    """Those that a test is run on."""
    if CHOSEN:
        return [*CHOSEN, *more]
    return ["local", *(["exec-sandbox"] if smoke or LONG else []), *more]
