"""One page of thresholds: each with a unit in its name and a source, and the document shows the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from minder.diagnose.job_mode.thresholds import ACTIVITY_FLOORS, THRESHOLDS
from minder.model.metrics import find_metric

UNITS = ("_s", "_steps", "_rows", "_gaps", "_share", "_times", "_power")
RULES = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def test_every_threshold_has_its_unit_in_its_name_and_a_source() -> None:
    assert [item.name for item in fields(THRESHOLDS) if not item.name.endswith(UNITS)] == []
    assert [item.name for item in fields(THRESHOLDS) if not item.metadata.get("source")] == []


def test_the_document_shows_the_thresholds_as_they_are() -> None:
    documented = dict(re.findall(r"^\| `([a-z0-9_]+)` \| ([0-9.]+) \| ", RULES.read_text(), re.MULTILINE))
    assert documented == {item.name: f"{getattr(THRESHOLDS, item.name):g}" for item in fields(THRESHOLDS)}


def test_shares_are_parts_of_one_and_nothing_is_negative() -> None:
    values = {item.name: getattr(THRESHOLDS, item.name) for item in fields(THRESHOLDS)}
    assert [name for name, value in values.items() if value <= 0 or (name.endswith("_share") and value >= 1)] == []


def test_activity_is_read_from_metrics_that_exist() -> None:
    assert [name for name in ACTIVITY_FLOORS if find_metric(name) is None] == []
