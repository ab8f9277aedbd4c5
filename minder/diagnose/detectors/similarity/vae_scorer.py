"""What the reference compares, and its ablations: embeddings per metric, raw windows (RAW), all metrics joined (CON), one network (INT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from minder.diagnose.detectors.similarity.bounds import near_sums
from minder.diagnose.detectors.similarity.config import SimilarityConfig, Vectors
from minder.diagnose.detectors.similarity.distances import summed_distances
from minder.diagnose.detectors.similarity.recent import Stretch
from minder.diagnose.detectors.similarity.weights import Weights

__all__ = ["VaeScorer"]

_VECTORS = 4_000_000  # floats of one pass: a batch of many machines is worked through in parts


class VaeScorer:
    """WindowScorer. mode "each": a network and a comparison per metric (published); "joined": the same vectors of all metrics as one
    (CON); "one": one network that reads all metrics (INT; its `weights` have one lane; a metric that is not there reads as 0)."""

    def __init__(
        self, weights: Weights, vectors: Vectors = "embedding", mode: Literal["each", "joined", "one"] = "each", name: str = "minder"
    ) -> None:
        self.name = name
        self.limits: Mapping[str, tuple[float, float]] = dict(weights.limits)
        self.order = weights.order
        self._weights = weights
        self._vectors = vectors
        self._mode = mode

    def lanes(self, metrics: Sequence[str]) -> tuple[str, ...]:
        if self._mode == "each" or not metrics:
            return tuple(metrics)
        return (self.name,)

    def score(self, stretch: Stretch, config: SimilarityConfig) -> np.ndarray:
        """(L, T, M) summed distances; where bounds leave no doubt who is a candidate, sums that have the same (bounds.py). Rows are worked
        through in parts so that memory does not grow with their number."""
        _, count, machines = stretch.known_KTM.shape
        lanes = len(self.lanes(stretch.metrics))
        sums_LTM = np.empty((lanes, count, machines), dtype=np.float32)
        step = max(1, _VECTORS // max(1, machines * len(stretch.metrics) * config.width_rows))
        for t in range(0, count, step):
            taken = min(step, count - t)
            rows_KSM = np.ascontiguousarray(stretch.rows_KSM[:, t : t + taken + config.width_rows - 1])
            self._score_rows(rows_KSM, stretch, (t, config), sums_LTM[:, t : t + taken])
        return sums_LTM

    def _score_rows(self, rows_KSM: np.ndarray, stretch: Stretch, at: tuple[int, SimilarityConfig], sums_LTM: np.ndarray) -> None:
        t, config = at
        known_KTM = stretch.known_KTM[:, t : t + sums_LTM.shape[1]]
        if self._mode == "one":
            vectors_LTMD = self._one(rows_KSM, stretch.metrics, config)
        else:
            vectors_LTMD = self._each(rows_KSM, stretch.metrics, config)
        if self._mode == "joined":
            vectors_LTMD = np.concatenate(list(np.where(known_KTM[..., None], vectors_LTMD, 0.0)), axis=2)[None]
        if self._mode != "each":
            known_KTM = np.any(known_KTM, axis=0, keepdims=True)
        lanes, count, machines = sums_LTM.shape
        open_LT = np.ones((lanes, count), dtype=bool)
        for lane in range(lanes):
            told_T, sums_TM = near_sums(vectors_LTMD[lane], known_KTM[lane], config)
            sums_LTM[lane, told_T], open_LT[lane] = sums_TM[told_T], ~told_T
        if open_LT.all():
            flat_XMD = vectors_LTMD.reshape(lanes * count, machines, -1)
            sums_LTM[:] = summed_distances(flat_XMD, known_KTM.reshape(lanes * count, machines), config.distance).reshape(sums_LTM.shape)
        elif open_LT.any():
            sums_LTM[open_LT] = summed_distances(vectors_LTMD[open_LT], known_KTM[open_LT], config.distance)

    def _each(self, rows_KSM: np.ndarray, metrics: tuple[str, ...], config: SimilarityConfig) -> np.ndarray:
        if self._vectors == "raw":
            view_KTMW = np.lib.stride_tricks.sliding_window_view(rows_KSM, config.width_rows, axis=1)
            return np.ascontiguousarray(view_KTMW)
        return self._network(self._weights.lanes_of(metrics), rows_KSM[:, None], config)

    def _one(self, rows_KSM: np.ndarray, metrics: tuple[str, ...], config: SimilarityConfig) -> np.ndarray:
        place = {name: k for k, name in enumerate(metrics)}
        nothing_SM = np.zeros(rows_KSM.shape[1:], dtype=np.float32)
        rows_FSM = np.stack([rows_KSM[place[name]] if name in place else nothing_SM for name in self._weights.inputs[0]])
        return self._network(dict(self._weights.arrays), rows_FSM[None], config)

    def _network(self, arrays: dict[str, np.ndarray], rows_LFSM: np.ndarray, config: SimilarityConfig) -> np.ndarray:
        from minder.diagnose.detectors.similarity import network

        if self._vectors == "reconstruction":
            return network.reconstruct(arrays, rows_LFSM, config.width_rows)
        through = network.embed if config.distance == "euclidean" else network.embed_latent
        return through(arrays, rows_LFSM, config.width_rows)
