"""Progress bars in a log: which of them is the training's, and how far it is.

A bar is the training's if its description says so ("Epoch 3:", "train", "Steps"), or a loss stands behind it. One that says something
else (loading, evaluation, tokenising) never is. Of bars without a description, the training's is the one inside which others
come and go: it gains several steps by itself. One that gains one each time another has run is an epoch bar, and the inner one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from minder.edge.signals.numerals import VALUE, parse_count, parse_value
from minder.edge.signals.step_counter import StepCounter
from minder.edge.signals.step_rules import StepRules

__all__ = ["Bar", "Bars", "read_bar"]

_SIZE = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)"
_RATE = rf"(?:(?P<per_s>{VALUE}|\?)\s?(?P<unit>[A-Za-z]+)/s|(?P<s_per>{VALUE})\s?s/(?P<unit_of>[A-Za-z]+))"
_TQDM = re.compile(
    rf"^(?P<about>[^\r\n]*?)(?P<shown>{_SIZE})(?P<suffix>[kKMG]?)(?:/(?P<total>{_SIZE}|\?)(?P<total_suffix>[kKMG]?)|[a-z]+)"
    rf" \[(?P<elapsed>[\d:]+)(?:<[\d:?]+)?(?:,\s*{_RATE})?(?P<after>.*)"
)
_RICH = re.compile(
    rf"^(?P<about>[^━╺╸]*?)[ ]*[━╺╸]+[ ━╺╸]*(?P<shown>{_SIZE})(?P<suffix>)/(?P<total>{_SIZE})(?P<total_suffix>)"
    rf" (?P<elapsed>[\d:]+) • [\d:-]+ {_RATE}(?P<after>.*)"
)
_LOGGABLE = re.compile(
    rf"\bProgress on:(?P<about>.*?) (?P<shown>{_SIZE})(?P<suffix>[kKMG]?)[a-z]+/(?P<total>{_SIZE}|-)(?P<total_suffix>[kKMG]?)[a-z]*"
    rf" rate:(?:{_RATE}|-) remaining:\S+ elapsed:(?P<elapsed>[\d:]+)(?P<after>.*)"
)
_DRAWN = re.compile(r"\s*(?:\d+%)?\|[^|]*\|\s*$")
_EPOCH = re.compile(r"\bepoch\W*(?P<epoch>\d+)(?P<of>\s*/\s*\d+)?", re.IGNORECASE)
_LOSS_BEHIND = re.compile(r"\bloss(?:/train\S*)?=", re.IGNORECASE)
_NUMBERS = re.compile(r"[\d\s./:-]+(?:[KMGT]B?[\d\s./:-]*)?")  # columns of measures, as Ultralytics draws them
_MOST_BARS = 64
_LONGEST_BAR = 1000  # characters


@dataclass(frozen=True, slots=True)
class Bar:
    """One state of one bar. total: None where it has none. seconds: of one step, as the bar estimates it."""

    kind: Literal["training", "other", "unnamed"]
    name: str
    shown: int
    total: int | None
    elapsed_s: int
    seconds: float | None
    epoch: int | None
    epoch_base: int | None


def read_bar(line: str, rules: StepRules) -> Bar | None:
    """The bar that a line draws, None where it draws none. The line without colours and rank labels."""
    match = _drawn(line)
    if match is None:
        return None
    shown = parse_count(match["shown"], match["suffix"])
    if shown is None:
        return None
    total = parse_count(match["total"] or "", match["total_suffix"] or "") if match["total"] not in ("?", "-", None) else None
    about = _DRAWN.sub("", match["about"]).strip(" :")
    epoch = _EPOCH.search(about)
    return Bar(
        kind=_kind(about, match, rules),
        name=re.sub(r"\d+", "#", about),
        shown=shown,
        total=total,
        elapsed_s=clock_s(match["elapsed"]),
        seconds=_seconds(match),
        epoch=int(epoch["epoch"]) if epoch else None,
        epoch_base=(1 if epoch["of"] else 0) if epoch else None,
    )


def _drawn(line: str) -> re.Match[str] | None:
    if len(line) > _LONGEST_BAR:
        return None
    if "•" in line:
        return _RICH.search(line)
    if "Progress on:" in line:
        return _LOGGABLE.search(line)
    return _TQDM.search(line) if " [" in line and ("/s" in line or "s/" in line or "<" in line) else None


def _kind(about: str, match: re.Match[str], rules: StepRules) -> Literal["training", "other", "unnamed"]:
    unit = match["unit"] or match["unit_of"]
    if (unit and not rules.bar_units.fullmatch(unit)) or rules.other_bar.search(about):
        return "other"
    if rules.training_bar.search(about) or _LOSS_BEHIND.search(match["after"]):
        return "training"
    return "unnamed" if about.lower() in ("", "epoch", "epochs", "progress") or _NUMBERS.fullmatch(about) else "other"


def _seconds(match: re.Match[str]) -> float | None:
    """Of one step."""
    if match["s_per"]:
        return parse_value(match["s_per"])
    speed = parse_value(match["per_s"]) if match["per_s"] and match["per_s"] != "?" else None
    return 1.0 / speed if speed else None


def clock_s(text: str) -> int:
    """
    >>> clock_s("1:02:03")
    3723
    """
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part or 0)
    return seconds


@dataclass(slots=True)
class _Drawn:
    """A bar without a description, as it was drawn last. alone: what it gained since another one was drawn."""

    shown: int
    total: int | None
    elapsed_s: int
    alone: int = 0

    @property
    def is_complete(self) -> bool:
        return self.total is not None and self.shown >= self.total

    def begins_again(self, bar: Bar) -> bool:
        return bar.shown < self.shown and (self.is_complete or 2 * bar.elapsed_s < self.elapsed_s)


class Bars:
    """`read` every bar of a log in order: the step that it stands for, None where it is no news or no training's."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._named: dict[str, StepCounter] = {}
        self._drawn: dict[int | None, _Drawn] = {}
        self._main: int | None = None
        self._outer: set[int | None] = set()  # totals of epoch bars
        self._base = 0
        self._newest = 0

    @property
    def newest_step(self) -> int | None:
        """The newest step, None before the first."""
        return self._newest or None

    @property
    def open_at(self) -> int | None:
        """How far the bar without a description that counts is, None where there is none or it is complete."""
        main = self._drawn.get(self._main)
        return None if main is None or main.is_complete else main.shown

    def read(self, bar: Bar) -> int | None:
        if bar.kind == "other" or bar.shown <= 0:
            return None
        step = self._read_named(bar) if bar.kind == "training" else None if self._named else self._read_unnamed(bar)
        if step is None or step <= self._newest:
            return None
        self._newest, self.seconds = step, bar.seconds
        return step

    def _read_named(self, bar: Bar) -> int | None:
        if bar.name not in self._named:
            if len(self._named) >= _MOST_BARS:
                return None
            self._named[bar.name] = StepCounter()
            if bar.epoch is None:  # another phase of the same job: it goes on where the others were
                self._named[bar.name].base = self._newest
        return self._named[bar.name].count(bar.shown, bar.total, bar.epoch, bar.epoch_base, bar.epoch is not None or None)

    def _read_unnamed(self, bar: Bar) -> int | None:
        before = self._drawn.get(bar.total)
        if before is None and len(self._drawn) >= _MOST_BARS:
            return None
        new_run = before is None or before.begins_again(bar)
        if before is not None and not new_run and bar.shown <= before.shown:
            return None
        drawn = before or _Drawn(0, bar.total, 0)
        gained = bar.shown if new_run else bar.shown - drawn.shown
        self._follow(bar, drawn, gained, new_run)
        for other in self._drawn.values():
            other.alone = 0 if other is not drawn and other.alone < _STEPS_ALONE else other.alone
        drawn.shown, drawn.elapsed_s = bar.shown, bar.elapsed_s
        self._drawn[bar.total] = drawn
        return self._base + bar.shown if bar.total == self._main and self._drawn else None

    def _follow(self, bar: Bar, drawn: _Drawn, gained: int, new_run: bool) -> None:
        """Decide which bar is the training's now."""
        drawn.alone += gained
        main = self._drawn.get(self._main)
        if main is drawn:
            if new_run:
                self._base = self._newest
        elif main is None:
            self._main = bar.total
        elif new_run and bar.elapsed_s > main.elapsed_s and bar.shown < main.shown:
            self._outer.add(bar.total)  # it was there before the one that counts
        elif bar.total in self._outer:
            if drawn.alone >= _STEPS_ALONE and main.is_complete:
                self._take(bar, drawn)
        elif main.is_complete or main.alone < _STEPS_ALONE or bar.elapsed_s > max(_ABANDONED_S, main.elapsed_s):
            self._take(bar, drawn)

    def _take(self, bar: Bar, drawn: _Drawn) -> None:
        """This bar counts from now on, on top of what was counted."""
        self._main = bar.total
        self._base = self._newest if drawn.shown == 0 or drawn.is_complete else max(0, self._newest - drawn.shown)


_STEPS_ALONE = 2
_ABANDONED_S = 600
