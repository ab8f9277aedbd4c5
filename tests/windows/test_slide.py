"""Sliding windows."""

from __future__ import annotations

import numpy as np
import pytest

from minder.ingest.windows import slide_windows


def test_each_window_is_a_stretch_of_rows():
    values_TMK = np.arange(10 * 2 * 3).reshape(10, 2, 3).astype(float)
    windows = slide_windows(values_TMK, width=4, stride=3)
    assert windows.shape == (3, 4, 2, 3)
    for index in range(3):
        np.testing.assert_array_equal(windows[index], values_TMK[3 * index : 3 * index + 4])


def test_too_few_rows_give_no_window():
    assert slide_windows(np.zeros((3, 2, 1)), width=4).shape == (0, 4, 2, 1)


@pytest.mark.parametrize(("width", "stride"), [(0, 1), (1, 0)])
def test_senseless_sizes_are_refused(width, stride):
    with pytest.raises(ValueError, match="1 or more"):
        slide_windows(np.zeros((3, 2, 1)), width, stride)
