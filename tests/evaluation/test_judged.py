"""An empty list of verdicts about too little data is no healthy hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minder.offline.evaluation.judged import not_judged


def recording(seconds: int, machines: int, interval_s: float | None = 1.0, with_value: int | None = None) -> Any:
    """Samples of all machines at every second; only the first `with_value` machines have a value in theirs."""
    names = tuple(f"m{at}" for at in range(machines))
    machine_N = np.tile(np.arange(machines), seconds)
    values_NK = np.where(machine_N[:, None] < (machines if with_value is None else with_value), 0.5, np.nan)
    frames = SimpleNamespace(times_N=np.repeat(np.arange(seconds, dtype=float), machines), machine_N=machine_N, values_NK=values_NK)
    frames.machines = (*names, "standby")
    return SimpleNamespace(frames=frames, job=SimpleNamespace(interval_s=interval_s), machines=names)


@pytest.mark.parametrize(("seconds", "machines", "interval_s", "said"), [
    (0, 4, 1.0, ["there is no telemetry: no machine was compared with its peers"]),
    (1, 4, 1.0, ["the samples span 0 s: a machine is compared after 30 s"]),
    (60, 4, 60.0, ["the samples span 59 s: a machine is compared after 240 s"]),
    (300, 1, None, ["m0 is the only machine: it has no peers to be compared with"]),
    (300, 4, 1.0, []),
])  # fmt: skip
def test_what_was_not_judged_says_why(seconds: int, machines: int, interval_s: float | None, said: list[str]) -> None:
    assert not_judged(recording(seconds, machines, interval_s)) == said


@pytest.mark.parametrize(("with_value", "said"), [
    (0, ["telemetry holds no value of a known metric: no machine was compared with its peers"]),
    (5, ["4 of 9 machines without a value in telemetry (m5, m6, m7, ...): nothing is known of them"]),
    (8, ["1 of 9 machines without a value in telemetry (m8): nothing is known of them"]),
])  # fmt: skip
def test_a_machine_without_a_value_is_named_as_unknown(with_value: int, said: list[str]) -> None:
    assert not_judged(recording(60, 9, with_value=with_value)) == said
