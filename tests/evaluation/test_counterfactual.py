"""What the detector thought, and what it would have said with another threshold."""

from __future__ import annotations

import numpy as np
import pytest

from minder.ingest.sources.events import Truth
from minder.ingest.sources.recording import Recording, read_recording
from minder.offline.evaluation.counterfactual import sweep_patience, trace_scores
from minder.offline.evaluation.replay import replay_recording
from minder.simulate.cluster.recipe import Recipe
from minder.simulate.cluster.simulate import simulate


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Truth]:
    rules = {
        "name": "short",
        "title": "a short job",
        "seed": 5,
        "count": 1,
        "duration_s": [600, 600],
        "job": {"machines": [8, 8], "pipeline": [2], "step_s": [2, 4]},
        "faults": {"kinds": ["pcie_downgrade"], "healthy_share": 0.0, "onset_s": [300, 300]},
        "monitoring": {"intervals_s": [5.0], "metrics": [16, 16]},
    }
    out = tmp_path_factory.mktemp("short") / "jobs"
    (made,) = simulate(Recipe.model_validate(rules), out, 5, 1)
    return read_recording(out / made.name), made.truth


def test_the_verdict_comes_when_the_score_reaches_the_threshold(incident: tuple[Recording, Truth]) -> None:
    recording, truth = incident
    trace = trace_scores(recording)
    first = next(iter(replay_recording(recording)))
    culprit_T = trace.share_TM[:, trace.machines.index(str(truth.machine))]
    assert float(trace.times_T[int(np.argmax(culprit_T >= 1.0))]) == pytest.approx(first.time_s)
    assert np.nanmax(np.delete(trace.share_TM, trace.machines.index(str(truth.machine)), axis=1)) < 1.0


def test_more_patience_speaks_later(incident: tuple[Recording, Truth]) -> None:
    recording, truth = incident
    tried = sweep_patience(recording, truth, [30.0, 90.0, 360.0])
    assert [item.judged.outcome for item in tried] == ["found"] * 3
    delays = [item.judged.delay_s or 0.0 for item in tried]
    assert delays == sorted(delays) and delays[0] < delays[-1]
