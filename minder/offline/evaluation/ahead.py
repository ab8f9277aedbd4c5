"""A detector that learns nothing while it runs, scored over a whole recording in blocks and handed out row by row.

The reference, its ablations and the classical detectors compare machines within a window of a few rows, so their scores of a row are the
same however the rows are cut (tests/detectors/test_conformance.py), and the networks are an order of magnitude cheaper over many rows.
Each row's scores come from it and earlier rows alone: none looks ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.similarity.detector import SimilarityDetector
from minder.ingest.windows import cut_rows
from minder.model.evidence import Scores
from minder.model.telemetry import Window

__all__ = ["ScoredAhead", "score_ahead"]

_BLOCK_ROWS = 256


class ScoredAhead:
    """Detector (contract.py) for the rows of these windows, in order; a block is scored when its first row is asked for.

    A window has one set of machines: where they change, another begins. Raises ValueError for a row that is not the next of them.
    """

    def __init__(self, detector: Detector, windows: Iterable[Window]) -> None:
        blocks = (cut_rows(window, t, t + _BLOCK_ROWS) for window in windows for t in range(0, len(window.times_T), _BLOCK_ROWS))
        self._scores: Iterator[Scores] = (scores for block in blocks for scores in detector.score(block))
        self._next = 0

    def score(self, window: Window) -> list[Scores]:
        found = list(islice(self._scores, len(window.times_T)))
        if [item.time_s for item in found] != window.times_T.tolist() or any(item.machines != window.machines for item in found):
            raise ValueError("these are not the next rows of the windows that were scored ahead")
        self._next += len(found)
        return found

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        """Nothing, like the detector behind it."""

    def state(self) -> dict[str, Any]:
        return {"detector": "ahead", "version": 1, "next": self._next}

    def load(self, state: Mapping[str, Any]) -> None:
        """Of the same windows, of which fewer rows were asked for: go on where the state was taken."""
        self._next += sum(1 for _ in islice(self._scores, int(state["next"]) - self._next))


def score_ahead(detector: Detector, windows: Iterable[Window]) -> Detector:
    """The detector, if it learns while it runs; else the same scores of these windows, made ahead."""
    return ScoredAhead(detector, windows) if isinstance(detector, SimilarityDetector) else detector
