from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minder.model.errors import BadInputError
from minder.offline.reliability.mix import IncidentRate, Published, Symptom, load_published, restart_seconds
from minder.offline.reliability.months import Fault, Mechanisms, Scale, draw_faults, simulate
from minder.offline.reliability.plan import VARIANTS, make_scale, plan_ettr, plan_json, plan_notes, plan_rows

DAY = 86_400.0


@pytest.fixture(scope="module")
def published() -> Published:
    return load_published()


def scale_of(pool: int = 5, machines: int = 1200) -> Scale:
    return Scale(machines * 8, machines, 30.0, pool, IncidentRate(0.0, 0.0, "none"))


def symptom(published: Published, name: str) -> Symptom:
    return next(item for item in published.symptoms if item.name == name)


def test_the_mix_is_the_published_table(published: Published) -> None:
    """ByteRobust, Table 1: its rows, and their sums (which the paper's own text gets wrong)."""
    sums = {kind: sum(item.count for item in published.symptoms if item.category == kind) for kind in ("explicit", "implicit", "manual")}
    assert sums == {"explicit": 39_687, "implicit": 6_096, "manual": 9_582}
    assert len({item.name for item in published.symptoms}) == 17
    assert {item.detect for item in published.symptoms} <= set(published.detect_s)


def test_restarts_follow_the_published_table_and_grow_beyond_it(published: Published) -> None:
    for machines, seconds in zip(published.restart["machines"], published.restart["requeue_s"], strict=True):
        assert restart_seconds(published, "requeue_s", machines) == pytest.approx(seconds, rel=0.03)
    assert restart_seconds(published, "requeue_s", 25_000) > 1200
    assert restart_seconds(published, "hot_update_s", 1) > 0


def test_one_fault_costs_what_its_tables_say(published: Published) -> None:
    """A broken link: seen after 30 s, restarted in max(60 s, the restart), half a step again."""
    fault = Fault(DAY, symptom(published, "InfiniBand error"), True, 0.5, 0.5)
    month = simulate(scale_of(), Mechanisms(), [fault], published)
    wake_s = restart_seconds(published, "requeue_s", 1200) / 10.87
    assert (month.incidents, month.evicted, month.shortfalls) == (1, 1, 0)
    assert month.lost["detect"] == 30.0
    assert month.lost["decide"] == pytest.approx(max(0.0, 60.0 - wake_s))
    assert month.lost["restart"] == pytest.approx(wake_s)
    assert (month.lost["load"], month.lost["recompute"]) == (0.0, 10.0)
    bare = simulate(scale_of(), Mechanisms.none(), [fault], published)
    assert (bare.lost["detect"], bare.lost["load"], bare.lost["recompute"]) == (600.0, 120.0, 900.0)
    assert bare.lost["restart"] == pytest.approx(restart_seconds(published, "requeue_s", 1200))


def test_a_pool_that_is_too_small_is_slower_and_is_filled_up_again(published: Published) -> None:
    hang = symptom(published, "Job hang")
    faults = [Fault(day * DAY, hang, True, 0.5, 0.5) for day in (1, 2)]
    enough, few = (simulate(scale_of(pool), Mechanisms(), faults, published) for pool in (8, 7))
    assert (enough.evicted, enough.shortfalls, few.shortfalls) == (16, 0, 2)
    assert few.lost["restart"] == pytest.approx(5.36 * enough.lost["restart"])
    close = [Fault(DAY, hang, True, 0.5, 0.5), Fault(DAY + 1800.0, hang, True, 0.5, 0.5)]
    assert simulate(scale_of(8), Mechanisms(), close, published).shortfalls == 1, "the second comes before the pool is full again"


def test_what_the_default_limits_do_not_let_pass_waits_for_a_person(published: Published) -> None:
    """A group of 8 goes by itself where the breaker's quarter of the job and the standbys allow it; else half an hour passes."""
    hang = [Fault(DAY, symptom(published, "Job hang"), True, 0.5, 0.5)]
    alone, small, short = (simulate(scale, Mechanisms(), hang, published) for scale in (scale_of(8, 32), scale_of(8, 28), scale_of(7, 32)))
    assert (alone.paged, small.paged, short.paged) == (0, 1, 1)
    assert small.lost["decide"] == short.lost["decide"] == alone.lost["decide"] + 1800.0
    links = [Fault(day * DAY, symptom(published, "InfiniBand error"), True, 0.5, 0.5) for day in range(1, 18)]
    assert simulate(scale_of(), Mechanisms(), links, published).paged == 2, "the 9th and the 17th of a run: its budget is 8"
    hour = [replace(item, time_s=DAY + 700.0 * index) for index, item in enumerate(links[:5])]
    assert simulate(scale_of(), Mechanisms(), hour, published).paged == 1
    assert simulate(scale_of(), Mechanisms.none(), links, published).paged == 0, "without detection a person does it all anyhow"


