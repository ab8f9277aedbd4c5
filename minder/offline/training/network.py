"""The reference's part of a training: healthy windows to weights, labelled rows to the order of metrics (Minder, NSDI'25, section 4).

Legend: L networks, N windows, W rows of a window, T rows, M machines, K metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minder.ingest.sources.recording import read_recording
from minder.ingest.windows import align_columns
from minder.model.errors import BadInputError
from minder.model.metrics import CATALOGUE
from minder.model.telemetry import Window
from minder.offline.evaluation.labels import Labelled
from minder.offline.training.recipe import NetworkRules
from minder.record.registry.folder import Model

__all__ = ["fit_network", "sample_windows"]

_WIDTH = 8
_FAULT_S = 420.0  # rows so long after an onset count as abnormal


def fit_network(
    rules: NetworkRules, seed: int, healthy: Sequence[Window], labelled: Sequence[Labelled]
) -> tuple[Model, list[tuple[int, float]], dict[str, float]]:
    """(model without card and ranges, loss curve, reconstruction error per metric). Raises BadInputError without healthy windows."""
    from minder.offline.training.fit_reference import FitConfig, find_limits, fit_reference

    metrics = tuple(
        item.name for item in CATALOGUE if not (item.counter or item.spoken) and any(_has(window, item.name) for window in healthy)
    )
    if not metrics:
        raise BadInputError("no healthy window to fit networks on: give recordings with at least a minute before the onset")
    ratios = frozenset(item.name for item in CATALOGUE if item.unit == "ratio")
    limits: dict[str, tuple[float, float]] = {}
    for name in metrics:
        values_N1 = np.concatenate([_column(window, name).ravel() for window in healthy if _has(window, name)])[:, None]
        limits |= find_limits(values_N1, (name,), ratios)
    windows_LNWF = np.stack([sample_windows(healthy, name, limits[name], rules.windows, seed) for name in metrics])[..., None]
    fit = fit_reference(windows_LNWF, FitConfig(hidden=rules.hidden, latent=rules.latent, steps=rules.steps, seed=seed))
    network: dict[str, Any] = {
        "inputs": [[name] for name in metrics],
        "order": list(_order(labelled, metrics, seed)),
        "limits": {name: list(bounds) for name, bounds in limits.items()},
    }
    errors = {name: float(error) for name, error in zip(metrics, fit.error_L, strict=True)}
    return Model("minder", network=network, arrays=dict(fit.arrays)), list(fit.curve), errors


def sample_windows(healthy: Iterable[Window], name: str, limits: tuple[float, float], count: int, seed: int) -> np.ndarray:
    """(N, W) windows of one metric, of any machine, scaled to 0..1 by its limits, with the nearest sample in each gap."""
    parts = []
    for window in healthy:
        if _has(window, name) and len(window.times_T) >= _WIDTH:
            view_TMW = np.lib.stride_tricks.sliding_window_view(_column(window, name), _WIDTH, axis=0)
            parts.append(view_TMW.reshape(-1, _WIDTH)[np.isfinite(view_TMW).all(axis=2).ravel()])
    every = np.concatenate(parts) if parts else np.zeros((0, _WIDTH))
    if not len(every):
        raise BadInputError(f"no healthy window of {name} without gaps: give more recordings")
    chosen = np.random.default_rng(seed).integers(0, len(every), count)
    low, high = limits
    return np.clip((every[chosen] - low) / max(high - low, 1e-12), 0.0, 1.0).astype(np.float32)


def _order(labelled: Sequence[Labelled], metrics: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """By the decision tree where there are faults to learn from, else the catalogue's order."""
    from minder.offline.training.fit_order import fit_order, largest_z

    rows, flags = [], []
    for item in labelled:
        recording = read_recording(item.path)
        if not len(recording.frames.times_N):
            continue
        window = align_columns(recording.frames, recording.interval_s)
        place = {name: k for k, name in enumerate(window.metrics)}
        found_TK = largest_z(window.values_TMK)
        nothing_T = np.full(len(window.times_T), np.nan)
        rows.append(np.stack([found_TK[:, place[name]] if name in place else nothing_T for name in metrics], axis=1))
        onset_s = item.truth.onset_s if item.truth.onset_s is not None else np.inf
        flags.append((window.times_T >= onset_s) & (window.times_T <= onset_s + _FAULT_S))
    abnormal = np.concatenate(flags) if flags else np.zeros(0, dtype=bool)
    if not abnormal.any() or abnormal.all():
        return metrics
    return fit_order(np.concatenate(rows), abnormal, metrics, seed)


def _has(window: Window, name: str) -> bool:
    return name in window.metrics and bool(np.isfinite(_column(window, name)).any())


def _column(window: Window, name: str) -> np.ndarray:
    """(T, M)"""
    return np.asarray(window.values_TMK[:, :, window.metrics.index(name)])
