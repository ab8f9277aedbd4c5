"""Lengths of time as people write them: 90s, 30m, 2h, 7d."""

from __future__ import annotations

import re

from minder.model.errors import BadInputError

__all__ = ["LONGEST_S", "format_span", "parse_span"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
LONGEST_S = 10 * 365 * 86_400.0


def parse_span(text: str, option: str) -> float:
    """Seconds. Raises BadInputError that names the option.

    >>> parse_span("1h30m", "--for")
    5400.0
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip() or not 0 < seconds <= LONGEST_S:
        raise BadInputError(f'{option} "{text}" is no length of time: write 90s, 30m, 2h, 1h30m or 7d')
    return seconds


def format_span(seconds: float | None) -> str:
    """Short and readable; "-" for None.

    >>> format_span(5400), format_span(2.25), format_span(None)
    ('1h30m', '2.2 s', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    shown = [f"{number}{unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if number]
    return "".join(shown[:2])
