"""The ways in which an exporter's series could name their machines: a label of theirs, or another metric that knows them."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minder.doctor.series import Found
from minder.ingest.sources.identity import Join, bare_host, folded, short_name

__all__ = [
    "INFO_SERIES",
    "PARTS",
    "PREFERRED",
    "Way",
    "index_of",
    "is_address",
    "known_names",
    "merged_ways",
    "merges",
    "target_of",
    "ways_of",
]

INFO_SERIES = ("node_uname_info", "kube_pod_info", "kube_node_info", "target_info", "up")

# Labels that mean a machine, the plainest first.
PREFERRED = (
    *("machine", "node", "nodename", "node_name", "kubernetes_node", "kubernetes_io_hostname", "host", "hostname", "Hostname"),
    *("host_name", "server", "agent_hostname", "exported_node", "exported_instance", "exported_host", "instance"),
)
_OF_HOSTS = tuple(label for label in PREFERRED if not label.endswith("instance"))
_INDICES = ("gpu", "gpu_id", "gpu_index", "index", "minor_number", "card", "device_num", "accelerator_id", "id")
# Labels of a part of a machine, of what runs on it, or of what scraped it.
PARTS = frozenset(
    (
        *("__name__", "job", "exported_job", "le", "quantile", "gpu", "gpu_id", "gpu_index", "card", "UUID", "uuid", "gpu_uuid", "device"),
        *(
            "device_num",
            "accelerator_id",
            "vdie_id",
            "id",
            "index",
            "minor_number",
            "pci_bus_id",
            "pcie_bus_info",
            "serial_number",
            "Serial",
        ),
        *("mountpoint", "fstype", "path", "cpu", "core", "mode", "port", "interface", "direction", "hca", "nic", "type", "state"),
        *("modelName", "model_name", "model", "make", "version", "driver_version", "DCGM_FI_DRIVER_VERSION", "GPU_I_ID", "GPU_I_PROFILE"),
        *("container", "container_name", "pod", "pod_name", "namespace", "exported_pod", "exported_container", "exported_namespace"),
        *("service", "endpoint", "prometheus", "prometheus_replica", "replica", "clock_type", "clock_index", "gpud_component", "uid"),
    )
)
_PODS = ("pod", "pod_name", "exported_pod")
_CONTAINER = r"[0-9a-f]{12}|[0-9a-f]{64}"  # what a container calls itself, until it is started again
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1", "0.0.0.0", "")
# What such a metric can be asked by: label of a series to label of the metric. And which of its labels may name the machine.
_SAME = (("instance", "instance"),)
_ASKED: Mapping[str, tuple[tuple[tuple[str, str], ...], ...]] = {
    "node_uname_info": (_SAME,),
    "kube_pod_info": (
        (("namespace", "namespace"), ("pod", "pod")),
        (("pod", "pod"),),
        (("instance", "pod_ip"),),
        (("instance", "host_ip"),),
    ),
    "kube_node_info": ((("instance", "internal_ip"),),),
    "target_info": ((("job", "job"), *_SAME), _SAME),
    "up": (_SAME,),
}
_TAKEN = {"node_uname_info": ("nodename",), "kube_pod_info": ("node",), "kube_node_info": ("node",), "target_info": ("host_name",)}


@dataclass(frozen=True, slots=True)
class Way:
    """label or join: one of the two. machines: of each series, in their order. other: the label of the series that lack the first."""

    machines: tuple[str, ...]
    label: str | None = None
    join: Join | None = None
    other: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.machines)

    @property
    def is_by_address(self) -> bool:
        return all(is_address(name) for name in self.names)

    @property
    def rank(self) -> tuple[bool, int, str]:
        """A label before two, two before a join, the plainest label first."""
        if self.join is not None:
            return True, INFO_SERIES.index(self.join.series) if self.join.series in INFO_SERIES else len(INFO_SERIES), self.join.take
        label = self.label or ""
        place = PREFERRED.index(_plain(label)) if _plain(label) in PREFERRED else len(PREFERRED) - 1
        return False, place + (len(PREFERRED) if self.other else 0), label

    def description(self) -> str:
        if self.join is not None:
            return self.join.description()
        return f'label "{self.label}"' + (f' or "{self.other}"' if self.other else "")

    def shortened(self) -> Way:
        return replace(self, machines=tuple(short_name(name) for name in self.machines))

    def spelled(self, spellings: Mapping[str, str]) -> Way:
        """spellings: folded name to the name."""
        return replace(self, machines=tuple(spellings.get(folded(name), name) for name in self.machines))

    def is_nameless(self, known: frozenset[str]) -> bool:
        """Whether these are no host names: addresses, containers, or what no label for machines and no metric calls so. known: as of
        `known_names`."""
        if self.is_by_address or all(re.fullmatch(_CONTAINER, name) for name in self.names):
            return True
        label = _plain(self.label or "")
        is_plain = self.join is not None or (label in PREFERRED and not label.endswith("instance"))
        return not is_plain and bool(known) and not {folded(short_name(name)) for name in self.names} <= known


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return short_name(name) == name and not any(letter.isalpha() for letter in name.partition(":")[0])
    return True


def known_names(infos: Sequence[Found]) -> frozenset[str]:
    """Host names that a metric knows, short and folded."""
    return frozenset(folded(short_name(item.labels[take])) for item in infos for take in _TAKEN.get(item.name, ()) if item.labels.get(take))


def _plain(label: str) -> str:
    """A label's name as a Prometheus before version 3 would write it."""
    return label.replace(".", "_")


