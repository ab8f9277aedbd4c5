"""The unit of a metric that no mapping knows: from its name, else from its values over a day. An idle reading says nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from minder.ingest.sources.blank import is_blank

__all__ = ["scale_of", "spelled"]

# Of a quantity: what a name says, with the factor to the canonical unit.
_NAMED: dict[str, tuple[tuple[str, float], ...]] = {
    "ratio": ((r"(^|[_:])(percent|percentage|perc|pct)($|[_:])|percent", 0.01), (r"(^|[_:])(ratio|fraction|frac)($|[_:])", 1.0)),
    "W": (
        (r"(^|[_:])(milli_?watts?|mw)($|[_:])|milliwatt", 0.001),
        (r"(^|[_:])(micro_?watts?|uw)($|[_:])|microwatt", 1e-6),
        (r"(^|[_:])(kilo_?watts?|kw)($|[_:])|kilowatt", 1e3),
        (r"(^|[_:])(watts?|w)($|[_:])", 1.0),
    ),
    "Hz": (
        (r"(^|[_:])(mhz|mega_?hertz)($|[_:])", 1e6),
        (r"(^|[_:])(ghz|giga_?hertz)($|[_:])", 1e9),
        (r"(^|[_:])(khz|kilo_?hertz)($|[_:])", 1e3),
        (r"(^|[_:])(hz|hertz)($|[_:])", 1.0),
    ),
    "°C": ((r"(^|[_:])(milli_?(celsius|degrees?|c))($|[_:])", 0.001), (r"(^|[_:])(celsius|celcius|centigrade|c)($|[_:])", 1.0)),
}
_OTHER = r"(^|[_:])(fahrenheit|degf|f|kelvin|k|seconds|joules?|bytes|volts?|amperes?|rpm|count|milli_?joules?|ms|us|ns)($|[_:])"
_RANGES = {"ratio": (0.0, 1.0), "W": (0.0, 5000.0), "Hz": (0.0, 1e10), "°C": (-20.0, 150.0)}
_AT_WORK_W = 150.0  # an accelerator that draws more has work
_BUSY, _PERCENT_AT_WORK = 0.3, 30.0


def scale_of(unit: str, name: str, values: Sequence[float], highest: Sequence[float], draws_w: float) -> tuple[float | None, str]:
    """(factor to the unit, why not if there is none). highest: of each series over a day. draws_w: the highest power that any of these
    devices was seen to draw, 0 where unknown."""
    known = [value for value in (*values, *highest) if not is_blank(value)]
    if not known:
        return None, "it has no value"
    said = spelled(name)
    named = next((scale for words, scale in _NAMED.get(unit, ()) if re.search(words, said)), None)
    if named is None and (re.search(_OTHER, said) or any(re.search(words, said) for words in _words_of_others(unit))):
        return None, "its name gives another unit"
    if unit == "ratio" and named == 0.01 and draws_w >= _AT_WORK_W and _BUSY <= max(known) <= 1.0:
        return None, f"its name says percent, and it is {max(known):g} at most while its devices work"
    if named is not None:
        return (named, "") if _fits(unit, known, named) else (None, f"its values do not fit the unit in its name: {max(known):g}")
    if unit == "ratio":
        return _ratio(known, [value for value in highest if not is_blank(value)], draws_w)
    top = max(known)
    scale = _watts(top) if unit == "W" else _hertz(top) if unit == "Hz" else _celsius(top)
    return (scale, "") if scale is not None and _fits(unit, known, scale) else (None, f"no unit fits its values: {max(known):g}")


def spelled(name: str) -> str:
    """A name in lower case, its words apart.

    >>> spelled("rigGpuPowerWatts"), spelled("habanalabs_power_mW")
    ('rig_gpu_power_watts', 'habanalabs_power_mw')
    """
    return re.sub(r"(?<=[a-z0-9]{2})(?=[A-Z])", "_", name).lower()


def _words_of_others(unit: str) -> list[str]:
    return [words for other, named in _NAMED.items() if other != unit for words, _ in named]


def _fits(unit: str, values: Sequence[float], scale: float) -> bool:
    low, high = _RANGES.get(unit, (0.0, float("inf")))
    return all(low <= value * scale <= high * 1.001 for value in values)


def _ratio(values: Sequence[float], highest: Sequence[float], draws_w: float) -> tuple[float | None, str]:
    """Above 1 it is a percentage. Below, a ratio only if something is at work: else it may be a percentage that is read while idle. Two
    units in one metric give none: a machine that counts otherwise would look like one that stands still."""
    top = max(values)
    if min(values) < 0.0 or top > 100.1:
        return None, f"no unit fits its values: {top:g}"
    if top > 1.001:
        odd = [value for value in highest or values if _BUSY <= value < 1.0]  # at most this in a whole day, where others are busy
        if odd and top > _PERCENT_AT_WORK:
            return None, f"some series are {top:g} and others {odd[0]:g} at most: that is not one unit"
        return 0.01, ""
    broken = any(value not in (0.0, 1.0) for value in values)
    if top >= _BUSY and (broken or draws_w >= _AT_WORK_W):
        return 1.0, ""
    return None, f"{top:g} is at most 1 % or a ratio near nothing: its name gives no unit, and it is read while idle"


def _watts(value: float) -> float | None:
    return 1.0 if value < 3000.0 else 0.001 if value < 3e6 else 1e-6 if value < 3e9 else None


def _celsius(value: float) -> float:
    return 0.001 if 5e3 <= value <= 150e3 else 1.0


def _hertz(value: float) -> float | None:
    """Zero is any unit's."""
    return None if value <= 0.0 else 1e9 if value < 10.0 else 1e6 if value < 1e4 else 1e3 if value < 1e7 else 1.0 if value < 1e10 else None
