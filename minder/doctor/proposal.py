"""What a foreign Prometheus could give the pipeline: which mapping reads it, what names the machines, how often it is scraped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from minder.doctor.applications import Applications
from minder.doctor.copies import Parted, clusters_of, copies_of
from minder.doctor.guess import Doubt, guess_rules
from minder.doctor.identity import Identity
from minder.doctor.oddities import Oddity, oddities_of
from minder.doctor.reading import Dark, Reading
from minder.doctor.series import Found, Server
from minder.ingest.sources.mapping import Rule
from minder.model.errors import SourceError
from minder.model.metrics import find_metric

__all__ = ["Proposal", "propose"]

_FRESH_S, _FRESH_INTERVALS, _USUAL_S = 60.0, 2.5, 15.0
_MOST_MEASURED = 8


@dataclass(frozen=True, slots=True)
class Proposal:
    """mappings: those that come with minder and find something. guessed: rules for names that none of them knows; doubts: series that
    might be a metric and are not taken, with the reason. used: series per canonical metric. offset_s: the server's clock minus ours.
    interval_s: of its scrapes; interval_known: whether that was found out, and not assumed. selector: what must be asked for so that no
    reading comes twice. copies: what it leaves aside, in words.
    parted: clusters whose machines have the same names; there is no identity then. clusters: those that the machines are of. gone: machines
    without a sample of the last `fresh_s`. dark: targets that give nothing. oddities: what is odd in the newest values. warnings: what
    the server said of its answers."""

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
    copies: tuple[str, ...] = ()
    parted: Parted | None = None
    clusters: Parted | None = None
    gone: tuple[str, ...] = ()
    fresh_s: float = _FRESH_S
    dark: tuple[Dark, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    warnings: tuple[str, ...] = ()
    interval_known: bool = True

    @property
    def moves_with_steps(self) -> list[str]:
        """Metrics in which peers of a synchronous job move together: what the detector compares."""
        return [name for name in self.used if (metric := find_metric(name)) is not None and metric.synchronous]

    @property
    def values(self) -> list[str]:
        return sorted(self.used)


def propose(server: Server, now_s: float) -> Proposal:
    """`now_s`: our clock. Raises SourceError."""
    offset_s = server.offset_s(now_s)
    names = server.names()
    reading = Reading(server, names)
    mappings = reading.take_known()
    applications = Applications.of(server, reading.jobs())
    have = set(reading.used)
    guess = guess_rules(
        applications.without(names), reading.known, applications.reader(server.series), have, server.types(), server.highest
    )
    guessed = reading.take_guessed(guess.rules, applications)
    intervals_s = _intervals_s(server)
    fresh_s = max(_FRESH_S, _FRESH_INTERVALS * max((intervals_s.get(job, _USUAL_S) for job in reading.jobs()), default=_USUAL_S))
    reading.leave_old(fresh_s)
    copies = copies_of(reading.series)
    for copy in copies:
        reading.leave(copy.is_one)
    selector = _joined(server.selector, *(copy.selector for copy in copies))
    identity = reading.identity(selector, intervals_s)
    parted = reading.parted(identity)
    if parted is not None:
        identity = None
    if identity is not None and identity.left_out:
        reading.leave_out(identity.left_out)
        guessed = tuple(rule for rule in guessed if rule.metric in reading.used)
        mappings = [name for name in mappings if reading.reads(name)]
    if identity is not None and identity.twice:
        selector = _joined(selector, f'job!~"{"|".join(re.escape(job) for job in identity.twice)}"')
        reading.leave(lambda item: item.labels.get("job", "") in identity.twice)
    placed = reading.placed(identity)
    counts = reading.exporters()
    interval_s = max((intervals_s[job] for job in counts if job in intervals_s), default=None) or _measured_s(server, reading.series)
    return Proposal(
        tuple(mappings),
        guessed,
        reading.counts(),
        identity,
        _USUAL_S if interval_s is None else interval_s,
        offset_s,
        counts,
        reading.clocks_s(identity) if "node_time_seconds" in names else {},
        guess.doubts,
        selector,
        tuple(copy.seen for copy in copies),
        parted,
        clusters_of(placed),
        reading.gone(identity),
        fresh_s,
        reading.dark(identity),
        oddities_of(placed, reading.metric_of),
        tuple(sorted(server.warnings)),
        interval_s is not None,
    )


def _measured_s(server: Server, series: Sequence[Found]) -> float | None:
    """Of what no target of this server gives (recorded, or written by another): by the samples of one series of each scrape job."""
    ones = {item.labels.get("job", ""): item for item in reversed(series)}
    try:
        found = [gap_s for item in list(ones.values())[:_MOST_MEASURED] if (gap_s := server.gap_s(item)) is not None]
    except SourceError:
        return None
    return max(1.0, *found) if found else None


def _joined(*matchers: str) -> str:
    return ",".join(matcher for matcher in matchers if matcher)


def _intervals_s(server: Server) -> dict[str, float]:
    try:
        return {job: max(1.0, value) for job, value in server.intervals_s().items()}
    except SourceError:  # a server that speaks only the query API
        return {}
