"""The right cause, and nobody blamed who is not to blame, on traces of jobs of several shapes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from minder.diagnose.step_traces.advice import advise, as_table
from minder.diagnose.step_traces.analysis import Analysis, analyse, to_document
from minder.diagnose.step_traces.meta import JobLayout
from minder.diagnose.step_traces.trace import build_trace


def analysed(generator: ModuleType, **settings: object) -> Analysis:
    job = generator.Job(**settings)
    layout = JobLayout(job.dp, job.pp, 1, 1, job.vpp, job.dp * job.pp)
    return analyse(build_trace(generator.generate(job), layout, "generated"))


def uneven(step: int, rank: int, microbatch: int) -> float:
    """Sequence lengths: drawn for each microbatch, the same in all stages."""
    return random.Random(f"{step} {rank} {microbatch}").choice([0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 2.4])


SHAPES = [{}, {"dp": 2, "pp": 2, "microbatches": 4}, {"vpp": 2}, {"pp": 1}, {"steps": 1}]


@pytest.mark.parametrize("shape", [*SHAPES, {"dp": 1}, {"dp": 1, "pp": 1}, {"dp": 3, "pp": 2, "vpp": 3, "microbatches": 4}])
def test_a_healthy_job_has_no_cause(generator: ModuleType, shape: dict[str, int]) -> None:
    analysis = analysed(generator, **shape)
    assert analysis.study.slowdown == pytest.approx(1.0, abs=0.02)
    assert (analysis.finding.cause, analysis.finding.blame) == ("none", ())
    assert "does not straggle" in advise(analysis)
    assert abs(analysis.study.replay_error) < 0.01, "the graph explains what an independent executor did"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slow_worker_is_named(generator: ModuleType, shape: dict[str, int]) -> None:
    last = shape.get("pp", 4) - 1
    analysis = analysed(generator, worker={(1, last): 1.8}, **shape)
    assert (analysis.finding.cause, analysis.finding.blame) == ("worker", ((1, last),))
    assert analysis.study.worst_workers_share > 0.9
    assert analysis.balance.against_peers_PD[last, 1] == pytest.approx(1.8, rel=0.03)
    assert f"dp rank 1 of stage {last}" in advise(analysis)


def test_two_slow_workers_are_both_named_the_worst_first(generator: ModuleType) -> None:
    analysis = analysed(generator, dp=8, worker={(1, 2): 1.5, (5, 0): 1.7})
    assert analysis.finding.blame == ((5, 0), (1, 2))


def test_a_worker_that_is_slow_now_and_then_is_named(generator: ModuleType) -> None:
    """Only its own stage varies: so it is not the data."""
    analysis = analysed(generator, steps=12, worker={(1, 2): 2.5}, slow_worker_steps=lambda step: step % 3 == 0)
    assert (analysis.finding.cause, analysis.finding.blame) == ("worker", ((1, 2),))


@pytest.mark.parametrize("shape", [*SHAPES, {"dp": 1}])
def test_a_long_last_stage_blames_nobody(generator: ModuleType, shape: dict[str, int]) -> None:
    if shape.get("pp") == 1:
        pytest.skip("one stage cannot be longer than the others")
    last = shape.get("pp", 4) - 1
    analysis = analysed(generator, stage={last: 1.6}, **shape)
    assert (analysis.finding.cause, analysis.finding.blame) == ("stage imbalance", ())
    assert analysis.study.last_stage_share > 0.5
    assert f"Stage {last}" in advise(analysis) and "Move layers" in advise(analysis)


def test_a_slow_worker_in_a_long_stage_is_compared_with_its_own_stage(generator: ModuleType) -> None:
    slow = analysed(generator, worker={(1, 3): 2.0}, stage={3: 1.2})
    assert slow.finding.blame == ((1, 3),)
    other = analysed(generator, worker={(1, 1): 2.0}, stage={3: 1.3})
    assert other.finding.blame == ((1, 1),), "not the long stage's healthy workers"


@pytest.mark.parametrize("shape", [*SHAPES, {"dp": 2, "pp": 1, "microbatches": 4}, {"dp": 16, "pp": 2, "stage": {1: 1.25}}])
def test_uneven_sequences_blame_nobody(generator: ModuleType, shape: dict[str, object]) -> None:
    analysis = analysed(generator, length=uneven, **shape)
    assert (analysis.finding.cause, analysis.finding.blame) == ("sequence imbalance", ())
    assert analysis.balance.correlation_P.min() > 0.9
    assert "sum of squared lengths" in advise(analysis)


@pytest.mark.parametrize("pp", [1, 4])
def test_long_sequences_that_wander_between_ranks_blame_nobody(generator: ModuleType, pp: int) -> None:
    analysis = analysed(generator, pp=pp, steps=12, length=lambda step, rank, _: 2.0 if random.Random(step).randrange(4) == rank else 1.0)
    assert (analysis.finding.cause, analysis.finding.blame) == ("sequence imbalance", ())


def test_slow_communication_blames_nobody_and_is_located(generator: ModuleType) -> None:
    link = analysed(generator, link={(1, 2): 0.15}).finding
    assert (link.cause, link.blame) == ("communication", ())
    assert link.slowest_link is not None and link.slowest_link[2] == 1
    collective = analysed(generator, collective={("grads-reduce-scatter", 1): 1.0})
    assert collective.finding.slowest_link == ("grads-reduce-scatter", 1, None)
    assert "network" in advise(collective)


def test_slow_links_that_are_the_majority_are_seen_by_the_fastest(generator: ModuleType) -> None:
    finding = analysed(generator, link={(rank, 1): 0.12 for rank in range(4)}).finding
    assert (finding.cause, finding.blame) == ("communication", ())


def test_pauses_without_a_pattern_are_no_worker(generator: ModuleType) -> None:
    analysis = analysed(generator, noise=0.25)
    assert analysis.study.slowdown > 1.1
    assert (analysis.finding.cause, analysis.finding.blame) == ("none", ())
    assert "garbage" in advise(analysis)


def test_the_document_says_what_the_format_promises(generator: ModuleType) -> None:
    analysis = analysed(generator, dp=2, pp=2, worker={(0, 1): 2.0})
    document = to_document(analysis)
    assert document["cause"] == "worker" and document["blame"] == [{"dp_rank": 0, "stage": 1}]
    assert document["waste"] == pytest.approx(1 - 1 / document["slowdown"], abs=1e-5)
    assert set(document["by_dp_rank"]) == {"0", "1"} == set(document["by_stage"])
    assert document["by_optype"]["forward-compute"] > 1.1 > document["by_optype"]["forward-pp-comm"]
    assert document["worst_workers_share"] > 0.9 and document["last_stage_share"] > 0.9
    assert document["step_seconds"]["with_cause_fixed"] < document["step_seconds"]["simulated"]
    assert np.isfinite([worker["slowdown"] for worker in document["by_worker"]]).all()
    assert all(word in as_table(analysis) for word in ("cause         worker", "replay error", "by stage"))


def test_what_the_trace_does_not_explain_is_said(generator: ModuleType) -> None:
    """A quarter of each step in an operation that nobody traced."""
    import polars as pl

    job = generator.Job(dp=2, pp=1)
    frame = generator.generate(job)
    late = pl.col("optype").cast(pl.String).is_in(["optimizer"]) * 1.0
    analysis = analyse(build_trace(frame.with_columns(pl.col("start_ts") + late), JobLayout(2, 1), "late"))
    assert analysis.study.replay_error > 0.2
    assert not analysis.trusted and "trust it little" in as_table(analysis)


def long_tailed(seed: int, spread: float) -> Callable[[int, int, int], float]:
    return lambda step, rank, microbatch: random.Random(f"{seed} {step} {rank} {microbatch}").lognormvariate(0, spread)


@pytest.mark.parametrize("shape", [{"pp": 8, "microbatches": 16}, {"dp": 16, "pp": 2, "steps": 2}, {"steps": 1}])
def test_a_far_too_slow_worker_among_uneven_sequences_is_named(generator: ModuleType, shape: dict[str, int]) -> None:
    """Either repair alone brings little, since the other's waiting stays; both together bring it all."""
    last = shape.get("pp", 4) - 1
    analysis = analysed(generator, worker={(1, last): 2.2}, length=long_tailed(0, 0.5), **shape)
    assert (analysis.finding.cause, analysis.finding.blame) == ("worker", ((1, last),))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "shape", [{"steps": 1}, {"dp": 2, "steps": 2, "microbatches": 4}, {"dp": 8, "pp": 2, "steps": 3, "microbatches": 4}]
)
def test_a_rank_whose_few_sequences_were_all_long_is_no_slow_worker(generator: ModuleType, shape: dict[str, int], seed: int) -> None:
    """Its stages are all slow, and equally: they see the same sequences."""
    analysis = analysed(generator, seed=seed, length=long_tailed(seed, 0.9), **shape)
    assert analysis.finding.blame == ()


@pytest.mark.parametrize(
    "shape", [{"dp": 2, "vpp": 2}, {"dp": 8, "pp": 1, "microbatches": 4}, {"dp": 2, "pp": 2, "vpp": 4, "microbatches": 4}]
)
@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_a_slow_first_worker_of_many_shapes(generator: ModuleType, shape: dict[str, int], factor: float) -> None:
    analysis = analysed(generator, worker={(0, 0): factor}, **shape)
    assert (analysis.finding.cause, analysis.finding.blame) == ("worker", ((0, 0),))
