"""Traced steps as machines report them, one worker and step at a time, studied while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from minder.diagnose.step_traces.window import TracedStep, TraceWindow, read_traced_step
from minder.model.errors import WireError
from minder.model.evidence import NOT_JUDGED, StepStudy

STEP_S = 10.0
Steps = Callable[[Any], Iterator[dict[str, Any]]]


@pytest.fixture
def steps(generator: ModuleType) -> Steps:
    """What a job's launchers would send, in the order of steps."""

    def send(job: Any) -> Iterator[dict[str, Any]]:
        rows = generator.generate(job).sort("step", "start_ts").to_dicts()
        for step in sorted({row["step"] for row in rows}):
            for worker in sorted({(row["dp_rank"], row["stage"]) for row in rows}):
                own = [row for row in rows if row["step"] == step and (row["dp_rank"], row["stage"]) == worker]
                kinds = sorted({str(row["optype"]) for row in own})
                yield {
                    "job": "llm", "dp_rank": worker[0], "stage": worker[1], "rank": own[0]["rank"], "step": step, "begin_s": step * STEP_S,
                    "kinds": kinds, "kind": [kinds.index(str(row["optype"])) for row in own], "begin": [row["start_ts"] for row in own],
                    "seconds": [row["duration"] for row in own], "mb": [row["mb_id"] for row in own], "mc": [row["mc"] for row in own],
                }  # fmt: skip

    return send


def machine(step: TracedStep) -> str:
    return f"m{step.rank}"


def fill(window: TraceWindow, rows: Iterator[dict[str, Any]]) -> TraceWindow:
    for row in rows:
        step = read_traced_step(row)
        window.add(machine(step), step)
    return window


def judged(study: StepStudy | None) -> StepStudy:
    assert study is not None and study.judged, study
    return study


def test_a_slow_worker_is_named_with_its_machine(generator: ModuleType, steps: Steps) -> None:
    job = generator.Job(dp=3, pp=2, steps=8, worker={(1, 1): 2.0})
    study = judged(fill(TraceWindow(), steps(job)).study(1000.0))
    assert (study.cause, study.blamed, study.steps, study.trusted) == ("worker", ("m4",), 8, True)
    (slow,) = [item for item in study.workers if item.machine == "m4"]
    others = [item for item in study.workers if item.stage == 1 and item is not slow]
    assert slow.against_peers == pytest.approx(2.0, rel=0.05) and slow.steady == 1.0
    assert all(slow.forward_s > 1.5 * item.forward_s and slow.backward_s > 1.5 * item.backward_s for item in others)
    assert study.slowdown is not None and study.slowdown > 1.1 and study.worst_workers_share is not None


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"stage": {1: 2.0}}, "stage imbalance"),
        ({"length": lambda step, rank, mb: 0.4 + ((step * 7 + rank * 5 + mb * 3) % 11) / 5}, "sequence imbalance"),
        ({"link": {(0, 0): 0.4}}, "communication"),
        ({}, "none"),
    ],
)
def test_the_other_causes_name_no_machine(generator: ModuleType, steps: Steps, changes: dict[str, Any], cause: str) -> None:
    study = judged(fill(TraceWindow(), steps(generator.Job(dp=3, pp=2, steps=6, **changes))).study(1000.0))
    assert (study.cause, study.blamed) == (cause, ())


def test_interleaved_stages_are_studied_as_they_are(generator: ModuleType, steps: Steps) -> None:
    study = judged(fill(TraceWindow(), steps(generator.Job(dp=2, pp=2, vpp=2, steps=5))).study(1000.0))
    assert study.cause == "none" and len(study.workers) == 4


def test_only_steps_of_the_slow_time_are_studied_where_there_are_enough(generator: ModuleType, steps: Steps) -> None:
    job = generator.Job(dp=3, pp=2, steps=8, worker={(1, 1): 1.3}, slow_worker_steps=lambda step: step >= 38)
    window = fill(TraceWindow(), steps(job))
    assert judged(window.study(1000.0, since_s=38 * STEP_S)).first_step == 38
    assert judged(window.study(1000.0, since_s=58 * STEP_S)).first_step == 10  # two steps say too little
    slow = judged(window.study(1000.0, since_s=38 * STEP_S))
    assert slow.blamed == ("m4",) and (slow.begin_s, slow.steps) == (38 * STEP_S, 4)


def test_too_few_whole_steps_say_nothing_and_every_step_counts_once(generator: ModuleType, steps: Steps) -> None:
    rows = list(steps(generator.Job(dp=2, pp=2, steps=5)))
    window = fill(TraceWindow(), iter(rows[:-5]))  # three whole ones, and one that a worker has not reported
    assert window.study(1.0) is None
    fill(window, iter(rows[-5:-4]))
    assert window.fresh == 4 and judged(window.study(1.0)).steps == 4
    assert window.fresh == 0
    fill(window, iter(rows[-5:]))
    assert window.fresh == 1


def test_workers_that_report_nothing_leave_it_unjudged(generator: ModuleType, steps: Steps) -> None:
    rows = [row for row in steps(generator.Job(dp=2, pp=2, steps=5)) if (row["dp_rank"], row["stage"]) != (0, 1)]
    study = fill(TraceWindow(), iter(rows)).study(1.0)
    assert study is not None and study.cause == NOT_JUDGED and "dp rank 0 of stage 1" in study.why
    assert study.blamed == () and study.slowdown is None


def test_a_trace_that_does_not_fit_together_is_not_judged(generator: ModuleType, steps: Steps) -> None:
    rows = [{**row, "mb": [0] * len(row["mb"])} for row in steps(generator.Job(dp=2, pp=2, steps=5))]
    study = fill(TraceWindow(), iter(rows)).study(1.0)
    assert study is not None and study.cause == NOT_JUDGED and study.why


def test_the_lowest_rank_of_a_worker_counts_and_memory_is_bounded(generator: ModuleType, steps: Steps) -> None:
    (row, *_) = steps(generator.Job(dp=1, pp=1, steps=1))
    window = TraceWindow()
    for rank in (3, 2, 5):
        step = read_traced_step({**row, "rank": rank})
        window.add(machine(step), step)
    for number in range(100, 400):
        window.add("m2", read_traced_step({**row, "rank": 2, "step": number}))
    study = judged(window.study(1.0))
    assert [item.machine for item in study.workers] == ["m2"]
    assert window.fresh == 0 and len(window._steps) <= 48


@pytest.mark.parametrize("change", [{"kind": [9]}, {"begin": [float("nan")]}, {"mb": []}, {"rank": -1}, {"seconds": "x"}, {"kinds": None}])
def test_a_step_that_is_none_is_refused(generator: ModuleType, steps: Steps, change: dict[str, Any]) -> None:
    (row, *_) = steps(generator.Job(dp=1, pp=1, steps=1))
    with pytest.raises(WireError):
        read_traced_step({**row, **change})
