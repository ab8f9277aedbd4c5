"""The lab's links. A machine is a network namespace with two interfaces, `mgmt0` and `data0`.

All `mgmt0` meet in a bridge in the root namespace, where the controller has address .254. All `data0` meet in a bridge that has no address
and lives in a namespace of its own: the root namespace is not part of the data network, and its firewall (container engines set forwarding
to drop) cannot touch it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from minder.model.errors import LabError

__all__ = [
    "CONTROLLER_HOST",
    "LabNetwork",
    "find_free_subnets",
    "find_program",
    "has_program",
    "lab_links",
    "lab_namespaces",
    "remove_network",
]

CONTROLLER_HOST = 254
_RANGE = ipaddress.IPv4Network("10.64.0.0/10")


class LabNetwork:
    """Namespaces, bridges and links of one lab. Every method raises LabError with the tool's own words where it fails."""

    def __init__(self, run_id: str, management: ipaddress.IPv4Network, data: ipaddress.IPv4Network) -> None:
        self.run_id = run_id
        self.management = management
        self.data = data
        self.management_bridge = f"mdr{run_id}g"
        self.switch = f"mdr{run_id}d"  # the data bridge, and the namespace that it lives in

    def namespace(self, label: str) -> str:
        return f"mdr{self.run_id}{label}"

    def build(self, labels: Sequence[str], owner: str) -> None:
        """Create everything for machines `labels`; machine i gets host address i + 1 in both networks.

        The management bridge comes first and carries the owner in its alias: a finder of the lab without its record knows whose it is.
        """
        bridge, switch = self.management_bridge, self.switch
        _batch(
            [
                f"link add name {bridge} type bridge mcast_snooping 0",
                f"link set dev {bridge} alias {owner}",
                f"link set dev {bridge} addrgenmode none up",
                f"address add {self.management[CONTROLLER_HOST]}/24 dev {bridge}",
                f"netns add {switch}",
                *(f"netns add {self.namespace(label)}" for label in labels),
                *(f"link add name {bridge}{label} type veth peer name mgmt0 netns {self.namespace(label)}" for label in labels),
                *(f"link set dev {bridge}{label} addrgenmode none master {bridge} up" for label in labels),
            ]
        )
        _batch(
            [
                f"link add name {switch} type bridge mcast_snooping 0",
                f"link set dev {switch} addrgenmode none up",
                *(f"link add name {switch}{label} type veth peer name data0 netns {self.namespace(label)}" for label in labels),
                *(f"link set dev {switch}{label} addrgenmode none master {switch} up" for label in labels),
            ],
            switch,
        )
        for index, label in enumerate(labels):
            _batch(
                [
                    "link set dev lo up",
                    f"address add {self.management[index + 1]}/24 dev mgmt0",
                    f"address add {self.data[index + 1]}/24 dev data0",
                    "link set dev mgmt0 addrgenmode none up",
                    "link set dev data0 addrgenmode none up",
                ],
                self.namespace(label),
            )

    def slow_data_link(self, label: str, rate_bit: int) -> None:
        """Shape `data0` to a rate in bit/s in both directions: what the machine sends, and what the bridge sends to it."""
        bucket = f"tbf rate {rate_bit} burst {max(16_000, rate_bit // 800)} latency 200ms".split()
        _run(["tc", "-n", self.namespace(label), "qdisc", "replace", "dev", "data0", "root", *bucket])
        _run(["tc", "-n", self.switch, "qdisc", "replace", "dev", f"{self.switch}{label}", "root", *bucket])

    def restore_data_link(self, label: str) -> None:
        """Undo `slow_data_link`."""
        _run(["tc", "-n", self.namespace(label), "qdisc", "delete", "dev", "data0", "root"])
        _run(["tc", "-n", self.switch, "qdisc", "delete", "dev", f"{self.switch}{label}", "root"])

    def slow_what_it_sends(self, label: str, rate_bit: int) -> None:
        """Shape `data0` to a rate in bit/s in one direction only: what the machine receives comes as before."""
        bucket = f"tbf rate {rate_bit} burst {max(16_000, rate_bit // 800)} latency 200ms".split()
        _run(["tc", "-n", self.namespace(label), "qdisc", "replace", "dev", "data0", "root", *bucket])

    def drop_between(self, label: str, address: str) -> None:
        """Packets between a machine and one address of the data network vanish; each of the two reaches everything else."""
        rules = (
            "table inet mdr {\n"
            f"  chain in {{ type filter hook input priority 0; ip saddr {address} drop; }}\n"
            f"  chain out {{ type filter hook output priority 0; ip daddr {address} drop; }}\n"
            "}\n"
        )
        _run(["nsenter", f"--net=/var/run/netns/{self.namespace(label)}", find_program("nft"), "-f", "-"], rules)

    def drop_data_link(self, label: str) -> None:
        """Packets over `data0` vanish in both directions, the link stays up, neither end hears of it (no reset, no ICMP)."""
        rules = (
            "table inet mdr {\n"
            "  chain in { type filter hook input priority 0; iifname data0 drop; }\n"
            "  chain out { type filter hook output priority 0; oifname data0 drop; }\n"
            "}\n"
        )
        _run(["nsenter", f"--net=/var/run/netns/{self.namespace(label)}", find_program("nft"), "-f", "-"], rules)

    def undrop_data_link(self, label: str) -> None:
        _run(["nsenter", f"--net=/var/run/netns/{self.namespace(label)}", find_program("nft"), "delete", "table", "inet", "mdr"])

    def cut(self, label: str) -> None:
        """Pull both cables out of the machine."""
        self._set_cables(label, "down")

    def join(self, label: str) -> None:
        """Put both cables in again."""
        self._set_cables(label, "up")

    def _set_cables(self, label: str, state: str) -> None:
        _batch([f"link set dev {self.management_bridge}{label} {state}"])
        _batch([f"link set dev {self.switch}{label} {state}"], self.switch)

    def remove_machine(self, label: str) -> None:
        """Delete one machine's links and namespace."""
        with contextlib.suppress(LabError):
            _batch([f"link delete dev {self.management_bridge}{label}", f"netns delete {self.namespace(label)}"], force=True)


