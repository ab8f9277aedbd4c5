"""The default detector on the family `foreign`: telemetry by other laws than its own, and machines whose clocks are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import align_columns, rows_of
from minder.model.observation import Observation
from minder.simulate.worlds.families import foreign


def accused(columns: Any) -> list[tuple[float, tuple[str, ...]]]:
    judge = Judge([TelemetryRule(DefaultDetector(columns.stages))])
    rows = rows_of(align_columns(columns, columns.interval_s))
    found = [verdict for row in rows for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [(verdict.time_s, verdict.machines) for verdict in found if verdict.kind != "recovered" and verdict.tier != "watch"]


def test_the_same_seed_gives_the_same_telemetry() -> None:
    one, other = foreign.generate(foreign.foreign(5)), foreign.generate(foreign.foreign(5))
    np.testing.assert_array_equal(one.values_NK, other.values_NK)
    np.testing.assert_array_equal(one.times_N, other.times_N)


@pytest.mark.parametrize("seed", [2, pytest.param(7, marks=pytest.mark.release)])
def test_a_plain_fault_is_found(seed: int) -> None:
    columns = foreign.generate(foreign.foreign(seed, "gpu_lost", ("save",)))
    found = accused(columns)
    assert {machines for _, machines in found} == {(columns.culprit,)}
    assert 0.0 <= found[0][0] - columns.onset_s <= 420.0
