"""Which machine a series is of. One that cannot be placed is left out and counted; two targets of one machine that give the same metric
are an error: a mixture would look like a machine's fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from minder.model.errors import IdentityError

__all__ = ["Claim", "Given", "Join", "MachineMap", "Ownership", "bare_host", "folded", "short_name", "target_name"]

_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:\[\]]*:[0-9a-fA-F:.\[\]]*")
_AT_ONCE_S = 60.0  # two machines that answered to one key within this time both do
_RECLAIM_S = 300.0  # a target that comes back later than this has moved


def target_name(labels: Mapping[str, str]) -> str:
    """How messages call a target."""
    instance = labels.get("instance") or "without an instance label"
    return f'{instance} of job "{labels["job"]}"' if labels.get("job") else instance


def bare_host(value: str) -> str:
    """Without its port, and without the brackets of an IPv6 address.

    >>> bare_host("10.0.0.1:9100"), bare_host("gpu-1"), bare_host("[fd00::1]:9100"), bare_host("fd00::1")
    ('10.0.0.1', 'gpu-1', 'fd00::1', 'fd00::1')
    """
    host, _, port = value.rpartition(":")
    host = host if port.isdigit() and (":" not in host or host.endswith("]")) else value
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def short_name(name: str) -> str:
    """Without its domain; an address stays what it is.

    >>> short_name("gpu-1.cluster.local"), short_name("10.0.0.1")
    ('gpu-1', '10.0.0.1')
    """
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Join:
    """A metric that says which machine something is, like node_uname_info. on: label of a series, label of that metric: where all are
    equal, the series is of its machine; a port counts only where several machines share an address. take: its label that names the
    machine."""

    series: str
    on: tuple[tuple[str, str], ...]
    take: str

    def description(self) -> str:
        """In words.

        >>> Join("node_uname_info", (("instance", "instance"),), "nodename").description()
        'node_uname_info.nodename by instance'
        """
        return f"{self.series}.{self.take} by {', '.join(own if own == other else f'{own} = {other}' for own, other in self.on)}"

    def series_keys(self, labels: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
        """The values by which a series looks the metric up, as they stand and then without ports; empty where it lacks a label."""
        return _keys(labels, (own for own, _ in self.on))

    def info_keys(self, labels: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
        """The values by which a series of that metric is found; empty where it lacks a label."""
        return _keys(labels, (other for _, other in self.on))


def _keys(labels: Mapping[str, str], names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    values = tuple(labels.get(name, "") for name in names)
    return tuple(dict.fromkeys((values, tuple(map(bare_host, values))))) if all(values) else ()


def folded(name: str) -> str:
    """What two spellings of a machine's name have in common: host names know no letter case.

    >>> folded("GPU-1"), folded("[fd00::A]")
    ('gpu-1', 'fd00::a')
    """
    return bare_host(name).casefold() if name.startswith("[") else name.casefold()


@dataclass(slots=True)
class _Learned:
    """What the joins' metrics said so far. version: goes up when an answer that was given is another one now. None for a machine: two of
    them answer to one key. in_vain: keys that were asked for and not known."""

    version: int = 0
    machines: dict[tuple[int, tuple[str, ...]], str | None] = field(default_factory=dict)
    in_vain: set[tuple[int, tuple[str, ...]]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class MachineMap:
    """A series' labels to a machine's name.

    label: names the machine; several: the first that a series has. machines: a label's value, or an instance, to a name, before anything
    else. pattern: of the whole value; its first group, if any, is the name. A label that ends in `instance` loses its port without one.
    known: the job's machines and standbys; targets of others are left aside. Empty: all are taken. joins: where a series without any of
    the labels is looked up, in order. short_names: a name ends at its first dot.
    """

    label: str | tuple[str, ...] = "machine"
    pattern: str | None = None
    machines: Mapping[str, str] = field(default_factory=dict)
    known: Collection[str] = ()
    joins: tuple[Join, ...] = ()
    short_names: bool = False
    learned: _Learned = field(default_factory=_Learned, compare=False, repr=False)
    spellings: Mapping[str, str] = field(init=False, compare=False, repr=False)  # of those that differ in more than letter case

    def __post_init__(self) -> None:
        counts = Counter(map(folded, self.known))
        object.__setattr__(self, "spellings", {folded(name): name for name in self.known if counts[folded(name)] == 1})

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def version(self) -> int:
        """Rises when a series may be of another machine than was said."""
        return self.learned.version

    def join_series(self) -> tuple[str, ...]:
        """Names of the metrics that `learn` wants."""
        return tuple(dict.fromkeys(join.series for join in self.joins))

    def learn(self, series: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        """series: name, labels and newest time of each. What was learned once is kept: a metric that is gone for a while moves nothing."""
        newest: dict[tuple[int, tuple[str, ...]], dict[str, float]] = {}
        for name, labels, time_s in series:
            for index, join in enumerate(self.joins):
                if join.series != name or not (machine := labels.get(join.take)):
                    continue
                for key in join.info_keys(labels):
                    found = newest.setdefault((index, key), {})
                    found[machine] = max(time_s, found.get(machine, time_s))
        for place, found in newest.items():
            last_s = max(found.values())
            current = [machine for machine, time_s in found.items() if last_s - time_s < _AT_ONCE_S]
            machine = current[0] if len(current) == 1 else None
            if self.learned.machines.get(place) != machine and (place in self.learned.machines or place in self.learned.in_vain):
                self.learned.version += 1  # pods come and go all the time, and few of them are asked for
            self.learned.machines[place] = machine
            self.learned.in_vain.discard(place)

    def resolve(self, labels: Mapping[str, str]) -> str | None:
        """The machine as `known` spells it, or None for one that is not ours. Raises IdentityError for a target that maps to nothing."""
        machine = self._name(labels)
        return machine if not self.known or machine in self.known else self.spellings.get(folded(machine))

    def _name(self, labels: Mapping[str, str]) -> str:
        label = next((name for name in self.labels if labels.get(name)), None)
        value = labels[label] if label is not None else self._joined(labels)
        for key in (value, labels.get("instance")):
            if key and key in self.machines:
                return self.machines[key]
        if not value:
            raise IdentityError(
                f"target {target_name(labels)} has no label {self._sought()}: set telemetry.machine_label to a label that names the "
                "machine, or add the target to telemetry.machine_map"
            )
        if self.pattern is not None:
            found = re.fullmatch(self.pattern, value)
            if found is None:
                raise IdentityError(
                    f'target {target_name(labels)}: {label}="{value}" does not match the pattern "{self.pattern}": mend the '
                    "pattern, or add the target to telemetry.machine_map"
                )
            return str(found[1]) if found.re.groups else value
        name = bare_host(value) if label is None or label.endswith("instance") else value
        return short_name(name) if self.short_names else name

    def _joined(self, labels: Mapping[str, str]) -> str | None:
        for index, join in enumerate(self.joins):
            for key in join.series_keys(labels):
                machine = self.learned.machines.get((index, key))
                if machine is not None:
                    return machine
                self.learned.in_vain.add((index, key))
        return None

    def _sought(self) -> str:
        shown = " or ".join(f'"{name}"' for name in self.labels)
        return shown + (f", and {', '.join(self.join_series())} do not know it" if self.joins else "")


class Given(NamedTuple):
    """What a target gives: a metric of a machine, or of one of its devices."""

    machine: str
    metric: str
    device: str | None


@dataclass(slots=True, eq=False)
class Claim:
    """One target gave one or more of a machine's metrics, all of them last at time_s."""

    target: str
    time_s: float
    holds: bool = True  # until one of them is claimed anew


