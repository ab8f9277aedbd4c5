"""Sliding windows over aligned rows, as the detectors that look at a stretch of time want them."""

from __future__ import annotations

import numpy as np

__all__ = ["slide_windows"]


def slide_windows(values_TMK: np.ndarray, width: int, stride: int = 1) -> np.ndarray:
    """A read-only view of shape (windows, width, M, K): window i covers rows i*stride .. i*stride + width - 1.

    Fewer than `width` rows give no window. Raises ValueError for a width or stride below 1.

    >>> slide_windows(np.zeros((10, 2, 3)), width=4, stride=3).shape
    (3, 4, 2, 3)
    """
    if width < 1 or stride < 1:
        raise ValueError(f"width {width} and stride {stride} must be 1 or more")
    if len(values_TMK) < width:
        return np.empty((0, width, *values_TMK.shape[1:]), dtype=values_TMK.dtype)
    view_WMKT = np.lib.stride_tricks.sliding_window_view(values_TMK, width, axis=0)
    return np.moveaxis(view_WMKT[::stride], -1, 1)
