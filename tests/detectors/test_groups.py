"""Machines of one rack, switch, stage or pair that fail together: a page that names all of them, and never an eviction."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, METRICS, WORKS, accused, at, healthy, watch

from minder.diagnose.detectors.default import DefaultConfig, DefaultDetector
from minder.ingest.windows import rows_of
from minder.model.telemetry import Window

BEGAN, ROWS = 70, 140
STAGES = {f"m{m:02d}": m // 6 for m in range(24)}


@pytest.mark.parametrize("stages", [None, STAGES])
def test_a_stage_whose_clocks_fall_together_is_named(stages: dict[str, object] | None) -> None:
    """Inside of the stage none differs from its peers."""
    values_TMK = healthy(ROWS, machines=24)
    values_TMK[BEGAN:, 6:12, at("gpu_clock_hertz")] *= 0.7
    found, _ = watch(values_TMK, stages)
    assert [(set(verdict.machines), verdict.kind, verdict.tier) for verdict in found] == [
        ({f"m{m:02d}" for m in range(6, 12)}, "group", "page")
    ]
    assert found[0].evidence and {piece.metric for piece in found[0].evidence} == {"gpu_clock_hertz"}


def test_a_pair_whose_clocks_fall_together_is_named() -> None:
    values_TMK = healthy(ROWS, machines=12)
    values_TMK[BEGAN:, [2, 9], at("gpu_clock_hertz")] *= np.array([0.75, 0.65])
    values_TMK[BEGAN:, [2, 9], at("gpu_power_draw_watts")] *= 0.8
    assert [item[:2] for item in accused(values_TMK)] == [(("m02", "m09"), "group")]


def test_congestion_of_one_switch_is_named_where_the_training_is_slowed() -> None:
    values_TMK = healthy(ROWS, machines=24)
    values_TMK[BEGAN:, 3:8, at("ecn_packets_per_second")] *= 6.0
    quiet_TMK = values_TMK.copy()
    values_TMK[BEGAN:, :, WORKS] *= 0.7
    assert [(set(machines), kind) for machines, kind, _ in accused(values_TMK)] == [({f"m{m:02d}" for m in range(3, 8)}, "group")]
    assert accused(quiet_TMK) == []


def test_a_rack_that_falls_silent_as_the_job_stops_is_named() -> None:
    values_TMK = healthy(ROWS, machines=24)
    values_TMK[BEGAN:, 4:8] = np.nan
    values_TMK[BEGAN + 4 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    assert [(set(machines), kind) for machines, kind, _ in accused(values_TMK)] == [({f"m{m:02d}" for m in range(4, 8)}, "group")]


def test_a_rack_that_falls_silent_as_gpus_that_wait_come_to_rest_is_named() -> None:
    """They do not spin: the job looks as in an evaluation, but for the machines that are gone."""
    values_TMK = np.concatenate([healthy(ROWS, machines=24), np.full((ROWS, 24, 1), 0.97)], axis=2)
    values_TMK[:, :, -1] -= np.random.default_rng(4).uniform(0.0, 0.02, (ROWS, 24))
    values_TMK[BEGAN:, 4:8] = np.nan
    values_TMK[BEGAN + 4 :, :, WORKS] *= AT_REST
    values_TMK[BEGAN + 4 :, :, -1] *= 0.02
    found = watch(values_TMK, metrics=(*METRICS, "gpu_duty_cycle_ratio"))[0]
    assert [(set(verdict.machines), verdict.kind) for verdict in found] == [({f"m{m:02d}" for m in range(4, 8)}, "group")]


def test_a_rack_that_falls_silent_beside_a_job_that_goes_on_is_not_named() -> None:
    values_TMK = healthy(ROWS, machines=24)
    values_TMK[BEGAN:, 4:8] = np.nan
    assert accused(values_TMK) == []


def test_half_of_a_job_is_what_happened_to_the_job() -> None:
    values_TMK = healthy(ROWS, machines=12)
    values_TMK[BEGAN:, :6, at("gpu_clock_hertz")] *= 0.7
    assert accused(values_TMK) == []


def test_a_rest_of_all_is_no_group() -> None:
    values_TMK = healthy(ROWS, machines=12)
    values_TMK[BEGAN : BEGAN + 30, :, WORKS] *= AT_REST
    values_TMK[BEGAN : BEGAN + 30, :2, at("gpu_clock_hertz")] *= 0.7
    assert accused(values_TMK) == []


def test_three_of_eleven_machines_that_fall_silent_two_minutes_before_the_job_stops_are_named() -> None:
    """More than a quarter of the job, and no outage of the monitoring yet."""
    values_TMK = healthy(ROWS + 20, machines=11)
    values_TMK[BEGAN:, 4:7] = np.nan
    values_TMK[BEGAN + 24 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    assert [(set(names), kind) for names, kind, _ in accused(values_TMK)] == [({"m04", "m05", "m06"}, "group")]


@pytest.mark.parametrize(
    "then",
    [METRICS[::-1], METRICS[1:], ("gpu_temperature_celsius", *METRICS), tuple(name for name in METRICS if name != "gpu_clock_hertz")],
    ids=["other-order", "one-less", "one-more", "that-one-less"],
)
def test_what_a_group_shares_keeps_its_name_when_metrics_come_or_go(then: tuple[str, ...]) -> None:
    """They change while all rest, where a group is not asked for anew."""
    values_TMK = healthy(ROWS + 10, machines=24)
    values_TMK[BEGAN:, 6:12, at("gpu_clock_hertz")] *= 0.7
    values_TMK[ROWS : ROWS + 4, :, WORKS] *= AT_REST
    named = dict(zip(METRICS, np.moveaxis(values_TMK, 2, 0), strict=True)) | {
        "gpu_temperature_celsius": np.full(values_TMK.shape[:2], 60.0)
    }
    names, detector, shown = tuple(f"m{m:02d}" for m in range(24)), DefaultDetector(STAGES), []
    for t in range(ROWS + 10):
        metrics = METRICS if t < ROWS else then
        values_MK = np.stack([named[name][t] for name in metrics], axis=1)
        row = Window(np.array([1.7e9 + 5.0 * t]), names, metrics, values_MK[None], np.ones((1, 24), dtype=bool))
        shown.append({piece.metric for pieces in detector.score(row)[0].evidence.values() for piece in pieces})
        detector.learn(row, frozenset())
    assert shown[ROWS - 1] == {"gpu_clock_hertz"}
    assert set().union(*shown[ROWS:]) <= {"gpu_clock_hertz"}
    assert ("gpu_clock_hertz" in shown[-1]) == ("gpu_clock_hertz" in then)


SPINS = (*METRICS, "gpu_duty_cycle_ratio")
WAITS = np.array([0.3, 0.4, 0.05, 0.05])  # of what works, where GPUs spin for a machine that hangs


def standing(few: list[int], *, few_spin: bool, works: float = 1.0) -> np.ndarray:
    """(T, M, K): a job that comes to stand, its GPUs in two camps: those that spin, and those that rest. works: of its usual work, that the
    camp which spins does."""
    values_TMK = np.concatenate([healthy(ROWS, machines=12), np.full((ROWS, 12, 1), 0.97)], axis=2)
    values_TMK[:, :, -1] -= np.random.default_rng(4).uniform(0.0, 0.02, (ROWS, 12))
    few_M = np.isin(np.arange(12), few)
    rests_M = ~few_M if few_spin else few_M
    values_TMK[BEGAN:, rests_M, : len(WORKS)] *= AT_REST
    values_TMK[BEGAN:, rests_M, -1] *= 0.02
    values_TMK[BEGAN:, ~rests_M, : len(WORKS)] *= works * np.ones(4) if works < 1.0 else WAITS
    return values_TMK


@pytest.mark.parametrize("few_spin", [True, False])
@pytest.mark.parametrize("few", [[5], [5, 6, 7]])
def test_of_two_camps_of_a_standing_job_the_few_are_named(few: list[int], few_spin: bool) -> None:
    """A machine whose kernel hangs spins while all others' processes have given up; or a stage has crashed, and all others spin for it."""
    stages = {f"m{m:02d}": m in (5, 6, 7) for m in range(12)}
    found = watch(standing(few, few_spin=few_spin), stages if len(few) > 1 else None, SPINS)[0]
    assert {(machine, verdict.kind) for verdict in found for machine in verdict.machines} == {
        (f"m{m:02d}", "group" if len(few) > 1 else "machine") for m in few
    }
    assert found[0].time_s - 1.7e9 - 5.0 * BEGAN <= 180.0
    assert all(piece.expected is None or np.isfinite(piece.expected) for piece in found[0].evidence)


