"""An empty list of verdicts about too little data is no healthy hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minder.offline.evaluation.judged import not_judged


def recording(seconds: int, machines: int, interval_s: float | None = 1.0) -> Any:
    job = SimpleNamespace(interval_s=interval_s)
    return SimpleNamespace(
        frames=SimpleNamespace(times_N=np.arange(seconds, dtype=float)), job=job, machines=tuple(f"m{at}" for at in range(machines))
    )


@pytest.mark.parametrize(("seconds", "machines", "interval_s", "said"), [
    (0, 4, 1.0, ["there is no telemetry: no machine was compared with its peers"]),
    (1, 4, 1.0, ["the samples span 0 s: a machine is compared after 30 s"]),
    (60, 4, 60.0, ["the samples span 59 s: a machine is compared after 240 s"]),
    (300, 1, None, ["m0 is the only machine: it has no peers to be compared with"]),
    (300, 4, 1.0, []),
])  # fmt: skip
def test_what_was_not_judged_says_why(seconds: int, machines: int, interval_s: float | None, said: list[str]) -> None:
    assert not_judged(recording(seconds, machines, interval_s)) == said
