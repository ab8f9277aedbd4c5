"""The published loop, row by row: windows of all machines, normal scores, candidates, continuity (section 4; alert rule 4.5).

What is compared in a lane, and how, is the scorer's business: a VAE per metric (the reference), raw windows, Mahalanobis, PyOD.
Legend: L lanes, T rows, K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from minder.diagnose.detectors.similarity.config import PUBLISHED_METRICS, SimilarityConfig
from minder.diagnose.detectors.similarity.continuity import Runs, candidates
from minder.diagnose.detectors.similarity.distances import normal_scores
from minder.diagnose.detectors.similarity.recent import RecentRows, Stretch
from minder.model.evidence import Evidence, Scores
from minder.model.telemetry import Window

__all__ = ["SimilarityDetector", "WindowScorer"]


class WindowScorer(Protocol):
    """What makes one number per machine out of a window of all machines; higher is less like its peers."""

    name: str
    limits: Mapping[str, tuple[float, float]]
    order: tuple[str, ...]  # metrics, first the most sensitive

    def lanes(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Names of the comparisons that these metrics allow: metric names, or one name for all of them together."""

    def score(self, stretch: Stretch, config: SimilarityConfig) -> np.ndarray:
        """(L, T, M): how unlike its peers; NaN where nothing is known, and in rows that are not due (config.refit_s)."""


class SimilarityDetector:
    """Detector (contract.py). What is normal is what the peers do at the moment: nothing is learned while it runs."""

    def __init__(self, scorer: WindowScorer, config: SimilarityConfig | None = None) -> None:
        self.config = config or SimilarityConfig()
        self._scorer = scorer
        self._limits = {**scorer.limits, **self.config.limits}
        self._recent = RecentRows(self.config.width_rows, self._limits)
        self._runs = Runs()

    def score(self, window: Window) -> list[Scores]:
        if not len(window.times_T):
            return []
        stretch = self._recent.extend(window, self._chosen(window.metrics))
        lanes = self._scorer.lanes(stretch.metrics)
        self._runs.follow(window.machines, lanes)
        if not lanes or len(window.machines) < self.config.least_machines:
            return [self._nothing(float(time_s), window.machines) for time_s in window.times_T]
        candidate_LTM = self._candidates(stretch, len(lanes))
        due_T = stretch.due_T(self.config.refit_s)
        fresh_LT = (
            stretch.fresh_KT if lanes == stretch.metrics else np.repeat(np.any(stretch.fresh_KT, axis=0, keepdims=True), len(lanes), axis=0)
        )
        found = []
        for t, time_s in enumerate(window.times_T.tolist()):
            run_LM = self._runs.advance(candidate_LTM[:, t] if due_T[t] else None, fresh_LT[:, t], float(stretch.gap_T[t]))
            found.append(self._conclude((time_s, t), run_LM, stretch, window.machines))
        return found

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        """Nothing: weights come from training, and peers are compared with each other as they are."""

    def state(self) -> dict[str, Any]:
        return {"detector": self._scorer.name, "version": 1, "recent": self._recent.state(), "runs": self._runs.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._recent.load(state["recent"])
        self._runs.load(state["runs"])

    def _chosen(self, available: Sequence[str]) -> list[str]:
        """Metrics in order of priority."""
        has = set(available) & set(self._limits)
        published = set(PUBLISHED_METRICS) & has
        wanted = set(self.config.metrics) & has or (published if len(published) >= 3 else has)
        order = self.config.metrics or self._scorer.order
        ranked = [name for name in order if name in wanted]
        return ranked + sorted(wanted - set(ranked))

    def _candidates(self, stretch: Stretch, lanes: int) -> np.ndarray:
        found_LTM = np.zeros((lanes, *stretch.known_KTM.shape[1:]), dtype=bool)
        for lane, sums_TM in enumerate(self._scorer.score(stretch, self.config)):
            normal_TM = normal_scores(sums_TM, self.config.least_spread)
            found_LTM[lane] = candidates(normal_TM, ~np.isnan(sums_TM), self.config)
        return found_LTM

    def _conclude(self, at: tuple[float, int], run_LM: np.ndarray, stretch: Stretch, machines: tuple[str, ...]) -> Scores:
        """The first lane, in order of priority, that accuses a machine decides; others may not accuse another one beside it."""
        time_s, t = at
        threshold = max(self.config.continuity_s, 1e-3)
        score_M = run_LM.max(axis=0).astype(np.float64)
        over_L = (run_LM >= threshold).any(axis=1)
        if over_L.any():
            deciding = run_LM[int(np.argmax(over_L))] >= threshold
            score_M = np.where(deciding, score_M, np.minimum(score_M, 0.99 * threshold))
        evidence, since_s = {}, {}
        for m in np.flatnonzero(score_M >= 0.5 * threshold).tolist():
            since_s[machines[m]] = time_s - float(run_LM[:, m].max())
            evidence[machines[m]] = self._explain((t, m), run_LM[:, m], stretch, (machines[m], since_s[machines[m]]))
        return Scores(time_s, machines, score_M, threshold, evidence, since_s)

    def _explain(self, at: tuple[int, int], run_L: np.ndarray, stretch: Stretch, who: tuple[str, float]) -> tuple[Evidence, ...]:
        """The metrics whose lanes run; of a lane over several metrics, the one in which the machine is farthest from the middle."""
        t, m = at
        newest_KM = stretch.rows_KSM[:, t + self.config.width_rows - 1]
        middle_K = np.median(newest_KM, axis=1)
        if len(run_L) == len(stretch.metrics):
            chosen = [k for k in np.argsort(-run_L, kind="stable").tolist() if run_L[k] >= 0.5 * run_L.max()]
        else:
            usual_K = np.median(np.abs(newest_KM - middle_K[:, None]), axis=1) + 1e-3
            chosen = [int(np.argmax(np.abs(newest_KM[:, m] - middle_K) / usual_K))]
        machine, since_s = who
        return tuple(
            Evidence(
                "telemetry",
                machine,
                f"{self._scorer.name}: stays unlike its peers",
                metric=stretch.metrics[k],
                observed=self._recent.in_units(stretch.metrics[k], float(newest_KM[k, m])),
                expected=self._recent.in_units(stretch.metrics[k], float(middle_K[k])),
                since_s=since_s,
            )
            for k in chosen
        )

    def _nothing(self, time_s: float, machines: tuple[str, ...]) -> Scores:
        return Scores(time_s, machines, np.zeros(len(machines)), max(self.config.continuity_s, 1e-3))
