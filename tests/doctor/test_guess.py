"""Rules for names that nobody told us: units from values, limits left aside, known names inside longer ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from minder.doctor.guess import guess_rules
from minder.doctor.series import Found
from minder.ingest.sources.mapping import Rule, load_mapping


def reader(*series: Found) -> Callable[[str], Sequence[Found]]:
    return lambda pattern: [item for item in series if re.fullmatch(pattern, item.name)]


def series(name: str, value: float, **labels: str) -> Found:
    return Found(name, {"job": "x", "instance": "a:1", **labels}, value, 0.0)


def guess(*found: Found, have: set[str] | None = None) -> dict[str, Rule]:
    names = sorted({item.name for item in found})
    return {rule.metric: rule for rule in guess_rules(names, load_mapping("minder+dcgm+node"), reader(*found), have or set()).rules}


def test_percent_milliwatts_and_megahertz_become_base_units() -> None:
    rules = guess(
        series("acme_gpu_busy_pct", 87.0, card="0"), series("acme_gpu_busy_pct", 91.0, card="1"),
        series("acme_gpu_power_mw", 512_000.0), series("acme_gpu_sm_clock", 1980.0),
    )  # fmt: skip
    assert {name: rule.scale for name, rule in rules.items()} == {
        "gpu_duty_cycle_ratio": 0.01, "gpu_power_draw_watts": 0.001, "gpu_clock_hertz": 1e6,
    }  # fmt: skip
    assert (rules["gpu_duty_cycle_ratio"].device, rules["gpu_duty_cycle_ratio"].device_prefix) == ("card", "gpu")


@pytest.mark.parametrize("name", ["gpu_power_limit_watts", "gpu_max_power", "gpu_memory_temperature", "gpu_clock_throttle_reasons"])
def test_limits_and_other_parts_are_no_readings(name: str) -> None:
    assert guess(series(name, 50.0)) == {}


@pytest.mark.parametrize(
    "name", ["process_resident_memory_bytes", "kubernetes_volume_bytes", "library_cache_bytes", "prism_clock_skew", "planet_bytes"]
)
def test_words_inside_other_words_mean_nothing(name: str) -> None:
    """ "process" has "roce" in it: a real Prometheus' own memory became InfiniBand traffic."""
    assert guess(series(name, 1000.0)) == {}


def test_a_value_that_cannot_be_of_the_metric_makes_no_rule() -> None:
    assert guess(series("gpu_util", 1e9)) == {} == guess(series("gpu_temp", 3000.0))


def test_known_names_with_a_prefix_keep_their_whole_rule() -> None:
    rules = guess(series("infra_node_memory_MemAvailable_bytes", 1.0), series("infra_node_memory_MemTotal_bytes", 2.0))
    rule = rules["memory_usage_ratio"]
    assert (
        rule.series == ("infra_node_memory_MemAvailable_bytes",) and rule.over == ("infra_node_memory_MemTotal_bytes",) and rule.complement
    )
    assert guess(series("infra_node_memory_MemAvailable_bytes", 1.0)) == {}  # half of a ratio is none


def test_what_is_there_already_is_not_guessed_again() -> None:
    assert guess(series("gpu_util", 0.5), have={"gpu_duty_cycle_ratio"}) == {}


def doubted(*found: Found, **more: Any) -> list[str]:
    guess = guess_rules(sorted({item.name for item in found}), load_mapping("node"), reader(*found), set(), **more)
    assert not guess.rules
    return [doubt.why for doubt in guess.doubts]


def test_an_idle_reading_shows_no_unit_and_a_day_of_work_does() -> None:
    idle = series("rig_gpu_busy", 0.0, card="0")
    assert "read while idle" in doubted(idle)[0] and "read while idle" in doubted(series("rig_gpu_busy", 0.02, card="0"))[0]
    worked = guess_rules(["rig_gpu_busy"], load_mapping("node"), reader(idle), set(), highest=lambda name: [97.0])
    assert worked.rules[0].scale == 0.01


def test_a_power_draw_shows_that_a_whole_one_is_a_ratio() -> None:
    rules = guess(series("rig_gpu_busy", 1.0, card="0"), series("rig_gpu_power_watts", 640.0, card="0"))
    assert rules["gpu_duty_cycle_ratio"].scale == 1.0
    idle = guess(series("rig_gpu_busy", 1.0, card="0"), series("rig_gpu_power_watts", 64.0, card="0"))
    assert "gpu_duty_cycle_ratio" not in idle  # it may be one percent


def test_the_name_gives_the_unit_before_the_values_do() -> None:
    rules = guess(series("rig_gpu_util_percent", 0.4), series("rig_gpu_power_milliwatts", 900.0), series("rig_gpu_clock_ghz", 1.7))
    assert {name: rule.scale for name, rule in rules.items()} == {
        "gpu_duty_cycle_ratio": 0.01, "gpu_power_draw_watts": 0.001, "gpu_clock_hertz": 1e9,
    }  # fmt: skip


@pytest.mark.parametrize("device", ["npu", "mlu0", "dcu", "hl", "tpu", "accel", "accelerator", "xpu"])
def test_devices_that_are_not_called_gpu_are_found(device: str) -> None:
    rules = guess(series(f"{device}_utilization_percent", 90.0, index="0"), series(f"{device}_power_watts", 300.0, index="0"))
    assert set(rules) == {"gpu_duty_cycle_ratio", "gpu_power_draw_watts"}


def test_one_series_makes_one_metric_and_a_counter_is_no_gauge() -> None:
    names = [
        series("rig_gpu_power_usage_percent", 80.0),
        series("rig_gpu_mem_copy_util_percent", 10.0),
        series("rig_gpu_util_seconds", 5.0),
    ]
    taken = [name for rule in guess(*names).values() for name in rule.series]
    assert len(taken) == len(set(taken)) and "rig_gpu_power_usage_percent" not in taken
    declared = guess_rules(["rig_gpu_temp"], load_mapping("node"), reader(series("rig_gpu_temp", 40.0)), set(), {"rig_gpu_temp": "counter"})
    assert declared.rules == ()


def test_words_of_a_host_are_believed_only_beside_a_machines_own_metrics() -> None:
    alone = series("app_cpu_usage", 0.4)
    assert guess(alone) == {}
    beside = guess(series("box_cpu_usage_percent", 40.0), series("box_gpu_power_watts", 300.0, card="0"))
    assert set(beside) == {"cpu_usage_ratio", "gpu_power_draw_watts"}