def ways_of(series: Sequence[Found], infos: Sequence[Found], metric_of: Mapping[str, str]) -> tuple[list[Way], list[tuple[str, str]]]:
    """Those that hold for all series of one scrape job, and of the other labels that came near, why they do not.

    infos: series of metrics that know machines. metric_of: exported name to what is made of it.
    """
    known = frozenset(item.labels[take] for item in infos for take in _TAKEN.get(item.name, ()) if item.labels.get(take))
    ways: list[Way] = []
    refused: list[tuple[str, str]] = []
    for label in sorted(_labels_of(series) - PARTS):
        values = [item.labels.get(label, "") for item in series]
        machines = tuple(bare_host(value) if label.endswith("instance") else value for value in values)
        why = _refusal(label, machines, series, metric_of, known)
        if why:
            refused.append((f'label "{label}"', why))
        else:
            ways.append(Way(machines, label))
    ways += _of_two_labels(series, metric_of)
    for join in _joins(infos):
        placed = _placed(join, series, infos)
        if placed is not None and not merges(placed, series, metric_of):
            ways.append(Way(placed, join=join))
    return ways, refused


def _of_two_labels(series: Sequence[Found], metric_of: Mapping[str, str]) -> list[Way]:
    """Where each series has one of two labels for a machine: exporters of two versions, or all exporters in one job."""
    having = {label: [bool(item.labels.get(label)) for item in series] for label in _labels_of(series) if _plain(label) in _OF_HOSTS}
    found = []
    for first, second in itertools.combinations(sorted(having, key=lambda label: PREFERRED.index(_plain(label))), 2):
        if all(one != other for one, other in zip(having[first], having[second], strict=True)):
            machines = tuple(item.labels.get(first) or item.labels[second] for item in series)
            if not all(having[first]) and not all(having[second]) and not merges(machines, series, metric_of):
                found.append(Way(machines, first, other=second))
    return found


def _labels_of(series: Sequence[Found]) -> set[str]:
    return {label for item in series for label in item.labels}


def merged_ways(series: Sequence[Found], infos: Sequence[Found], metric_of: Mapping[str, str]) -> list[tuple[str, ...]]:
    """What would name the machines of one scrape job if several did not share a name: of each series its machine."""
    labels = [label for label in sorted(_labels_of(series)) if _plain(label) in PREFERRED[:-1]]
    named = [tuple(item.labels.get(label, "") for item in series) for label in labels]
    found = [machines for machines in (*named, *(_placed(join, series, infos) for join in _joins(infos))) if machines is not None]
    return [machines for machines in found if all(machines) and merges(machines, series, metric_of)]


