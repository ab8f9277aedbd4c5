"""The scalar rules of the grid agree with one another."""

from __future__ import annotations

import numpy as np

from minder.ingest.windows.grid import first_row, is_after


def test_after_a_row_is_where_the_first_row_is_a_later_one():
    dice = np.random.default_rng(0)
    for step_s in (0.1, 1.0, 15.0):
        for row in (0, 7, 1_700_000_000):
            for off in (*dice.uniform(-2.0, 2.0, 200), -1e-6, -5e-7, 0.0, 5e-7, 1e-6, 2e-6, 1.0):
                time_s = (row + off) * step_s
                assert is_after(time_s, row, step_s) == (first_row(time_s, step_s) > row)
