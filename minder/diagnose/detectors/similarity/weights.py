"""The weights of LSTM-VAEs as plain arrays, with what is needed to feed them. No I/O here: minder.record.registry.folder reads them.

Legend: L lanes (networks), F inputs of each, H hidden, Z latent; 4H gates in the order input, forget, cell, output (torch's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from minder.model.errors import MinderError

__all__ = ["PARTS", "Weights", "shapes"]

PARTS = ("encoder.input", "encoder.hidden", "encoder.bias", "mean.weight", "mean.bias", "decoder.input", "decoder.hidden", "decoder.bias",
         "output.weight", "output.bias")  # fmt: skip


def shapes(lanes: int, inputs: int, hidden: int, latent: int) -> dict[str, tuple[int, ...]]:
    """The shape of every array."""
    gates = 4 * hidden
    return {
        "encoder.input": (lanes, gates, inputs),
        "encoder.hidden": (lanes, gates, hidden),
        "encoder.bias": (lanes, gates),
        "mean.weight": (lanes, latent, hidden),
        "mean.bias": (lanes, latent),
        "decoder.input": (lanes, gates, latent),
        "decoder.hidden": (lanes, gates, hidden),
        "decoder.bias": (lanes, gates),
        "output.weight": (lanes, inputs, hidden),
        "output.bias": (lanes, inputs),
    }


@dataclass(frozen=True, slots=True)
class Weights:
    """inputs: the metrics that each network reads. order: metrics, the most sensitive first. limits: (low, high) per metric."""

    inputs: tuple[tuple[str, ...], ...]
    order: tuple[str, ...]
    limits: Mapping[str, tuple[float, float]]
    arrays: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        missing = [name for name in PARTS if name not in self.arrays]
        if missing:
            raise MinderError(f"weights lack {', '.join(missing)}: train them again with minder.offline.training.fit_reference")
        hidden, latent = self.arrays["encoder.hidden"].shape[2], self.arrays["mean.weight"].shape[1]
        for name, shape in shapes(len(self.inputs), len(self.inputs[0]), hidden, latent).items():
            if self.arrays[name].shape != shape:
                raise MinderError(f"weights {name} have shape {self.arrays[name].shape}, not {shape}: train them again")

    def lanes_of(self, metrics: tuple[str, ...]) -> dict[str, np.ndarray]:
        """The arrays of the networks that read one of these metrics each, in this order."""
        place = {names[0]: index for index, names in enumerate(self.inputs)}
        chosen = [place[name] for name in metrics]
        return {name: array[chosen] for name, array in self.arrays.items()}