def test_a_fault_that_comes_during_a_recovery_waits_for_its_end(published: Published) -> None:
    update = symptom(published, "Code/data adjustment")
    faults = [Fault(DAY, update, False, 0.5, 0.5), Fault(DAY + 1.0, update, False, 0.5, 0.5)]
    month = simulate(scale_of(), Mechanisms(), faults, published)
    assert month.incidents == 2
    assert month.lost["restart"] == pytest.approx(2 * restart_seconds(published, "hot_update_s", 1200))


def test_what_lies_beyond_the_simulated_time_is_not_counted(published: Published) -> None:
    fault = Fault(30 * DAY - 10.0, symptom(published, "Job hang"), True, 0.5, 0.5)
    month = simulate(scale_of(), Mechanisms(), [fault], published)
    assert month.lost["detect"] == 10.0 and month.lost["restart"] == 0.0
    assert 0.0 <= month.ettr <= 1.0


def test_a_job_that_nothing_hits_pays_only_for_its_checkpoints(published: Published) -> None:
    month = simulate(scale_of(), Mechanisms(), [], published)
    assert month.ettr == pytest.approx(1 - 0.0071)


def test_faults_come_as_often_as_the_rate_says_and_are_mixed_as_the_table(published: Published) -> None:
    scale = make_scale(published, 200_000, 8, 90.0, "byterobust")
    faults = draw_faults(scale, published, np.random.default_rng(0))
    assert len(faults) == pytest.approx(90 * (25_000 * 0.001435 + 0.2222), rel=0.06)
    cuda = sum(item.symptom.name == "CUDA error" for item in faults) / len(faults)
    assert cuda == pytest.approx(19_968 / (39_687 + 6_096), abs=0.03)
    assert [item.time_s for item in faults] == sorted(item.time_s for item in faults)


def test_the_plan_is_reproducible_and_every_mechanism_is_worth_something(published: Published) -> None:
    scales = [make_scale(published, 9600, 8, 30.0, "byterobust")]
    outcomes = plan_ettr(scales, published, seed=7, repeats=3)
    assert outcomes == plan_ettr(scales, published, seed=7, repeats=3)
    assert outcomes != plan_ettr(scales, published, seed=8, repeats=3)
    ettr = {item.variant: item.ettr for item in outcomes}
    assert set(ettr) == set(VARIANTS)
    assert all(ettr["nothing of these"] < value < ettr["everything"] for name, value in ettr.items() if name.startswith("without"))
    assert all(item.ettr == pytest.approx(1 - sum(item.lost.values())) for item in outcomes)


def test_the_plan_says_what_is_assumed_and_uses_nothing_of_the_lab(published: Published) -> None:
    scales = [make_scale(published, 9600, 8, 30.0, "byterobust")]
    outcomes = plan_ettr(scales, published, 0, 1)
    document = plan_json(outcomes, published, 0, 1)
    assert document["assumed"] == dict(published.assumed) and document["lab"]["used"] is False
    assert "Table 1" in document["sources"]["incident mix"]
    notes = "\n".join(plan_notes(scales, published, 1))
    assert (
        "Simulated, not measured" in notes
        and "not yet in minder" in notes
        and "loopback restart says nothing" in notes
        and "beyond 1,024 machines" in notes
    )
    assert plan_ettr(scales, replace(published, lab=()), 0, 1) == outcomes
    assert len(plan_rows(outcomes)) == 1 + len(VARIANTS)


def test_assumptions_can_be_changed(published: Published) -> None:
    assert published.assuming(["step_s=3", "refill_s=60"]).assumed["step_s"] == 3.0
    for bad, said in (
        ("steps=3", "known are"),
        ("step_s=soon", "no number"),
        ("step_s", "no number"),
        ("step_s=-1", "0 or more"),
        ("step_s=nan", "finite"),
    ):
        with pytest.raises(BadInputError, match=said):
            published.assuming([bad])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((4, 8, 30.0, "byterobust"), "--gpus 4"), ((9600, 0, 30.0, "byterobust"), "--gpus"), ((9600, 8, 0.0, "byterobust"), "days"),
     ((9600, 8, 30.0, "mine"), '--rates "mine"')],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused(published: Published, arguments: tuple[int, int, float, str], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        make_scale(published, *arguments)


def test_a_plan_that_would_take_hours_is_refused(published: Published) -> None:
    scale = make_scale(published, 2_000_000, 8, 3650.0, "infinitehbd")
    with pytest.raises(BadInputError, match="too long"):
        plan_ettr([scale], published, 0, 10)
