"""LSTM-VAEs of many metrics in one pass: encoder (its mean, no sampling) and, if asked for, decoder. Inference only; torch.

All machines and windows of a metric go through a hand-batched LSTM cell. Two exact rewritings make it cheap: tanh(x) is
2 sigmoid(2x) - 1 with the factors folded into the weights, and a latent that is linear in H hidden values has the same distances as
these H values under a triangular matrix. Legend as in weights.py; S rows, T windows of `width` rows, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

__all__ = ["embed", "reconstruct"]

_COLUMNS = 12_288  # windows of one pass over one network: its gates stay in the processor's cache, and a call costs less than they do


def embed(arrays: Mapping[str, np.ndarray], rows_LFSM: np.ndarray, width: int) -> np.ndarray:
    """(L, T, M, H): coordinates whose Euclidean distances are those of the latent means. T = S - width + 1."""
    turned = np.asarray(np.linalg.qr(arrays["mean.weight"].astype(np.float64), mode="r"), dtype=np.float32)
    return _through(arrays, rows_LFSM, (width, turned, None))


def embed_latent(arrays: Mapping[str, np.ndarray], rows_LFSM: np.ndarray, width: int) -> np.ndarray:
    """(L, T, M, Z): the latent means themselves, for distances that are not Euclidean."""
    return _through(arrays, rows_LFSM, (width, arrays["mean.weight"], arrays["mean.bias"]))


def reconstruct(arrays: Mapping[str, np.ndarray], rows_LFSM: np.ndarray, width: int) -> np.ndarray:
    """(L, T, M, width * F): the window without its noise."""
    latent_LTMZ = embed_latent(arrays, rows_LFSM, width)
    lanes, count, machines, latent = latent_LTMZ.shape
    flat_LZB = torch.from_numpy(latent_LTMZ.reshape(lanes, count * machines, latent)).transpose(1, 2)
    cell = _Cell(arrays, "decoder")
    weight, bias = _tensor(arrays["output.weight"]), _tensor(arrays["output.bias"])[:, :, None]
    parts = []
    with torch.inference_mode():
        for start in range(0, count * machines, _COLUMNS):
            input_LZB = flat_LZB[:, :, start : start + _COLUMNS].contiguous()
            cell.begin(input_LZB.shape[2])
            steps = [torch.baddbmm(bias, weight, cell.step(input_LZB)) for _ in range(width)]
            parts.append(torch.cat(steps, dim=1))
    found_LYB = torch.cat(parts, dim=2)
    return np.ascontiguousarray(found_LYB.transpose(1, 2).numpy()).reshape(lanes, count, machines, -1)


def _through(arrays: Mapping[str, np.ndarray], rows_LFSM: np.ndarray, last: tuple[int, np.ndarray, np.ndarray | None]) -> np.ndarray:
    """The encoder over every window; `last`: width, and what is applied to the final hidden values."""
    width, weight, bias = last
    lanes, _, rows, machines = rows_LFSM.shape
    count = rows - width + 1
    found_LTMD = np.empty((lanes, count, machines, weight.shape[1]), dtype=np.float32)
    together = lanes if count * machines < 512 else 1  # few windows: all networks in one call
    step = max(1, _COLUMNS // machines)
    with torch.inference_mode():
        for lane in range(0, lanes, together):
            part = slice(lane, lane + together)
            rows_tensor, cell = torch.from_numpy(rows_LFSM[part]), _Cell({name: array[part] for name, array in arrays.items()}, "encoder")
            last_weight = _tensor(weight[part])
            for t in range(0, count, step):
                taken = min(step, count - t)
                hidden_LHB = _encode(cell, rows_tensor[:, :, t : t + taken + width - 1], width)
                out_LDB = torch.bmm(last_weight, hidden_LHB)
                if bias is not None:
                    out_LDB += _tensor(bias[part])[:, :, None]
                found_LTMD[part, t : t + taken] = out_LDB.transpose(1, 2).reshape(together, taken, machines, -1).numpy()
    return found_LTMD


def _encode(cell: _Cell, rows_LFSM: torch.Tensor, width: int) -> torch.Tensor:
    lanes, inputs, rows, machines = rows_LFSM.shape
    count = rows - width + 1
    cell.begin(count * machines)
    for step in range(width - 1):
        cell.step(rows_LFSM[:, :, step : step + count].reshape(lanes, inputs, count * machines))
    return cell.step(rows_LFSM[:, :, width - 1 :].reshape(lanes, inputs, count * machines))


class _Cell:
    """An LSTM cell of L networks over B columns. Kept between steps: twice the cell state, and the hidden values."""

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        gates_in = np.concatenate([arrays[f"{name}.input"], arrays[f"{name}.bias"][:, :, None], arrays[f"{name}.hidden"]], axis=2)
        self.hidden = gates_in.shape[1] // 4
        first, forget, change, out = np.split(gates_in, 4, axis=1)
        self._weight = _tensor(np.concatenate([first, forget, out, 2.0 * change], axis=1))
        self._inputs = arrays[f"{name}.input"].shape[2]

    def begin(self, columns: int) -> None:
        lanes = self._weight.shape[0]
        self._in = torch.zeros(lanes, self._inputs + 1 + self.hidden, columns)
        self._in[:, self._inputs] = 1.0
        self._double = torch.zeros(lanes, self.hidden, columns)
        self._gates = torch.empty(lanes, 4 * self.hidden, columns)
        self._squashed = torch.empty(lanes, self.hidden, columns)

    def step(self, input_LFB: torch.Tensor) -> torch.Tensor:
        """(L, H, B) hidden values after one more input; a view that the next step overwrites."""
        size = self.hidden
        self._in[:, : self._inputs] = input_LFB
        torch.bmm(self._weight, self._in, out=self._gates)
        self._gates.sigmoid_()
        first, forget = self._gates[:, :size], self._gates[:, size : 2 * size]
        out, change = self._gates[:, 2 * size : 3 * size], self._gates[:, 3 * size :]
        self._double.mul_(forget).addcmul_(first, change, value=4.0).sub_(first, alpha=2.0)
        torch.sigmoid(self._double, out=self._squashed)
        hidden = self._in[:, self._inputs + 1 :]
        hidden.copy_(self._squashed.mul_(2.0).sub_(1.0).mul_(out))
        return hidden


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
