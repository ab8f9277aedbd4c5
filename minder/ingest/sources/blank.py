"""Numbers that mean "I do not know": exporters leak them as if they were readings."""

from __future__ import annotations

__all__ = ["BLANK_FLOOR", "BLANK_RANGES", "is_blank", "is_saturated"]

BLANK_FLOOR = 9.22e18  # DCGM's and NVML's 64-bit blanks, 0x7ffffffffffffff0 and up
# DCGM's 32-bit and floating-point blanks: blank, not found, not supported, not permissioned, in this order.
BLANK_RANGES = ((2147483632.0, 2147483647.0), (140737488355328.0, 140737488355331.0))
_SATURATED = frozenset({255.0, 65535.0, 4294967295.0})  # InfiniBand counters of 8, 16 and 32 bits stop here


def is_blank(value: float) -> bool:
    """True for NaN, infinities and the blank values.

    >>> is_blank(9223372036854775794.0), is_blank(2147483632.0), is_blank(548.0)
    (True, True, False)
    """
    if not -BLANK_FLOOR < value < BLANK_FLOOR:  # NaN too
        return True
    return value >= BLANK_RANGES[0][0] and any(low <= value <= high for low, high in BLANK_RANGES)


def is_saturated(value: float) -> bool:
    """True at the top of a hardware counter that stops there instead of wrapping: its growth is not known."""
    return value in _SATURATED
