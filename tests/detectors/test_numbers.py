"""detector.toml: every hand-set number is used, says what it is and where it comes from, and a bad one is refused in one line."""

from __future__ import annotations

import ast
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.detectors import numbers as read
from minder.diagnose.detectors.numbers import read_sections, record_of
from minder.diagnose.detectors.traits import trait_of
from minder.model.errors import ConfigError
from minder.model.metrics import find_metric

MODULES = [name for name in read_sections() if name not in ("sources", "default", "metrics")]
PACKAGE = Path(read.__file__).parent
TEXTS = {path.stem: path.read_text() for path in PACKAGE.glob("*.py")}


@dataclass(frozen=True, slots=True)
class _Numbers:
    least_s: float
    fewest: int


def entry(value: Any) -> dict[str, Any]:
    return {"value": value, "unit": "s", "what": "a number", "source": "first"}


@pytest.mark.parametrize("section", MODULES)
def test_every_number_is_used_where_it_stands_or_by_those_who_ask_for_it(section: str) -> None:
    used = {
        name for module, text in TEXTS.items() for name in re.findall(rf"\b_{'N' if module == section else section.upper()}\.(\w+)", text)
    }
    assert set(read_sections()[section]) == used


@pytest.mark.parametrize("section", MODULES)
def test_no_number_is_copied_while_modules_are_loaded(section: str) -> None:
    """A record is one for all modules, so that leaving a number out (bench/ablation.py) reaches all who read it."""
    for statement in ast.parse(TEXTS[section]).body:
        parts = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        read_now = [node for part in parts if not isinstance(part, (ast.FunctionDef, ast.ClassDef)) for node in ast.walk(part)]
        records = [node.value.id for node in read_now if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
        assert [name for name in records if re.fullmatch("_[A-Z_]+", name)] == []


def test_every_setting_is_used_by_a_stage() -> None:
    text = "\n".join(TEXTS.values())
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


GOOD = {name: entry(value["value"]) for name, value in read_sections()["default"].items()}


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (GOOD | {"patience_s": 90.0}, "[default] patience_s needs source, unit, value, what"),
        (
            GOOD | {"patience_s": {"unit": "s", "what": "a number", "source": "first"}},
            "[default] patience_s needs source, unit, value, what",
        ),
        (GOOD | {"patience_s": entry("90")}, "[default] patience_s is '90': give float"),
        ({name: given for name, given in GOOD.items() if name != "patience_s"}, "[default] lacks patience_s"),
        (90.0, "[default] is 90.0: it has patience_s"),
    ],
    ids=["no-table", "no-value", "text", "missing", "no-section"],
)
def test_a_bad_setting_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, section: Any, line: str) -> None:
    monkeypatch.setattr(read, "read_sections", lambda: {"default": section})
    with pytest.raises(ConfigError, match=r"\A" + re.escape("detector.toml: " + line) + r"\Z"):
        runpy.run_path(str(PACKAGE / "config.py"))


def test_a_file_that_is_no_toml_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "detector.toml").write_text("[default\n")
    monkeypatch.setattr(read, "files", lambda _: tmp_path)
    with pytest.raises(ConfigError, match=r"\Adetector.toml cannot be read: [^\n]+\Z"):
        read_sections.__wrapped__()


def test_a_good_section_is_read() -> None:
    assert record_of("lasting", _Numbers, {"least_s": entry(2.0), "fewest": entry(3)}) == _Numbers(2.0, 3)
