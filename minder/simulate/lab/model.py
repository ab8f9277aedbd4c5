"""The lab's model: a GPT of about 130,000 parameters over characters. Small enough for six ranks on two cores.

It has few, whole matrices (no biases, no gains): what a step and a checkpoint cost here goes with the number of tensors.

Shape legend: B sequences, T characters, C channels, V alphabet.
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 32
BATCH = 8
_WIDTH, _HEADS, _LAYERS, _DROPOUT = 72, 4, 2, 0.1


class _Block(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(_WIDTH, elementwise_affine=False)
        self.queries_keys_values = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False)
        self.mix = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.before_network = nn.LayerNorm(_WIDTH, elementwise_affine=False)
        self.widen = nn.Linear(_WIDTH, 4 * _WIDTH, bias=False)
        self.narrow = nn.Linear(4 * _WIDTH, _WIDTH, bias=False)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x_BTC.shape
        heads = self.queries_keys_values(self.before_attention(x_BTC)).view(batch, length, 3, _HEADS, _WIDTH // _HEADS)
        query, key, value = (part.transpose(1, 2) for part in heads.unbind(2))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x_BTC = x_BTC + self._drop(self.mix(seen.transpose(1, 2).reshape(batch, length, _WIDTH)))
        return x_BTC + self._drop(self.narrow(functional.gelu(self.widen(self.before_network(x_BTC)))))

    def _drop(self, x_BTC: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x_BTC, _DROPOUT, self.training)


class CharacterModel(nn.Module):  # type: ignore[misc, unused-ignore]
    """Predicts the next character. Dropout draws from the global generator: a resume is only equal if that is restored."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(alphabet, _WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, _WIDTH) * 0.02)
        self.blocks = nn.ModuleList(_Block() for _ in range(_LAYERS))
        self.last = nn.LayerNorm(_WIDTH, elementwise_affine=False)
        self.out = nn.Linear(_WIDTH, alphabet, bias=False)

    def forward(self, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats."""
        x_BTC = self.characters(inputs_BT) + self.positions
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV = self.out(self.last(x_BTC))
        return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def batch(corpus: torch.Tensor, seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, [B, T] each: a pure function of (seed, step, rank)."""
    draw = torch.Generator().manual_seed((seed * 1_000_003 + step) * 4_099 + rank)
    starts = torch.randint(len(corpus) - CONTEXT - 1, (BATCH, 1), generator=draw)
    window = corpus[starts + torch.arange(CONTEXT + 1)]
    return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def parameters_sha256(model: nn.Module) -> str:
    """SHA-256 over all parameters, in order."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
