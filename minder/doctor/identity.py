"""Which label of a foreign Prometheus names the machine: the one that every target has, that no two targets of one exporter share,
and that brings the exporters of one machine together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from minder.doctor.series import Found, target_of

__all__ = ["Identity", "find_identity"]

_PREFERRED = ("machine", "node", "nodename", "node_name", "kubernetes_node", "host", "hostname", "Hostname", "server", "instance")
_NEVER = frozenset(
    {
        "__name__",
        "job",
        "le",
        "quantile",
        "gpu",
        "gpu_id",
        "gpu_index",
        "card",
        "UUID",
        "uuid",
        "gpu_uuid",
        "device",
        "mountpoint",
        "fstype",
        "cpu",
        "core",
        "mode",
        "port",
        "pci_bus_id",
        "modelName",
        "model",
        "minor_number",
        "container",
        "pod",
        "namespace",
        "interface",
        "direction",
        "version",
        "DCGM_FI_DRIVER_VERSION",
        "GPU_I_ID",
        "GPU_I_PROFILE",
        "index",
        "hca",
        "nic",
        "type",
        "state",
    }
)


@dataclass(frozen=True, slots=True)
class Identity:
    """label: what `telemetry.machine_label` should be. machines: in natural order. machine_map: instance to machine, of targets that
    lack the label. unnamed: targets of which nothing tells the machine. brought_together: exporters (scrape jobs) per machine, at least."""

    label: str
    machines: tuple[str, ...]
    machine_map: dict[str, str] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()
    brought_together: int = 1


def find_identity(series: Sequence[Found]) -> Identity | None:
    """None where no label will do. `series`: those that a mapping uses."""
    candidates = [found for label in _labels(series) if (found := _try(label, series)) is not None]
    if not candidates:
        return None
    return min(candidates, key=_cost)


def _cost(found: Identity) -> tuple[int, int, bool, int, tuple[int, str]]:
    """A label that leaves nobody without a name, that joins a machine's exporters, whose values are names and no addresses."""
    addresses = all(re.fullmatch(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*", machine) for machine in found.machines)
    return len(found.unnamed), -found.brought_together, addresses, len(found.machine_map), _rank(found.label)


def _labels(series: Sequence[Found]) -> list[str]:
    return sorted({label for item in series for label in item.labels} - _NEVER)


def _rank(label: str) -> tuple[int, str]:
    return (_PREFERRED.index(label) if label in _PREFERRED else len(_PREFERRED) - 1, label)


def _try(label: str, series: Sequence[Found]) -> Identity | None:
    """What the machines are if this label names them; None if it cannot: two targets of one exporter share a value, or it tells
    parts of one target apart that are no machines."""
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    targets = {target_of(item) for item in series}
    for item in series:
        if item.labels.get(label):
            named[target_of(item)].add(_name(label, item.labels[label]))
    if any(len(values) > 1 for values in named.values()) or not named:
        return None
    machine_of = {target: next(iter(values)) for target, values in named.items()}
    by_job: dict[tuple[str, str], int] = defaultdict(int)
    for (job, _), machine in machine_of.items():
        by_job[job, machine] += 1
    if max(by_job.values()) > 1 or (len(targets) > 1 and len(set(machine_of.values())) < 2):
        return None
    host_of = {_name("instance", target[1]): machine for target, machine in machine_of.items()}
    machine_map: dict[str, str] = {}
    unnamed: list[str] = []
    for target in sorted(targets - set(machine_of)):
        host = _name("instance", target[1])
        if host in host_of:
            machine_map[target[1]] = machine_of[target] = host_of[host]
        else:
            unnamed.append(f"{target[1]} of job {target[0]}")
    jobs: dict[str, set[str]] = defaultdict(set)
    for (job, _), machine in machine_of.items():
        jobs[machine].add(job)
    machines = tuple(sorted(jobs, key=_natural))
    return Identity(label, machines, machine_map, tuple(unnamed), min(len(found) for found in jobs.values()))


def _name(label: str, value: str) -> str:
    """As minder.ingest.sources.identity reads it: an instance loses its port."""
    return re.sub(r":\d+$", "", value) if label == "instance" else value


def _natural(name: str) -> list[tuple[str, int]]:
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", name) if word or number]
