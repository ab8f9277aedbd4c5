"""What an accusation is worth: a logistic regression over snapshots of accusations, by families that the trees have not seen.

Legend: N snapshots, X inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minder.diagnose.detectors.learned.decide import Calibration, bounded

__all__ = ["fit_calibration"]

_FEWEST = 10  # accusations; of fewer nothing is learned
_RIDGE = 0.5  # accusations that hold each number where it stands without data


def fit_calibration(parts: Sequence[np.ndarray], prior: float) -> Calibration:
    """parts: of each recording (N, 6) as `trial.snapshots` gives them. prior: share of recordings with a fault. By Newton's method, with a
    ridge around what stands without data: all right, or all wrong, fixes no slope."""
    known = Calibration(prior=float(np.clip(prior, 0.01, 0.99)))
    table = np.concatenate([part for part in parts if len(part)] or [np.zeros((0, 6))])
    if table[:, 5].sum() < _FEWEST:
        return known
    level_N = np.array([bounded(value) for value in table[:, 0].tolist()])
    design_NX = np.stack([np.ones(len(table)), level_N, table[:, 1], table[:, 2], table[:, 3]], axis=1)
    right_N, weight_N = table[:, 4], table[:, 5]
    start_X = np.array([known.intercept, known.level, known.default, known.sure, known.learned])
    weights_X = start_X.copy()
    for _ in range(50):
        q_N = 1.0 / (1.0 + np.exp(-np.clip(design_NX @ weights_X, -30.0, 30.0)))
        hessian = design_NX.T @ (design_NX * (weight_N * q_N * (1.0 - q_N))[:, None]) + _RIDGE * np.eye(5)
        step_X = np.linalg.solve(hessian, design_NX.T @ (weight_N * (right_N - q_N)) - _RIDGE * (weights_X - start_X))
        weights_X = weights_X + np.clip(step_X, -2.0, 2.0)
    intercept, level, default, sure, learned = weights_X.tolist()
    return Calibration(intercept, level, default, sure, learned, known.prior)
