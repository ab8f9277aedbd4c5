"""Which machine each series of a foreign Prometheus is of: a join of the exporters by the values of their labels.

Each exporter (scrape job) has ways to name its machines (ways.py). Taken are those under which the exporters name the same machines: equal
values, whatever the labels are called, FQDN against short name, an address against a name through a metric that knows both.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from minder.doctor.series import Found
from minder.doctor.ways import Way, index_of, known_names, ways_of
from minder.ingest.sources.identity import Join, MachineMap, folded
from minder.model.errors import IdentityError
from minder.model.metrics import find_metric

__all__ = ["Identity", "Row", "anchor_of", "families_of", "find_identity", "resolved"]

T = TypeVar("T")
_MOST_ROWS, _MOST_ORDERS = 40, 24
_USUAL_S = 15.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table that led to the choice. verdict: "chosen", "possible", or why not."""

    job: str
    way: str
    machines: int
    example: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Identity:
    """labels, joins, short_names: what the keys of [telemetry] should be. machines: those of the job, in natural order. families: of each
    machine, the families of metrics that it has. left_out: scrape jobs that nothing joins to the others. twice: scrape jobs that give
    what another one gives already. others: hosts without GPU metrics and without an agent, though others have them. is_nameless: what
    distinguishes the machines are no host names."""

    labels: tuple[str, ...]
    machines: tuple[str, ...]
    joins: tuple[Join, ...] = ()
    short_names: bool = False
    families: Mapping[str, frozenset[str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    table: tuple[Row, ...] = ()
    is_nameless: bool = False

    @property
    def description(self) -> str:
        """What names the machines, in words."""
        words = [f'label "{label}"' for label in self.labels]
        return ", ".join([*words, *(join.description() for join in self.joins)])

    def machine_map(self, known: Iterable[str] = ()) -> MachineMap:
        """As live collection will use it."""
        return MachineMap(self.labels, known=tuple(known), joins=self.joins, short_names=self.short_names)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A way for each scrape job; None: none joins it."""

    anchor: str
    ways: Mapping[str, Way | None]
    short: bool
    is_nameless: bool

    @property
    def taken(self) -> dict[str, Way]:
        return {job: way for job, way in self.ways.items() if way is not None}

    def cost(self) -> tuple[int, int, bool, int, int, bool, list[tuple[bool, int, str]]]:
        """Jobs left out, machines that a job lacks, no host names, jobs that need a join, keys to write, short names, ranks."""
        machines, taken = self.ways[self.anchor], self.taken
        assert machines is not None
        lacking = sum(len(machines.names - way.names) for way in taken.values())
        keys = {key for way in taken.values() for key in (way.label, way.other, way.join) if key is not None}
        joined = sum(way.join is not None for way in taken.values())
        ranks = sorted(way.rank for way in taken.values())
        return len(self.ways) - len(taken), lacking, self.is_nameless, joined, len(keys), self.short, ranks


def find_identity(
    series: Sequence[Found], infos: Sequence[Found], metric_of: Mapping[str, str], intervals_s: Mapping[str, float] | None = None
) -> Identity | None:
    """None where nothing will do. series: those that a mapping uses. infos: series of ways.INFO_SERIES. metric_of: exported name to the
    metric of the catalogue that is made of it. intervals_s: of scrape jobs, where the server reports them."""
    jobs = _by_job(series)
    ways: dict[str, list[Way]] = {}
    refused: dict[str, list[tuple[str, str]]] = {}
    for job, items in jobs.items():
        ways[job], refused[job] = ways_of(items, infos, metric_of)
    anchor = _anchor({job: items for job, items in jobs.items() if ways[job]}, metric_of)
    if anchor is None:
        return None
    known = known_names(infos)
    choices = [_choose(anchor, way, ways, jobs, metric_of, short, known) for short in (False, True) for way in ways[anchor]]
    return _identity(min(choices, key=_Choice.cost), jobs, infos, metric_of, _table(ways, refused), intervals_s or {})


def anchor_of(series: Sequence[Found], metric_of: Mapping[str, str]) -> str | None:
    """The scrape job whose machines the job's are, if they can be named."""
    return _anchor(_by_job(series), metric_of)


def families_of(metrics: Iterable[str]) -> frozenset[str]:
    """gpu, network, host and what else the catalogue knows."""
    found = {metric.family for name in metrics if (metric := find_metric(name)) is not None and not metric.spoken}
    return frozenset("network" if family == "tcp" else family for family in found)


def _by_job(series: Sequence[Found]) -> dict[str, list[Found]]:
    jobs: dict[str, list[Found]] = defaultdict(list)
    for item in series:
        jobs[item.labels.get("job", "")].append(item)
    return dict(sorted(jobs.items()))


def _families(items: Sequence[Found], metric_of: Mapping[str, str]) -> frozenset[str]:
    return families_of({metric_of[item.name] for item in items if item.name in metric_of})


def _anchor(jobs: Mapping[str, Sequence[Found]], metric_of: Mapping[str, str]) -> str | None:
    """The exporter whose machines the job's are: that of the GPUs, else the largest."""
    return max(jobs, key=lambda job: ("gpu" in _families(jobs[job], metric_of), len(jobs[job])), default=None)


def _choose(
    anchor: str,
    way: Way,
    ways: Mapping[str, Sequence[Way]],
    jobs: Mapping[str, Sequence[Found]],
    metric_of: Mapping[str, str],
    short: bool,
    known: frozenset[str],
) -> _Choice:
    """The ways of the other jobs that meet this one of the anchor best."""
    first = way.shortened() if short else way
    spellings = {folded(name): name for name in first.names}
    found: dict[str, Way | None] = {}
    for job, options in ways.items():
        variants = [(option.shortened() if short else option).spelled(spellings) for option in options]
        if job == anchor:
            found[job] = first
            continue
        meeting = [item for item in variants if item.names & first.names]
        alike = [item for item in variants if item.label is not None and item.label == first.label]  # another pool of machines
        if meeting:
            found[job] = min(meeting, key=lambda item: (len(first.names - item.names), item.label != first.label, item.rank))
        else:
            found[job] = alike[0] if alike and "gpu" in _families(jobs[job], metric_of) else None
    _join_by_others(found, ways, jobs, metric_of, short)
    return _Choice(anchor, found, short, first.is_nameless(known))


def _join_by_others(
    found: dict[str, Way | None],
    ways: Mapping[str, Sequence[Way]],
    jobs: Mapping[str, Sequence[Found]],
    metric_of: Mapping[str, str],
    short: bool,
) -> None:
    """GPUs of another make meet the first exporter's machines nowhere, and those of the hosts."""
    names = {name for way in found.values() if way is not None for name in way.names}
    spellings = {folded(name): name for name in names}
    for job in [job for job, way in found.items() if way is None and "gpu" in _families(jobs[job], metric_of)]:
        variants = [(option.shortened() if short else option).spelled(spellings) for option in ways[job]]
        inside = [item for item in variants if item.names <= names]
        if inside:
            found[job] = min(inside, key=lambda item: item.rank)


def _is_agents(item: Found) -> bool:
    """A site installs agents where it trains: a host with one is a machine of jobs, with a GPU exporter or without."""
    return item.name.startswith("minder_")


def _table(ways: Mapping[str, Sequence[Way]], refused: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Row, ...]:
    rows = []
    for job, options in ways.items():
        rows += [Row(job, way.description(), len(way.names), min(way.names, key=_natural), "possible") for way in options]
        rows += [Row(job, way, 0, "", why) for way, why in refused[job] if why != "one value for all targets"]
    return tuple(rows[:_MOST_ROWS])


def _identity(
    choice: _Choice,
    jobs: Mapping[str, Sequence[Found]],
    infos: Sequence[Found],
    metric_of: Mapping[str, str],
    table: Sequence[Row],
    intervals_s: Mapping[str, float],
) -> Identity:
    taken = dict(sorted(choice.taken.items(), key=lambda item: item[0] != choice.anchor))
    chosen = {(job, way.description()) for job, way in taken.items()}
    rows = tuple(
        Row(row.job, row.way, row.machines, row.example, "chosen" if (row.job, row.way) in chosen else row.verdict) for row in table
    )
    metrics: dict[str, set[str]] = defaultdict(set)
    for job, way in taken.items():
        for machine, item in zip(way.machines, jobs[job], strict=True):
            metrics[machine].add(metric_of.get(item.name, ""))
    families = {machine: families_of(names) for machine, names in metrics.items()}
    agents = {machine for job, way in taken.items() for machine, item in zip(way.machines, jobs[job], strict=True) if _is_agents(item)}
    training = [machine for machine, found in families.items() if "gpu" in found or machine in agents]
    machines = tuple(sorted(training or families, key=_natural))
    found = Identity(
        tuple(_first_to_last(label for way in taken.values() for label in (way.label, way.other))),
        machines,
        tuple(_first_to_last(way.join for way in taken.values())),
        choice.short,
        {machine: families[machine] for machine in machines},
        tuple(job for job, way in choice.ways.items() if way is None),
        _twice(taken, jobs, intervals_s),
        tuple(sorted(set(families) - set(machines), key=_natural)),
        rows,
        choice.is_nameless,
    )
    return _checked(found, taken, jobs, infos)


def _first_to_last(keys: Iterable[T | None]) -> list[T]:
    return [key for key in dict.fromkeys(keys) if key is not None]


def _twice(taken: Mapping[str, Way], jobs: Mapping[str, Sequence[Found]], intervals_s: Mapping[str, float]) -> tuple[str, ...]:
    """Scrape jobs that ask an exporter which another one asks as often, or more often: two targets for one metric of a machine."""
    givers: dict[tuple[str, str, str], str] = {}
    found: list[str] = []
    for job in sorted(taken, key=lambda job: (intervals_s.get(job, _USUAL_S), -len(jobs[job]))):
        given = {(machine, item.name, index_of(item)) for machine, item in zip(taken[job].machines, jobs[job], strict=True)}
        if any(givers.get(key, job) != job for key in given):
            found.append(job)
        else:
            givers.update(dict.fromkeys(given, job))
    return tuple(sorted(found))


def _checked(found: Identity, taken: Mapping[str, Way], jobs: Mapping[str, Sequence[Found]], infos: Sequence[Found]) -> Identity:
    """The same with its labels in an order in which live collection names every series as it was meant; else without the scrape jobs
    that it would name otherwise."""
    orders = [replace(found, labels=order) for order in itertools.islice(itertools.permutations(found.labels), _MOST_ORDERS)]
    tried = [(sorted(_misnamed(order, taken, jobs, infos)), order) for order in orders]
    wrong, best = min(tried, key=lambda item: len(item[0]))
    return replace(best, left_out=tuple(sorted({*best.left_out, *wrong})))


def _misnamed(found: Identity, taken: Mapping[str, Way], jobs: Mapping[str, Sequence[Found]], infos: Sequence[Found]) -> set[str]:
    machines = found.machine_map(tuple({machine for way in taken.values() for machine in way.names}))
    machines.learn((item.name, item.labels, item.time_s) for item in infos)
    return {
        job
        for job, way in taken.items()
        for machine, item in zip(way.machines, jobs[job], strict=True)
        if resolved(machines, item.labels) != machine
    }


def resolved(machines: MachineMap, labels: Mapping[str, str]) -> str | None:
    """The machine that these labels are of; None for none of ours."""
    try:
        return machines.resolve(labels)
    except IdentityError:
        return None


def _natural(name: str) -> list[tuple[str, int]]:
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", name) if word or number]
