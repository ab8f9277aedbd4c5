"""Readings that come several times, and machines of the same name: replicas of a server, a second exporter, several clusters.

Of copies one is taken. Of several clusters none: which of them the job runs in is not in the Prometheus.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minder.doctor.series import Found
from minder.doctor.ways import PARTS, PREFERRED, merges
from minder.ingest.sources.identity import bare_host

__all__ = ["Copy", "Parted", "clusters_of", "copies_of", "parted_by", "same_addresses"]

_REPLICA = re.compile(r"replica|^_*prometheus_*$|^_*receiver?_*$|^monitor$|scraper|^vmagent|(^|_)ha($|_)")
_CLUSTER = re.compile(r"cluster|^site$|^region$|^dc$|data_?center|zone$|^env(ironment)?$|^tenant$|^fabric$|^stage$")
_HARDWARE = ("UUID", "uuid", "gpu_uuid", "serial_number", "Serial", "pci_bus_id", "vdie_id")
_OF_TARGET = ("instance", "pod", "pod_name", "container", "endpoint", "service", "uid", "namespace")
_MOST_VALUES = 20
_SHARE = 0.5  # of all readings that must come several times


@dataclass(frozen=True, slots=True)
class Copy:
    """selector: what leaves them aside. is_one: whether a series is one of them. seen: in words."""

    selector: str
    is_one: Callable[[Found], bool]
    seen: str


@dataclass(frozen=True, slots=True)
class Parted:
    """label: distinguishes the clusters. machines: value to how many machines it has."""

    label: str
    machines: Mapping[str, int]

    @property
    def shown(self) -> str:
        return ", ".join(f'{self.label}="{value}" ({count} machines)' for value, count in list(self.machines.items())[:5])


def copies_of(series: Sequence[Found]) -> tuple[Copy, ...]:
    """What to leave aside so that each reading is there once."""
    found = []
    for label in sorted({label for item in series for label in item.labels if _REPLICA.search(label)}):
        values = _repeating(label, series)
        if values:
            counts = Counter(item.labels.get(label) for item in series)
            most = max(values, key=lambda value: counts[value])  # a replica that misses a target has less
            seen = f'each reading comes {len(values)} times, by {label}: {label}="{most}" is asked'
            found.append(Copy(f'{label}="{most}"', _differs(label, most), seen))
            series = [item for item in series if item.labels.get(label) == most]
    return (*found, *_second_ports(series))


def _differs(label: str, value: str) -> Callable[[Found], bool]:
    return lambda item: item.labels.get(label) != value


def same_addresses(series: Sequence[Found]) -> str | None:
    """The label of clusters of which most readings are there for each, addresses included."""
    labels = sorted({label for item in series for label in item.labels if _CLUSTER.search(label)})
    return next((label for label in labels if _repeating(label, series)), None)


def _repeating(label: str, series: Sequence[Found]) -> list[str]:
    """The label's values, if most series that have it are there with several of them; else nothing."""
    values = sorted({item.labels[label] for item in series if item.labels.get(label)})
    if not 1 < len(values) <= _MOST_VALUES:
        return []
    without: dict[tuple[str, frozenset[tuple[str, str]]], set[str]] = defaultdict(set)
    for item in series:
        if item.labels.get(label):
            own = frozenset((name, value) for name, value in item.labels.items() if name != label and name not in _HARDWARE)
            without[item.name, own].add(item.labels[label])
    return values if sum(len(found) > 1 for found in without.values()) > _SHARE * len(without) else []


def _second_ports(series: Sequence[Found]) -> list[Copy]:
    """Two exporters on one host that read the same devices: recognised by what hardware calls itself."""
    ports: dict[tuple[str, str, str, frozenset[tuple[str, str]]], set[str]] = defaultdict(set)
    for item in series:
        instance, host = item.labels.get("instance", ""), bare_host(item.labels.get("instance", ""))
        if instance != host and any(item.labels.get(label) for label in _HARDWARE):
            own = frozenset((name, value) for name, value in item.labels.items() if name not in _OF_TARGET)
            ports[item.labels.get("job", ""), host, item.name, own].add(instance.rpartition(":")[2])
    several = [found for found in ports.values() if len(found) > 1]
    if not several or len(several) <= _SHARE * len(ports):
        return []
    kept = Counter(port for found in several for port in found).most_common(1)[0][0]
    left = sorted({port for found in several for port in found if kept in found} - {kept})
    pattern = f".*:({'|'.join(left)})"
    seen = f"each reading comes from several ports of its host: port {kept} is asked, not {', '.join(left)}"
    return [Copy(f'instance!~"{pattern}"', lambda item: re.fullmatch(pattern, item.labels.get("instance", "")) is not None, seen)]


def parted_by(series: Sequence[Found], machines: Sequence[str], metric_of: Mapping[str, str]) -> Parted | None:
    """The label under whose values names that several machines share are each one machine's. machines: of each series."""
    for label in sorted({label for item in series for label in item.labels} - PARTS - set(PREFERRED)):
        by_value: dict[str, list[tuple[str, Found]]] = defaultdict(list)
        for machine, item in zip(machines, series, strict=True):
            by_value[item.labels.get(label, "")].append((machine, item))
        if "" in by_value or not 1 < len(by_value) <= _MOST_VALUES:
            continue
        if all(_stands(rows, metric_of) for rows in by_value.values()):
            return Parted(label, {value: len({machine for machine, _ in rows}) for value, rows in sorted(by_value.items())})
    return None


def _stands(rows: Sequence[tuple[str, Found]], metric_of: Mapping[str, str]) -> bool:
    machines = [machine for machine, _ in rows]
    return len(set(machines)) > 1 and not merges(machines, [item for _, item in rows], metric_of)


def clusters_of(placed: Sequence[tuple[str, Found]]) -> Parted | None:
    """Where machines with names of their own are of several clusters."""
    for label in sorted({label for _, item in placed for label in item.labels if _CLUSTER.search(label)}):
        values: dict[str, set[str]] = defaultdict(set)
        for machine, item in placed:
            if item.labels.get(label):
                values[machine].add(item.labels[label])
        if values and all(len(found) == 1 for found in values.values()):
            counts = Counter(next(iter(found)) for found in values.values())
            if len(counts) > 1:
                return Parted(label, dict(sorted(counts.items())))
    return None
