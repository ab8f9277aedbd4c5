"""Rows to learn from: labels, and weights that make families, recordings and both answers count alike.

Legend: R rows of a recording, N rows of all, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.learned.describe import FEATURES, KIND_FEATURES
from minder.offline.training.learned.recording import Recording

__all__ = ["Examples", "Sampled", "join", "sample"]

_NEGATIVES = 60  # of a recording, drawn by how loud the machine is
_POSITIVES = 40  # of a recording, at random: neighbouring bins hardly differ
_LEAST_S, _LAST_S = 8.0, 450.0  # after the onset: rows before say nothing yet, rows after may have been attended to
_DROPPED = 0.15  # of the rows lose one kind, so that a verdict can be explained by what is missing
_LOUD = FEATURES.index("loud")


@dataclass(frozen=True, slots=True)
class Sampled:
    """Rows of one recording. inverse_N: how many rows each stands for."""

    family: str
    features_NF: np.ndarray
    is_culprit_N: np.ndarray
    inverse_N: np.ndarray


@dataclass(frozen=True, slots=True)
class Examples:
    features_NF: np.ndarray
    is_culprit_N: np.ndarray
    weight_N: np.ndarray


def sample(recording: Recording) -> Sampled:
    """The same rows each time. A culprit that no metric shows teaches nothing, neither as a culprit nor as a healthy machine."""
    rng = np.random.default_rng([recording.seed, len(recording.machines), 17])
    label_R = label_rows(recording)
    loud_R = recording.features_RF[:, _LOUD].astype(np.float64) + 1.0
    negative_R = label_R == 0
    chance_R = np.zeros(len(label_R))
    if negative_R.any():
        chance_R[negative_R] = np.minimum(1.0, _NEGATIVES * loud_R[negative_R] / loud_R[negative_R].sum())
    chance_R[label_R == 1] = min(1.0, _POSITIVES / max(int((label_R == 1).sum()), 1))
    rows = np.flatnonzero(rng.random(len(label_R)) < chance_R)
    features_NF = recording.features_RF[rows].astype(np.float32)
    _drop_kinds(features_NF, rng)
    return Sampled(recording.family, features_NF, label_R[rows] == 1, 1.0 / chance_R[rows])


def label_rows(recording: Recording) -> np.ndarray:
    """(R,): 1 culprit while its fault lasts, 0 not at fault, -1 neither."""
    label_R = np.zeros(len(recording.machine_R), dtype=np.int8)
    if recording.onset_s is None:
        return label_R
    time_R = np.repeat(recording.time_B, np.diff(recording.first_B))
    dt_R = np.repeat(recording.dt_B, np.diff(recording.first_B))
    places = [recording.machines.index(name) for name in recording.culprits]
    culprit_R = np.isin(recording.machine_R, places)
    since_R = time_R - recording.onset_s
    label_R[culprit_R & (since_R >= 0.0)] = -1
    if recording.shown:
        label_R[culprit_R & (since_R >= np.maximum(dt_R, _LEAST_S)) & (since_R <= _LAST_S)] = 1
    return label_R


def join(parts: Sequence[Sampled]) -> Examples:
    """All parts, weighted: half for culprits, half for the others; in each half every family alike, in each family every recording."""
    culprit_N, weights = np.concatenate([part.is_culprit_N for part in parts]), []
    count = {(part.family, answer): 0 for part in parts for answer in (True, False)}
    for part in parts:
        for answer in (True, False):
            count[part.family, answer] += bool((part.is_culprit_N == answer).any())
    for part in parts:
        weight_N = part.inverse_N.copy()
        for answer in (True, False):
            mask_N = part.is_culprit_N == answer
            if mask_N.any():
                weight_N[mask_N] /= weight_N[mask_N].sum() * count[part.family, answer]
        weights.append(weight_N)
    weight_N = np.concatenate(weights)
    for answer in (True, False):  # a family without any faults must not tilt the halves
        weight_N[culprit_N == answer] /= max(weight_N[culprit_N == answer].sum(), 1e-12)
    weight_N *= len(weight_N) / 2.0
    return Examples(np.concatenate([part.features_NF for part in parts]), culprit_N, weight_N)


def _drop_kinds(features_NF: np.ndarray, rng: np.random.Generator) -> None:
    kinds = list(KIND_FEATURES.values())
    chosen_N = rng.integers(len(kinds), size=len(features_NF))
    drops_N = rng.random(len(features_NF)) < _DROPPED
    for p, part in enumerate(kinds):
        features_NF[(chosen_N == p) & drops_N, part] = np.nan
