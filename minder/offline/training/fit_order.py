"""The order of metrics: a decision tree separates abnormal windows from normal ones by each metric's largest Z-score (Minder, section 4.1).

Metrics nearer the root are more sensitive. Missing metrics are NaN, which the tree handles. Not published, and ours: depth and leaf size.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from minder.model.errors import MinderError, MissingExtraError

__all__ = ["fit_order", "largest_z"]

_DEPTH, _LEAF = 7, 20


def largest_z(values_TMK: np.ndarray) -> np.ndarray:
    """(T, K): of every row and metric the largest |Z| over machines; NaN where fewer than three machines have it or all are equal."""
    known_TMK = np.isfinite(values_TMK)
    count_T1K = np.maximum(known_TMK.sum(axis=1, keepdims=True), 1)
    filled_TMK = np.where(known_TMK, values_TMK, 0.0)
    apart_TMK = np.where(known_TMK, filled_TMK - filled_TMK.sum(axis=1, keepdims=True) / count_T1K, 0.0)
    std_TK = np.sqrt((apart_TMK**2).sum(axis=1) / count_T1K[:, 0])
    usable_TK = (known_TMK.sum(axis=1) >= 3) & (std_TK > 0)
    return np.where(usable_TK, np.abs(apart_TMK).max(axis=1) / np.where(std_TK > 0, std_TK, 1.0), np.nan)


def fit_order(largest_WK: np.ndarray, abnormal_W: np.ndarray, metrics: Sequence[str], seed: int = 0) -> tuple[str, ...]:
    """Metrics from the root downwards: by the depth at which the tree first asks for them, then by importance.

    Raises MinderError without both kinds of windows, MissingExtraError without scikit-learn.
    """
    if find_spec("sklearn") is None:
        raise MissingExtraError.of("scikit-learn", "models")
    from sklearn.tree import DecisionTreeClassifier

    if len(np.unique(abnormal_W)) < 2:
        raise MinderError("the order of metrics needs normal and abnormal windows: add labelled recordings with faults")
    tree = DecisionTreeClassifier(max_depth=_DEPTH, min_samples_leaf=_LEAF, class_weight="balanced", random_state=seed)
    tree.fit(largest_WK, abnormal_W)
    depth_K = _first_depths(tree.tree_, len(metrics))
    ranked = sorted(range(len(metrics)), key=lambda k: (depth_K[k], -tree.feature_importances_[k], metrics[k]))
    return tuple(metrics[k] for k in ranked)


def _first_depths(tree: object, count: int) -> list[float]:
    """At which depth each feature is first asked for; inf if never."""
    feature = tree.feature  # type: ignore[attr-defined]
    children = (tree.children_left, tree.children_right)  # type: ignore[attr-defined]
    found, level, depth = [np.inf] * count, [0], 0
    while level:
        for node in level:
            if feature[node] >= 0:
                found[feature[node]] = min(found[feature[node]], depth)
        level = [int(side[node]) for node in level for side in children if side[node] >= 0]
        depth += 1
    return found
