"""A NaN that one rank found in its own gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.verdicts.numeric import NumericRule
from minder.model.evidence import SPOILT

Make = Callable[..., Any]


def nan(scene: Any, machine: str, at_s: float, step: int | None = 30, **data: Any) -> Any:
    return scene.signal("nonfinite", machine, at_s, step=step, what="gradient", **data)


def conclude(scene: Any, signals: list[Any]) -> list[Any]:
    rule = NumericRule()
    found = list(rule.observe(scene.see(10.1, signals)).suspects)
    return found + [item for at_s in (10.4, 11.0, 12.0) for item in rule.observe(scene.see(at_s)).suspects]


def test_one_machine_alone_computes_wrongly(scene: Any) -> None:
    (suspect,) = conclude(scene, [nan(scene, "m2", 10.0)])
    assert (suspect.kind, suspect.machines, suspect.cause, suspect.tier) == ("machine", ("m2",), "numeric", "evict")
    assert "step 30" in suspect.evidence[0].message


def test_peers_that_follow_a_step_later_are_its_victims(scene: Any) -> None:
    """The all-reduce spreads a NaN to everybody; whose clock or ring was read first does not matter."""
    echoes = [nan(scene, machine, 10.05, step=31) for machine in ("m0", "m1", "m3")]
    (suspect,) = conclude(scene, [*echoes, nan(scene, "m2", 10.04, step=30)])
    assert suspect.machines == ("m2",)


def test_every_machine_at_once_is_the_jobs_own(scene: Any) -> None:
    (suspect,) = conclude(scene, [nan(scene, machine, 10.0) for machine in scene.machines])
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    assert "before the all-reduce: data or program" in suspect.evidence[-1].message
    (failure,) = suspect.failures
    assert (failure.sort, failure.step, len(failure.ranks)) == ("batch", 30, len(scene.machines)), "one failure, of all ranks"


@pytest.mark.parametrize(
    ("later", "lasts"),
    [
        ({}, False),  # a scaler of half precision leaves such a step out by itself
        ({"m0": (31, 32), "m1": (31, 32), "m2": (31, 32), "m3": (31,)}, False),
        ({"m0": (31, 32), "m1": (31, 33), "m2": (32, 33), "m3": (31, 32)}, True),
    ],
)
def test_a_job_that_trains_on_with_spoilt_weights_is_to_go_back(scene: Any, later: dict[str, tuple[int, ...]], lasts: bool) -> None:
    rule = NumericRule()
    rule.observe(scene.see(10.1, [nan(scene, machine, 10.0) for machine in scene.machines]))
    (page,) = rule.observe(scene.see(11.0)).suspects
    found = rule.observe(scene.see(20.0, [nan(scene, machine, 19.0, step) for machine, steps in later.items() for step in steps])).suspects
    assert (page.kind, page.tier) == ("job", "page") and len(found) == lasts
    for suspect in found:
        assert (suspect.kind, suspect.tier, suspect.machines, suspect.failures) == ("job", "evict", (), page.failures)
        assert (suspect.evidence[-1].source, "its weights are spoilt since step 30" in suspect.evidence[-1].message) == (SPOILT, True)
        assert rule.observe(scene.see(30.0, [nan(scene, machine, 29.0, 40) for machine in scene.machines])).suspects == (), "once"


def test_victims_of_one_machine_do_not_make_the_trouble_the_datas(scene: Any) -> None:
    rule = NumericRule()
    rule.observe(scene.see(10.1, [nan(scene, "m2", 10.0)]))
    assert [item.machines for item in rule.observe(scene.see(11.0)).suspects] == [("m2",)]
    echoes = [nan(scene, machine, 12.0, step) for machine in scene.machines for step in (31, 32, 33)]
    assert rule.observe(scene.see(13.0, echoes)).suspects == ()


def test_two_of_six_are_paged_not_evicted(make_scene: Make) -> None:
    scene = make_scene(count=6)
    (suspect,) = conclude(scene, [nan(scene, "m1", 10.0), nan(scene, "m4", 10.0)])
    assert (suspect.kind, suspect.tier) == ("group", "page")


@pytest.mark.parametrize("count", [1, 2])
def test_in_a_small_job_everybody_is_the_data(make_scene: Make, count: int) -> None:
    scene = make_scene(count=count)
    (suspect,) = conclude(scene, [nan(scene, machine, 10.0) for machine in scene.machines])
    assert suspect.kind == "job"


def test_an_older_generation_does_not_count(make_scene: Make) -> None:
    scene = make_scene(generation=2)
    assert conclude(scene, [nan(scene, "m1", 10.0, generation=1), nan(scene, "m2", -1.0, generation=None)]) == []


def test_a_generation_is_judged_once_and_the_next_one_anew(scene: Any) -> None:
    rule = NumericRule()
    rule.observe(scene.see(10.1, [nan(scene, "m2", 10.0)]))
    assert rule.observe(scene.see(11.0)).suspects
    assert rule.observe(scene.see(12.0, [nan(scene, "m1", 11.9)])).suspects == ()
    scene.generation = 2
    rule.observe(scene.see(20.1, [nan(scene, "m0", 20.0)]))
    (suspect,) = rule.observe(scene.see(21.0)).suspects
    assert suspect.machines == ("m0",)


def lost(scene: Any, machine: str, at_s: float, step: int = 30) -> Any:
    return scene.signal("nonfinite", machine, at_s, step=step, what="loss")


def settle(scene: Any, signals: list[Any], reporting: tuple[str, ...]) -> list[Any]:
    """reporting: machines whose ranks reported a finite loss before."""
    for machine in reporting:
        view = scene.views[machine]
        scene.views[machine] = replace(view, workers=tuple(replace(worker, loss=2.0) for worker in view.workers))
    rule = NumericRule()
    found = list(rule.observe(scene.see(10.1, signals[:1])).suspects)
    found += rule.observe(scene.see(11.0, signals[1:])).suspects
    return found + [item for at_s in (12.0, 13.5, 15.0) for item in rule.observe(scene.see(at_s)).suspects]


def test_a_loss_of_one_rank_alone_names_it_where_the_others_report_theirs(scene: Any) -> None:
    later = [lost(scene, machine, 10.9, step=31) for machine in ("m0", "m1", "m3")]
    (suspect,) = settle(scene, [lost(scene, "m2", 10.0), *later], scene.machines)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("machine", ("m2",), "evict")
    assert "rank 2: loss not finite at step 30" in suspect.evidence[0].message


@pytest.mark.parametrize("reporting", [(), ("m0",)], ids=["no rank", "only the one that logs for all"])
def test_a_loss_that_one_rank_reports_for_all_names_no_machine_but_its_rank(scene: Any, reporting: tuple[str, ...]) -> None:
    (suspect,) = settle(scene, [lost(scene, "m0", 10.0)], reporting)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    assert "rank 0: loss not finite" in suspect.evidence[0].message


def test_a_reduced_loss_that_agents_read_a_second_apart_is_the_jobs(scene: Any) -> None:
    (suspect,) = settle(scene, [lost(scene, machine, 10.0) for machine in scene.machines], scene.machines)
    assert (suspect.kind, suspect.machines) == ("job", ())


def test_a_gradient_that_a_guard_saw_goes_before_the_loss(scene: Any) -> None:
    (suspect,) = settle(scene, [lost(scene, "m0", 10.0, 29), nan(scene, "m2", 10.0, 30)], scene.machines)
    assert suspect.machines == ("m2",) and suspect.evidence[0].source == "gradient"


def test_a_loss_that_is_no_number_on_all_ranks_says_what_would_show_whose_it_is(scene: Any) -> None:
    """The mean over all ranks is no number on all of them, whichever rank computed wrongly."""
    (suspect,) = settle(scene, [lost(scene, machine, 10.0) for machine in scene.machines], scene.machines)
    assert suspect.kind == "job" and "cannot tell one rank from all" in suspect.evidence[-1].message
    assert "install_gradient_guard" in suspect.evidence[-1].message and suspect.failures[0].sort == "batch"
