"""What the job is doing, as one record of a tick. Plain and frozen, standard library only. Times are unix seconds (UTC)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

__all__ = ["MODES", "JobMode", "Mode", "ModeSource"]

Mode = Literal["start", "stepping", "slow", "stalled", "idle_phase", "restarting", "outage"]
ModeSource = Literal["workers", "step counter", "phase event", "activity", "common level", "none"]
MODES: tuple[Mode, ...] = get_args(Mode)
_SUM_TO = 1e-6


@dataclass(frozen=True, slots=True)
class JobMode:
    """A distribution over `MODES`: every mode has a probability, and they sum to 1.

    since_s: since when the likeliest mode is that. source: what decided; "none": nothing did, and where nothing is known at all the
    probabilities are equal. Raises ValueError for anything that is no distribution.
    """

    probabilities: Mapping[Mode, float]
    since_s: float
    source: ModeSource = "none"

    def __post_init__(self) -> None:
        values = self.probabilities.values()
        if set(self.probabilities) != set(MODES) or min(values) < 0.0 or abs(math.fsum(values) - 1.0) > _SUM_TO:
            raise ValueError(f"a job's mode needs a probability for each of {', '.join(MODES)}, with the sum 1: {dict(self.probabilities)}")

    @property
    def likeliest(self) -> Mode | None:
        """The mode with the highest probability; None where two share it: unknown is an answer."""
        first, second, *_ = sorted(MODES, key=lambda mode: -self.probabilities[mode])
        return first if self.probabilities[first] - self.probabilities[second] > _SUM_TO else None

    def to_json(self) -> dict[str, Any]:
        """As in status.json."""
        rounded = {mode: round(self.probabilities[mode], 4) for mode in MODES}
        return {"likeliest": self.likeliest, "since_s": self.since_s, "source": self.source, "probabilities": rounded}
