"""The Prometheus rules: valid, proven by promtool's own unit tests, each with its section in the runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from minder.model.metrics import CATALOGUE

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "serve/deploy/prometheus"
RUNBOOK = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
DOCUMENTED = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((FOLDER / "minder.rules.yml").read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def section_of(alert: str) -> str:
    found = re.search(rf"^## {alert}\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert found, f"docs/runbook.md has no section {alert}"
    return found[1]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_its_section_in_the_runbook_and_a_link_to_it(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["runbook_url"].endswith(f"/runbook.html#{alert.lower()}")
    section = section_of(alert)
    assert re.findall(r"^- \*\*(\w+)\*\*: \S", section, re.MULTILINE) == ["Meaning", "Look", "Do", "Undo"]


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"^## (Minder\w+)$", RUNBOOK, re.MULTILINE)) == set(ALERTS)


def test_rules_ask_for_metrics_that_exist() -> None:
    own = {f"minder_{metric.name}" for metric in CATALOGUE}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        plain = re.sub(r'"[^"]*"', "", rule["expr"])
        for name in re.findall(r"\bminder[_:][\w:]+", plain):
            stem = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in recorded or f"`{stem}`" in DOCUMENTED or name in own, (rule.get("alert", rule.get("record")), name)


def test_the_unit_tests_let_every_alert_fire() -> None:
    """What promtool proves below is no more than what is written there."""
    worlds = yaml.safe_load((FOLDER / "minder.rules.test.yml").read_text())["tests"]
    fired = {re.search(r'alertname="(\w+)"', sample["labels"])[1] for sample in worlds[1]["promql_expr_test"][0]["exp_samples"]}
    assert fired == set(ALERTS)
    assert [check["exp_samples"] for check in worlds[0]["promql_expr_test"][:2]] == [[], []]


@pytest.mark.server("promtool")
def test_promtool_finds_the_rules_right_and_their_unit_tests_hold(tmp_path: Path) -> None:
    for command in (
        ["check", "rules", "minder.rules.yml"],
        ["test", "rules", "minder.rules.test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ):
        done = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    # a rule that is wrong is found: what passes above was looked at
    broken = (FOLDER / "minder.rules.yml").read_text().replace("minder_controller_undecided > 0", "minder_controller_undecided > 100")
    shutil.copy(FOLDER / "minder.rules.test.yml", tmp_path)
    (tmp_path / "minder.rules.yml").write_text(broken)
    done = subprocess.run(
        ["promtool", "test", "rules", "minder.rules.test.yml"], cwd=tmp_path, capture_output=True, check=False, timeout=240
    )
    assert done.returncode != 0 and b"MinderConclusionsWait" in done.stdout + done.stderr