def _refusal(label: str, machines: Sequence[str], series: Sequence[Found], metric_of: Mapping[str, str], known: frozenset[str]) -> str:
    """Why a label names no machine; empty where it may."""
    absent = sum(not machine for machine in machines)
    if absent:
        return f"{absent} of {len(machines)} series lack it"
    if any(machine.lower() in _LOOPBACK for machine in machines):
        return "the same on every machine"
    if any(machine in (item.labels.get(pod) for pod in _PODS) for machine, item in zip(machines, series, strict=True)):
        return "a pod's, which a restart changes"
    if len(set(machines)) < 2 and (_plain(label) not in PREFERRED or len({target_of(item) for item in series}) > 1):
        return "one value for all targets"
    if merges(machines, series, metric_of):
        return "several machines share a value"
    if _plain(label) not in PREFERRED and not set(machines) <= known and _splits(machines, series):
        return "one target has several values"
    return ""


def target_of(item: Found) -> tuple[str, str] | None:
    """Job and instance. None where `instance` does not distinguish targets: recorded series, and scrapers that report localhost."""
    instance = item.labels.get("instance", "")
    return None if bare_host(instance).lower() in _LOOPBACK else (item.labels.get("job", ""), instance)


def _splits(machines: Sequence[str], series: Sequence[Found]) -> bool:
    named: dict[tuple[str, str] | None, set[str]] = defaultdict(set)
    for machine, item in zip(machines, series, strict=True):
        named[target_of(item)].add(machine)
    return any(len(found) > 1 for target, found in named.items() if target is not None)


def merges(machines: Sequence[str], series: Sequence[Found], metric_of: Mapping[str, str]) -> bool:
    """Whether two machines would become one: two targets give one metric of it or of one device, or one reading comes twice."""
    givers: dict[tuple[str, str, str], tuple[str, str]] = {}
    readings: dict[tuple[str, str, frozenset[tuple[str, str]]], None] = {}
    for machine, item in zip(machines, series, strict=True):
        target = target_of(item)
        if target is not None:
            if givers.setdefault((machine, metric_of.get(item.name, item.name), index_of(item)), target) != target:
                return True
            continue
        own = frozenset((name, value) for name, value in item.labels.items() if name not in PREFERRED)
        if (machine, item.name, own) in readings:
            return True
        readings[machine, item.name, own] = None
    return False


def index_of(item: Found) -> str:
    """The number of its device on its machine; empty where it has none. A machine may have an exporter for each half of its devices."""
    return next((value for label in _INDICES if (value := item.labels.get(label, "")).isdigit()), "")


def _joins(infos: Sequence[Found]) -> list[Join]:
    there: dict[str, set[str]] = defaultdict(set)
    for item in infos:
        there[item.name] |= {label for label, value in item.labels.items() if value}
    found = []
    for name in INFO_SERIES:
        takes = _TAKEN.get(name) or sorted(there[name] - PARTS - {"instance"})
        asked = [on for on in _ASKED[name] if {other for _, other in on} <= there[name]]
        found += [Join(name, on, take) for on in asked for take in takes if take in there[name]]
    return found


def _placed(join: Join, series: Sequence[Found], infos: Sequence[Found]) -> tuple[str, ...] | None:
    """The machine of each series; None where one of them finds none, or several."""
    machines_of: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for item in infos:
        if item.name == join.series and item.labels.get(join.take):
            for key in join.info_keys(item.labels):
                machines_of[key].add(item.labels[join.take])
    found = []
    for item in series:
        named = (machines_of.get(key, set()) for key in join.series_keys(item.labels))
        machines = next((names for names in named if len(names) == 1), None)
        if machines is None:
            return None
        found.append(next(iter(machines)))
    return tuple(found)
