"""A fault counts only where the telemetry shows it, by the world's twin and no detector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minder.model.telemetry import Window
from minder.offline.worlds.shown import is_shown


def healthy() -> Window:
    rng = np.random.default_rng(1)
    values_TMK = np.array([500.0, 0.6]) * np.exp(rng.normal(0, 0.02, (60, 5, 2)))
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio")
    return Window(10.0 * np.arange(60), tuple("abcde"), metrics, values_TMK, np.ones((60, 5), dtype=bool))


def changed(factor: float, machines: slice) -> Window:
    window = healthy()
    values_TMK = window.values_TMK.copy()
    values_TMK[30:, machines, 0] *= factor
    return replace(window, values_TMK=values_TMK)


def test_a_metric_that_leaves_its_twin_shows_the_fault() -> None:
    assert is_shown(changed(0.7, slice(1, 2)), healthy(), ("b",), 300.0)


def test_another_machine_does_not() -> None:
    assert not is_shown(changed(0.7, slice(1, 2)), healthy(), ("c",), 300.0)


@pytest.mark.parametrize("factor", [1.0, 0.995])
def test_less_than_the_metric_s_own_fluctuation_does_not(factor: float) -> None:
    assert not is_shown(changed(factor, slice(1, 2)), healthy(), ("b",), 300.0)


def test_what_all_machines_do_shows_none_of_them() -> None:
    assert not is_shown(changed(0.5, slice(0, 5)), healthy(), ("b",), 300.0)


def test_silence_shows_it_and_silence_of_all_does_not() -> None:
    def silent(machines: slice) -> Window:
        window = healthy()
        values_TMK, present_TM = window.values_TMK.copy(), window.present_TM.copy()
        values_TMK[30:, machines], present_TM[30:, machines] = np.nan, False
        return replace(window, values_TMK=values_TMK, present_TM=present_TM)

    assert is_shown(silent(slice(1, 2)), healthy(), ("b",), 300.0)
    assert not is_shown(silent(slice(0, 5)), healthy(), ("b",), 300.0)


def test_half_of_a_group_is_enough() -> None:
    assert is_shown(changed(0.7, slice(1, 2)), healthy(), ("b", "c"), 300.0)
    assert not is_shown(changed(0.7, slice(1, 2)), healthy(), ("b", "c", "d"), 300.0)


@pytest.mark.parametrize("with_spare", ["the fault's", "the twin's"])
def test_a_spare_that_only_one_of_the_two_has_is_not_compared(with_spare: str) -> None:
    def exchanged(window: Window) -> Window:
        values_TMK = np.insert(window.values_TMK, 0, 7.0, axis=1)
        return replace(
            window, machines=("0", *window.machines), values_TMK=values_TMK, present_TM=np.insert(window.present_TM, 0, True, axis=1)
        )

    for factor in (0.7, 1.0):
        faulty, twin = changed(factor, slice(1, 2)), healthy()
        pair = (exchanged(faulty), twin) if with_spare == "the fault's" else (faulty, exchanged(twin))
        assert is_shown(*pair, ("b",), 300.0) is (factor < 1.0)
        assert not is_shown(*pair, ("0",), 300.0)
