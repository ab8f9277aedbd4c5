"""The series of a Prometheus that make metrics, and whose they are: old ones and copies left aside."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from minder.doctor.applications import Applications
from minder.doctor.copies import Parted, parted_by, same_addresses
from minder.doctor.identity import Identity, anchor_of, find_identity, resolved
from minder.doctor.series import Found, Server
from minder.doctor.ways import INFO_SERIES, merged_ways
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import MetricMapping, Rule, default_mappings, load_mapping
from minder.model.errors import SourceError
from minder.model.metrics import is_spoken

__all__ = ["Dark", "Reading"]

_ORDER = ("minder", "dcgm", "node")
_SHARE = 0.5  # of a scrape job's targets that must give metrics, else it asks applications as well


@dataclass(frozen=True, slots=True)
class Dark:
    """A target of an exporter that gives no metric, though most of its kind do. machine: its name, else its instance. answers: its scrape
    succeeds, and nothing of it is stored."""

    machine: str
    job: str
    answers: bool


class Reading:
    """Which series make which metric, as mappings are taken one after the other: the first that finds a metric gives it."""

    def __init__(self, server: Server, names: Sequence[str]) -> None:
        self._server, self._names = server, set(names)
        self.used: dict[str, list[Found]] = {}
        self.known = load_mapping("+".join(_ORDER))
        self._by: dict[str, set[str]] = defaultdict(set)  # mapping to its metrics
        self.metric_of: dict[str, str] = {}  # exported name to the metric that is made of it
        self._infos: list[Found] = []
        self._old: list[Found] = []

    @property
    def series(self) -> list[Found]:
        return [item for items in self.used.values() for item in items]

    def jobs(self) -> set[str]:
        return {item.labels.get("job", "") for item in self.series}

    def take_known(self) -> list[str]:
        for name in (*_ORDER, *(item for item in default_mappings() if item not in _ORDER)):
            for metric, items in _covered(load_mapping(name), self._server, self._names).items():
                if metric not in self.used or _from_elsewhere(items, self.used[metric]):
                    self._by[name].add(metric)
                    self._note(metric, items)
        return list(self._by)

    def take_guessed(self, rules: Sequence[Rule], applications: Applications) -> tuple[Rule, ...]:
        kept = []
        for rule in rules:
            found = _covered(MetricMapping(rule=(rule,)), self._server, self._names).get(rule.metric, [])
            if own := [item for item in found if not applications.owns(item)]:
                self._note(rule.metric, own)
                kept.append(rule)
        return tuple(kept)

    def _note(self, metric: str, items: Sequence[Found]) -> None:
        self.used.setdefault(metric, []).extend(items)
        self.metric_of.update({item.name: metric for item in items})

    def leave(self, is_one: Callable[[Found], bool]) -> None:
        """Goes on without such series."""
        kept = {metric: [item for item in items if not is_one(item)] for metric, items in self.used.items()}
        self.used = {metric: items for metric, items in kept.items() if items}

    def leave_old(self, fresh_s: float) -> None:
        """Goes on without series that have no sample of the last `fresh_s`: of machines and pods that are gone, where no stale marker ended
        them. Those of a target that is scraped still are late, and stay; so do those of an exporter all of whose samples are old."""
        names = "|".join(re.escape(name) for name in sorted({item.name for item in self.series}))
        try:
            fresh = {_key(item) for item in self._server.series(names, fresh_s)} if names else set()
        except SourceError:  # a server without that function, or too large a question: nothing is known to be old
            return
        old = [item for item in self.series if _key(item) not in fresh]
        if not old:
            return
        alive = {item.labels.get("job", "") for item in self.series if _key(item) in fresh}
        scraped = {_target(item) for item in self._server.series("up", fresh_s) if item.value > 0}
        self._old = [item for item in old if item.labels.get("job", "") in alive and _target(item) not in scraped]
        gone = {_key(item) for item in self._old}
        self.leave(lambda item: _key(item) in gone)

    def identity(self, selector: str, intervals_s: Mapping[str, float]) -> Identity | None:
        infos = [name for name in INFO_SERIES if name in self._names]
        self._infos = replace(self._server, selector=selector).series("|".join(infos)) if infos else []
        return find_identity(self.series, self._infos, self.metric_of, intervals_s)

    def parted(self, identity: Identity | None) -> Parted | None:
        """Clusters whose machines have the same names."""
        label = same_addresses(self.series)
        if label is not None:
            values = sorted({item.labels[label] for item in self.series if item.labels.get(label)})
            return Parted(label, dict.fromkeys(values, 0 if identity is None else len(identity.machines)))
        if identity is not None and not identity.is_nameless:
            return None
        anchor = anchor_of(self.series, self.metric_of)
        series = [item for item in self.series if item.labels.get("job", "") == anchor]
        found = (parted_by(series, machines, self.metric_of) for machines in merged_ways(series, self._infos, self.metric_of))
        return next((item for item in found if item is not None), None)

    def _machines(self, identity: Identity) -> MachineMap:
        machines = identity.machine_map(identity.machines)
        machines.learn((item.name, item.labels, item.time_s) for item in self._infos)
        return machines

    def placed(self, identity: Identity | None) -> list[tuple[str, Found]]:
        """Each series with its machine."""
        if identity is None:
            return []
        machines = self._machines(identity)
        found = ((resolved(machines, item.labels), item) for item in self.series)
        return [(machine, item) for machine, item in found if machine is not None]

    def gone(self, identity: Identity | None) -> tuple[str, ...]:
        """Machines of which only old series are there."""
        if identity is None or not self._old:
            return ()
        machines = identity.machine_map()
        machines.learn((item.name, item.labels, item.time_s) for item in self._infos)
        named = {name for item in self._old if (name := resolved(machines, item.labels)) is not None}
        return tuple(sorted(named - set(identity.machines) - set(identity.others)))

    def dark(self, identity: Identity | None) -> tuple[Dark, ...]:
        if identity is None:
            return ()
        giving, jobs = {_target(item) for item in self.series}, self.jobs()
        ups = [item for item in self._infos if item.name == "up" and item.labels.get("job", "") in jobs]
        silent = [item for item in ups if _target(item) not in giving]
        counts, dark = (Counter(item.labels.get("job", "") for item in items) for items in (ups, silent))
        few = [item for item in silent if dark[job := item.labels.get("job", "")] < _SHARE * counts[job]]
        others = self._server.giving([item.labels.get("instance", "") for item in few if item.value > 0])
        machines = identity.machine_map()
        machines.learn((item.name, item.labels, item.time_s) for item in self._infos if item.name != "up")
        return tuple(
            Dark(resolved(machines, item.labels) or item.labels.get("instance", ""), item.labels.get("job", ""), item.value > 0)
            for item in few
            if item.value <= 0 or item.labels.get("instance", "") not in others
        )

    def clocks_s(self, identity: Identity | None) -> dict[str, float]:
        """By machine; what is no machine's takes no part. Without an identity by instance."""
        machines = None if identity is None else self._machines(identity)
        found: dict[str, float] = {}
        for labels, offset_s in self._server.clock_offsets_s():
            name = labels.get("instance", "") if machines is None else resolved(machines, labels)
            if name is not None:
                found[name] = max(found.get(name, 0.0), offset_s, key=abs)
        return found

    def leave_out(self, jobs: Sequence[str]) -> None:
        self.leave(lambda item: item.labels.get("job", "") in jobs)

    def reads(self, mapping: str) -> bool:
        return bool(self._by[mapping] & set(self.used))

    def counts(self) -> dict[str, int]:
        return {metric: len(items) for metric, items in self.used.items()}

    def exporters(self) -> dict[str, int]:
        """Scrape job to its targets."""
        found: dict[str, set[str]] = {}
        for item in self.series:
            found.setdefault(item.labels.get("job", ""), set()).add(item.labels.get("instance", ""))
        return {job: len(targets) for job, targets in sorted(found.items())}


