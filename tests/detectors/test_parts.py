"""The default detector's parts, each by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.diagnose.detectors.evidence import distinctness, loud_metrics, needed_z, single_family_weight
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.phases import Phases
from minder.diagnose.detectors.presence import Presence
from minder.diagnose.detectors.skew_correction import SkewCorrection
from minder.diagnose.detectors.state import Named, State, per
from minder.diagnose.detectors.traits import TraitTable, trait_of
from tests.detectors.one_stage import one_stage

VALUES = st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), min_size=1, max_size=9)


@settings(deadline=None)
@given(VALUES)
def test_distance_from_peers_agrees_with_the_plain_definition(values: list[float]) -> None:
    found = Ordered(np.array([values])).distance_KM()[0]
    for m, value in enumerate(values):
        others = sorted(item for i, item in enumerate(values) if i != m and item == item)
        if value != value:
            continue
        if not others:
            assert np.isnan(found[m])
            continue
        low, high = others[(len(others) - 1) // 2], others[len(others) // 2]
        assert found[m] == value - min(max(value, low), high)


@settings(deadline=None)
@given(VALUES)
def test_median_is_the_median_of_what_is_known(values: list[float]) -> None:
    known = [value for value in values if value == value]
    found = Ordered(np.array([values])).median_K()[0]
    assert np.isnan(found) if not known else np.isclose(found, np.median(known))


@dataclass(slots=True)
class _Kept(State):
    a_KM: np.ndarray = per("KM", -1.0)
    b_M: np.ndarray = per("M")
    d_LKM: np.ndarray = per("LKM", lags=2)
    c: float = 2.0


def test_a_state_follows_machines_and_metrics_by_name() -> None:
    state = _Kept()
    named = Named(state)
    named.follow(("x", "y"), ("p", "q"))
    state.a_KM = np.array([[1.0, 2.0], [3.0, 4.0]])
    state.b_M = np.array([5.0, np.inf])
    state.d_LKM = np.array([state.a_KM, 10.0 * state.a_KM], dtype=np.float32)
    named.follow(("y", "z"), ("q", "p"))
    assert state.a_KM.tolist() == [[4.0, -1.0], [2.0, -1.0]]
    assert state.b_M.tolist() == [np.inf, 0.0]
    assert state.d_LKM.tolist() == [[[4.0, 0.0], [2.0, 0.0]], [[40.0, 0.0], [20.0, 0.0]]]
    copy = _Kept()
    Named(copy).load(json.loads(json.dumps(named.record())))
    assert copy.a_KM.tolist() == state.a_KM.tolist() and copy.d_LKM.tolist() == state.d_LKM.tolist()
    assert copy.b_M.tolist() == [np.inf, 0.0]
    assert copy.c == 2.0


def test_scaled_values_come_back_in_their_unit() -> None:
    traits = TraitTable(("gpu_power_draw_watts", "gpu_temperature_celsius"))
    scaled_KM = traits.scale(np.array([[500.0], [60.0]]))
    assert np.isclose(traits.unscale(0, scaled_KM[0, 0]), 500.0)
    assert np.isclose(traits.unscale(1, scaled_KM[1, 0]), 60.0)


def test_metrics_that_tell_nothing_of_a_machine_weigh_nothing() -> None:
    assert trait_of("steps_total").weight == 0.0
    assert trait_of("gpu_power_draw_watts|low").weight == trait_of("gpu_power_draw_watts").weight


def test_more_series_need_a_larger_deviation() -> None:
    assert needed_z(4, 3) < needed_z(96, 19) < needed_z(4000, 19)


def test_only_a_clear_leader_is_distinct() -> None:
    assert distinctness(np.array([3.0, 0.1, 0.0]))[0] == 1.0
    assert distinctness(np.array([3.0, 2.9, 0.0])).max() == 0.0
    assert distinctness(np.array([1.0])).tolist() == [0.0]


def test_one_family_is_alone_until_another_says_as_much() -> None:
    assert single_family_weight(np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.3]])).tolist() == [1.0, 0.0]


def test_a_metric_that_says_much_less_than_the_loudest_is_not_heard_beside_it() -> None:
    traits = TraitTable(("gpu_power_draw_watts", "gpu_sm_activity_ratio", "steps_total"))
    counted_KX = np.array([[1.0, 1.0, 0.0], [0.1, 0.6, 0.0], [1.0, 1.0, 1.0]])
    assert loud_metrics(traits, counted_KX).tolist() == [[True, True, False], [False, True, False], [False, False, False]]


def _stuck(values_T: list[float]) -> bool:
    """Whether the last of one machine's values is taken for stuck, beside three lively machines."""
    presence = one_stage(Presence, ("a", "b", "c", "d"), ("gpu_power_draw_watts",))
    traits = TraitTable(("gpu_power_draw_watts",))
    rng = np.random.default_rng(1)
    usable = True
    for t, value in enumerate(values_T):
        raw_KM = np.array([[value, *rng.normal(500, 10, 3)]])
        usable_KM = presence.observe_row(traits, float(t), raw_KM, np.ones(4, dtype=bool)).usable_KM
        usable = usable_KM is None or bool(usable_KM[0, 0])
    return not usable


