"""Rules for names that nobody told us: units from values, limits left aside, known names inside longer ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

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
    return {rule.metric: rule for rule in guess_rules(names, load_mapping("minder+dcgm+node"), reader(*found), have or set())}


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
