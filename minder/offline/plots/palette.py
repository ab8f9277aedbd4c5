"""The colours of every figure: Okabe and Ito's palette, which colour-blind readers tell apart and grey print by brightness.

A line has a style of its own, a bar a hatch of its own: a figure can be read without its colours.
"""

from __future__ import annotations

__all__ = ["BLUE", "DARK", "DIM", "GREEN", "GREY", "LIGHT_BLUE", "LINES", "MAP", "ORANGE", "PALE", "PINK", "RED", "SILVER", "STYLE"]

BLUE, RED, GREEN, ORANGE, PINK, LIGHT_BLUE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
DARK, DIM, GREY, SILVER, PALE = "#333333", "#555555", "#8C8C8C", "#BBBBBB", "#E5E5E5"
LINES = ((BLUE, "-"), (RED, "--"), (GREEN, "-."), (PINK, ":"), (ORANGE, (0, (5, 1, 1, 1))), (DARK, (0, (1, 1))))
MAP = "cividis"  # the same to readers with and without colour blindness, and in grey print
STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "hatch.linewidth": 0.6}
