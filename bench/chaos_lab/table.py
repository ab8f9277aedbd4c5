"""Rows as they are written while a run goes on, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minder.offline.reliability.stretches import PHASES

__all__ = ["Rows", "table"]


class Rows:
    """A line for each round of strikes and one for the end of each part, in `chaos.jsonl`; the table beside it is written anew."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "chaos.jsonl"
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a run that was killed while it wrote has no row of that round
        if whole != text:
            self.path.write_text(whole)
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]

    def of(self, run: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["run"] == run]

    def done(self, run: str) -> int:
        """The number of the last strike that has a row; 0 for none."""
        return max((number for row in self.of(run) for number in row.get("numbers", ())), default=0)

    def wrong(self, run: str) -> list[str]:
        """What was wrong in any of its rounds and parts, each once."""
        return list(dict.fromkeys(line for row in self.of(run) for line in row["wrong"]))

    def is_over(self, run: str) -> bool:
        return any(row.get("end") == "whole" for row in self.of(run))

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.path.open("a") as log:
            log.write(json.dumps(row) + "\n")
        self.path.with_suffix(".md").write_text(table(self.rows))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: the runs, then what struck and what came of it.

    >>> row = {"run": "0", "numbers": [1], "kinds": ["hang"], "hit": ["m1"], "wrong": [], "recoveries": [], "steps_lost": 1, "stood_s": 9.0}
    >>> print(table([row]).splitlines()[-1])
    | 0 | 1 | hang | m1 | right | 1 | 9.0 |  |
    """
    lines = ["| run | faults | right | steps | ETTR | lost s | phases s | wrong |", "|---" * 8 + "|"]
    for row in (row for row in rows if "end" in row):
        ettr = row.get("ettr") or {}
        phases = ", ".join(f"{name} {seconds}" for name in PHASES if (seconds := (ettr.get("phases") or {}).get(name)))
        cells = (row["run"], row["faults"], "yes" if not row["wrong"] else "NO", row["steps"], ettr.get("ettr"), ettr.get("lost_s"), phases)
        lines.append(f"| {' | '.join(map(str, cells))} | {'; '.join(row['wrong']) or '-'} |")
    lines += ["", "| run | number | fault | hit | right | steps lost | stood s | recoveries: action (cause) phases s |", "|---" * 8 + "|"]
    for row in (row for row in rows if "numbers" in row):
        found = "; ".join(_recovery(item) for item in row["recoveries"])
        hit = ", ".join([*row["hit"], *(detail for detail in row.get("detail", ()) if detail.startswith("not struck"))])
        cells = (row["run"], " + ".join(map(str, row["numbers"])), " + ".join(row["kinds"]), hit)
        more = ("; ".join(row["wrong"]) or "right", row["steps_lost"], row["stood_s"])
        lines.append(f"| {' | '.join(map(str, (*cells, *more)))} | {found} |")
    return "\n".join(lines) + "\n"


def _recovery(item: dict[str, Any]) -> str:
    phases = " ".join(f"{name} {item['phases'][name]}" for name in PHASES if item["phases"].get(name))
    return f"{item['action']} ({item['cause']}) {phases}".rstrip()
