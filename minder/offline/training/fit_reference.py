"""Fits the reference detector: one small LSTM-VAE per metric on windows of healthy training (Minder, NSDI'25, section 4.3), all at once.

Published: window 8, hidden 4, latent 8, one layer, reconstruction error below 1e-4. Not published, and ours: the optimiser, the weight of
the KL term, the amount of data (`FitConfig`). Pure: arrays in, arrays out; the same seed gives the same weights on the same machine.
Legend: L networks, N windows, W window rows, F inputs, B windows of a batch, H hidden, Z latent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from minder.diagnose.detectors.similarity.weights import shapes

__all__ = ["Fit", "FitConfig", "find_limits", "fit_reference"]


@dataclass(frozen=True, slots=True)
class FitConfig:
    """kl_weight: of the divergence against the squared error, both per window. steps of Adam, with a rate that falls to a hundredth."""

    hidden: int = 4
    latent: int = 8
    steps: int = 1500
    batch: int = 256
    rate: float = 0.02
    kl_weight: float = 1e-5
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Fit:
    """arrays: as detectors.similarity.weights. error_L: mean squared reconstruction error of each network on all windows, without noise.
    curve: (step, mean loss) at every fiftieth step."""

    arrays: Mapping[str, np.ndarray]
    error_L: np.ndarray
    curve: tuple[tuple[int, float], ...]


def find_limits(values_NK: np.ndarray, metrics: Sequence[str], ratios: frozenset[str]) -> dict[str, tuple[float, float]]:
    """Metric-level limits: 0 to 1 for ratios, else 0 to a quarter above what 999 of 1,000 healthy samples stay below."""
    found = {}
    for k, name in enumerate(metrics):
        known_N = values_NK[np.isfinite(values_NK[:, k]), k]
        found[name] = (0.0, 1.0) if name in ratios or not len(known_N) else (0.0, max(1.25 * float(np.quantile(known_N, 0.999)), 1e-9))
    return found


def fit_reference(windows_LNWF: np.ndarray, config: FitConfig | None = None) -> Fit:
    """Networks for scaled windows without gaps; each of the L networks sees only its own windows."""
    config = config or FitConfig()
    generator = torch.Generator().manual_seed(config.seed)
    data = torch.from_numpy(np.ascontiguousarray(windows_LNWF, dtype=np.float32))
    lanes, count, _, inputs = data.shape
    network = _Network(shapes(lanes, inputs, config.hidden, config.latent), generator)
    network.begin_at(data.mean(dim=(1, 2)))
    optimiser = torch.optim.Adam(network.parameters.values(), lr=config.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps, config.rate / 100.0)
    curve = []
    for step in range(config.steps):
        chosen = torch.randint(count, (lanes, config.batch), generator=generator)
        batch = torch.gather(data, 1, chosen[:, :, None, None].expand(-1, -1, *data.shape[2:]))
        loss_L = network.loss(batch, config.kl_weight, generator)
        optimiser.zero_grad()
        loss_L.sum().backward()
        network.clip(1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == config.steps - 1:
            curve.append((step, float(loss_L.detach().mean())))
    with torch.no_grad():
        error_L = torch.stack([network.error(part) for part in data.split(4096, dim=1)]).mean(dim=0)
    arrays = {name: value.detach().numpy().copy() for name, value in network.parameters.items() if not name.startswith("spread.")}
    return Fit(arrays, error_L.numpy(), tuple(curve))


class _Network:
    """The VAEs as one set of batched parameters; `spread.*` gives the log variance, which inference does not need."""

    def __init__(self, wanted: Mapping[str, tuple[int, ...]], generator: torch.Generator) -> None:
        wanted = {**wanted, "spread.weight": wanted["mean.weight"], "spread.bias": wanted["mean.bias"]}
        bound = wanted["encoder.hidden"][2] ** -0.5
        self.parameters = {
            name: ((torch.rand(shape, generator=generator) * 2.0 - 1.0) * bound).requires_grad_() for name, shape in wanted.items()
        }
        with torch.no_grad():
            self.parameters["spread.bias"] -= 8.0  # little noise at first, or the latent is given up before it says anything
            for part in ("encoder.bias", "decoder.bias"):
                hidden = wanted["encoder.hidden"][2]
                self.parameters[part][:, hidden : 2 * hidden] += 1.0  # a cell that remembers learns sooner (Jozefowicz 2015)

    def loss(self, batch_LBWF: torch.Tensor, kl_weight: float, generator: torch.Generator) -> torch.Tensor:
        """(L,): squared error and divergence."""
        hidden = self._encode(batch_LBWF)
        mean = self._linear("mean", hidden)
        log_variance = self._linear("spread", hidden).clamp(-12.0, 4.0)
        noise = torch.randn(mean.shape, generator=generator)
        found = self._decode(mean + noise * torch.exp(0.5 * log_variance), batch_LBWF.shape[2])
        divergence_L = -0.5 * (1.0 + log_variance - mean**2 - log_variance.exp()).sum(dim=2).mean(dim=1)
        return ((found - batch_LBWF) ** 2).mean(dim=(1, 2, 3)) + kl_weight * divergence_L

    def begin_at(self, mean_LF: torch.Tensor) -> None:
        """The first reconstruction is the mean: otherwise the first hundred steps saturate the cells to get there."""
        with torch.no_grad():
            self.parameters["output.bias"].copy_(mean_LF)
            self.parameters["output.weight"] *= 0.3

    def clip(self, most: float) -> None:
        """Each network's own gradient, cut to this length: one that is thrown about must not slow the others."""
        gradients = [value.grad for value in self.parameters.values()]
        length_L = sum(gradient.flatten(1).pow(2).sum(dim=1) for gradient in gradients).sqrt()
        factor_L = (most / length_L.clamp(min=1e-12)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor_L.view(-1, *[1] * (gradient.dim() - 1)))

    def error(self, batch_LBWF: torch.Tensor) -> torch.Tensor:
        found = self._decode(self._linear("mean", self._encode(batch_LBWF)), batch_LBWF.shape[2])
        return ((found - batch_LBWF) ** 2).mean(dim=(1, 2, 3))

    def _encode(self, batch_LBWF: torch.Tensor) -> torch.Tensor:
        state = self._begin(batch_LBWF)
        for step in range(batch_LBWF.shape[2]):
            state = self._step("encoder", batch_LBWF[:, :, step], state)
        return state[0]

    def _decode(self, latent_LBZ: torch.Tensor, width: int) -> torch.Tensor:
        state, rows = self._begin(latent_LBZ), []
        for _ in range(width):
            state = self._step("decoder", latent_LBZ, state)
            rows.append(self._linear("output", state[0]))
        return torch.stack(rows, dim=2)

    def _begin(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (like.shape[0], like.shape[1], self.parameters["encoder.hidden"].shape[2])
        return torch.zeros(shape), torch.zeros(shape)

    def _step(self, part: str, given: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        weights = self.parameters
        gates = torch.baddbmm(weights[f"{part}.bias"][:, None], given, weights[f"{part}.input"].transpose(1, 2))
        gates = torch.baddbmm(gates, state[0], weights[f"{part}.hidden"].transpose(1, 2))
        first, forget, change, out = gates.chunk(4, dim=2)
        cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(first) * torch.tanh(change)
        return torch.sigmoid(out) * torch.tanh(cell), cell

    def _linear(self, part: str, given: torch.Tensor) -> torch.Tensor:
        weights = self.parameters
        return torch.baddbmm(weights[f"{part}.bias"][:, None], given, weights[f"{part}.weight"].transpose(1, 2))
