"""scikit-learn fits, numpy runs: two sets of boosted trees, exported as arrays. Legend: T trees, N nodes, F features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors.learned.trees import CLIP, MONOTONE, Margin, TreeSet, as_magnitudes
from minder.offline.training.learned.examples import Examples

__all__ = ["PARAMETERS", "Fitted", "fit"]

PARAMETERS: dict[str, Any] = {
    "max_iter": 45, "max_leaf_nodes": 24, "min_samples_leaf": 60, "l2_regularization": 3.0, "learning_rate": 0.2, "max_bins": 48,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fitted:
    """Both fitted models. Many rows at once are faster here than in the exported arrays, and give the same."""

    signed: Any
    monotone: Any

    def of(self, features_RF: np.ndarray) -> np.ndarray:
        """`Margin.of` of the exported trees."""
        if not len(features_RF):
            return np.zeros(0)
        mean_R = 0.5 * (self.signed.decision_function(features_RF) + self.monotone.decision_function(as_magnitudes(features_RF)))
        return np.asarray(np.clip(mean_R, -CLIP, CLIP))

    def margin(self) -> Margin:
        return Margin(_export(self.signed), _export(self.monotone))


def fit(examples: Examples, seed: int = 0) -> Fitted:
    """Both sets, from the same examples."""
    return Fitted(
        _fit(examples.features_NF, examples, seed, None), _fit(as_magnitudes(examples.features_NF), examples, seed, MONOTONE)
    )  # fmt: skip


def _fit(features_NF: np.ndarray, examples: Examples, seed: int, monotone: tuple[int, ...] | None) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    never_F = np.isnan(features_NF).all(axis=0)
    features_NF = np.where(never_F, 0.0, features_NF)  # what no recording has: no tree can split on a constant
    model = HistGradientBoostingClassifier(**PARAMETERS, early_stopping=False, random_state=seed, monotonic_cst=monotone)
    return model.fit(features_NF, examples.is_culprit_N, sample_weight=examples.weight_N)


def _export(model: Any) -> TreeSet:
    """sklearn keeps its trees in `_predictors`: one structured array of nodes each. A test compares every export with its model."""
    nodes = [stage[0].nodes for stage in model._predictors]
    size = max(len(tree) for tree in nodes)
    shape = (len(nodes), size)
    here_TN = np.tile(np.arange(size), (len(nodes), 1))
    feature_TN, missing_TN = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.int8)
    threshold_TN, value_TN = np.zeros(shape), np.zeros(shape)
    left_TN, right_TN = here_TN.astype(np.int32), here_TN.astype(np.int32)
    for t, tree in enumerate(nodes):
        inner = ~tree["is_leaf"].astype(bool)
        place = np.flatnonzero(inner)
        value_TN[t, : len(tree)] = np.where(inner, 0.0, tree["value"])
        feature_TN[t, place] = tree["feature_idx"][inner]
        threshold_TN[t, place] = tree["num_threshold"][inner]
        missing_TN[t, place] = tree["missing_go_to_left"][inner]
        left_TN[t, place], right_TN[t, place] = tree["left"][inner], tree["right"][inner]
    base = np.array([float(np.ravel(model._baseline_prediction)[0])])
    return TreeSet(feature_TN, threshold_TN, missing_TN, left_TN, right_TN, value_TN, base)
