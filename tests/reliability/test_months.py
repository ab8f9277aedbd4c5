from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minder.act.policy.config import PolicyConfig
from minder.model.errors import BadInputError
from minder.offline.reliability.mix import IncidentRate, Published, Symptom, load_published, restart_seconds
from minder.offline.reliability.months import Fault, Mechanisms, Scale, draw_faults, simulate
from minder.offline.reliability.plan import make_scale, plan_ettr, plan_json, plan_notes, plan_rows, variants
from minder.offline.reliability.times import with_site_times

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


def own(published: Published, name: str) -> float:
    return published.times[name].seconds or 0.0


def test_machine_evidence_costs_one_eviction(published: Published) -> None:
    """A broken link: seen by the lab's time, one machine goes, a standby comes, half a step again."""
    fault = Fault(DAY, symptom(published, "InfiniBand error"), True, 0.5, 0.5)
    month = simulate(scale_of(), Mechanisms(), [fault], published)
    wake_s = restart_seconds(published, "requeue_s", 1200) / 10.87
    assert (month.incidents, month.evicted, month.shortfalls) == (1, 1, 0)
    assert month.lost["detect"] == pytest.approx(own(published, "detect_network"))
    assert (month.lost["localise"], month.lost["decide"]) == (0.0, 0.0)
    assert month.lost["restart"] == pytest.approx(wake_s)
    assert (month.lost["load"], month.lost["recompute"]) == (own(published, "restore"), 10.0)
    bare = simulate(scale_of(), Mechanisms.none(), [fault], published)
    assert (bare.lost["detect"], bare.lost["load"], bare.lost["recompute"]) == (600.0, 120.0, 900.0)
    assert bare.lost["localise"] == 120.0 + 0.5 * 780.0, "2 to 15 minutes by hand"
    assert bare.lost["restart"] == pytest.approx(restart_seconds(published, "requeue_s", 1200))


def test_an_exit_is_tried_again_in_place_and_tested_when_it_comes_back(published: Published) -> None:
    sticky, once = (Fault(DAY, symptom(published, "CUDA error"), at_fault, 0.5, 0.5) for at_fault in (True, False))
    here_s, wake_s = restart_seconds(published, "hot_update_s", 1200), restart_seconds(published, "requeue_s", 1200) / 10.87
    month = simulate(scale_of(), Mechanisms(), [once], published)
    assert (month.evicted, month.lost["localise"], month.lost["restart"]) == (0, 0.0, pytest.approx(here_s))
    month = simulate(scale_of(), Mechanisms(), [sticky], published)
    assert (month.evicted, month.lost["localise"]) == (1, own(published, "diagnose"))
    assert month.lost["detect"] == pytest.approx(2 * own(published, "detect_exit")) and month.lost["restart"] == pytest.approx(
        here_s + wake_s
    )
    trial = simulate(scale_of(), Mechanisms().without("diagnosis"), [sticky], published)
    assert (trial.evicted, trial.lost["localise"]) == (1, 0.0), "a trial swap takes the machine out as well"


def test_a_nan_is_tested_and_without_tests_a_person_searches(published: Published) -> None:
    fault = [Fault(DAY, symptom(published, "NaN value"), True, 0.5, 0.5)]
    assert simulate(scale_of(), Mechanisms(), fault, published).lost["localise"] == own(published, "diagnose")
    without = simulate(scale_of(), Mechanisms().without("diagnosis"), fault, published)
    assert (without.lost["localise"], without.paged) == (28_800.0, 1)


def test_a_hang_is_called_after_three_steps_and_its_group_goes(published: Published) -> None:
    hang = [Fault(DAY, symptom(published, "Job hang"), True, 0.5, 0.5)]
    month = simulate(scale_of(8), Mechanisms(), hang, published)
    assert month.evicted == 8 and month.lost["detect"] == pytest.approx(own(published, "detect_hang") + 3 * 20.0)
    kept = simulate(scale_of(8), Mechanisms().without("over_eviction"), hang, published)
    assert (kept.evicted, kept.paged, kept.lost["localise"]) == (1, 1, 5400.0)


def test_without_a_standby_a_job_shrinks_or_waits(published: Published) -> None:
    hang = [Fault(day * DAY, symptom(published, "Job hang"), True, 0.5, 0.5) for day in (1, 2)]
    enough, shrunk, waits = (
        simulate(scale_of(pool), Mechanisms().without(*without), hang, published) for pool, without in ((8, ()), (7, ()), (7, ("shrink",)))
    )
    assert (enough.evicted, enough.shortfalls, shrunk.shortfalls, waits.shortfalls) == (16, 0, 2, 2)
    assert shrunk.lost["shrunk"] == pytest.approx(2 * 3600.0 / 1200), "one machine of 1,200 is missing for an hour, twice"
    assert (shrunk.paged, waits.paged) == (0, 2) and waits.lost["decide"] == 3600.0
    assert waits.lost["restart"] == pytest.approx(5.36 * enough.lost["restart"])
    close = [hang[0], replace(hang[0], time_s=DAY + 1800.0)]
    assert simulate(scale_of(8), Mechanisms(), close, published).shortfalls == 1, "the second comes before the pool is full again"