def test_one_machine_that_works_while_all_others_rest_evaluates_for_all() -> None:
    assert watch(standing([5], few_spin=True, works=0.95), metrics=SPINS)[0] == []


def test_a_broken_duty_cycle_makes_no_camp() -> None:
    """By all else that its GPUs do the machine rests as the others do."""
    values_TMK = standing([], few_spin=True)
    values_TMK[BEGAN:, 5, -1] = 0.97 - np.random.default_rng(5).uniform(0.0, 0.02, ROWS - BEGAN)
    assert watch(values_TMK, metrics=SPINS)[0] == []


def test_errors_of_one_link_go_on_telling_while_the_job_rests() -> None:
    metrics = (*METRICS[:5], "link_errors_per_second", "gpu_duty_cycle_ratio")
    values_TMK = standing([], few_spin=True)
    values_TMK[:BEGAN, :, -1], values_TMK[:, :, 5] = 0.97, 0.0
    values_TMK[BEGAN - 6 :, 5, 5] = 40.0
    found = watch(values_TMK, metrics=metrics)[0]
    assert {verdict.machines for verdict in found} == {("m05",)}
    assert found[0].time_s - 1.7e9 - 5.0 * BEGAN <= 150.0


def test_a_capped_clock_that_repeats_itself_is_a_reading() -> None:
    """The same digit in every sample: no stuck sensor, for it has just fallen while its peers stayed."""
    values_TMK = healthy(ROWS)
    values_TMK[BEGAN:, 2, at("gpu_clock_hertz")] = 1.46e9
    assert [(machines, tier) for machines, tier in named(values_TMK)] == [(("m02",), "page")]


