from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.act.policy import PolicyConfig
from minder.act.policy.case import Case
from minder.act.policy.price import price, price_of, speed_lost_share
from minder.model.evidence import Evidence, Verdict

Make = Callable[..., Case]
Accuse = Callable[..., Verdict]


def test_a_stopped_job_loses_everything_until_a_person_comes(case: Make, accuse: Accuse) -> None:
    found = price_of(case(accuse("m1", confidence=0.5), config=PolicyConfig(response_s=600)))
    assert found.acting_gpu_s == 8 * (10 + 20)
    assert found.waiting_gpu_s == 8 * (600 + 30) * 0.5


def test_work_that_is_lost_in_any_case_does_not_speak_against_a_restart(case: Make, accuse: Accuse) -> None:
    """A day without a checkpoint: where workers are dead it is lost already, where the job only stands it may yet go on."""
    day = {"since_checkpoint_s": 86_400.0}
    dead = price(case(accuse("m1", confidence=0.9), workers_dead=True, **day))
    assert dead.action is None
    assert price(case(accuse("m1", confidence=0.9), **day)).reason == "below_break_even"


def test_a_slow_job_loses_a_share_for_the_rest_of_its_time(case: Make, accuse: Accuse) -> None:
    slow = accuse("m1", cause="slowdown", confidence=1.0)
    assert price_of(case(slow, speed_lost_share=0.25, remaining_s=1000.0)).waiting_gpu_s == 8 * 250
    ruling = price(case(slow, speed_lost_share=0.25, remaining_s=100.0))
    assert (ruling.action, ruling.reason) == ("page", "below_break_even")
    assert ruling.price is not None and ruling.say.endswith("the job has about 100 s left")
    assert price(case(slow, speed_lost_share=0.25, remaining_s=120.0)).action is None


def test_a_person_who_looks_before_the_job_is_done_ends_the_loss(case: Make, accuse: Accuse) -> None:
    slow, hour = accuse("m1", cause="slowdown", confidence=1.0), PolicyConfig(slowdown_horizon_s=3600.0)
    for remaining_s, lost_s in ((None, 900.0), (7200.0, 900.0), (400.0, 100.0), (0.0, 0.0)):
        assert price_of(case(slow, speed_lost_share=0.25, remaining_s=remaining_s, config=hour)).waiting_gpu_s == 8 * lost_s
    stopped = price_of(case(accuse("m1", confidence=1.0), remaining_s=0.0))
    assert stopped.waiting_gpu_s == 8 * (PolicyConfig().response_s + 30), "a job that stands is not done by standing"


def test_a_slowdown_is_taken_from_the_steps_where_they_were_measured(case: Make, accuse: Accuse) -> None:
    steps = Evidence("heartbeat", "m1", metric="step_seconds", observed=1.0, expected=0.6)
    assert speed_lost_share(case(accuse("m1", cause="slowdown", evidence=(steps,)))) == 0.4
    assert speed_lost_share(case(accuse("m1", cause="slowdown"))) == PolicyConfig().assumed_slowdown_share
    assert speed_lost_share(case(speed_lost_share=7.0)) == 1.0
    assert speed_lost_share(case(accuse("m1", evidence=(replace(steps, observed=0.5),)))) == 0.0
    replayed = Evidence("whatif", None, "what-if: worker", "step_seconds", observed=1.0, expected=0.7)
    slow_from_the_start = case(accuse("m1", cause="slowdown", evidence=(steps, replayed)), speed_lost_share=0.0)
    assert speed_lost_share(slow_from_the_start) == pytest.approx(0.3)


def test_a_break_even_above_one_asks_for_more(case: Make, accuse: Accuse) -> None:
    slow = accuse("m1", cause="slowdown", confidence=1.0)
    assert price(case(slow, speed_lost_share=0.25, remaining_s=200.0, config=PolicyConfig(break_even=2.0))).action == "page"
    assert price(case(slow, speed_lost_share=0.25, remaining_s=240.0, config=PolicyConfig(break_even=2.0))).action is None


def test_a_price_that_nobody_knows_never_evicts(case: Make) -> None:
    for unknown in (float("nan"), float("inf")):
        assert price(case(since_checkpoint_s=unknown)).action == "page"


def test_a_job_without_gpus_is_priced_in_seconds_of_its_workers(case: Make) -> None:
    assert price_of(case(gpus=0)).acting_gpu_s == 30
