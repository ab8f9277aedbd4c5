"""What healthy clusters do: each nuisance is there when it is asked for, is what it says, and harms nobody's truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.nuisances import HELD_OUT, NUISANCES
from minder.simulate.cluster.recipe import NUISANCE_KINDS, load_recipe, recipe_names


def one(kind: str) -> dict[str, Any]:
    return {"nuisances": {"kinds": (kind,), "count": (1, 1)}}


def test_a_recipe_may_name_the_nuisances_that_there_are() -> None:
    assert tuple(NUISANCES) == NUISANCE_KINDS


def test_held_out_kinds_are_in_held_out_recipes_only() -> None:
    """Detector authors may tune on every recipe that does not say held_out."""
    secret_faults = {kind for kind, fault in FAULTS.items() if fault.held_out}
    for name in recipe_names():
        rules = load_recipe(name)
        if not rules.held_out:
            assert not set(rules.faults.kinds) & secret_faults, name
            assert not set(rules.nuisances.kinds) & set(HELD_OUT), name
    shown = {kind for name in recipe_names() for kind in load_recipe(name).nuisances.kinds}
    assert shown == set(NUISANCES)


@pytest.mark.parametrize("kind", NUISANCES)
def test_a_nuisance_changes_the_recording_and_accuses_nobody(kind: str, grid: Callable[..., Any]) -> None:
    plain, changed = grid(), grid(**one(kind))
    assert changed.made.scene.nuisances == (kind,)
    assert changed.made.truth.fault is None and changed.made.truth.machine is None
    same = np.array_equal(plain.made.rows.values_RK, changed.made.rows.values_RK, equal_nan=True)
    assert same == (kind == "late_dark")  # there is no fault here after which peers could leave


def test_the_skewed_clock_is_one_machine_by_seconds(grid: Callable[..., Any]) -> None:
    made, plain = grid(**one("skewed_clock")).made, grid().made
    late_M = np.array(
        [made.rows.time_R[made.rows.machine_R == m].min() - plain.rows.time_R[plain.rows.machine_R == m].min() for m in range(8)]
    )
    assert np.count_nonzero(late_M) == 1 and 3_000 <= np.abs(late_M).max() <= 15_000


def test_an_outage_silences_everybody_and_a_dead_exporter_one(grid: Callable[..., Any]) -> None:
    outage, exporter = grid(**one("outage")), grid(**one("dead_exporter"))
    dark_TM = outage.made.scene.silent_TM
    assert dark_TM.all(axis=1).sum() >= 30 and (dark_TM.all(axis=1) == dark_TM.any(axis=1)).all()
    assert exporter.made.scene.silent_TM.any(axis=0).sum() == 1
    assert exporter.made.scene.wait_TM.max() == 0.0  # its machine trains on, and so does everybody


def test_a_stuck_sensor_repeats_itself(grid: Callable[..., Any]) -> None:
    made = grid(**one("stuck_sensor")).made
    machine, metric, first, last = made.scene.frozen[0]
    inside = (made.rows.machine_R == machine) & (made.rows.time_R > 1000 * first + 1000) & (made.rows.time_R < 1000 * last - 1000)
    assert inside.sum() > 30 and np.ptp(made.rows.values_RK[inside, metric]) == 0.0


def test_an_evaluation_idles_all_but_one_stage(grid: Callable[..., Any]) -> None:
    found = grid(job={"machines": (8, 8), "pipeline": (4,)}, **one("evaluation"))
    (phase,) = [phase for phase in found.made.scene.phases if phase.name == "evaluation"]
    work_M = np.nanmedian(found.of("gpu_sm_activity_ratio")[int(phase.begin_s) + 5 : int(phase.end_s) - 5], axis=0)
    busy_M = work_M > 0.5 * work_M.max()
    assert set(found.made.scene.shape.stage_M[busy_M]) == {found.made.scene.shape.stage_M[np.argmax(work_M)]} and busy_M.sum() == 2


def test_a_restart_brings_machines_back_one_by_one(grid: Callable[..., Any]) -> None:
    found = grid(**one("restart"))
    (phase,) = [phase for phase in found.made.scene.phases if phase.name == "restart"]
    memory_TM = found.of("gpu_memory_used_ratio")
    down_TM = memory_TM[int(phase.begin_s) : int(phase.end_s)] < 0.2 * np.nanmedian(memory_TM)
    assert down_TM.any(axis=0).all() and len(set(down_TM.sum(axis=0).tolist())) > 3


def test_a_link_flap_heals_within_seconds(grid: Callable[..., Any]) -> None:
    found = grid(**one("link_flap"))
    traffic_TM = found.of("rdma_throughput_bytes_per_second")[:600]
    low_T = np.nanmedian(traffic_TM, axis=1) < 0.3 * np.nanmedian(traffic_TM)
    assert 1 <= low_T.sum() <= 25
    assert {signal.kind for signal in found.made.scene.signals} == {"link"}


def test_activity_that_wanders_leaves_no_machine_behind(grid: Callable[..., Any]) -> None:
    """Over the recording the machines' averages stay together, although at times they lie well apart."""
    steady = {"duration_s": (1800.0, 1800.0), "job": {"step_s": (0.5, 0.6), "contrast": (0.3, 0.3)}}
    found = grid(**steady, **one("wander"))
    work_TM = found.of("gpu_sm_activity_ratio")[:1800]
    relative_TM = work_TM / np.nanmedian(work_TM, axis=1, keepdims=True)
    calm = grid(**steady).of("gpu_sm_activity_ratio")[:1800]
    calm_TM = calm / np.nanmedian(calm, axis=1, keepdims=True)
    assert np.nanstd(relative_TM) > 1.3 * np.nanstd(calm_TM)
    assert np.nanstd(np.nanmean(relative_TM, axis=0)) < 0.6 * np.nanstd(relative_TM)


@pytest.mark.parametrize("kind", ["warm_slot", "sidecar", "page_cache"])
def test_a_lasting_change_stays_and_slows_nobody(kind: str, grid: Callable[..., Any]) -> None:
    metric = {"warm_slot": "gpu_temperature_celsius", "sidecar": "cpu_usage_ratio", "page_cache": "memory_usage_ratio"}[kind]
    found, calm = grid(**one(kind)), grid()
    ratio_TM = found.of(metric)[:600] / calm.of(metric)[:600]
    end_M = np.nanmedian(ratio_TM[-30:], axis=0)
    assert np.count_nonzero(np.abs(end_M - 1.0) > 1e-3) == 1 and end_M.max() > 1.01
    assert np.array_equal(found.of("gpu_power_draw_watts"), calm.of("gpu_power_draw_watts"), equal_nan=True)


def test_peers_of_a_stall_go_dark_minutes_later(grid: Callable[..., Any]) -> None:
    found = grid("hang", job={"machines": (24, 24)}, duration_s=(900.0, 900.0), **one("late_dark"))
    scene = found.made.scene
    late_M = scene.silent_TM.any(axis=0) | (scene.mode_TM[-1] >= 0)
    assert late_M.any() and not late_M[found.culprit]
    assert not scene.silent_TM[: found.onset + 140].any()
