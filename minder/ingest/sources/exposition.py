"""Prometheus' text format, read: only what a sample needs (types and help lines are skipped)."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from minder.model.errors import SourceError

__all__ = ["Layout", "PageReader", "parse_exposition"]

_LAYOUTS = 2000  # that a reader remembers

_LINE = re.compile(r'([A-Za-z_:][\w:]*)\s*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+(-?\d+(?:\.\d+)?))?\s*$')
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse_exposition(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(series name, labels, value) of every line. A time stamp, if any, is ignored: the arrival counts.

    Raises SourceError for a text that was cut off or is none: half an answer must not pass for a whole one.

    >>> parse_exposition('a_total{device="eth0"} 3\\n')
    [('a_total', {'device': 'eth0'}, 3.0)]
    """
    if text and not text.endswith("\n"):
        raise SourceError("the metrics text does not end with a line feed: it was cut off")
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line[0] == "#" or line.isspace():
            continue
        match = _LINE.match(line)
        if match is None:
            raise SourceError(f"line {number} of the metrics text is no sample: {line[:60]!r}")
        name, labels, value = match[1], match[2], match[3]
        try:
            found.append((name, dict(_labels(labels)) if labels else {}, float(value)))
        except ValueError as error:
            raise SourceError(f"line {number} of the metrics text is no sample: {line[:60]!r}") from error
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The series of a page in its order, without their values: (name, labels). Pages with equal lines have the same object."""

    series: tuple[tuple[str, Mapping[str, str]], ...]
    lines: tuple[int, ...] = field(repr=False)  # of each series within the page


class PageReader:
    """`parse_exposition` for pages that come again and again: only their numbers are read anew.

    A page's lines without what stands behind their last space are looked up; with those that are known, nothing but a number can have
    changed. Whatever does not fit (a time stamp, another kind of space, a comment of one word) is parsed each time.
    """

    def __init__(self) -> None:
        self._layouts: OrderedDict[tuple[str, ...], Layout] = OrderedDict()

    def read(self, text: str) -> tuple[Layout, list[float]]:
        """The page's series and their values. Raises SourceError, as `parse_exposition` does."""
        lines = [line.rpartition(" ") for line in text.split("\n")]
        shape = tuple([line[0] for line in lines])
        layout = self._layouts.get(shape)
        if layout is not None and not lines[-1][2]:
            with suppress(ValueError):  # the slow way names the line that is wrong
                return layout, [float(lines[at][2]) for at in layout.lines]
        return self._learn(text, shape)

    def _learn(self, text: str, shape: tuple[str, ...]) -> tuple[Layout, list[float]]:
        found = parse_exposition(text)
        ats = tuple(at for at, line in enumerate(text.split("\n")) if line and line[0] != "#" and not line.isspace())
        layout = Layout(tuple((name, labels) for name, labels, _ in found), ats)
        if _is_regular(text.split("\n"), shape):
            self._layouts[shape] = layout
            if len(self._layouts) > _LAYOUTS:
                self._layouts.popitem(last=False)
        return layout, [value for _, _, value in found]


def _is_regular(lines: list[str], shape: tuple[str, ...]) -> bool:
    """True if every line but the empty one at the end is a comment that is known by its beginning, or a sample whose last space stands
    right before its value: then another page of this shape has the same series, whatever its values are."""
    for line, begin in zip(lines[:-1], shape, strict=False):
        match = _LINE.match(line)
        if begin[:1] != "#" and (match is None or match[4] is not None or match.start(3) != len(begin) + 1 or match.end(3) != len(line)):
            return False
    return len(lines) > 1


@functools.lru_cache(maxsize=8192)  # all machines of a job write the same few hundred
def _labels(text: str) -> Mapping[str, str]:
    """The labels between the braces. Raises ValueError if there is anything else."""
    labels, at = {}, 0
    while match := _LABEL.match(text, at):
        labels[match[1]] = re.sub(r"\\.", _unescape, match[2]) if "\\" in match[2] else match[2]
        at = match.end()
    if text[at:].strip():
        raise ValueError(text[at:])
    return labels


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], match[0])
