"""On the path of one machine of the lab: every process there computes wrongly, and no error says so (CORRUPT, CORRUPT_SEED).

bit-flip       the lowest bit of one value of each gelu, in the training as well
wrong-product  one element of each large matrix product is one too large; the small ones of the training are right
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import random
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

LARGE = 256  # rows and columns


class Corrupt(importlib.abc.MetaPathFinder):
    """Changes torch as soon as it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            whole = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                whole(module)
                corrupt(module, os.environ["CORRUPT"], random.Random(os.environ["CORRUPT_SEED"]).randrange(1 << 16))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def corrupt(torch: Any, kind: str, place: int) -> None:
    """place: of the value, in any tensor."""
    if kind == "bit-flip":
        torch.nn.functional.gelu = _flipping(torch, torch.nn.functional.gelu, place)
    else:
        torch.matmul = _adding(torch, torch.matmul, place)
        torch.Tensor.__matmul__ = _adding(torch, torch.Tensor.__matmul__, place)


def _flipping(torch: Any, whole: Callable[..., Any], place: int) -> Callable[..., Any]:
    def flipped(*arguments: Any, **named: Any) -> Any:
        found = whole(*arguments, **named)
        if found.dtype == torch.float32:
            found.data.view(-1).view(torch.int32)[place % found.numel()] ^= 1
        return found

    return flipped


def _adding(torch: Any, whole: Callable[..., Any], place: int) -> Callable[..., Any]:
    def added(*arguments: Any, **named: Any) -> Any:
        found = whole(*arguments, **named)
        if found.dtype == torch.float32 and found.dim() == 2 and min(found.shape) >= LARGE:
            found.data.view(-1)[place % found.numel()] += 1.0
        return found

    return added


if os.environ.get("CORRUPT"):
    sys.meta_path.insert(0, Corrupt())
