"""What no exporter should send, through alignment, the default detector, its rule and the judge: nobody is accused for it, nothing breaks,
and a real fault beside it is still found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import Aligner, align_columns, rows_of
from minder.model.evidence import Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Sample, Window

METRICS = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second", "pfc_tx_packets_per_second")
LEVEL_K = np.array([500.0, 0.6, 1e11, 50.0])
STEP_S, ROWS, SICK_ROW = 10.0, 75, 45
START_S = 1_772_430_000.0


@dataclass(frozen=True)
class Columns:
    """Samples as `align_columns` takes them."""

    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    machines: tuple[str, ...]
    devices: tuple[str, ...] = ()
    metrics: tuple[str, ...] = METRICS


def columns(machines: int = 6, sick: int | None = None) -> Columns:
    """Samples of healthy machines, in time order; machine `sick` works at a third from row 45 on, and everybody waits for it."""
    rng = np.random.default_rng(3)
    values_TMK = LEVEL_K * np.exp(rng.normal(0, [0.02, 0.02, 0.03, 0.3], (ROWS, machines, 4)))
    if sick is not None:
        values_TMK[SICK_ROW:, :, :3] *= 0.6
        values_TMK[SICK_ROW:, sick, :3] *= 0.4
    times_TM = START_S + STEP_S * np.arange(ROWS)[:, None] + rng.uniform(0, STEP_S, machines)
    index_TM = np.broadcast_to(np.arange(machines), (ROWS, machines))
    order = np.argsort(times_TM.ravel(), kind="stable")
    return Columns(
        times_TM.ravel()[order], index_TM.ravel()[order], np.full(times_TM.size, -1), values_TMK.reshape(-1, 4)[order],
        tuple(f"node-{m}" for m in range(machines)),
    )  # fmt: skip


def accused(window: Window) -> list[Verdict]:
    judge = Judge([TelemetryRule(DefaultDetector())])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind != "recovered"]


def named(given: Columns) -> set[tuple[str, ...]]:
    return {verdict.machines for verdict in accused(align_columns(given, STEP_S))}


def change(given: Columns, machine: int, edit: Callable[[np.ndarray], np.ndarray], rows: slice = slice(None)) -> Columns:
    """One machine's values edited, in these of its rows."""
    values_NK = given.values_NK.copy()
    mine = np.flatnonzero(given.machine_N == machine)[rows]
    values_NK[mine] = edit(values_NK[mine])
    return replace(given, values_NK=values_NK)


def move(given: Columns, machine: int, seconds: float, from_row: int) -> Columns:
    """One machine's stamps are off from a row on."""
    times_N = given.times_N.copy()
    times_N[np.flatnonzero(given.machine_N == machine)[from_row:]] += seconds
    return replace(given, times_N=times_N)


def test_the_scene_has_a_fault_that_is_found_and_is_quiet_without() -> None:
    assert named(columns(sick=2)) == {("node-2",)}
    assert named(columns()) == set()


@pytest.mark.parametrize("machines", [1, 2])
def test_one_or_two_machines_accuse_nobody(machines: int) -> None:
    assert named(columns(machines, sick=0)) == set()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 0.0, 500.0])
def test_all_metrics_missing_infinite_or_constant_accuse_nobody(value: float) -> None:
    given = columns()
    assert named(replace(given, values_NK=np.full_like(given.values_NK, value))) == set()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_one_machine_with_meaningless_values_is_not_accused_and_hides_no_fault(value: float) -> None:
    assert named(change(columns(), 4, lambda old: np.full_like(old, value), slice(40, None))) == set()
    assert named(change(columns(sick=2), 4, lambda old: np.full_like(old, value), slice(40, None))) == {("node-2",)}


def test_gauges_that_freeze_are_no_data() -> None:
    assert named(change(columns(), 1, lambda old: np.broadcast_to(old[0], old.shape), slice(30, None))) == set()


@pytest.mark.parametrize("from_row", [0, 40])
@pytest.mark.parametrize(
    "seconds", [-3600.0, 3e8, *(pytest.param(seconds, marks=pytest.mark.release) for seconds in (-1e9, 3600.0, 86400.0))]
)
def test_a_clock_that_is_off_or_jumps_accuses_nobody_and_costs_no_grid_of_years(seconds: float, from_row: int) -> None:
    moved = move(columns(), 3, seconds, from_row)
    window = align_columns(moved, STEP_S)
    assert len(window.times_T) < 4 * ROWS
    assert accused(window) == []


def test_rows_out_of_order_and_duplicates_change_nothing() -> None:
    given = columns(sick=2)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(given.times_N)), 2))
    shuffled = replace(given, times_N=given.times_N[order], machine_N=given.machine_N[order], device_N=given.device_N[order],
                       values_NK=given.values_NK[order])  # fmt: skip
    np.testing.assert_array_equal(align_columns(shuffled, STEP_S).values_TMK, align_columns(given, STEP_S).values_TMK)
    assert named(shuffled) == {("node-2",)}


@pytest.mark.parametrize("names", [("", " ", "node-2", "nöde\n", "x" * 500, "'; --"), ("a", "a ", "A", "{", "\0", "gpu0")])
def test_odd_labels_are_only_names(names: tuple[str, ...]) -> None:
    assert named(replace(columns(sick=2), machines=names)) == {(names[2],)}


def test_machines_that_the_job_does_not_have_are_ignored() -> None:
    given = columns(7, sick=6)
    assert accused(align_columns(given, STEP_S, given.machines[:6])) == []


@pytest.mark.parametrize("joins", [True, False])
def test_a_machine_that_joins_or_leaves_is_not_accused(joins: bool) -> None:
    given = columns()
    mine = given.machine_N == 5
    late = given.times_N > START_S + 400.0
    kept = ~mine | (late if joins else ~late)
    parts = {name: getattr(given, name)[kept] for name in ("times_N", "machine_N", "device_N", "values_NK")}
    assert named(replace(given, **parts)) == set()


def streamed(edit: Callable[[str, float], float]) -> tuple[set[tuple[str, ...]], Aligner]:
    """A healthy job through the streaming aligner, node-1's values edited from row 40 on (by metric and value)."""
    given = columns()
    aligner = Aligner(given.machines, STEP_S, METRICS)
    judge = Judge([TelemetryRule(DefaultDetector())])
    found: set[tuple[str, ...]] = set()
    for time_s, m, values_K in zip(given.times_N, given.machine_N, given.values_NK, strict=True):
        spoiled = m == 1 and time_s > START_S + 400.0
        values = {name: edit(name, float(v)) if spoiled else float(v) for name, v in zip(METRICS, values_K, strict=True)}
        aligner.push([Sample(float(time_s), given.machines[m], values)])
        window = aligner.pop(float(time_s))
        if window is not None:
            found |= {verdict.machines for verdict in judge.judge(Observation(float(time_s), window))[0]}
    return found, aligner


def test_a_counter_that_runs_backwards_gives_gaps() -> None:
    found, aligner = streamed(lambda name, value: -value)
    assert found == set()
    assert aligner.losses.out_of_range > 0


def test_a_metric_whose_unit_changes_is_dropped_with_a_note() -> None:
    found, aligner = streamed(lambda name, value: 100.0 * value if name == "gpu_sm_activity_ratio" else value)
    assert found == set()
    assert any("gpu_sm_activity_ratio" in note for note in aligner.notes())
