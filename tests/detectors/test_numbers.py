"""detector.toml: every hand-set number is used, says what it is and where it comes from, and a bad one is refused in one line."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

import pytest

from minder.diagnose.detectors.numbers import PATH, read_sections, record_of
from minder.diagnose.detectors.traits import trait_of
from minder.model.errors import ConfigError
from minder.model.metrics import find_metric

MODULES = [name for name in read_sections() if name not in ("sources", "default", "metrics")]
PACKAGE = PATH.parent


@dataclass(frozen=True, slots=True)
class _Numbers:
    least_s: float
    fewest: int


def entry(value: Any) -> dict[str, Any]:
    return {"value": value, "unit": "s", "what": "a number", "source": "first"}


@pytest.mark.parametrize("section", MODULES)
def test_every_number_is_used_by_its_module(section: str) -> None:
    text = importlib.import_module(f"minder.diagnose.detectors.{section}").__file__
    assert text is not None
    used = set(re.findall(r"_N\.(\w+)", (PACKAGE / f"{section}.py").read_text()))
    assert set(read_sections()[section]) == used


def test_every_setting_is_used_by_a_stage() -> None:
    text = "\n".join(path.read_text() for path in PACKAGE.glob("*.py"))
    assert [name for name in read_sections()["default"] if not re.search(rf"config\.{name}\b", text)] == []


def test_every_number_says_what_it_is_and_where_it_comes_from() -> None:
    sources, cited = read_sections()["sources"], set()
    for section in (*MODULES, "default"):
        for name, given in read_sections()[section].items():
            assert len(given["what"]) > 8 and given["unit"], f"{section}.{name}"
            cited.add(given["source"])
    assert cited == set(sources)


def test_every_metric_that_weighs_is_one_of_the_catalogue() -> None:
    for name in read_sections()["metrics"]:
        assert find_metric(name) is not None, name
        assert trait_of(name).weight > 0.0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"least_s": entry(2.0)}, "[lasting] lacks fewest: it has least_s, fewest"),
        ({"least_s": entry(2.0), "fewest": entry(3), "lest_s": entry(1.0)}, "[lasting] has no number lest_s: it has least_s, fewest"),
        ({"least_s": entry("2"), "fewest": entry(3)}, "[lasting] least_s is '2': give float"),
        ({"least_s": entry(2.0), "fewest": entry(True)}, "[lasting] fewest is True: give int"),
        ({"least_s": {"value": 2.0}, "fewest": entry(3)}, "[lasting] least_s needs source, unit, value, what"),
    ],
    ids=["missing", "unknown", "text", "truth", "undocumented"],
)
def test_a_bad_number_is_refused_in_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=r"\A" + re.escape("detector.toml: " + line) + r"\Z"):
        record_of("lasting", _Numbers, given)


def test_a_good_section_is_read() -> None:
    assert record_of("lasting", _Numbers, {"least_s": entry(2.0), "fewest": entry(3)}) == _Numbers(2.0, 3)