def remove_network(run_id: str) -> list[str]:
    """Delete every link and namespace of a lab, the management bridge (which names the owner) last. Returns the names."""
    prefix = f"mdr{run_id}"
    links = sorted((name for name in lab_links() if name.startswith(prefix)), key=len, reverse=True)
    spaces = [name for name in lab_namespaces() if name.startswith(prefix)]
    bridge = f"{prefix}g"
    commands = [f"link delete dev {name}" for name in links if name != bridge]
    commands += [f"netns delete {name}" for name in spaces]
    commands += [f"link delete dev {bridge}"] if bridge in links else []
    if commands:
        # A link may be gone with its peer by the time its turn comes: what counts is what is left afterwards.
        with contextlib.suppress(LabError):
            _batch(commands, force=True)
    return [*links, *spaces]


def lab_links() -> dict[str, str]:
    """All of the root namespace's links whose name starts with mdr, with their alias (the owner, on management bridges)."""
    links = json.loads(_run(["ip", "-json", "link", "show"]) or "[]")
    return {link["ifname"]: link.get("ifalias", "") for link in links if link["ifname"].startswith("mdr")}


def lab_namespaces() -> list[str]:
    """All network namespaces whose name starts with mdr."""
    spaces = json.loads(_run(["ip", "-json", "netns", "list"]) or "[]")
    return [space["name"] for space in spaces if space["name"].startswith("mdr")]


def find_free_subnets(count: int, avoid: Iterable[str] = (), seed: int | None = None) -> list[ipaddress.IPv4Network]:
    """Pick /24 networks of 10.64.0.0/10 that no address, no route and none of `avoid` overlaps. Raises LabError if there are too few."""
    taken = [*(ipaddress.IPv4Network(text) for text in avoid), *_networks_in_use()]
    candidates = list(_RANGE.subnets(new_prefix=24))
    random.Random(seed).shuffle(candidates)
    free: list[ipaddress.IPv4Network] = []
    for candidate in candidates:
        if not any(candidate.overlaps(network) for network in taken):
            free.append(candidate)
        if len(free) == count:
            return free
    raise LabError(f"no {count} unused /24 networks in {_RANGE} for the lab: routes or addresses of this machine cover it")


def has_program(name: str) -> bool:
    """Is this tool installed?"""
    return shutil.which(name, path=_search_path()) is not None


def find_program(name: str) -> str:
    """The path of a tool. Raises LabError if it is not installed."""
    path = shutil.which(name, path=_search_path())
    if path is None:
        raise LabError(f"the command {name} is not installed (Debian: apt-get install iproute2 nftables util-linux)")
    return path


def _search_path() -> str:
    """The tools live in sbin, which a PATH may lack."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _networks_in_use() -> list[ipaddress.IPv4Network]:
    found = []
    for interface in json.loads(_run(["ip", "-json", "-4", "address", "show"]) or "[]"):
        for address in interface.get("addr_info", []):
            found.append(ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False))
    for route in json.loads(_run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]"):
        if route.get("dst", "default") != "default":
            found.append(ipaddress.IPv4Network(route["dst"], strict=False))
    return found


def _batch(commands: Sequence[str], namespace: str | None = None, force: bool = False) -> None:
    options = [*(["-n", namespace] if namespace else []), *(["-force"] if force else [])]
    _run(["ip", *options, "-batch", "-"], "\n".join(commands) + "\n")


def _run(command: Sequence[str], text: str | None = None) -> str:
    done = subprocess.run(
        [find_program(command[0]), *command[1:]], input=text or "", capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[0]
        raise LabError(f"`{' '.join(command[:6])}` failed: {reason}")
    return done.stdout
