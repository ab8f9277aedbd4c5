"""What a foreign Prometheus could give the pipeline: which mapping reads it, what names the machines, how often it is scraped."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from minder.doctor.applications import Applications
from minder.doctor.guess import Doubt, guess_rules
from minder.doctor.identity import Identity, find_identity, resolved
from minder.doctor.series import Found, Server
from minder.doctor.ways import INFO_SERIES
from minder.ingest.sources.mapping import MetricMapping, Rule, default_mappings, load_mapping
from minder.model.errors import SourceError
from minder.model.metrics import find_metric, is_spoken

__all__ = ["Proposal", "propose"]

_ORDER = ("minder", "dcgm", "node")
_REPLICAS = ("prometheus_replica", "replica")


@dataclass(frozen=True, slots=True)
class Proposal:
    """mappings: those that come with minder and find something. guessed: rules for names that none of them knows; doubts: series that
    might be a metric and are not taken, with the reason. used: series per canonical metric. offset_s: the server's clock minus ours.
    interval_s: of its scrapes. selector: what must be asked for so that no reading comes twice."""

    mappings: tuple[str, ...]
    guessed: tuple[Rule, ...]
    used: Mapping[str, int]
    identity: Identity | None
    interval_s: float
    offset_s: float
    exporters: Mapping[str, int] = field(default_factory=dict)  # scrape job to its targets
    clocks_s: Mapping[str, float] = field(default_factory=dict)  # machine to its clock minus the server's, where node_exporter reports it
    doubts: tuple[Doubt, ...] = ()
    selector: str = ""

    @property
    def moves_with_steps(self) -> list[str]:
        """Metrics in which peers of a synchronous job move together: what the detector compares."""
        return [name for name in self.used if (metric := find_metric(name)) is not None and metric.synchronous]

    @property
    def values(self) -> list[str]:
        return sorted(self.used)


def propose(server: Server, now_s: float) -> Proposal:
    """`now_s`: our clock. Raises SourceError."""
    server_s = server.now_s()
    names = server.names()
    reading = _Reading(server, names)
    mappings = reading.take_known()
    applications = Applications.of(server, reading.jobs())
    have = set(reading.used)
    guess = guess_rules(
        applications.without(names), reading.known, applications.reader(server.series), have, server.types(), server.highest
    )
    guessed = reading.take_guessed(guess.rules, applications)
    selector = _one_replica(reading.series, server.selector)
    identity = reading.identity(selector)
    if identity is not None and identity.left_out:
        reading.leave_out(identity.left_out)
        guessed = tuple(rule for rule in guessed if rule.metric in reading.used)
        mappings = [name for name in mappings if reading.reads(name)]
    if identity is not None and identity.twice:
        selector = _joined(selector, f'job!~"{"|".join(re.escape(job) for job in identity.twice)}"')
    counts = reading.exporters()
    clocks_s = reading.clocks_s(identity) if "node_time_seconds" in names else {}
    interval_s = _interval_s(server, counts)
    return Proposal(
        tuple(mappings), guessed, reading.counts(), identity, interval_s, server_s - now_s, counts, clocks_s, guess.doubts, selector
    )


class _Reading:
    """Which series make which metric, as mappings are taken one after the other: the first that finds a metric gives it."""

    def __init__(self, server: Server, names: Sequence[str]) -> None:
        self._server, self._names = server, set(names)
        self.used: dict[str, list[Found]] = {}
        self.known = load_mapping("+".join(_ORDER))
        self._by: dict[str, set[str]] = defaultdict(set)  # mapping to its metrics
        self._metric_of: dict[str, str] = {}
        self._infos: list[Found] = []

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
        self._metric_of.update({item.name: metric for item in items})

    def identity(self, selector: str) -> Identity | None:
        infos = [name for name in INFO_SERIES if name in self._names]
        found = replace(self._server, selector=selector).series("|".join(infos)) if infos else []
        series = self.series
        if selector != self._server.selector:  # of several replicas, one
            label, _, value = selector.rpartition(",")[2].partition("=")
            series = [item for item in series if item.labels.get(label) == value.strip('"')]
        self._infos = found
        return find_identity(series, found, self._metric_of)

    def clocks_s(self, identity: Identity | None) -> dict[str, float]:
        """By machine; what is no machine's takes no part. Without an identity by instance."""
        machines = None if identity is None else identity.machine_map(identity.machines)
        if machines is not None:
            machines.learn((item.name, item.labels, item.time_s) for item in self._infos)
        found: dict[str, float] = {}
        for labels, offset_s in self._server.clock_offsets_s():
            name = labels.get("instance", "") if machines is None else resolved(machines, labels)
            if name is not None:
                found[name] = max(found.get(name, 0.0), offset_s, key=abs)
        return found

    def leave_out(self, jobs: Sequence[str]) -> None:
        kept = {metric: [item for item in items if item.labels.get("job", "") not in jobs] for metric, items in self.used.items()}
        self.used = {metric: items for metric, items in kept.items() if items}

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


def _one_replica(series: Sequence[Found], selector: str) -> str:
    """Two servers that scrape the same, distinguished by a label: each reading comes twice."""
    for label in _REPLICAS:
        values = sorted({item.labels[label] for item in series if item.labels.get(label)})
        if len(values) > 1:
            return _joined(selector, f'{label}="{values[0]}"')
    return selector


def _joined(*matchers: str) -> str:
    return ",".join(matcher for matcher in matchers if matcher)


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


def _interval_s(server: Server, exporters: Mapping[str, int]) -> float:
    """The slowest of the exporters that are used, 15 s where the server does not say."""
    try:
        intervals = server.intervals_s()
    except SourceError:  # a server that speaks only the query API
        return 15.0
    known = [intervals[job] for job in exporters if job in intervals]
    return max(1.0, *known) if known else 15.0