class Ownership:
    """Which target speaks for a machine's metric. A target may hand over to another (it moved), but not get it back at once."""

    def __init__(self) -> None:
        self._owner: dict[Given, Claim] = {}
        self._former: dict[Given, tuple[str, float]] = {}

    def claim(self, keys: Iterable[Given], target: str, time_s: float, before: Claim | None = None) -> Claim:
        """A target gave each of them at a time; times rise. Raises IdentityError if two targets take turns.

        before: what this returned for the same keys and target last; while it holds, they are not looked at one by one.
        """
        if before is not None and before.holds:
            before.time_s = time_s
            return before
        made = Claim(target, time_s)
        for key in keys:
            self._take(key, made)
        return made

    def _take(self, key: Given, made: Claim) -> None:
        owner = self._owner.get(key)
        if owner is not None and owner.target != made.target:
            former = self._former.get(key)
            same_time = made.time_s == owner.time_s
            if same_time or (former is not None and former[0] == made.target and made.time_s - former[1] < _RECLAIM_S):
                raise IdentityError(
                    f"targets {owner.target} and {made.target} both map to machine {key.machine} and both give {key.metric}: give them "
                    "different machines in telemetry.machine_map, or narrow telemetry.selector to one of them"
                )
            self._former[key] = (owner.target, owner.time_s)
        if owner is not None:
            owner.holds = False
        self._owner[key] = made