def _from_elsewhere(items: Sequence[Found], have: Sequence[Found]) -> bool:
    """Whether another exporter gives a metric that one gives already: other machines may have only that."""
    return not {item.labels.get("job", "") for item in items} & {item.labels.get("job", "") for item in have}


def _key(item: Found) -> tuple[str, frozenset[tuple[str, str]]]:
    return item.name, frozenset(item.labels.items())


def _target(item: Found) -> tuple[str, str]:
    return item.labels.get("job", ""), item.labels.get("instance", "")


def _covered(mapping: MetricMapping, server: Server, names: set[str]) -> dict[str, list[Found]]:
    """The series that each of the mapping's metrics would be made of; a rule needs both sides of its ratio.

    What a server says of its scrapes makes no target a machine: a power strip has an `up` as well.
    """
    rules = [rule for rule in mapping.all_rules() if _may_find(rule, names) and not is_spoken(rule.metric)]
    if not rules:
        return {}
    series = server.series(MetricMapping(rule=tuple(rules)).name_pattern())
    found: dict[str, list[Found]] = {}
    for rule in rules:
        sides = [(item, rule.sides_of(item.name, dict(item.labels))) for item in series]
        if any(0 in side for _, side in sides) and (not rule.over or any(1 in side for _, side in sides)):
            found.setdefault(rule.metric, []).extend(item for item, side in sides if side)
    return found


def _may_find(rule: Rule, names: set[str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in rule.series for name in names)
