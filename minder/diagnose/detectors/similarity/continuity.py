"""Only a machine that stays the candidate is accused (section 4.5): for how long each machine has been one, lane by lane.

A lane is one comparison: a metric, or several at once. Legend: L lanes, T rows, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.state import Named, State, per

__all__ = ["Runs", "candidates"]


def candidates(normal_TM: np.ndarray, known_TM: np.ndarray, config: SimilarityConfig) -> np.ndarray:
    """(T, M) bool: the most dissimilar machines (top_k), if they are over the threshold for so many machines."""
    count_T = known_TM.sum(axis=1)
    needed_T = np.array([config.needed(count) if count >= config.least_machines else np.inf for count in count_T.tolist()])
    over_TM = normal_TM > needed_T[:, None]
    if not over_TM.any() or normal_TM.shape[1] <= config.top_k:
        return over_TM
    least_T1 = np.partition(normal_TM, normal_TM.shape[1] - config.top_k, axis=1)[:, [normal_TM.shape[1] - config.top_k]]
    return np.asarray(over_TM & (normal_TM >= least_T1))


@dataclass(slots=True)
class _RunState(State):
    """A lane stands for a metric."""

    run_KM: np.ndarray = per("KM")
    candidate_KM: np.ndarray = per("KM")


class Runs:
    """Seconds for which each machine has been a candidate without a break."""

    def __init__(self) -> None:
        self._state = _RunState()
        self._named = Named(self._state)

    def follow(self, machines: Sequence[str], lanes: Sequence[str]) -> None:
        self._named.follow(machines, lanes)

    def advance(self, candidate_LM: np.ndarray | None, fresh_L: np.ndarray, gap_s: float) -> np.ndarray:
        """(L, M) after one more row; a lane without any fresh data stands still. None: no look was taken, the last candidates stand."""
        state = self._state
        if candidate_LM is None:
            candidate_LM = state.candidate_KM > 0.5
        else:
            state.candidate_KM = candidate_LM.astype(np.float32)
        advanced_LM = np.where(candidate_LM, state.run_KM + np.float32(gap_s), np.float32(0.0))
        state.run_KM = np.where(fresh_L[:, None], advanced_LM, state.run_KM)
        return state.run_KM

    def state(self) -> dict[str, Any]:
        return self._named.record()

    def load(self, state: Mapping[str, Any]) -> None:
        self._named.load(state)
