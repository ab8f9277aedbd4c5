"""How often a job saves into memory: what loses least, by the formula and by the simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minder.offline.reliability.mix import IncidentRate, Published, load_published
from minder.offline.reliability.months import Fault, Mechanisms, Scale, simulate
from minder.offline.reliability.plan import make_scale, plan_ettr, plan_json, plan_notes
from minder.offline.reliability.saving import best_save_every, save_every, saving_loss
from minder.offline.reliability.times import with_site_times

DAY = 86_400.0


@pytest.fixture(scope="module")
def published() -> Published:
    return load_published()


def given(published: Published, *times: str) -> Published:
    return replace(published, times=with_site_times(published.times, times))


@pytest.mark.parametrize(
    ("share", "failures_a_day", "step_s", "every"),
    [(0.0071, 1.722, 20.0, 6), (0.0099, 1.722, 20.0, 7), (0.0071, 36.0, 20.0, 1), (0.0071, 1.722, 2.0, 19), (0.0, 1.722, 20.0, 1)],
)
def test_the_best_number_loses_less_than_any_other(
    published: Published, share: float, failures_a_day: float, step_s: float, every: int
) -> None:
    site = given(published.assuming([f"step_s={step_s}"]), f"save_share={share}")
    rate = IncidentRate(failures_a_day / 1200, 0.2, "a site")
    assert best_save_every(site, rate, 1200) == every
    losses = [saving_loss(site, rate, 1200, number) for number in range(1, 1001)]
    assert losses[every - 1] == min(losses)
    assert best_save_every(site, IncidentRate(0.0, 0.0, "nothing is known"), 1200) == 1


def test_saving_less_often_costs_less_while_the_job_runs_and_more_when_it_fails(published: Published) -> None:
    scale = Scale(9600, 1200, 30.0, 5, IncidentRate(0.0, 0.0, "none"))
    link = next(item for item in published.symptoms if item.name == "InfiniBand error")
    fault = [Fault(DAY, link, True, 0.5, 0.5)]
    each, sixth = (simulate(scale, Mechanisms(), fault, given(published, f"save_every={every}")) for every in (1, 6))
    assert (each.lost["recompute"], sixth.lost["recompute"]) == (0.5 * 20.0, 0.5 * 120.0)
    assert sixth.lost["save"] == pytest.approx(each.lost["save"] / 6, rel=1e-3)
    assert simulate(scale, Mechanisms().without("spaced"), fault, given(published, "save_every=6")).lost == each.lost


def test_a_failure_that_comes_back_in_place_loses_what_was_done_since_the_newest_save(published: Published) -> None:
    """Saved every 120 s; it fails 60 s after a save, is at that place again, works on for 60 s past it, a save, and fails there."""
    scale = Scale(9600, 1200, 30.0, 5, IncidentRate(0.0, 0.0, "none"))
    crash = next(item for item in published.symptoms if item.name == "CUDA error")
    for progress, lost_s in ((0.5, 60.0), (0.25, 30.0 + 90.0), (0.75, 90.0 + 30.0)):
        month = simulate(scale, Mechanisms(), [Fault(DAY, crash, True, 0.5, progress)], given(published, "save_every=6"))
        assert month.lost["recompute"] == pytest.approx(lost_s)


def test_the_plan_says_how_often_to_save_and_a_site_may_say_it_itself(published: Published) -> None:
    scale = make_scale(published, 9600, 8, 30.0, "byterobust")
    assert "9,600 GPUs save every 6 steps" in "\n".join(plan_notes([scale], published, 1))
    site = given(published, "save_every=3")
    assert save_every(site, scale.rate, scale.machines) == 3
    assert "save every 3 steps into memory, as you gave it" in "\n".join(plan_notes([scale], site, 1))
    assert plan_json(plan_ettr([scale], site, 0, 1), site, 0, 1)["save_every"] == {"9600": 3}
