"""The reference model of bit-wise alignment: one training step of eight shards, all in one process, that has one right answer per hardware.

Two layouts: "dense" is TP/PP/DP = 2/2/2, "experts" is EP/PP/DP = 2/2/2. A coordinate is (tensor or expert, stage, replica). Weights, inputs
and targets come from integer arithmetic, so no random generator can differ. Every collective joins two tensors at a time: a sum of two has
one result, whatever the order. Where each shard has a GPU of its own, NCCL sums; else the shards share a device and are summed there.

Shape legend: B sequences, T tokens of one, N = B*T, C channels, H heads, S size of a head, V classes.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

__all__ = ["SIZES", "Coordinate", "ReferenceStep", "Row", "Size", "coordinate_name"]

Coordinate = tuple[int, int, int]
Row = tuple[str, str, str]  # coordinate, tensor, SHA-256

_PRIME = 2_147_483_647
_EXPERTS = 4
_LEARNING_RATE, _DECAY, _EPSILON, _BETAS = 1e-3, 0.01, 1e-8, (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Size:
    """layers: of each of the two stages. sequences: of each replica."""

    width: int
    heads: int
    layers: int
    sequences: int
    tokens: int
    classes: int


SIZES: Mapping[str, Size] = {
    "tiny": Size(16, 2, 1, 2, 8, 16),
    "cpu": Size(256, 8, 2, 2, 64, 256),
    "gpu": Size(2048, 16, 2, 4, 512, 4096),
}


def coordinate_name(layout: str, at: Coordinate) -> str:
    """
    >>> coordinate_name("experts", (1, 0, 1))
    'experts ep1 pp0 dp1'
    """
    return f"{layout} {'tp' if layout == 'dense' else 'ep'}{at[0]} pp{at[1]} dp{at[2]}"


class ReferenceStep:
    """One step of one layout. `run` returns the hashes of its tensors in the order of execution: outputs forward, gradients of outputs
    backward, each shard's own gradients of its parameters, the reduced ones, the updated parameters."""

    def __init__(self, layout: str, size: Size, devices: Sequence[str] = ("cpu",), dtype: torch.dtype = torch.float32) -> None:
        self.layout, self.size, self.dtype = layout, size, dtype
        places = itertools.cycle(devices)
        self.devices: dict[Coordinate, str] = {
            (one, stage, replica): next(places) for one, stage, replica in itertools.product(range(2), repeat=3)
        }
        self._weights: dict[tuple[Coordinate, str], torch.Tensor] = {}
        self._outputs: list[tuple[Coordinate, str, torch.Tensor]] = []

    def matmul(self, at: Coordinate, name: str, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Every matrix product of the forward pass goes through here."""
        return left @ right

    def run(self) -> list[Row]:
        losses = [loss for replica in range(2) for loss in self._forward(replica)]
        torch.autograd.backward(losses)
        rows = [self._row(at, f"forward {name}", tensor) for at, name, tensor in self._outputs]
        rows += [self._row(at, f"backward {name}", tensor.grad) for at, name, tensor in reversed(self._outputs)]
        return rows + list(self._finish())

    # Forward

    def _forward(self, replica: int) -> list[torch.Tensor]:
        """Both stages; the loss of each of the two shards of the last one."""
        x_2BTC = [self._input((shard, 0, replica)) for shard in range(2)]
        for stage in range(2):
            places = [(shard, stage, replica) for shard in range(2)]
            x_2BTC = [self._keep(at, f"stage{stage}.input", _send(x, self.devices[at])) for at, x in zip(places, x_2BTC, strict=True)]
            for layer in range(self.size.layers):
                name = f"stage{stage}.layer{layer}"
                x_2BTC = self._attention(places, f"{name}.attention", x_2BTC)
                x_2BTC = (self._network if self.layout == "dense" else self._experts)(places, f"{name}.network", x_2BTC)
        return [self._loss((shard, 1, replica), x) for shard, x in enumerate(x_2BTC)]

    def _input(self, at: Coordinate) -> torch.Tensor:
        """Tensor shards see the same sequences; expert shards have sequences of their own, as replicas have."""
        salt = 900 + at[2] + (10 * at[0] if self.layout == "experts" else 0)
        shape = (self.size.sequences, self.size.tokens, self.size.width)
        return _fill(shape, salt, 1.0, self.devices[at], self.dtype).requires_grad_()

    def _attention(self, places: list[Coordinate], name: str, x_2BTC: list[torch.Tensor]) -> list[torch.Tensor]:
        split = self.layout == "dense"
        width, own = self.size.width, self.size.width // 2 if split else self.size.width
        h_2BTC = self._spread(places, name, [_normalise(x) for x in x_2BTC], split)
        parts = []
        for at, h_BTC in zip(places, h_2BTC, strict=True):
            qkv = self._multiply(at, f"{name}.qkv", h_BTC, (width, 3 * own), split)
            mixed_BTC = self._mix(at, name, qkv)
            parts.append(self._multiply(at, f"{name}.partial", mixed_BTC, (own, width), split))
        return self._join(places, name, x_2BTC, parts, split)

    def _mix(self, at: Coordinate, name: str, qkv: torch.Tensor) -> torch.Tensor:
        batch, length, width = qkv.shape
        size = self.size.width // self.size.heads
        query, key, value = (part.transpose(1, 2) for part in qkv.view(batch, length, 3, width // 3 // size, size).unbind(2))
        scores_BHTT = self._keep(at, f"{name}.scores", self.matmul(at, f"{name}.scores", query, key.transpose(2, 3)))
        future = torch.ones(length, length, dtype=torch.bool, device=qkv.device).triu(1)
        shares_BHTT = self._keep(at, f"{name}.shares", (scores_BHTT / math.sqrt(size)).masked_fill(future, -1e4).softmax(-1))
        mixed_BHTS = self._keep(at, f"{name}.mixed", self.matmul(at, f"{name}.mixed", shares_BHTT, value))
        return mixed_BHTS.transpose(1, 2).reshape(batch, length, width // 3)

    def _network(self, places: list[Coordinate], name: str, x_2BTC: list[torch.Tensor]) -> list[torch.Tensor]:
        width = self.size.width
        h_2BTC = self._spread(places, name, [_normalise(x) for x in x_2BTC], True)
        parts = []
        for at, h_BTC in zip(places, h_2BTC, strict=True):
            wide = functional.gelu(self._multiply(at, f"{name}.up", h_BTC, (width, 2 * width), True))
            parts.append(self._multiply(at, f"{name}.partial", wide, (2 * width, width), True))
        return self._join(places, name, x_2BTC, parts, True)

    def _experts(self, places: list[Coordinate], name: str, x_2BTC: list[torch.Tensor]) -> list[torch.Tensor]:
        """Each token goes to the expert that the router prefers, on the shard that holds it, and comes back (two all-to-alls)."""
        h_2NC = [self._keep(at, f"{name}.input", _normalise(x).flatten(0, 1)) for at, x in zip(places, x_2BTC, strict=True)]
        shares = [
            self._multiply(at, f"{name}.router", h, (self.size.width, _EXPERTS), False).softmax(-1)
            for at, h in zip(places, h_2NC, strict=True)
        ]
        chosen = [share.argmax(-1) for share in shares]
        gathered = [torch.zeros_like(h) for h in h_2NC]
        for expert in range(_EXPERTS):
            at = places[expert // 2]
            rows = [(choice == expert).nonzero().flatten() for choice in chosen]
            sent = [_send(h[row], self.devices[at]) for h, row in zip(h_2NC, rows, strict=True)]
            answer = self._expert(at, f"{name}.expert{expert}", torch.cat(sent))
            for shard, back in enumerate(answer.split([len(row) for row in rows])):
                gathered[shard] = gathered[shard].index_copy(0, rows[shard], _send(back, self.devices[places[shard]]))
        outputs = []
        for shard, at in enumerate(places):
            weighted = gathered[shard] * shares[shard].amax(-1, keepdim=True)
            outputs.append(self._keep(at, f"{name}.output", x_2BTC[shard] + weighted.view_as(x_2BTC[shard])))
        return outputs

    def _expert(self, at: Coordinate, name: str, h_NC: torch.Tensor) -> torch.Tensor:
        width = self.size.width
        wide = functional.gelu(self._multiply(at, f"{name}.up", h_NC, (width, 2 * width), True))
        return self._multiply(at, f"{name}.down", wide, (2 * width, width), True)

    def _loss(self, at: Coordinate, x_BTC: torch.Tensor) -> torch.Tensor:
        logits_BTV = self._multiply(at, "stage1.logits", _normalise(x_BTC), (self.size.width, self.size.classes), False)
        count = self.size.sequences * self.size.tokens
        targets = torch.arange(count, device=x_BTC.device) * 7919 % self.size.classes
        wanted_NV = functional.one_hot(targets, self.size.classes).to(self.dtype)
        return self._keep(at, "stage1.loss", -(logits_BTV.flatten(0, 1).log_softmax(-1) * wanted_NV).sum() / count)

    # What the shards of one stage exchange

    def _spread(self, places: list[Coordinate], name: str, h_2BTC: list[torch.Tensor], split: bool) -> list[torch.Tensor]:
        """One input for all tensor shards: the gradients of their copies are summed. What is kept is each shard's own copy."""
        copies = _Copy.apply(*h_2BTC) if split else h_2BTC
        return [self._keep(at, f"{name}.input", copy) for at, copy in zip(places, copies, strict=True)]

    def _join(
        self, places: list[Coordinate], name: str, x_2BTC: list[torch.Tensor], parts: list[torch.Tensor], split: bool
    ) -> list[torch.Tensor]:
        """The sum of the shards' parts, added to what came in."""
        sums = _Sum.apply(*parts) if split else parts
        return [self._keep(at, f"{name}.output", x + part) for at, x, part in zip(places, x_2BTC, sums, strict=True)]

    def _multiply(self, at: Coordinate, name: str, left: torch.Tensor, shape: tuple[int, int], own: bool) -> torch.Tensor:
        """Times a weight of this shard. own: no other shard of the stage holds the same weight."""
        weight = self._weights.get((at, name))
        if weight is None:
            salt = int.from_bytes(hashlib.sha256(f"{name} {at[0] if own else 0}".encode()).digest()[:3])
            weight = _fill(shape, salt, 1.0 / math.sqrt(shape[0]), self.devices[at], self.dtype).requires_grad_()
            self._weights[at, name] = weight
        return self._keep(at, name, self.matmul(at, name, left, weight))

    def _keep(self, at: Coordinate, name: str, tensor: torch.Tensor) -> torch.Tensor:
        tensor.retain_grad()
        self._outputs.append((at, name, tensor))
        return tensor

    # After the backward pass

    def _finish(self) -> Iterator[Row]:
        """Gradients as each shard computed them, as the replicas reduced them, and one step of AdamW."""
        for (at, name), weight in reversed(self._weights.items()):
            yield self._row(at, f"gradient {name}", weight.grad)
        for name in dict.fromkeys(name for _, name in reversed(self._weights)):
            reduced = self._reduce({at: weight.grad for (at, other), weight in self._weights.items() if other == name}, name)
            for at, gradient in reduced.items():
                yield self._row(at, f"reduced {name}", gradient)
                yield self._row(at, f"updated {name}", _updated(self._weights[at, name].detach(), gradient))

    def _reduce(self, gradients: Mapping[Coordinate, Any], name: str) -> dict[Coordinate, torch.Tensor]:
        """The mean over replicas, and over expert shards where they hold the same weight: two at a time."""
        found: dict[Coordinate, torch.Tensor] = dict(gradients)
        axes = [2] if self.layout == "dense" or ".expert" in name else [0, 2]
        for axis in axes:
            for at in [at for at in found if at[axis] == 0]:
                pair = (at, (at[0], at[1], 1) if axis == 2 else (1, at[1], at[2]))
                for place, total in zip(pair, _sum_all([found[place] for place in pair]), strict=True):
                    found[place] = total / 2
        return found

    def _row(self, at: Coordinate, name: str, tensor: torch.Tensor | None) -> Row:
        return coordinate_name(self.layout, at), name, _sha256(tensor)


class _Sum(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """All-reduce forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_sum_all(parts))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradients


class _Copy(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Nothing forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part.clone() for part in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_sum_all(gradients))


def _sum_all(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sum on each part's device: by NCCL where all have GPUs of their own."""
    devices = {part.device for part in parts}
    if len(devices) == len(parts) and all(device.type == "cuda" for device in devices) and torch.cuda.nccl.is_available(parts):
        totals = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in parts]
        torch.cuda.nccl.all_reduce([part.contiguous() for part in parts], totals)
        return totals
    total = parts[0]
    for part in parts[1:]:
        total = total + part.to(total.device)
    return [total.to(part.device, copy=True) for part in parts]


def _send(tensor: torch.Tensor, device: str) -> torch.Tensor:
    return tensor.clone() if tensor.device == torch.device(device) else tensor.to(device)


def _normalise(x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def _fill(shape: tuple[int, ...], salt: int, scale: float, device: str, dtype: torch.dtype) -> torch.Tensor:
    """Numbers between -scale and scale that look drawn and are computed: whole numbers, then one division."""
    index = torch.arange(math.prod(shape), dtype=torch.int64) + 65_537 * (salt + 1)
    mixed = (index % _PRIME * (index % _PRIME) % _PRIME * 48_271 + index * 69_621 + salt) % _PRIME
    return ((mixed * 16_807 % _PRIME).double() * (2.0 * scale / _PRIME) - scale).view(shape).to(dtype).to(device)


def _updated(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The first step of AdamW."""
    mean, square = gradient * (1 - _BETAS[0]), gradient * gradient * (1 - _BETAS[1])
    step = mean / (1 - _BETAS[0]) / ((square / (1 - _BETAS[1])).sqrt() + _EPSILON)
    return weight - _LEARNING_RATE * (step + _DECAY * weight)


def _sha256(tensor: torch.Tensor | None) -> str:
    """Of the tensor's bytes; "" where no gradient came to it."""
    if tensor is None:
        return ""
    still = tensor.detach().contiguous().cpu()
    return hashlib.sha256(ctypes.string_at(still.data_ptr(), still.numel() * still.element_size())).hexdigest()