def test_a_stuck_clock_that_its_peers_move_away_from_is_none() -> None:
    values_TMK = healthy(ROWS)
    values_TMK[BEGAN:, :, at("gpu_clock_hertz")] *= 1.15
    values_TMK[BEGAN:, 2, at("gpu_clock_hertz")] = 1.7e9
    assert named(values_TMK) == []


def test_a_clock_that_falls_in_a_job_that_swings_without_end_is_named() -> None:
    """It works for 20 s and hardly works for 20 s: no level is usual, and the clock rates of all stay where they are."""
    values_TMK = healthy(ROWS)
    values_TMK[np.arange(ROWS) % 8 >= 4] *= np.where(np.isin(np.arange(len(METRICS)), WORKS), 0.3, 1.0)
    healthy_TMK = values_TMK.copy()
    values_TMK[BEGAN:, 2, at("gpu_clock_hertz")] *= 0.85
    assert [machines for machines, _ in named(values_TMK)] == [("m02",)]
    assert named(healthy_TMK) == []


@pytest.mark.parametrize("congests, machines", [(3.0, [("m05",)]), (1.0, [])], ids=["sent again", "corrected"])
def test_errors_at_one_port_are_named_where_they_cost_something(congests: float, machines: list[tuple[str, ...]]) -> None:
    """The job rests and works in turns, and no level is usual."""
    values_TMK = np.concatenate([healthy(ROWS), np.random.default_rng(5).poisson(0.2, (ROWS, 8, 1))], axis=2)
    values_TMK[np.arange(ROWS) % 12 >= 4] *= np.append(np.where(np.isin(np.arange(len(METRICS)), WORKS), 0.02, 1.0), 1.0)
    values_TMK[BEGAN:, 5, -1] += 4.0
    values_TMK[BEGAN:, 5, at("ecn_packets_per_second")] *= congests
    assert [names for names, _ in named(values_TMK, (*METRICS, "link_errors_per_second"))] == machines


@pytest.mark.parametrize("wanders", [False, True], ids=["as ever", "three times as many"])
def test_errors_that_a_port_has_always_had_name_no_machine(wanders: bool) -> None:
    """They are corrected: a job that is slowed later is slowed by something else."""
    values_TMK = np.concatenate([healthy(ROWS), np.random.default_rng(5).poisson(0.1, (ROWS, 8, 1))], axis=2)
    values_TMK[:, 5, -1] += np.random.default_rng(6).poisson(9.0, ROWS)
    values_TMK[BEGAN:, 5, -1] *= np.exp(1.1 * np.sin(np.arange(ROWS - BEGAN) / 8.0)) if wanders else 1.0
    values_TMK[BEGAN:, :, WORKS] *= 0.7
    assert named(values_TMK, (*METRICS, "link_errors_per_second")) == []


