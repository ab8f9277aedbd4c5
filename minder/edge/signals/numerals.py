"""Numbers as people and locales write them in logs: 1200, 1,200, 1_200, 2.3101, 2,3101, 1.2e-3, nan.

A number that could be read in two ways is unknown, never guessed: 2,310 may be 2.31 or 2310.
"""

from __future__ import annotations

import re

__all__ = ["COUNT", "VALUE", "parse_count", "parse_value"]

# For patterns. Of "12.5" or "12,5" a count reads nothing, not 12.
COUNT = r"(?:\d{1,3}(?:[,_'\u202f\u00a0]\d{3})+|\d+)(?![.,_]?\d)"
VALUE = r"[-+]?(?:\d(?:[\d.,]*\d)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?)\b)"

_SEPARATORS = re.compile(r"[,_'\u202f\u00a0]")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+")
_NOT_COUNTED = 1e15  # no job counts so far: an identifier, or a time in nanoseconds
_SUFFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def parse_count(text: str, suffix: str = "") -> int | None:
    """A whole number, with the suffix of tqdm's unit scale; None where it is none.

    >>> parse_count("1,200"), parse_count("12.0"), parse_count("1.20", "k"), parse_count("12.5")
    (1200, 12, 1200, None)
    """
    try:
        value = float(_SEPARATORS.sub("", text)) * _SUFFIXES[suffix]
    except (KeyError, ValueError):
        return None
    return round(value) if value < _NOT_COUNTED and abs(value - round(value)) < 1e-6 else None


def parse_value(text: str) -> float | None:
    """A measured number; None where it has two readings or none.

    >>> parse_value("2,3101"), parse_value("1,234.5"), parse_value("1.234,5"), parse_value("2,310")
    (2.3101, 1234.5, 1234.5, None)
    """
    text = text.rstrip(".,")
    digits, e, exponent = text.partition("e") if "e" in text.lower() and text[:1].lower() not in "ni" else (text, "", "")
    if e == "" and "E" in text:
        digits, e, exponent = text.partition("E")
    plain = _decimal_point(digits)
    try:
        return None if plain is None else float(plain + e + exponent)
    except ValueError:
        return None


def _decimal_point(digits: str) -> str | None:
    """The same number without separators of thousands and with a point, None where that is not clear."""
    comma, dot = digits.rfind(","), digits.rfind(".")
    if comma < 0:
        return digits if digits.count(".") <= 1 else _ungroup(digits.replace(".", ","))
    if dot < 0:
        return _comma_alone(digits)
    if comma < dot:  # 1,234.5
        whole, fraction = digits[:dot], digits[dot:]
        plain = _ungroup(whole)
        return None if plain is None else plain + fraction
    plain = _ungroup(digits[:comma].replace(".", ","))  # 1.234,5
    return None if plain is None else f"{plain}.{digits[comma + 1 :]}"


def _comma_alone(digits: str) -> str | None:
    if digits.count(",") > 1:
        return _ungroup(digits)
    whole, _, fraction = digits.partition(",")
    three = len(fraction) == 3 and whole.lstrip("+-") != "0"
    return None if three else f"{whole}.{fraction}"


def _ungroup(text: str) -> str | None:
    return text.replace(",", "") if _GROUPED.fullmatch(text) else None
