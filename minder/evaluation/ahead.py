"""A detector that learns nothing while it runs, scored over a whole recording in blocks and handed out row by row.

The reference, its ablations and the classical detectors compare machines within a window of a few rows, so their scores of a row are the
same however the rows are cut (tests/detectors/test_conformance.py), and the networks are an order of magnitude cheaper over many rows.
Each row's scores come from it and earlier rows alone: nobody looks ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.detectors.contract import Detector
from minder.detectors.similarity.detector import SimilarityDetector
from minder.types import Scores, Window
from minder.windows import cut_rows

__all__ = ["ScoredAhead", "score_ahead"]

_BLOCK_ROWS = 256


class ScoredAhead:
    """Detector (contract.py) for the rows of one window, in order. Raises ValueError for a row that is not the next of them."""

    def __init__(self, detector: Detector, window: Window) -> None:
        blocks = (cut_rows(window, t, t + _BLOCK_ROWS) for t in range(0, len(window.times_T), _BLOCK_ROWS))
        self.scores = [scores for block in blocks for scores in detector.score(block)]
        self._machines = window.machines
        self._next = 0

    def score(self, window: Window) -> list[Scores]:
        found = self.scores[self._next : self._next + len(window.times_T)]
        if window.machines != self._machines or [item.time_s for item in found] != window.times_T.tolist():
            raise ValueError("these are not the next rows of the window that was scored ahead")
        self._next += len(found)
        return found

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        """Nothing, like the detector behind it."""

    def state(self) -> dict[str, Any]:
        return {"detector": "ahead", "version": 1, "next": self._next}

    def load(self, state: Mapping[str, Any]) -> None:
        self._next = int(state["next"])


def score_ahead(detector: Detector, window: Window) -> Detector:
    """The detector, if it learns while it runs; else the same scores of this window, made ahead."""
    return ScoredAhead(detector, window) if isinstance(detector, SimilarityDetector) else detector