def test_a_sensor_that_repeats_itself_among_lively_ones_is_stuck() -> None:
    lively = [500.0 + 0.1 * i for i in range(60)]
    assert not _stuck(lively)
    assert _stuck([*lively, *[505.0] * 10])
    assert not _stuck([*lively, *[0.0] * 10])  # a true zero is no stuck sensor


def _picks_up(power_T: list[float], duty_T: list[float]) -> bool:
    traits = TraitTable(("gpu_power_draw_watts", "gpu_duty_cycle_ratio"))
    phases = one_stage(Phases, (), traits.metrics)
    found = False
    for row, pair in enumerate(zip(power_T, duty_T, strict=True)):
        center_K = traits.scale(np.array(pair, dtype=np.float32).reshape(2, 1))[:, 0]
        phase = phases.follow_phase(traits, 5.0 * row, center_K, (5.0, 5.0))
        phases.learn_common(center_K, 5.0, phase)
        found |= phase.picks_up
    return found


def test_only_work_that_lasts_after_a_rest_is_a_start() -> None:
    assert _picks_up([120.0] * 12 + [600.0] * 24, [0.2] * 12 + [0.9] * 24)
    long_iterations = ([250.0] * 6 + [600.0] * 6) * 6
    assert not _picks_up(long_iterations, [0.9] * 72)
    peers_that_spin = [500.0] * 40 + [250.0] * 40
    assert not _picks_up(peers_that_spin, [0.5] * 40 + [1.0] * 40)


def _harm_when_all_spin(usual_duty: float) -> float:
    """0..1: how much the training counts as harmed, 100 s after the duty cycle of all has risen to 1; power goes on as it was."""
    traits = TraitTable(("gpu_power_draw_watts", "gpu_duty_cycle_ratio"))
    phases = one_stage(Phases, (), traits.metrics)
    for row, duty in enumerate([usual_duty] * 60 + [1.0] * 20):
        center_K = traits.scale(np.array([[130.0], [duty]], dtype=np.float32))[:, 0]
        phase = phases.follow_phase(traits, 5.0 * row, center_K, (5.0, 5.0))
        phases.learn_common(center_K, 5.0, phase)
    return phase.harm


def test_machines_that_come_to_spin_out_of_work_wait_and_out_of_a_rest_have_begun() -> None:
    assert _harm_when_all_spin(0.6) > 0.25
    assert _harm_when_all_spin(0.03) == 0.0


def test_a_job_whose_level_usually_swings_stands_once_a_third_is_left_of_two_kinds_of_work() -> None:
    """It works for 40 s and waits for 40 s; then it waits for good."""
    traits = TraitTable(("gpu_duty_cycle_ratio", "gpu_tensor_activity_ratio", "rdma_throughput_bytes_per_second"))
    phases, effects = one_stage(Phases, (), traits.metrics), list[float]()
    for row, level in enumerate([*([1.0] * 8 + [0.1] * 8) * 48, *[0.02] * 20]):
        center_K = traits.scale(np.array([[0.9], [0.5 * level], [2e10 * level]], dtype=np.float32))[:, 0]
        phase = phases.follow_phase(traits, 5.0 * row, center_K, (5.0, 5.0))
        phases.learn_common(center_K, 5.0, phase)
        effects.append(phase.effect)
    assert max(effects[400:-20]) == 0.0
    assert effects[-1] == 1.0


