"""The fault of one recording: which kind, on which machines, when and how strong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.cluster.faults import FAULTS, share_of
from minder.simulate.cluster.recipe import FaultRules
from minder.simulate.cluster.shape import JobShape
from minder.simulate.cluster.streams import Streams, draw

__all__ = ["FaultPlan", "draw_fault"]


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The fault of a recording. machines: culprit first, then those that have it too. severity 1.0: as strong as published cases."""

    kind: str
    machines: tuple[int, ...]
    onset_s: float
    severity: float
    echo_s: float
    ramp_s: float

    @property
    def culprit(self) -> int:
        return self.machines[0]


def draw_fault(rules: FaultRules, shape: JobShape, streams: Streams, duration_s: float) -> FaultPlan | None:
    """The fault of a recording, or None for a healthy one."""
    rng = streams.of("fault")
    if rng.random() < rules.healthy_share:
        return None
    kinds = rules.kinds or tuple(kind for kind, fault in FAULTS.items() if not fault.held_out and share_of(kind, rules.mix, rules.even))
    share = np.array([share_of(kind, rules.mix, rules.even) for kind in kinds])
    kind = str(rng.choice(kinds, p=share / share.sum()))
    onset_s = draw(rng, rules.early_onset_s if rng.random() < rules.early_share else rules.onset_s)
    severity = draw(rng, rules.weak_severity if rng.random() < rules.weak_share else rules.severity)
    culprit = int(rng.integers(len(shape.machines)))
    echo_s = 0.0 if rng.random() < 0.3 else draw(rng, rules.echo_s)
    return FaultPlan(kind, _hit(kind, culprit, shape), min(onset_s, duration_s - 120.0), severity, echo_s, draw(rng, rules.ramp_s))


def _hit(kind: str, culprit: int, shape: JobShape) -> tuple[int, ...]:
    reach, count = FAULTS[kind].reach, len(shape.machines)
    first = culprit // reach * reach
    together = [m for m in range(first, min(first + reach, count)) if m != culprit]
    return (culprit, *(together if len(together) < count // 2 else together[: max(0, count // 4 - 1)]))
