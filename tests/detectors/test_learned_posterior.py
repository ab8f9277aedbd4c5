"""The posterior over {no machine, machines, sets of machines}, what an accusation is worth, and which are heard."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minder.diagnose.detectors.learned.decide import Calibration, Heard
from minder.diagnose.detectors.learned.posterior import Accumulation, Posterior, spread_margins
from minder.diagnose.detectors.learned.sets import share_of_sets


def posterior(machines: int = 8, **rules: float) -> Posterior:
    found = Posterior(Accumulation(**rules))
    found.follow([f"m{i}" for i in range(machines)])
    return found


def test_without_data_every_machine_keeps_its_prior() -> None:
    found = posterior()
    for _ in range(4000):
        found.update(5.0, np.zeros(8))
    odds = found.accumulation.odds
    np.testing.assert_allclose(found.p_M, odds / (1.0 + odds) / 8, rtol=0.02)


def test_one_machine_that_stands_out_gets_the_mass_and_loses_it_again() -> None:
    found, margin_M = posterior(), np.full(8, -4.0)
    margin_M[3] = 5.0
    for _ in range(40):
        found.update(5.0, margin_M)
    assert found.p_M[3] > 0.95 and found.p_M.sum() == pytest.approx(1.0, abs=0.05)
    for _ in range(60):
        found.update(5.0, np.full(8, -4.0))
    assert found.p_M[3] < 0.01


@pytest.mark.parametrize(("odd", "most", "least"), [(2, 1.0, 0.9), (3, 1.0, 0.9), (8, 1.0, 0.9), (16, 0.5, 0.0), (32, 0.1, 0.0)])
def test_a_small_set_is_at_fault_together_and_a_large_one_is_what_happened_to_the_job(odd: int, most: float, least: float) -> None:
    found, margin_M = posterior(32), np.full(32, -4.0)
    margin_M[:odd] = 5.0
    for _ in range(60):
        found.update(5.0, margin_M)
    assert least <= found.p_M[:odd].min() and found.p_M.max() <= most + 1e-6


def test_in_a_small_job_all_machines_that_stand_out_accuse_no_machine() -> None:
    found = posterior(8)
    for _ in range(60):
        found.update(5.0, np.full(8, 5.0))
    assert found.p_M.max() < 0.3


def test_sets_are_summed_as_if_each_were_written_down() -> None:
    odds_M, several = np.array([3.0, 0.4, 2.0, 0.01, 0.2]), 10.0
    p_M = share_of_sets(odds_M, 0.125, several)
    pair = several / 100.0 * 0.125 / 10 / (0.125 / 5) ** 2  # its prior, over the product of its members' priors
    accused = odds_M + pair * odds_M * (odds_M.sum() - odds_M)
    assert (p_M[0] / p_M[2], p_M[0] / p_M[1]) == pytest.approx((accused[0] / accused[2], accused[0] / accused[1]))
    assert (p_M > 0.0).all() and (share_of_sets(odds_M, 0.125, 0.0).sum() < 1.0)


def test_a_long_bin_counts_no_more_than_fifteen_seconds() -> None:
    long, short = posterior(fades_s=1e9, between_s=1e9), posterior(fades_s=1e9, between_s=1e9)
    long.odds_M[:] = short.odds_M[:] = 0.05
    margin_M = np.array([3.0] + [0.0] * 7)
    np.testing.assert_allclose(long.update(30.0, margin_M), short.update(15.0, margin_M), rtol=1e-4)


def test_what_a_machine_had_that_left_goes_to_no_machine() -> None:
    found = posterior(3)
    found.odds_M = np.array([6.0, 2.0, 1.0])
    found.follow(["m1", "m2", "new"])
    np.testing.assert_allclose(found.p_M, [0.5, 0.25, 0.0])
    again = Posterior()
    again.load(json.loads(json.dumps(found.state())))
    assert again.machines == found.machines and again.p_M.tolist() == found.p_M.tolist()


def test_machines_that_are_no_candidates_are_no_more_suspect_than_the_least() -> None:
    np.testing.assert_array_equal(spread_margins(4, np.array([2, 0]), np.array([3.0, -5.0])), [-5.0, -5.0, 3.0, -5.0])
    assert spread_margins(3, np.array([0, 1]), np.array([6.0, 5.0]))[2] < 0.0, "all that were looked at stand out: the others were not"
    assert spread_margins(2, np.zeros(0, dtype=int), np.zeros(0)).tolist() == [0.0, 0.0]


def test_more_evidence_is_worth_more_and_a_rarer_fault_makes_it_worth_less() -> None:
    calibration = Calibration(intercept=-1.0, level=0.6, default=1.0, sure=0.5, learned=0.5, prior=0.5)
    ladder = [calibration.share(0.0, False, True), calibration.share(3.0, False, True), calibration.share(3.0, True, True)]
    ladder.append(calibration.share(3.0, True, True, sure=True))
    assert ladder == sorted(ladder) and len(set(ladder)) == 4
    assert calibration.share(3.0, True, True, prior=0.02) < calibration.share(3.0, True, True, prior=0.2) < ladder[2]


def test_an_accusation_is_heard_once_it_is_worth_enough_until_it_ends() -> None:
    heard = Heard(least=0.7)
    assert heard.stood_s(0.0, "a", 0.5) is None
    assert heard.stood_s(10.0, "a", 0.8) == 0.0
    assert heard.stood_s(60.0, "a", 0.2) == 50.0, "what was heard stands"
    assert heard.stood_s(400.0, "a", 0.2) is None, "minutes later it is another one"
    again = Heard(least=0.7)
    again.load(json.loads(json.dumps(heard.state())))
    assert again.stood_s(410.0, "a", 0.9) == 0.0


def test_an_accusation_must_be_worth_enough_for_a_while_where_that_is_asked_for() -> None:
    heard = Heard(least=0.7, speak_s=30.0)
    assert [heard.stood_s(float(t), "a", 0.9) for t in (0, 10, 20, 30)] == [None, None, None, 30.0]
    assert [heard.stood_s(float(t), "b", share) for t, share in ((0, 0.9), (10, 0.3), (20, 0.9), (40, 0.9))] == [None] * 4