def moving_rows(levels: list[float], interval_s: float) -> list[int]:
    """Rows in which the common level of power is said to be on its way."""
    traits = TraitTable(("gpu_power_draw_watts",))
    phases = one_stage(Phases, ("a", "b"), traits.metrics)
    found = []
    for row, level in enumerate([0.0] * 40 + levels):
        phase = phases.follow_phase(traits, row * interval_s, np.array([level]), (interval_s, interval_s))
        phases.learn_common(np.array([level]), interval_s, phase)
        if phase.moving:
            found.append(row - 40)
    return found


def test_a_common_level_that_has_arrived_moves_no_more_however_far_it_has_come() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.01, 12)
    assert moving_rows([-1.0, *(-2.8 + noise)], 15.0) == [0, 1, 2]


def test_a_common_level_on_its_way_moves_for_as_long_as_it_takes() -> None:
    slowly = [-0.4 * step for step in range(1, 9)]
    assert moving_rows(slowly, 15.0) == list(range(8))
    assert set(moving_rows(slowly, 1.0)) >= set(range(8))


def test_a_gap_elsewhere_changes_no_other_row() -> None:
    """Rows without a gap take the quick way, unless another one has a gap: the same numbers to the last bit."""
    rng = np.random.default_rng(5)
    for machines in (2, 3, 8, 9):
        whole_KM = rng.normal(0.0, 1.0, (4, machines)).astype(np.float32)
        holed_KM = whole_KM.copy()
        holed_KM[3, 0] = np.nan
        quick, slow = Ordered(whole_KM), Ordered(holed_KM)
        assert quick.distance_KM()[:3].tobytes() == slow.distance_KM()[:3].tobytes()
        assert quick.median_K()[:3].tobytes() == slow.median_K()[:3].tobytes()


def test_each_metric_is_scaled_by_its_own_rule() -> None:
    traits = TraitTable(("gpu_power_draw_watts", "gpu_temperature_celsius", "memory_usage_ratio"))
    raw_KM = np.array([[500.0, -1.0, np.nan], [60.0, -3.0, np.nan], [0.5, 0.25, 1.0]], dtype=np.float32)
    found_KM = traits.scale(raw_KM)
    power_K1, others_K1 = traits.offset_K1[:1], traits.offset_K1[1:]
    plain_KM = np.concatenate([np.log(np.maximum(raw_KM[:1], np.float32(0.0)) + power_K1), raw_KM[1:] / others_K1])
    assert found_KM.tobytes() == plain_KM.tobytes()


def _steps(odd_s: range, move_s: float, until_s: int = 60) -> tuple[list[float], SkewCorrection]:
    """Score by second of one machine that gathers 5 a second while it is odd; all others moved at move_s."""
    stage = one_stage(SkewCorrection, ("a",), ())
    score_M, scores = np.zeros(1), []
    for t in range(until_s):
        if t == move_s:
            stage.phases.moving_since_s = move_s
        total_M = np.array([1.0 if t in odd_s else 0.0])
        score_M, _ = stage.correct(total_M, score_M, np.array([True]), (float(t), 1.0, 0.3))
        score_M = score_M + 5.0 * total_M
        scores.append(float(score_M[0]))
    return scores, stage


def test_what_is_gathered_out_of_step_is_forgotten() -> None:
    assert _steps(range(20, 27), 20.0)[0][-1] == 0.0  # the others moved, and it followed 7 s later
    assert np.isclose(_steps(range(12, 21), 20.0)[0][-1], 0.3 * 45.0)  # it moved, and the others followed
    assert _steps(range(20, 50), 20.0)[0][-1] == 150.0  # half a minute is no clock
    assert _steps(range(4, 21), 20.0)[0][-1] == 85.0  # nor is a longer lead
    assert _steps(range(30, 40), 5.0)[0][-1] == 50.0  # nor what no common move begins or ends


def test_who_followed_late_is_expected_to_be_late_again() -> None:
    stage = _steps(range(20, 27), 20.0)[1]
    assert stage.state.late_by_M.tolist() == [7.0]
    stage.phases.moving_since_s = 80.0
    stage.state.odd_from_M = np.array([81.0])
    assert stage.expected_late_M(88.0, 1.0).tolist() == [True]
    assert stage.expected_late_M(95.0, 1.0).tolist() == [False]