@pytest.mark.parametrize(("errors", "congests", "machines"), [(1.1, 2.5, [("m05",)]), (1.1, 1.0, []), (0.0, 2.5, [])])
def test_few_errors_and_some_congestion_at_one_port_confirm_each_other(
    errors: float, congests: float, machines: list[tuple[str, ...]]
) -> None:
    values_TMK = np.concatenate([healthy(ROWS), np.random.default_rng(5).poisson(0.1, (ROWS, 8, 1))], axis=2)
    values_TMK[BEGAN:, 5, -1] += errors
    values_TMK[BEGAN:, 5, at("ecn_packets_per_second")] *= congests
    assert [names for names, _ in named(values_TMK, (*METRICS, "link_errors_per_second"))] == machines


def test_congestion_of_neighbours_adds_none_to_those_with_errors() -> None:
    values_TMK = np.concatenate([healthy(ROWS, machines=24), np.random.default_rng(5).poisson(0.1, (ROWS, 24, 1))], axis=2)
    values_TMK[BEGAN:, 6:9, -1] += 60.0
    values_TMK[BEGAN:, 6:11, at("ecn_packets_per_second")] *= np.array([9.0, 9.0, 9.0, 6.0, 6.0])
    values_TMK[BEGAN:, :, WORKS] *= 0.7
    found = named(values_TMK, (*METRICS, "link_errors_per_second"))
    assert [set(machines) for machines, _ in found] == [{"m06", "m07", "m08"}]


def test_clocks_of_a_third_of_a_job_that_rests_every_half_minute_are_known_and_named() -> None:
    """After each rest machines are given some seconds, and so most rows are of a rest or of these; clock rates are back with the work."""
    values_TMK = healthy(ROWS, machines=24)
    values_TMK[np.arange(ROWS) % 6 >= 4] *= np.where(np.isin(np.arange(len(METRICS)), WORKS), 0.02, 1.0)
    values_TMK[BEGAN:, :8, at("gpu_clock_hertz")] *= 0.75
    assert [set(machines) for machines, _ in named(values_TMK)] == [{f"m{m:02d}" for m in range(8)}]


def test_a_clock_that_falls_again_and_again_for_a_minute_is_named() -> None:
    values_TMK = healthy(ROWS + 40)
    for row in range(BEGAN, ROWS, 24):
        values_TMK[row : row + 14, 2, at("gpu_clock_hertz")] *= 0.85
    assert [machines for machines, _ in named(values_TMK)] == [("m02",)]


def test_more_patience_makes_what_convicts_by_minutes_as_much_slower() -> None:
    values_TMK = healthy(ROWS + 40)
    values_TMK[BEGAN:, 2, at("gpu_clock_hertz")] *= 0.8
    names, after = tuple(f"m{m:02d}" for m in range(values_TMK.shape[1])), {}
    window = Window(5.0 * np.arange(len(values_TMK)), names, METRICS, values_TMK, np.full(values_TMK.shape[:2], True))
    for patience_s in (45.0, 90.0, 180.0, 1e9):
        detector = DefaultDetector(config=DefaultConfig(patience_s=patience_s))
        over = [bool(detector.score(row)[0].score_M[2] >= patience_s) for row in rows_of(window)]
        after[patience_s] = 5.0 * (over.index(True) - BEGAN) if any(over) else None
    assert after[45.0] is not None and after[90.0] is not None and after[180.0] is not None
    assert 100.0 <= after[90.0] <= 150.0 and after[180.0] >= 220.0 and after[1e9] is None


def test_a_clock_that_comes_back_within_a_minute_is_forgotten() -> None:
    values_TMK = healthy(ROWS)
    values_TMK[BEGAN : BEGAN + 12, 2, at("gpu_clock_hertz")] *= 0.87
    assert named(values_TMK) == []


