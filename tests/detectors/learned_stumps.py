"""A learned model of two hand-made trees, for tests that are not about what was fitted."""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.learned.describe import FEATURES
from minder.diagnose.detectors.learned.model import LearnedModel
from minder.diagnose.detectors.learned.trees import Margin, TreeSet


def stump(feature: str, threshold: float, below: float, above: float) -> TreeSet:
    return TreeSet(
        feature_TN=np.array([[FEATURES.index(feature), 0, 0]]), threshold_TN=np.array([[threshold, 0.0, 0.0]]),
        missing_left_TN=np.ones((1, 3)),
        left_TN=np.array([[1, 1, 2]]), right_TN=np.array([[2, 1, 2]]), value_TN=np.array([[0.0, below, above]]), base=np.zeros(1),
    )  # fmt: skip


def stumps() -> LearnedModel:
    """A machine that is ahead of all others by a lot is at fault."""
    trees = stump("loud_lead", 6.0, -4.0, 5.0)
    return LearnedModel(Margin(trees, trees))