def test_what_the_limits_do_not_let_pass_waits_for_a_person(published: Published) -> None:
    """A group of 8 goes by itself where the breaker's quarter of the job allows it; else half an hour passes."""
    hang = [Fault(DAY, symptom(published, "Job hang"), True, 0.5, 0.5)]
    alone, small = (simulate(scale, Mechanisms(), hang, published) for scale in (scale_of(8, 32), scale_of(8, 28)))
    assert (alone.paged, small.paged) == (0, 1)
    assert small.lost["decide"] == alone.lost["decide"] + 1800.0
    links = [Fault(day * DAY, symptom(published, "InfiniBand error"), True, 0.5, 0.5) for day in range(1, 18)]
    eight = PolicyConfig(max_evictions_per_job=8)
    assert simulate(scale_of(), Mechanisms(), links, published, eight).paged == 2, "the 9th and the 17th of a run: its budget is 8"
    assert simulate(scale_of(), Mechanisms(), links, published).paged == 0, "one in a day of 1,200 machines is as many as are expected"
    assert simulate(scale_of(machines=16), Mechanisms(), links, published).paged == 2, "of 16 it is not"
    day = [replace(item, time_s=DAY + 7200.0 * index) for index, item in enumerate(links[:9])]
    assert simulate(scale_of(), Mechanisms(), day, published).paged == 1, "the 9th of a day"
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


def test_the_plan_is_reproducible_and_no_mechanism_costs_much(published: Published) -> None:
    """Shrinking makes standbys worth little at this size, and an exit is tested although a trial would do: neither may cost a job much."""
    scales = [make_scale(published, 9600, 8, 30.0, "byterobust")]
    outcomes = plan_ettr(scales, published, seed=7, repeats=3)
    assert outcomes == plan_ettr(scales, published, seed=7, repeats=3)
    assert outcomes != plan_ettr(scales, published, seed=8, repeats=3)
    ettr = {item.variant: item.ettr for item in outcomes}
    assert set(ettr) == set(variants())
    assert all(ettr["nothing of these"] < value < ettr["everything"] + 0.002 for name, value in ettr.items() if name.startswith("without"))
    assert all(item.ettr == pytest.approx(1 - sum(item.lost.values())) for item in outcomes)


def test_every_time_says_where_it_is_from(published: Published) -> None:
    scales = [make_scale(published, 9600, 8, 30.0, "byterobust")]
    site = replace(published, times=with_site_times(published.times, ["in_place=40", "save_share=0.002"]))
    outcomes = plan_ettr(scales, site, 0, 1)
    document = plan_json(outcomes, site, 0, 1)
    assert document["assumed"] == dict(published.assumed) and "Table 1" in document["sources"]["incident mix"]
    kinds = {item["name"]: item["kind"] for item in document["times"]}
    assert (kinds["in_place"], kinds["wake"], kinds["detect_hang"], kinds["recur"]) == ("site", "published", "lab", "assumed")
    assert all(item["where"] for item in document["times"])
    notes = "\n".join(plan_notes(scales, site, 1))
    for said in (
        "Simulated, not measured",
        "measured in our lab: detect_exit",
        "that you gave: in_place 40, save_share 0.002",
        "that others published: wake",
        "beyond 1,024 machines",
        "9,600 GPUs: 63 in the whole run, 8 in a day, 4 in an hour",
    ):
        assert said in notes
    assert outcomes[0].lost["save"] == pytest.approx(0.002 / 3, abs=1e-4)
    assert len(plan_rows(outcomes)) == 1 + len(variants())


def test_a_mechanism_that_minder_does_not_have_cannot_be_chosen(published: Published) -> None:
    with pytest.raises(BadInputError, match='"hot_spare_gpus" is no mechanism of minder: it has detection'):
        variants(["hot_spare_gpus"])
    left = variants(["shrink"])
    assert next(iter(left)) == "without shrinking" and not any(item.shrink for item in left.values()) and len(left) == 10
    for bad in ("wakes=3", "wake=soon", "wake=-1", "wake"):
        with pytest.raises(BadInputError, match="--time"):
            with_site_times(published.times, [bad])


def test_assumptions_can_be_changed(published: Published) -> None:
    assert published.assuming(["step_s=3", "refill_s=60"]).assumed["step_s"] == 3.0
    for bad, said in (
        ("steps=3", "known are"),
        ("step_s=soon", "no number"),
        ("step_s", "no number"),
        ("step_s=-1", "0 or more"),
        ("step_s=nan", "finite"),
        ("step_s=0", "more than 0"),
        ("group_machines=0", "more than 0"),
    ):
        with pytest.raises(BadInputError, match=said):
            published.assuming([bad])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((4, 8, 30.0, "byterobust"), "--gpus 4"), ((9600, 7, 30.0, "byterobust"), "give a multiple"),
     ((9600, 0, 30.0, "byterobust"), "--gpus"), ((9600, 8, 0.0, "byterobust"), "days"),
     ((9600, 8, 30.0, "mine"), '--rates "mine"')],
)  # fmt: skip
def test_a_job_that_cannot_be_is_refused(published: Published, arguments: tuple[int, int, float, str], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        make_scale(published, *arguments)


def test_a_plan_that_would_take_hours_is_refused(published: Published) -> None:
    scale = make_scale(published, 2_000_000, 8, 3650.0, "infinitehbd")
    with pytest.raises(BadInputError, match="too long"):
        plan_ettr([scale], published, 0, 10)
