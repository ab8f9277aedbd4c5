"""From devices to their machine: the mean, and the device that deviates most, so that one faulty GPU of eight does not drown."""

from __future__ import annotations

import numpy as np

__all__ = ["reduce_devices"]


def reduce_devices(machine_X: np.ndarray, devices_XD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Combine a machine-wide value with per-device ones (NaN: no data), over any leading shape X.

    Returns values_X (the machine-wide value where there is one, else the mean over devices), deviating_X (index of the
    device farthest from that mean; -1 with fewer than two devices, or if none differs), low_X and high_X over the devices.
    """
    known_XD = ~np.isnan(devices_XD)
    count_X = known_XD.sum(axis=-1)
    filled_XD = np.where(known_XD, devices_XD, 0.0)
    with np.errstate(invalid="ignore"):
        mean_X = np.where(count_X > 0, filled_XD.sum(axis=-1) / np.maximum(count_X, 1), np.nan)
        distance_XD = np.where(known_XD, np.abs(devices_XD - mean_X[..., None]), -1.0)
    farthest_X = np.argmax(distance_XD, axis=-1)
    differs_X = (count_X >= 2) & (distance_XD.max(axis=-1) > 0.0)
    low_X = np.where(count_X > 0, np.where(known_XD, devices_XD, np.inf).min(axis=-1), np.nan)
    high_X = np.where(count_X > 0, np.where(known_XD, devices_XD, -np.inf).max(axis=-1), np.nan)
    values_X = np.where(np.isnan(machine_X), mean_X, machine_X)
    return values_X, np.where(differs_X, farthest_X, -1), low_X, high_X
