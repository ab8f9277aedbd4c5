"""The figures of an entry, by part and in all, as a document and as a table; two entries compared on the same inputs (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from minder.offline.benchmark.judging import Row
from minder.offline.evaluation.intervals import Figure, f1_figure, f1_gain, mean_figure, poisson_lower, poisson_upper, wilson
from minder.offline.evaluation.scoring import Judged, summarise

__all__ = ["HEAD", "compare", "comparison_line", "figures", "read_rows", "table"]

HEAD = (
    "part", "found / wrong / missed / quiet", "right", "precision", "recall", "F1", "delay s", "false accusations a job-day", "unknown",
    "unanswered",
)  # fmt: skip


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Of "all" and of each part, what HEAD names, with 95 % intervals. delay_s is a mean in which a miss counts 420 s."""
    parts = list(dict.fromkeys(row.part for row in rows))
    found = {part: _figures([row for row in rows if row.part == part]) for part in parts}
    return found if len(parts) == 1 else {"all": _figures(rows), **found}


def compare(old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any]:
    """F1 of new less F1 of old, and the share of inputs answered right likewise: paired bootstraps over the inputs that both have."""
    pairs = {row.judged.recording: row for row in old}
    both = [(pairs[row.judged.recording], row) for row in new if row.judged.recording in pairs]
    if not both:
        return {"inputs": 0}
    f1, better = f1_gain([one.judged for one, _ in both], [other.judged for _, other in both])
    return {
        "inputs": len(both),
        "f1": asdict(f1),
        "better": better,
        "right": asdict(mean_figure([other.right - one.right for one, other in both])),
    }


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """A row for each part, with HEAD above it."""
    return [list(HEAD), *(_cells(part, item) for part, item in found.items())]


def comparison_line(found: Mapping[str, Any]) -> str:
    """What `compare` found, in words."""
    if not found["inputs"]:
        return "compared: no input in common"
    return (
        f"compared on {found['inputs']} inputs: F1 {_shown(found['f1'], 2, sign='+')}, better in {found['better']:.0%} of the draws; "
        f"right {_shown(found['right'], 2, sign='+')}"
    )


def read_rows(items: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of a document that an earlier run wrote."""
    return [Row(**{**item, "judged": Judged(**{**item["judged"], "named": tuple(item["judged"]["named"])})}) for item in items]


def _figures(rows: Sequence[Row]) -> dict[str, Any]:
    judged = [row.judged for row in rows]
    total = summarise(judged)
    faulty = sum(row.judged.fault is not None for row in rows)
    precision, recall = wilson(total.found, total.found + total.wrong), wilson(total.found, faulty)
    return {
        "inputs": len(rows), "found": total.found, "wrong": total.wrong, "missed": total.missed,
        "quiet": sum(row.right and row.judged.outcome == "quiet" for row in rows),
        "right": asdict(wilson(sum(row.right for row in rows), len(rows))),
        "precision": asdict(precision), "recall": asdict(recall), "f1": asdict(f1_figure(judged)), "delay_s": asdict(_delay(rows)),
        "false_a_job_day": asdict(_false(rows)), "false_accusations": sum(row.false_accusations for row in rows),
        "unknown": sum(row.state == "unknown" for row in rows), "unanswered": sum(row.state == "unanswered" for row in rows),
    }  # fmt: skip


def _delay(rows: Sequence[Row]) -> Figure:
    return mean_figure([row.delay_s for row in rows if row.delay_s is not None])


def _false(rows: Sequence[Row]) -> Figure:
    """Over all recorded time, with the exact interval of a Poisson rate (Garwood 1936)."""
    timed = [row for row in rows if row.days > 0]
    days, count = sum(row.days for row in timed), sum(row.false_accusations for row in timed)
    if not days:
        return Figure(math.nan, math.nan, math.nan)
    return Figure(count / days, poisson_lower(count, 0.975) / days, poisson_upper(count, 0.975) / days)


def _cells(part: str, item: Mapping[str, Any]) -> list[str]:
    counts = " / ".join(str(item[name]) for name in ("found", "wrong", "missed", "quiet"))
    shares = [_shown(item[name], 2) for name in ("right", "precision", "recall", "f1")]
    whole = item["inputs"]
    asked = [f"{item[name] / whole:.2f}" for name in ("unknown", "unanswered")]
    return [f"{part} ({whole})", counts, *shares, _shown(item["delay_s"], 0), _shown(item["false_a_job_day"], 1), *asked]


def _shown(figure: Mapping[str, float | None], digits: int, sign: str = "") -> str:
    value, low, high = (figure[name] for name in ("value", "low", "high"))
    if value is None or math.isnan(value) or low is None or high is None:
        return "-"
    return f"{value:{sign}.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
