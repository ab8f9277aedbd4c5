"""The ranks that save and load together: a gloo group of their own, or one process alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Ranks"]


class Ranks:
    """Small agreements between the ranks of a group. Errors of the group come out as RuntimeError."""

    def __init__(self, process_group: dist.ProcessGroup | None, timeout_s: float) -> None:
        self.group: Any = None
        self.rank, self.size = 0, 1
        self.timeout_s = timeout_s
        if dist.is_available() and dist.is_initialized():
            members = dist.get_process_group_ranks(process_group or dist.group.WORLD)
            self.group = dist.new_group(
                members, backend="gloo", timeout=timedelta(seconds=timeout_s), use_local_synchronization=process_group is not None
            )
            self.rank, self.size = dist.get_rank(self.group), len(members)

    def from_first(self, choose: Callable[[], Any]) -> Any:
        """What the first rank's `choose` returns, on every rank. An exception of it is raised on every rank."""
        if self.group is None:
            return choose()
        answer: list[Any] = [None, None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                answer = [choose(), None]
            except (OSError, ValueError, RuntimeError) as error:
                failure = error
                answer = [None, f"{type(error).__name__}: {error}"]
        dist.broadcast_object_list(answer, group=self.group, group_src=0)
        if failure is not None:
            raise failure
        if answer[1] is not None:
            raise RuntimeError(f"the first rank failed: {answer[1]}")
        return answer[0]

    def gather_all(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank, in the order of the ranks."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather_tensors(self, mine: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's CPU tensor of one shape, on every rank: one collective, nothing pickled."""
        if self.group is None:
            return [mine]
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyone, mine, group=self.group)
        return everyone

    def close(self) -> None:
        """Give the group back; one that was torn down with its generation is gone already."""
        if self.group is not None and dist.is_initialized():
            try:
                dist.destroy_process_group(self.group)
            except (ValueError, RuntimeError, AssertionError):
                pass
        self.group = None
