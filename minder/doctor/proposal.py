"""What a foreign Prometheus could give the pipeline: which mapping reads it, which label names the machine, how often it is scraped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from minder.doctor.guess import guess_rules
from minder.doctor.identity import Identity, find_identity
from minder.doctor.series import Found, Server
from minder.ingest.sources.mapping import MetricMapping, Rule, default_mappings, load_mapping
from minder.model.errors import SourceError
from minder.model.metrics import find_metric

__all__ = ["Proposal", "propose"]

_ORDER = ("minder", "dcgm", "node")


@dataclass(frozen=True, slots=True)
class Proposal:
    """mappings: defaults that find something. guessed: rules for names that no default knows. used: series per canonical metric.
    offset_s: the server's clock minus ours. interval_s: of its scrapes."""

    mappings: tuple[str, ...]
    guessed: tuple[Rule, ...]
    used: Mapping[str, int]
    identity: Identity | None
    interval_s: float
    offset_s: float
    exporters: Mapping[str, int] = field(default_factory=dict)  # scrape job to its targets
    clocks_s: Mapping[str, float] = field(default_factory=dict)  # instance to its clock minus the server's, where node_exporter tells

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
    mappings, used, series = [], dict[str, int](), list[Found]()
    for name in (*_ORDER, *(item for item in default_mappings() if item not in _ORDER)):
        found = _covered(load_mapping(name), server, set(names))
        fresh = {metric: items for metric, items in found.items() if metric not in used}
        if fresh:
            mappings.append(name)
            used.update({metric: len(items) for metric, items in fresh.items()})
            series += [item for items in found.values() for item in items]
    known = load_mapping("+".join(_ORDER))
    guessed = guess_rules([name for name in names if not name.startswith("minder")], known, server.series, set(used))
    found = _covered(MetricMapping(rule=tuple(guessed)), server, set(names)) if guessed else {}
    used.update({metric: len(items) for metric, items in found.items()})
    series += [item for items in found.values() for item in items]
    kept = tuple(rule for rule in guessed if rule.metric in found)
    exporters: dict[str, set[str]] = {}
    for item in series:
        exporters.setdefault(item.labels.get("job", ""), set()).add(item.labels.get("instance", ""))
    counts = {job: len(targets) for job, targets in sorted(exporters.items())}
    clocks_s = server.clock_offsets_s() if "node_time_seconds" in names else {}
    interval_s = _interval_s(server, counts)
    return Proposal(tuple(mappings), kept, used, find_identity(series), interval_s, server_s - now_s, counts, clocks_s)


def _covered(mapping: MetricMapping, server: Server, names: set[str]) -> dict[str, list[Found]]:
    """The series that each of the mapping's metrics would be made of; a rule needs both sides of its ratio.

    What a server says of its scrapes makes no target a machine: a power strip has an `up` as well.
    """
    rules = [rule for rule in mapping.all_rules() if _may_find(rule, names) and not getattr(find_metric(rule.metric), "spoken", False)]
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
        told = [server.interval_s(job) for job in exporters]
    except SourceError:  # a server that speaks only the query API
        return 15.0
    known = [value for value in told if value]
    return max(1.0, *known) if known else 15.0
