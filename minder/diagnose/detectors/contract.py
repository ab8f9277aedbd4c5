"""What every detector of telemetry must do (river's style: score and learn are two calls; higher is more anomalous).

Conformance: tests/detectors/test_conformance.py, which every detector passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from minder.model.evidence import Scores
from minder.model.telemetry import Window

__all__ = ["Detector"]


class Detector(Protocol):
    """Online, causal, no I/O, no clock.

    score: one Scores per grid row, in order; may advance the evidence that it accumulates, never its idea of what is normal.
    learn: update what is normal from the rows last scored, leaving out the machines that were just called anomalous.
    state / load: everything that matters, JSON-serialisable; a loaded detector continues with the same scores.

    Rows come in time order, each once, and every scored window is learned before the next one is scored (or never).
    Machines and metrics may come and go between windows and may come in any order: they are known by name.
    """

    def score(self, window: Window) -> list[Scores]: ...

    def learn(self, window: Window, anomalous: frozenset[str]) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...
