"""What an evaluation found, as one JSON document and as a table for reading. NaN is null in the document."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from minder.model.clock import format_time
from minder.offline.evaluation.cases import Case
from minder.offline.evaluation.evaluate import Evaluation
from minder.offline.evaluation.intervals import bootstrap, poisson_upper, wilson
from minder.offline.evaluation.reliability import measure_reliability
from minder.offline.evaluation.scoring import LIMIT_S, summarise

__all__ = ["build_report", "confusion_line", "evaluation_table", "finite"]

_SIZE_ORDER = ("up to 4", "5 to 16", "17 to 64", "65 to 256", "257 to 1024", "over 1024")


def build_report(evaluation: Evaluation) -> dict[str, Any]:
    """The whole report: summary, delay, healthy time, by kind, by size, confusions, reliability, problems, and every recording."""
    cases = evaluation.cases
    found = {
        "detector": evaluation.detector,
        "recordings": len(cases),
        "limit_s": LIMIT_S,
        "summary": _summary(cases),
        "delay_s": _delays(cases),
        "healthy": _healthy(cases),
        "by_kind": _grouped(cases, lambda case: case.kind),
        "by_size": sorted(_grouped(cases, lambda case: case.size), key=lambda row: _SIZE_ORDER.index(row["group"])),
        "confusions": [_case(case) for case in cases if case.judged.outcome in ("wrong", "missed")],
        "reliability": asdict(measure_reliability([case.judged for case in cases])),
        "problems": list(evaluation.problems),
        "cases": [_case(case) for case in cases],
    }
    return dict(finite(found))


def evaluation_table(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    summary, delay, healthy = report["summary"], report["delay_s"], report["healthy"]
    counts = ", ".join(f"{summary[name]} {name}" for name in ("found", "wrong", "missed", "quiet"))
    lines = [f"{report['detector']}: {report['recordings']} recordings, {counts}", ""]
    for name in ("precision", "recall", "f1"):
        lines.append(f"{name:<12} {_interval(summary[name])}")
    lines.append(f"{'delay':<12} {_interval(summary['median_delay_s'], 1)} s (median); 90 % within {_number(delay['p90'], 1)} s")
    lines.append(
        f"{'healthy':<12} {_number(healthy['machine_days'], 2)} machine-days with {healthy['false_alarms']} false accusations: "
        f"at most {_number(healthy['upper_per_10000_machine_days'], 1)} in 10,000 machine-days (95 %)"
    )
    lines += _rows("fault", report["by_kind"]) + _rows("machines", report["by_size"]) + _reliability(report["reliability"])
    if report["confusions"]:
        lines += ["", "wrong or missed"] + [f"  {confusion_line(item)}" for item in report["confusions"]]
    return "\n".join(lines)


def confusion_line(item: dict[str, Any]) -> str:
    """One wrong or missed recording in words."""
    truth = f"{item['fault']} on {', '.join(item['culprits']) or 'no machine'}" if item["fault"] else "healthy"
    if not item["accusations"]:
        return f"{item['recording']}: {truth}; no machine was named"
    named = [f"{', '.join(each['machines'])} {_when(each)} ({each['confidence']:.2f}, {each['cause']})" for each in item["accusations"][:3]]
    return f"{item['recording']}: {truth}; named {'; '.join(named)}"


def _when(accusation: dict[str, Any]) -> str:
    after_s = accusation["after_s"]
    if after_s is None:
        return f"at {accusation['time']}"
    return f"{abs(after_s):.0f} s {'after' if after_s >= 0 else 'before'} the onset"


def _summary(cases: Sequence[Case]) -> dict[str, Any]:
    judged = [case.judged for case in cases]
    total = summarise(judged)
    found = {name: asdict(figure) for name, figure in bootstrap(judged).items()}
    sure = {"precision": wilson(total.found, total.found + total.wrong), "recall": wilson(total.found, sum(bool(j.fault) for j in judged))}
    for name, figure in sure.items():
        found[name] |= {"wilson_low": figure.low, "wilson_high": figure.high}
    return {**found, "found": total.found, "wrong": total.wrong, "missed": total.missed, "quiet": total.quiet}


def _delays(cases: Sequence[Case]) -> dict[str, Any]:
    delays = sorted(case.judged.delay_s for case in cases if case.judged.outcome == "found" and case.judged.delay_s is not None)
    marks = {f"p{share}": float(np.percentile(delays, share)) if delays else math.nan for share in (10, 25, 50, 75, 90, 99)}
    return {**marks, "max": delays[-1] if delays else math.nan, "all": delays}


def _healthy(cases: Sequence[Case]) -> dict[str, Any]:
    """All the time in which nothing was wrong: healthy recordings, and the others before their onset."""
    days, alarms = sum(case.healthy_machine_days for case in cases), sum(case.false_alarms for case in cases)
    per = 10_000.0 / days if days else math.nan
    return {
        "recordings": sum(case.onset_s is None for case in cases),
        "machine_days": days,
        "false_alarms": alarms,
        "per_10000_machine_days": alarms * per,
        "upper_per_10000_machine_days": poisson_upper(alarms) * per,
    }


def _grouped(cases: Sequence[Case], key: Callable[[Case], str]) -> list[dict[str, Any]]:
    rows = []
    for name in sorted({key(case) for case in cases}):
        inside = [case.judged for case in cases if key(case) == name]
        total = summarise(inside)
        faults = total.found + sum(item.fault is not None for item in inside if item.outcome in ("wrong", "missed"))
        row = {"group": name, "recordings": len(inside), "precision": total.precision, "recall": total.recall, "f1": total.f1}
        row |= {"median_delay_s": total.median_delay_s, "found": total.found, "wrong": total.wrong, "missed": total.missed}
        recall = wilson(total.found, faults)
        rows.append(row | {"quiet": total.quiet, "recall_low": recall.low, "recall_high": recall.high})
    return rows


def _case(case: Case) -> dict[str, Any]:
    judged = case.judged
    return {
        "recording": judged.recording,
        "path": case.path,
        "fault": judged.fault,
        "outcome": judged.outcome,
        "culprits": list(case.culprits),
        "onset": None if case.onset_s is None else format_time(case.onset_s),
        "delay_s": judged.delay_s,
        "machines": case.facts.machines,
        "metrics": case.facts.metrics,
        "interval_s": case.facts.interval_s,
        "accusations": [
            asdict(item) | {"time": format_time(item.time_s), "machines": list(item.machines), "confidence": round(item.confidence, 3)}
            for item in case.accusations
        ],
    }


def _rows(title: str, rows: Iterable[dict[str, Any]]) -> list[str]:
    lines = ["", f"{title:<24} {'count':>5} {'found':>5} {'wrong':>5} {'missed':>6} {'recall':>7} {'delay s':>8}"]
    for row in rows:
        counts = f"{row['recordings']:>5} {row['found']:>5} {row['wrong']:>5} {row['missed']:>6}"
        lines.append(f"{row['group']:<24} {counts} {_number(row['recall']):>7} {_number(row['median_delay_s'], 1):>8}")
    return lines


def _reliability(found: dict[str, Any]) -> list[str]:
    """Was a confidence of 0.9 right nine times in ten? Of the first accusation of each recording; nothing where no machine was accused."""
    if not found["count"]:
        return []
    lines = ["", f"{'confidence':<24} {'count':>5} {'stated':>6} {'right':>6}   95 % interval"]
    for item in found["bins"]:
        right, name = item["right"], f"{item['low']:.2f} to {item['high']:.2f}"
        span = f"{_number(right['low'], 2)} to {_number(right['high'], 2)}"
        lines.append(f"{name:<24} {item['count']:>5} {_number(item['confidence'], 2):>6} {_number(right['value'], 2):>6}   {span}")
    return [*lines, f"expected calibration error {_number(found['error'])}, Brier {_number(found['brier'])}"]


def _interval(figure: dict[str, Any], digits: int = 3) -> str:
    return f"{_number(figure['value'], digits)} [{_number(figure['low'], digits)}, {_number(figure['high'], digits)}]"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def finite(value: Any) -> Any:
    """The same with null for what JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
