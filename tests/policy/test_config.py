from __future__ import annotations

from typing import Any

import pytest

from minder.act.policy import PolicyConfig
from minder.model.errors import ConfigError


def test_nothing_is_evicted_unless_somebody_says_so() -> None:
    assert PolicyConfig().dry_run is True


def test_an_unknown_key_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"policy\.max_eviction is not a setting: use one of dry_run, .*max_evictions_per_job"):
        PolicyConfig.from_mapping({"max_eviction": 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dry_run", "no"),
        ("dry_run", 0),
        ("max_restarts", -1),
        ("max_restarts", 1.5),
        ("max_evictions_per_hour", True),
        ("breaker_share", 0),
        ("breaker_share", 1.1),
        ("breaker_share", float("nan")),
        ("cooldown_s", -1),
        ("cooldown_s", "60"),
        ("response_s", float("inf")),
        ("cooldown_exempt", ("hang",)),
        ("domain_kinds", "rack"),
    ],
)
def test_a_value_without_sense_is_an_error_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"policy\.{name} is .*: give "):
        PolicyConfig.from_mapping({name: value})


def test_lists_from_a_file_are_taken() -> None:
    assert PolicyConfig.from_mapping({"domain_kinds": ["pdu"], "cooldown_exempt": []}).domain_kinds == ("pdu",)
