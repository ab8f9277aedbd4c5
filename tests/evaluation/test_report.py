"""The report of hand-made cases: who was named when, by kind and size, healthy time, and files that need nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

from minder.ingest.sources.events import Truth
from minder.model.evidence import Tier, Verdict
from minder.offline.evaluation.cases import Case, Facts, case_of
from minder.offline.evaluation.evaluate import Evaluation
from minder.offline.evaluation.page import write_report
from minder.offline.evaluation.report import build_report, evaluation_table

START_S, ONSET_S = 1_772_431_200.0, 1_772_431_800.0


def verdict(after_s: float, machine: str, tier: Tier = "evict", confidence: float = 0.9) -> Verdict:
    return Verdict(ONSET_S + after_s, "machine", tier, (machine,), "stall", confidence, ONSET_S)


def case(name: str, *verdicts: Verdict, fault: str | None = "hang", machines: int = 8) -> Case:
    truth = Truth(name, fault, "m1", ONSET_S, ("m1",)) if fault else Truth(name)
    return case_of(truth, Facts(machines, START_S, START_S + 86_400.0, 1.0, 19), verdicts, f"/nowhere/{name}")


CASES = (
    case("a", verdict(12.0, "m1")),
    case("b", verdict(40.0, "m1"), machines=96),
    case("c", verdict(20.0, "m2", confidence=0.75), verdict(60.0, "m1"), fault="nic_dropout"),
    case("d", fault="nic_dropout", machines=4000),
    case("e", fault=None),
    case("f", verdict(0.0, "m3", "page"), fault=None),
)


def test_the_report_tells_everything_that_was_asked_for() -> None:
    report = build_report(Evaluation("default", CASES, ("r9 has no truth",)))
    summary = report["summary"]
    assert (summary["found"], summary["wrong"], summary["missed"], summary["quiet"]) == (2, 2, 1, 1)
    assert (summary["precision"]["value"], summary["recall"]["value"]) == (0.5, 0.5)
    assert report["delay_s"]["all"] == [12.0, 40.0]
    kinds = {row["group"]: row for row in report["by_kind"]}
    assert (kinds["hang"]["recall"], kinds["nic_dropout"]["recall"], kinds["healthy"]["recall"]) == (1.0, 0.0, None)
    assert [row["group"] for row in report["by_size"]] == ["5 to 16", "65 to 256", "over 1024"]
    named = {item["recording"]: [(each["machines"], each["after_s"]) for each in item["accusations"]] for item in report["confusions"]}
    assert named == {"c": [(["m2"], 20.0), (["m1"], 60.0)], "d": [], "f": [(["m3"], None)]}
    assert report["problems"] == ["r9 has no truth"]
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_healthy_time_counts_also_before_an_onset() -> None:
    healthy = build_report(Evaluation("default", CASES))["healthy"]
    before = (ONSET_S - START_S) / 86_400.0
    assert abs(healthy["machine_days"] - (8 + 8 + before * (8 + 96 + 8 + 4000))) < 1e-9
    assert healthy["false_alarms"] == 1
    early = case_of(Truth("x", "hang", "m1", ONSET_S), Facts(2, START_S, ONSET_S, 1.0, 3), [verdict(-30.0, "m1")], "x")
    assert (early.judged.outcome, early.false_alarms) == ("wrong", 1)


def test_the_table_names_each_confusion_in_a_line() -> None:
    table = evaluation_table(build_report(Evaluation("default", CASES)))
    assert "c: nic_dropout on m1; named m2 20 s after the onset (0.75, stall); m1 60 s after the onset (0.90, stall)" in table
    assert "d: nic_dropout on m1; no machine was named" in table
    assert "nan" not in table


def test_the_table_says_how_often_a_confidence_was_right() -> None:
    table = evaluation_table(build_report(Evaluation("default", CASES)))
    lines = [line.split() for line in table.splitlines()]
    assert ["0.70", "to", "0.80", "1", "0.75", "0.00", "0.00", "to", "0.79"] in lines  # c named the wrong machine
    assert ["0.90", "to", "0.95", "3", "0.90", "0.67", "0.21", "to", "0.94"] in lines  # a and b right, f healthy
    assert "expected calibration error 0.363, Brier 0.348" in table
    assert "confidence" not in evaluation_table(build_report(Evaluation("default", CASES[3:5])))


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    report = build_report(Evaluation("<b>odd</b>", CASES, ("line <script>",)))
    files = write_report(report, tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r"<script|<link|(?:src|href)=\"(?!data:)", text)
    assert "&lt;b&gt;odd" in text and text.count("data:image/png;base64,") == 4
    assert json.loads((tmp_path / "out" / "report.json").read_text())["recordings"] == 6
    pictures = [path for path in files if path.suffix == ".png"]
    assert pictures and all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_an_evaluation_of_nothing_is_still_a_report(tmp_path: Path) -> None:
    report = build_report(Evaluation("default", (), ("all is lost",)))
    assert report["summary"]["f1"]["value"] is None
    write_report(report, tmp_path)
    assert "all is lost" in (tmp_path / "report.html").read_text()
