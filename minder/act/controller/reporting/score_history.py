"""`scores.jsonl`: each machine's highest score of every minute, for people who look back. Some hours of it: two files of bounded size."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from minder.model.private import open_private

__all__ = ["ScoreHistory", "read_scores"]

_EVERY_S = 60.0
_MOST_BYTES = 16 * 1024 * 1024  # of one file: ten hours of 1,500 machines
_TIME = re.compile(r'^\{"time_s":(\d+(?:\.\d+)?),')


class ScoreHistory:
    """Appends a line a minute: {"time_s": its end in unix seconds, machine: score (1 is the threshold), ...}."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest: dict[str, float] = {}
        self._begun_s: float | None = None

    def note(self, now_s: float, scores: Mapping[str, float]) -> None:
        """Of machines without a score nothing is kept. A disk that is full costs minutes of the history, and nothing else."""
        begun_s = now_s if self._begun_s is None or now_s < self._begun_s else self._begun_s
        self._begun_s = begun_s
        for name, score in scores.items():
            if math.isfinite(score):
                self._highest[name] = max(score, self._highest.get(name, score))
        if now_s - begun_s < _EVERY_S or not self._highest:
            return
        line = ",".join([f'{{"time_s":{now_s:.3f}', *(f'"{name}":{score:.3g}' for name, score in self._highest.items())]) + "}\n"
        self._highest, self._begun_s = {}, now_s
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > _MOST_BYTES:
                self._path.replace(_older(self._path))
            with open_private(self._path, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            return


def read_scores(path: Path, machine: str, span_s: tuple[float, float]) -> list[tuple[float, float]]:
    """Times in unix seconds and scores of one machine, in order; empty where nothing was kept."""
    return list(_read(path, machine, span_s))


def _read(path: Path, machine: str, span_s: tuple[float, float]) -> Iterator[tuple[float, float]]:
    sought = re.compile(f'[{{,]"{re.escape(machine)}":([0-9.e+-]+)')  # lines are long, and one number of each is wanted
    for each in (_older(path), path):
        try:
            file = each.open(encoding="utf-8", errors="replace")
        except OSError:
            continue
        with file:
            for line in file:
                time_s, score = _TIME.match(line), sought.search(line)
                if time_s and score and span_s[0] <= float(time_s[1]) <= span_s[1]:
                    yield float(time_s[1]), float(score[1])


def _older(path: Path) -> Path:
    return path.with_name(f"{path.stem}-older{path.suffix}")
