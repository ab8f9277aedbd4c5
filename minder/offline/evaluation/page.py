"""The report as files: report.json, and one self-contained report.html with its pictures inside (no script, nothing from elsewhere)."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.offline.evaluation.pictures import CONFUSIONS_SHOWN, confusion_pictures, summary_pictures
from minder.offline.evaluation.report import confusion_line

__all__ = ["write_report"]

_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;margin:.6rem 0}
td,th{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #e5e5e5}td:first-child,th:first-child{text-align:left}
img{max-width:100%;height:auto}.big{font-size:1.1rem}.bad{color:#a33b00}figure{margin:1rem 0}figcaption{color:#555}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem;align-items:start}"""


def write_report(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write report.json, report.html and figures/*.png. Returns their paths. Raises BadInputError if the folder cannot be written."""
    figures = summary_pictures(report) if report["cases"] else {}
    confusions = confusion_pictures(report)
    files = {"report.json": (json.dumps(report, indent=1) + "\n").encode(), "report.html": _page(report, figures, confusions).encode()}
    files |= {f"figures/{name}.png": data for name, data in figures.items()}
    files |= {f"figures/confusion-{index:02d}.png": data for index, data in enumerate(confusions.values(), start=1)}
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise BadInputError(f"--out {folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in files]


def _page(report: dict[str, Any], figures: Mapping[str, bytes], confusions: Mapping[str, bytes]) -> str:
    title = f"Evaluation of {report['detector']}"
    parts = [f"<h1>{html.escape(title)}</h1>", _summary(report)]
    if report["problems"]:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in report["problems"])
        parts.append(f'<h2 class="bad">Not evaluated</h2><ul>{items}</ul>')
    if figures:
        parts.append(
            f'<div class="pair">{_image(figures["delay"], "Delays")}{_image(figures["reliability"], "Reliability of confidence")}</div>'
        )
        parts.append(f"<h2>By kind of fault</h2>{_image(figures['kinds'], 'By kind of fault')}{_groups('fault', report['by_kind'])}")
        parts.append(f"<h2>By size of the job</h2>{_image(figures['sizes'], 'By size')}{_groups('machines', report['by_size'])}")
    parts.append(_confusions(report["confusions"], confusions))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _summary(report: dict[str, Any]) -> str:
    summary, delay, healthy = report["summary"], report["delay_s"], report["healthy"]
    rows = [(name, _number(figure["value"]), _range(figure)) for name in ("precision", "recall", "f1") for figure in [summary[name]]]
    median = summary["median_delay_s"]
    rows.append(("median delay, s", _number(median["value"], 1), _range(median, 1)))
    rows.append(("90 % of the found within, s", _number(delay["p90"], 1), ""))
    per = f"at most {_number(healthy['upper_per_10000_machine_days'], 1)} (95 %)"
    rows.append(("false accusations in 10,000 healthy machine-days", _number(healthy["per_10000_machine_days"], 2), per))
    counts = ", ".join(f"{summary[name]} {name}" for name in ("found", "wrong", "missed", "quiet"))
    note = (
        f"A fault is found if the right machine, and no other, is named within {report['limit_s']:.0f} s of its onset. Intervals: 95 %, "
        f"bootstrap over recordings. Healthy time: {_number(healthy['machine_days'], 2)} machine-days."
    )
    return f'<p class="big">{report["recordings"]} recordings: {counts}.</p>{_table(("", "value", "interval"), rows)}<p>{note}</p>'


def _groups(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    names = ("recordings", "found", "wrong", "missed", "quiet")
    body = [
        (
            row["group"],
            *(str(row[name]) for name in names),
            _number(row["recall"]),
            f"[{_number(row['recall_low'])}, {_number(row['recall_high'])}]",
            _number(row["median_delay_s"], 1),
        )
        for row in rows
    ]
    return _table((title, *names, "recall", "Wilson, 95 %", "delay, s"), body)


def _confusions(items: Sequence[dict[str, Any]], pictures: Mapping[str, bytes]) -> str:
    if not items:
        return "<h2>Wrong or missed</h2><p>None.</p>"
    parts = [f"<h2>Wrong or missed ({len(items)})</h2>"]
    for item in items:
        line = html.escape(confusion_line(item))
        data = pictures.get(item["recording"])
        parts.append(_image(data, line) if data is not None else f"<p>{line}</p>")
    if len(items) > CONFUSIONS_SHOWN:
        parts.append(f"<p>Pictures of the first {CONFUSIONS_SHOWN} only.</p>")
    return "".join(parts)


def _image(data: bytes, caption: str) -> str:
    source = base64.b64encode(data).decode()
    return f'<figure><img alt="{caption}" src="data:image/png;base64,{source}"><figcaption>{caption}</figcaption></figure>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _range(figure: Mapping[str, Any], digits: int = 3) -> str:
    return f"[{_number(figure['low'], digits)}, {_number(figure['high'], digits)}]"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
