"""Against the public traces and the figures that were published with them (skipped where they are not at hand)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.diagnose.step_traces.analysis import Analysis, analyse
from minder.diagnose.step_traces.meta import read_layout
from minder.diagnose.step_traces.trace import read_trace


def analysed(folder: Path, name: str) -> tuple[Analysis, dict]:  # type: ignore[type-arg]
    trace = read_trace(folder / f"trace-{name}.parquet", read_layout(folder / f"meta-{name}.yaml"))
    return analyse(trace), json.loads((folder / f"result-{name}.json").read_text())


def test_a_whole_trace_gives_the_published_figures(published: Callable[[str], Path]) -> None:
    folder = published("ST")
    analysis, result = analysed(folder, "ST")
    found = analysis.study
    assert found.slowdown == pytest.approx(result["blocking_slowdown"], rel=1e-5)
    assert found.replay_error + 1 == pytest.approx(result["launch_slowdown"], rel=1e-5)
    for ours, theirs in ((found.by_dp_rank, "dp_rank"), (found.by_stage, "stage"), (found.by_kind, "optype")):
        expected = result[f"blocking_decompose_by_{theirs}"]
        assert {str(key): value for key, value in ours.items()} == pytest.approx(expected, rel=1e-5)
    assert found.worst_workers_share == pytest.approx(json.loads((folder / "mw-ST.json").read_text())["Mw"], abs=1e-4)
    assert found.last_stage_share == pytest.approx(json.loads((folder / "ms-ST.json").read_text())["Ms"], abs=1e-4)
    assert (analysis.finding.cause, analysis.finding.blame) == ("stage imbalance", ())


def test_a_part_of_a_trace_gives_the_published_step_times(published: Callable[[str], Path]) -> None:
    analysis, result = analysed(published("AR"), "AR")
    for step, recorded_s, simulated_s in zip(analysis.trace.steps, analysis.study.recorded_T, analysis.study.simulated_T, strict=True):
        assert recorded_s == pytest.approx(result["step_t_base"][str(step)], rel=1e-5)
        assert simulated_s == pytest.approx(result["step_t_nodelay"][str(step)], rel=1e-5)
        slowdown = simulated_s / analysis.study.ideal_s
        assert slowdown == pytest.approx(result["blocking_step_slowdown"][str(step)], rel=0.01)
    assert (analysis.finding.cause, analysis.finding.blame) == ("worker", ((0, 0),))
