"""The posterior over {no machine, machines}, and when it speaks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minder.diagnose.detectors.learned.decide import Decision, Speaking, Veto
from minder.diagnose.detectors.learned.posterior import Accumulation, Posterior, spread_margins


def posterior(machines: int = 8, **rules: float) -> Posterior:
    found = Posterior(Accumulation(**rules))
    found.follow([f"m{i}" for i in range(machines)])
    return found


def test_without_data_every_machine_keeps_its_prior() -> None:
    found = posterior()
    for _ in range(4000):
        found.update(5.0, np.zeros(8))
    np.testing.assert_allclose(found.p_M, found.accumulation.at_rest(8), rtol=0.02)


def test_one_machine_that_stands_out_gets_the_mass_and_loses_it_again() -> None:
    found, margin_M = posterior(), np.full(8, -4.0)
    margin_M[3] = 5.0
    for _ in range(40):
        found.update(5.0, margin_M)
    assert found.p_M[3] > 0.95 and found.p_M.sum() < 1.0
    for _ in range(60):
        found.update(5.0, np.full(8, -4.0))
    assert found.p_M[3] < 0.01


def test_machines_that_all_stand_out_share_the_mass() -> None:
    found = posterior()
    for _ in range(60):
        found.update(5.0, np.full(8, 5.0))
    assert found.p_M.max() < 0.2


def test_a_long_bin_counts_no_more_than_fifteen_seconds() -> None:
    long, short = posterior(fades_s=1e9, between_s=1e9), posterior(fades_s=1e9, between_s=1e9)
    long.p_M[:] = short.p_M[:] = 0.05
    margin_M = np.array([3.0] + [0.0] * 7)
    np.testing.assert_allclose(long.update(30.0, margin_M), short.update(15.0, margin_M), rtol=1e-4)


def test_what_a_machine_had_that_left_goes_to_nobody() -> None:
    found = posterior(3)
    found.p_M = np.array([0.6, 0.2, 0.1])
    found.follow(["m1", "m2", "new"])
    np.testing.assert_allclose(found.p_M, [0.2, 0.1, 0.0])
    again = Posterior()
    again.load(json.loads(json.dumps(found.state())))
    assert again.machines == found.machines and again.p_M.tolist() == found.p_M.tolist()


def test_machines_that_are_no_candidates_are_no_more_suspect_than_the_least() -> None:
    np.testing.assert_array_equal(spread_margins(4, np.array([2, 0]), np.array([3.0, -5.0])), [-5.0, -5.0, 3.0, -5.0])
    assert spread_margins(2, np.zeros(0, dtype=int), np.zeros(0)).tolist() == [0.0, 0.0]


def test_it_speaks_after_it_has_stood_for_a_minute() -> None:
    speaking, p_M = Speaking(Decision(speak_p=0.9, speak_s=60.0)), np.array([0.95, 0.01])
    heard = [speaking.update(10.0, ("a", "b"), p_M).get("a", 0.0) for _ in range(6)]
    assert heard == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert speaking.update(10.0, ("a", "b"), np.array([0.5, 0.01])) == {}, "what falls below begins anew"


def test_a_second_name_must_stand_higher_than_the_first_did() -> None:
    speaking = Speaking(Decision(speak_p=0.9, speak_s=10.0))
    speaking.update(10.0, ("a", "b"), np.array([0.97, 0.0]))
    assert "b" not in speaking.update(10.0, ("a", "b"), np.array([0.0, 0.96]))
    assert "b" in speaking.update(10.0, ("a", "b"), np.array([0.0, 0.98]))


@pytest.mark.parametrize(("times", "stands"), [(0.05, False), (0.5, True)])
def test_the_default_s_accusation_stands_where_the_posterior_does_not_contradict(times: float, stands: bool) -> None:
    assert Veto(Decision(veto_times=0.1)).allows(0.0, "a", times) is stands


def test_an_accusation_that_waited_too_long_is_dropped_and_another_is_not() -> None:
    veto = Veto(Decision(veto_times=0.1, wait_s=120.0))
    assert not any(veto.allows(float(t), "a", 0.01) for t in range(0, 130, 10))
    assert not veto.allows(131.0, "a", 5.0), "dropped"
    assert veto.allows(600.0, "a", 5.0), "minutes later it is another one"
    assert veto.allows(610.0, "a", 0.0), "what stands goes on standing until it ends"
