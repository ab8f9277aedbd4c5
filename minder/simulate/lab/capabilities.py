"""What this machine lets a lab do, found out by doing it once on a throw-away lab of two machines."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from minder.model.errors import LabError
from minder.simulate.lab.cgroup import Cgroup, find_layout
from minder.simulate.lab.clean import remove_lab
from minder.simulate.lab.network import CONTROLLER_HOST, LabNetwork, find_free_subnets, find_program
from minder.simulate.lab.record import Owner

__all__ = ["FEATURES", "Capabilities", "find_capabilities"]

FEATURES: Mapping[str, str] = {
    "namespaces": "machines with links of their own (ip, network namespaces, veth, bridge)",
    "cgroups": "machines with process accounting of their own (cgroup v1 or v2)",
    "cpu-quota": "fault slow-cpu (CPU quota)",
    "memory-limit": "fault oom (memory limit)",
    "slow-link": "fault slow-link (tc tbf)",
    "dead-link": "fault dead-link (nft)",
}
# Refused at once means reachable: the other end's kernel answered.
# The kernel may let the port of a new link wait for up to a second, and asks again a second after a lost packet.
_KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=4)
except ConnectionRefusedError:
    pass
"""


@dataclass(slots=True)
class Capabilities:
    """Features that were refused, with the reason in one line; the others work. layout: v1, v2, hybrid or none."""

    refused: dict[str, str] = field(default_factory=dict)
    layout: str = "none"

    def can(self, feature: str) -> bool:
        return feature not in self.refused


def find_capabilities() -> Capabilities:
    """Try every feature once; takes about a tenth of a second and leaves nothing behind."""
    layout = find_layout()
    found = Capabilities(layout=layout.kind)
    if not sys.platform.startswith("linux"):
        found.refused = dict.fromkeys(FEATURES, f"needs Linux, this is {sys.platform}")
        return found
    run_id = secrets.token_hex(2)
    cgroup = Cgroup(f"mdr{run_id}m0", layout)
    try:
        network = _try_network(found, run_id)
        _try(found, "cgroups", lambda: _try_membership(cgroup))
        if found.can("cgroups"):
            _try(found, "cpu-quota", lambda: cgroup.set_cpu_quota(0.5))
            _try(found, "memory-limit", lambda: cgroup.set_memory_limit(1 << 30))
        if network is not None:
            _try(found, "slow-link", lambda: network.slow_data_link("m0", 10_000_000))
            _try(found, "dead-link", lambda: network.drop_data_link("m0"))
    finally:
        with contextlib.suppress(LabError):
            remove_lab(run_id)
    _inherit(found, "namespaces", ("slow-link", "dead-link"))
    _inherit(found, "cgroups", ("cpu-quota", "memory-limit"))
    return found


def _try(found: Capabilities, feature: str, attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except (LabError, OSError, subprocess.SubprocessError) as error:
        found.refused[feature] = str(error)


def _inherit(found: Capabilities, cause: str, features: tuple[str, ...]) -> None:
    for feature in features:
        if cause in found.refused:
            found.refused.setdefault(feature, found.refused[cause])


def _try_network(found: Capabilities, run_id: str) -> LabNetwork | None:
    networks: list[LabNetwork] = []

    def build() -> None:
        for command in ("ip", "nsenter"):
            find_program(command)
        network = LabNetwork(run_id, *find_free_subnets(2))
        network.build(["m0", "m1"], str(Owner.current()))
        _knock(network, "m0", str(network.data[2]))
        _knock(network, "m0", str(network.management[CONTROLLER_HOST]))
        networks.append(network)

    _try(found, "namespaces", build)
    return networks[0] if networks else None


def _knock(network: LabNetwork, label: str, address: str) -> None:
    space = f"--net=/var/run/netns/{network.namespace(label)}"
    command = [find_program("nsenter"), space, "--", sys.executable, "-I", "-S", "-c", _KNOCK, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise LabError(f"packets between lab machines and the controller do not get through: {reason}; look for a firewall")


def _try_membership(cgroup: Cgroup) -> None:
    if cgroup.layout.kind == "none":
        raise LabError("no cgroup filesystem is mounted")
    cgroup.create()
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for path in cgroup.member_files():
            path.write_text(str(child.pid), encoding="utf-8")
        if not cgroup.kill(deadline_s=2.0):
            raise LabError("processes in a cgroup could not be killed")
    finally:
        child.kill()
        child.wait()
