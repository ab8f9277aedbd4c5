"""Prometheus' text format, read: only what a sample needs (types and help lines are skipped)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from minder.errors import SourceError

__all__ = ["parse_exposition"]

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
