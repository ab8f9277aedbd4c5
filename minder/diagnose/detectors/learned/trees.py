"""Boosted trees as arrays, evaluated in numpy. Legend: R rows, F features, T trees, N nodes of the largest tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from minder.diagnose.detectors.learned.describe import FEATURES, KIND_FEATURES, SIGNED

__all__ = ["CLIP", "MONOTONE", "Margin", "TreeSet", "as_magnitudes"]

CLIP = 8.0  # no bin's log likelihood ratio is believed beyond this
_LAST_OF_KINDS = max(part.stop for part in KIND_FEATURES.values())
# What can only speak for a fault, the larger it is: all that is measured of a kind (as magnitudes), how many are odd, by how much.
_AS_A_WHOLE = ("odd_kinds", "loud", "loud_lead", "slow_loud", "slow_loud_lead")
MONOTONE = tuple(int(i < _LAST_OF_KINDS or name in _AS_A_WHOLE) for i, name in enumerate(FEATURES))


def as_magnitudes(features_RF: np.ndarray) -> np.ndarray:
    """The inputs of the monotone set: deviations without their sign; a lead keeps its own."""
    out_RF = features_RF.copy()
    for part in KIND_FEATURES.values():
        out_RF[:, part.start : part.start + SIGNED] = np.abs(out_RF[:, part.start : part.start + SIGNED])
    return out_RF


@dataclass(frozen=True, slots=True)
class TreeSet:
    """feature_TN, threshold_TN: a row goes left where feature <= threshold, or where it is missing and missing_left_TN. child_TN2: left
    and right; a leaf is its own child. value_TN: of leaves, in log odds. base: log odds without any tree."""

    feature_TN: np.ndarray
    threshold_TN: np.ndarray
    missing_left_TN: np.ndarray
    left_TN: np.ndarray
    right_TN: np.ndarray
    value_TN: np.ndarray
    base: np.ndarray
    _flat: tuple[np.ndarray, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """All trees in one row of nodes, so that one step of every row in every tree is five look-ups. Raises ValueError (`check`)."""
        self.check()
        first_T1 = np.arange(len(self.feature_TN))[:, None] * self.feature_TN.shape[1]
        children = np.stack([first_T1 + self.right_TN, first_T1 + self.left_TN], axis=-1)
        parts = (self.feature_TN.astype(np.intp), self.threshold_TN, self.missing_left_TN > 0, children.astype(np.intp), self.value_TN)
        object.__setattr__(self, "_flat", (first_T1.ravel(), *(part.ravel() for part in parts)))

    def log_odds(self, features_RF: np.ndarray) -> np.ndarray:
        """(R,): the sum over all trees."""
        first_T, feature, threshold, missing_left, children, value = self._flat
        rows, width = features_RF.shape
        given, row_R1 = np.ascontiguousarray(features_RF, dtype=np.float64).ravel(), np.arange(rows)[:, None] * width
        node_RT = np.tile(first_T, (rows, 1))
        while True:
            seen_RT = given.take(row_R1 + feature.take(node_RT))
            left_RT = (seen_RT <= threshold.take(node_RT)) | (np.isnan(seen_RT) & missing_left.take(node_RT))
            next_RT = children.take(2 * node_RT + left_RT)
            if (next_RT == node_RT).all():
                return np.asarray(value.take(node_RT).sum(axis=1) + float(self.base[0]))
            node_RT = next_RT

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        return {f"{name}.{item.name}": getattr(self, item.name) for item in fields(self) if item.init}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], name: str) -> TreeSet:
        """Raises KeyError for an array that is missing, ValueError for trees that no evaluation could end in."""
        return cls(*(arrays[f"{name}.{item.name}"] for item in fields(cls) if item.init))

    def check(self) -> None:
        shape = self.feature_TN.shape
        same = all(getattr(self, item.name).shape == shape for item in fields(self) if item.init and item.name != "base")
        if len(shape) != 2 or not same or self.feature_TN.max(initial=0) >= len(FEATURES) or self.feature_TN.min(initial=0) < 0:
            raise ValueError("trees whose arrays do not fit each other or the features")
        here_N = np.arange(shape[1])
        for child_TN in (self.left_TN, self.right_TN):
            if (child_TN < here_N).any() or (child_TN >= shape[1]).any():
                raise ValueError("trees whose nodes lead nowhere")


@dataclass(frozen=True, slots=True)
class Margin:
    """The log likelihood ratio of a machine's bin: at fault against not. Mean of a set with signs and one that is monotone."""

    signed: TreeSet
    monotone: TreeSet

    def of(self, features_RF: np.ndarray) -> np.ndarray:
        """(R,), within CLIP."""
        if not len(features_RF):
            return np.zeros(0)
        mean_R = 0.5 * (self.signed.log_odds(features_RF) + self.monotone.log_odds(as_magnitudes(features_RF)))
        return np.asarray(np.clip(mean_R, -CLIP, CLIP))

    def shares(self, features_F: np.ndarray) -> dict[str, float]:
        """By how much the margin of one machine falls without each kind, the largest first."""
        kinds = [kind for kind, part in KIND_FEATURES.items() if not np.isnan(features_F[part]).all()]
        rows = [features_F]
        for kind in kinds:
            without_F = features_F.copy()
            without_F[KIND_FEATURES[kind]] = np.nan
            rows.append(without_F)
        margin_R = self.of(np.array(rows))
        found = {kind: float(margin_R[0] - margin_R[1 + i]) for i, kind in enumerate(kinds)}
        return dict(sorted(found.items(), key=lambda item: -item[1]))
