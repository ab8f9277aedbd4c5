"""Whether a machine that stands out does so in a way that justifies an eviction by telemetry alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.traits import trait_of
from minder.model.evidence import Evidence, Scores

__all__ = ["CorroborationNumbers", "corroborated", "families_of", "is_corroborated"]


@dataclass(frozen=True, slots=True)
class CorroborationNumbers:
    """Section [corroboration] of detector.toml: what each number is stands there."""

    lost_s: float
    witness: float


_N = numbers("corroboration", CorroborationNumbers)
_BROUGHT = frozenset({"congestion", "host", "tcp", "storage", "thermal"})  # families of what neighbours bring about


def is_corroborated(scores: Scores, m: int) -> bool:
    """Two independent families of metrics testify, one of them of what the machine itself does or is, or silence that lasts and that the
    peers' stall confirms. Congestion beside a busy host, or a hot one, neighbours may have brought about: a tenant, a switch, a room.
    """
    machine = scores.machines[m]
    since_s = scores.since_s.get(machine, scores.time_s)
    if scores.cause.get(machine, "unknown") == "absence":  # an exporter may die in a long evaluation, too
        said = [item.since_s for item in scores.evidence.get(machine, ()) if item.since_s is not None]
        since_s = min(said, default=since_s)  # when it fell silent: it may have been odd before
        return scores.time_s - since_s >= _N.lost_s and not scores.quiet and since_s >= scores.in_time_s[0]
    families = families_of([item for item in scores.evidence.get(machine, ()) if not _does_more(item)])
    return len(families) >= 2 and not families <= _BROUGHT and since_s <= scores.in_time_s[1]


def corroborated(scores: Scores) -> frozenset[str]:
    """The machines of which `is_corroborated` holds."""
    return frozenset(machine for machine in scores.evidence if is_corroborated(scores, scores.machines.index(machine)))


def families_of(evidence: Sequence[Evidence]) -> frozenset[str]:
    """The independent families of metrics that this evidence is of."""
    traits = [trait_of(item.metric) for item in evidence if item.metric is not None]
    return frozenset(trait.family for trait in traits if trait.weight > _N.witness)


def _does_more(item: Evidence) -> bool:
    """It computes or sends more than is expected, as who works on while the others wait: a reason to look, no more."""
    if item.metric is None or item.observed is None or item.expected is None:
        return False
    return trait_of(item.metric).activity and item.observed > item.expected