def test_a_machine_that_comes_back_late_from_a_rest_has_the_clock_rate_of_a_rest() -> None:
    values_TMK = healthy(ROWS + 20)
    idle_K = np.array([*AT_REST, 0.4])
    values_TMK[BEGAN : BEGAN + 30, :, :5] *= idle_K
    values_TMK[BEGAN + 30 : BEGAN + 56, 5, :5] *= idle_K
    assert named(values_TMK) == []


def named(values_TMK: np.ndarray, metrics: tuple[str, ...] = METRICS) -> list[tuple[tuple[str, ...], str]]:
    """(machines, tier) of each accusation, where all machines are of one stage."""
    return [(verdict.machines, verdict.tier) for verdict in watch(values_TMK, metrics=metrics)[0]]


HOLDS = (*SPINS, "gpu_memory_used_ratio")


def holding(few: list[int], *, few_spin: bool = False) -> np.ndarray:
    """The same, and each machine's GPU memory, which all go on holding."""
    values_TMK = standing(few, few_spin=few_spin)
    return np.concatenate([values_TMK, np.random.default_rng(6).uniform(0.70, 0.72, (*values_TMK.shape[:2], 1))], axis=2)


def test_a_machine_that_spins_while_all_others_have_rested_for_long_is_named() -> None:
    """They all rested when its kernel hung, in a phase that their hosts compute, so that it rested with them."""
    values_TMK = standing([], few_spin=True)
    values_TMK[BEGAN + 6 :, 5, : len(WORKS)] *= WAITS / AT_REST
    values_TMK[BEGAN + 6 :, 5, -1] *= 50.0
    assert named(values_TMK, SPINS) == [(("m05",), "page")]


def test_who_rests_while_its_own_stage_spins_and_another_stage_rests_is_named() -> None:
    stages = {f"m{m:02d}": m >= 8 for m in range(12)}
    values_TMK = standing([0, 1, 2, 3, 4, 5, 6, 7, 9], few_spin=False)
    assert {verdict.machines for verdict in watch(values_TMK, stages, SPINS)[0]} == {("m09",)}


@pytest.mark.parametrize("few", [[5], [1, 2, 5, 7, 8, 10]])
def test_who_has_let_go_of_its_memory_while_all_others_wait_is_named(few: list[int]) -> None:
    """All rest, or half of them: what they hold shows which half has died."""
    values_TMK = holding(few if len(few) > 1 else list(range(12)))
    values_TMK[BEGAN:, few, -1] = 0.02
    found = watch(values_TMK, metrics=HOLDS)[0]
    assert {(machine, verdict.tier) for verdict in found for machine in verdict.machines} == {(f"m{m:02d}", "page") for m in few}


@pytest.mark.parametrize(("apart", "back"), [(1, 200), (3, 100)])
def test_a_job_that_ends_or_restarts_one_by_one_has_no_first_to_let_go_of_its_memory(apart: int, back: int) -> None:
    values_TMK = holding(list(range(12)))
    for m in range(12):
        values_TMK[BEGAN + m * apart : back + m * apart, m, -1] = 0.02
        values_TMK[back + m * apart :, m, :-1] = values_TMK[:BEGAN, m, :-1][: max(0, ROWS - back - m * apart)]
    assert named(values_TMK, HOLDS) == []


def test_a_memory_gauge_that_breaks_frees_none() -> None:
    """Its machine works on, and rests only with all others."""
    values_TMK = holding(list(range(12)))
    values_TMK[: BEGAN + 10, :, :-1] = holding([])[: BEGAN + 10, :, :-1]
    values_TMK[BEGAN - 20 : BEGAN + 10, :, :-1] = values_TMK[:30, :, :-1]
    values_TMK[BEGAN - 20 :, 5, -1] = 0.007
    assert named(values_TMK, HOLDS) == []


@pytest.mark.parametrize(("more", "machines"), [(1.14, {("m05",)}), (1.02, set())])
def test_whose_gpus_alone_draw_another_power_in_a_job_that_stands_is_named(more: float, machines: set[tuple[str, ...]]) -> None:
    """The others wait in the same way: its kernel hangs."""
    values_TMK = standing([], few_spin=False)
    values_TMK[BEGAN:, 5, at("gpu_power_draw_watts")] *= more
    assert {verdict.machines for verdict in watch(values_TMK, metrics=SPINS)[0]} == machines
