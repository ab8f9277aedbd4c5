"""A validation as a document, as tables for a terminal, and as one HTML page with its reliability picture."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from minder.model.errors import BadInputError
from minder.offline.evaluation.reliability import measure_reliability
from minder.offline.plots.evaluation import draw_reliability
from minder.offline.training.learned.measure import Line, as_drawn, earned, lines, measure_gain, said_and_right, shown_only
from minder.offline.training.learned.validate import Row, Validation
from minder.simulate.worlds.catalogue import TUNED_ON

__all__ = ["VALIDATION", "document_of", "table_of", "write_validation"]

VALIDATION = "validation.json"  # the document, as a file of a run

_HEAD = ("", "n", "F1", "precision", "recall", "delay s", "grey F1", "false/day", "95 %")
_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{font-size:1.1rem;margin-top:1.6rem}table{border-collapse:collapse}td,th{padding:.15rem .7rem .15rem 0;text-align:right;
border-bottom:1px solid #e5e5e5}td:first-child,th:first-child{text-align:left}img{max-width:100%}"""


def document_of(validation: Validation) -> dict[str, Any]:
    """Everything that was measured, as JSON; NaN is null."""
    rows = as_drawn(validation.rows)
    said_N, right_N = said_and_right(rows, "pool")
    verdict = earned(rows, said_N, right_N)
    sections = [{"title": title, "lines": [_record(line) for line in lines(part)]} for title, part in _sections(validation.rows) if part]
    sections += [
        {"title": f"recordings with {concept}, by models that saw none", "lines": [_record(line) for line in lines(as_drawn(part))]}
        for concept, part in validation.nuisances.items()
    ]
    gains = {title: asdict(measure_gain(part)) for title, part in _sections(validation.rows)[:4] if part}
    measured = [item for item in rows if not math.isnan(item.outcomes["pool"].first_p)]
    judged = [
        replace(row.outcomes["pool"].judged, confidence=float(p), outcome="found" if right else "wrong")
        for row, p, right in zip(measured, said_N, right_N, strict=True)
    ]
    reliability = measure_reliability(judged)
    found: dict[str, Any] = _plain(
        {
            "data_sha256": validation.data_sha256,
            "families": {name: sum(row.recording.family == name for row in rows) for name in _families(rows)},
            "settings": {group: asdict(chosen) for group, chosen in validation.settings.items()},
            "sections": sections,
            "gains": gains,
            "not_shown": _not_shown(rows),
            "reliability": {"bins": [asdict(item) for item in reliability.bins], "error": reliability.error, "brier": reliability.brier},
            "earned": verdict.earned,
            "why": list(verdict.why),
        }
    )
    return found


def _families(rows: Sequence[Row]) -> list[str]:
    return sorted({row.recording.family for row in rows})


def table_of(document: dict[str, Any]) -> str:
    """For a terminal."""
    parts = []
    for section in document["sections"]:
        cells = [_HEAD, *(_cells(line) for line in section["lines"])]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
        body = ["  ".join(_padded(row, widths)) for row in cells]
        parts.append("\n".join([section["title"], *body]))
    settled = "the pool may become the default" if document["earned"] else "the default stays as it is"
    return "\n\n".join([*parts, "\n".join([settled, *(f"  {line}" for line in document["why"])])])


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.rjust(width) if i else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths, strict=True))]


def write_validation(document: dict[str, Any], folder: Path) -> list[Path]:
    """validation.json, validation.html and reliability.png. Raises BadInputError if the folder cannot be written."""
    picture = draw_reliability(document["reliability"]["bins"], document["reliability"]["error"])
    files = {
        VALIDATION: (json.dumps(document, indent=1) + "\n").encode(),
        "validation.html": _page(document, picture).encode(),
        "reliability.png": picture,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise BadInputError(f"--out {folder} cannot be written: {error.strerror}: name another folder") from error
    return [folder / name for name in files]


def _sections(every: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    rows = as_drawn(every)
    unseen, tuned = [row for row in rows if _is_unseen(row)], [row for row in rows if not _is_unseen(row)]
    found = [
        ("families that neither has seen", unseen),
        ("families that the default detector was tuned on", tuned),
        ("all families", list(rows)),
        ("families that neither has seen, faults that no metric shows redrawn", [row for row in shown_only(every) if _is_unseen(row)]),
    ]
    return found + [(f"family {name}", [row for row in rows if row.recording.family == name]) for name in _families(rows)]


def _is_unseen(row: Row) -> bool:
    return row.recording.family not in TUNED_ON


def _not_shown(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Family to (faults that no metric shows, faults)."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.recording.fault is not None:
            counts = found.setdefault(row.recording.family, [0, 0])
            counts[0] += not row.recording.shown
            counts[1] += 1
    return found


def _record(line: Line) -> dict[str, Any]:
    return {**asdict(line), "false_per_day": line.false_per_day}


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    numbers = (_number(line[name], 3) for name in ("f1", "precision", "recall"))
    low, high = (_number(line[name], 1) for name in ("false_low", "false_high"))
    tail = (_number(line["delay_s"], 0), _number(line["grey_f1"], 3), _number(line["false_per_day"], 1), f"{low} to {high}")
    return (line["way"], str(line["recordings"]), *numbers, *tail)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _page(document: dict[str, Any], picture: bytes) -> str:
    parts = ["<h1>The learned detector on families that no fit has seen</h1>"]
    parts += ["<ul>", *(f"<li>{html.escape(line)}</li>" for line in document["why"]), "</ul>"]
    for section in document["sections"]:
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(line))}</tr>" for line in section["lines"])
        head = "".join(f"<th>{html.escape(name)}</th>" for name in _HEAD)
        parts.append(f"<h2>{html.escape(section['title'])}</h2><table><tr>{head}</tr>{rows}</table>")
    parts.append(
        f'<h2>Reliability</h2><img alt="Reliability of the pool" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
    )
    hidden = ", ".join(f"{family} {counts[0]} of {counts[1]}" for family, counts in document["not_shown"].items())
    parts.append(
        f"<p>Faults that no metric shows, drawn again in the fourth table: {html.escape(hidden)}. Data {document['data_sha256'][:12]}.</p>"
    )
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Validation</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
