"""What one rank of the reference replay does: a small model in tensor, pipeline and data parallelism, with a hash of its state each step.

The same steps are run several times in one process, from the same beginning. Everything is deterministic: one thread, weights and data by
integer arithmetic, sums in the backend's fixed order: gloo on processors, NCCL where this rank has a GPU. So two runs have equal hashes at
every step, unless a machine computes something else.

Shape legend: N samples, C channels.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from minder.edge.probes.replay_lines import write_begin, write_end, write_failure, write_nan, write_step
from minder.model.topology import Parallelism

__all__ = ["RankTask", "ReplayModel", "be_deterministic", "play_rank"]

_SAMPLES, _WIDTH, _RATE = 8, 32, 0.05


@dataclass(frozen=True, slots=True)
class RankTask:
    """environment: as for a worker of its generation. files: one for each run, that gets the lines of minder.edge.probes.replay_lines.
    seed: of weights and data. timeout_s: so long one collective may take."""

    environment: Mapping[str, str]
    parallelism: Parallelism
    steps: int
    files: tuple[Path, ...]
    seed: int
    timeout_s: float


def be_deterministic() -> None:
    """For this process and those forked from it: the first call loads a second's worth of modules."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA begins: cuBLAS is deterministic with it only
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False


def play_rank(task: RankTask, make_model: Callable[[RankTask], ReplayModel] | None = None) -> None:
    """All runs of one rank; ends with the first that fails, since its peers cannot go on either. make_model: what runs instead, in tests
    and in the lab."""
    os.environ.update(task.environment)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        torch.cuda.set_device(int(task.environment.get("LOCAL_RANK", "0")) % gpus)
    dist.init_process_group("nccl" if gpus else "gloo", timeout=timedelta(seconds=task.timeout_s))
    for path in task.files[:1]:
        write_begin(path)
    model = (make_model or ReplayModel)(task)
    for run, path in enumerate(task.files):
        try:
            _play(model, run, task.steps, path)
        except FloatingPointError as error:
            write_nan(path, str(error))
            os._exit(1)
        except RuntimeError as error:  # a peer is gone, or late
            write_failure(path, str(error))
            os._exit(1)
    dist.barrier()
    os._exit(0)  # destroying gloo's groups may wait for threads that hold them


def _play(model: ReplayModel, run: int, steps: int, path: Path) -> None:
    if run:
        write_begin(path)
    model.begin(run)
    for step in range(1, steps + 1):
        write_step(path, step, model.step(step))
    write_end(path)


class ReplayModel:
    """This rank's shard of its stage: two matrices, the first split by columns, the second by rows."""

    def __init__(self, task: RankTask) -> None:
        self._task, self._rank = task, dist.get_rank()
        self._device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
        sizes = dict(task.parallelism.axes())
        self._groups = {axis: self._group(axis) for axis in ("dp", "tp") if sizes[axis] > 1}
        self._at = task.parallelism.coordinates(self._rank)
        stages = sorted(task.parallelism.group("pp", self._rank), key=lambda rank: task.parallelism.coordinates(rank)["pp"])
        stage = self._at["pp"]
        self._before = stages[stage - 1] if stage else None
        self._after = stages[stage + 1] if stage + 1 < len(stages) else None

    def _group(self, axis: str) -> Any:
        """Every rank makes every group of the axis, in the same order."""
        parallelism = self._task.parallelism
        known = {parallelism.group(axis, rank): None for rank in range(parallelism.world_size)}
        made = {ranks: dist.new_group(list(ranks)) for ranks in known}
        return made[parallelism.group(axis, self._rank)]

    def begin(self, run: int) -> None:
        parts, stage, shard = self._task.parallelism.tensor, self._at["pp"], self._at["tp"]
        narrow = 4 * _WIDTH // parts
        self._up = (self._fill((_WIDTH, narrow), 10 * stage + shard) / math.sqrt(_WIDTH)).requires_grad_()
        self._down = (self._fill((narrow, _WIDTH), 500 + 10 * stage + shard) / math.sqrt(4 * _WIDTH)).requires_grad_()

    def step(self, step: int) -> str:
        """One step; the hash of the parameters after it."""
        for weight in (self._up, self._down):
            weight.grad = None
        x_NC = self._receive(step)
        hidden = torch.tanh(_Copied.apply(x_NC, self._groups.get("tp")) @ self._up)
        part_NC = self.product(hidden, self._down, step)
        y_NC = x_NC + _Summed.apply(part_NC, self._groups.get("tp"))
        self._back(x_NC, y_NC, step)
        with torch.no_grad():
            for weight in (self._up, self._down):
                weight -= _RATE * _sum(weight.grad, self._groups.get("dp")) / self._task.parallelism.data
        return self._hash(step)

    def product(self, left: torch.Tensor, right: torch.Tensor, step: int) -> torch.Tensor:
        """The last matrix product of the stage goes through here."""
        return left @ right

    def _fill(self, shape: tuple[int, int], salt: int) -> torch.Tensor:
        return _fill(shape, salt + 50_000 * self._task.seed).to(self._device)

    def _receive(self, step: int) -> torch.Tensor:
        if self._before is None:
            return self._fill((_SAMPLES, _WIDTH), 10_000 + 100 * step + self._at["dp"])
        x_NC = torch.empty(_SAMPLES, _WIDTH, device=self._device)
        dist.recv(x_NC, self._before)
        return x_NC.requires_grad_()

    def _back(self, x_NC: torch.Tensor, y_NC: torch.Tensor, step: int) -> None:
        if self._after is None:
            target_NC = self._fill((_SAMPLES, _WIDTH), 20_000 + 100 * step + self._at["dp"])
            ((y_NC - target_NC) ** 2).mean().backward()
        else:
            dist.send(y_NC.detach(), self._after)
            gradient_NC = torch.empty_like(y_NC)
            dist.recv(gradient_NC, self._after)
            y_NC.backward(gradient_NC)
        if self._before is not None:
            dist.send(x_NC.grad, self._before)

    def _hash(self, step: int) -> str:
        if not all(bool(torch.isfinite(weight).all()) for weight in (self._up, self._down)):
            raise FloatingPointError(f"step {step}: a parameter of rank {self._rank} is not finite")
        digest = hashlib.sha256(self._up.detach().cpu().numpy().tobytes())
        digest.update(self._down.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


class _Summed(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """All-reduce forward; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: Any) -> torch.Tensor:
        return _sum(part.clone(), group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Copied(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """As it is forward; the gradient is all-reduced."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _sum(gradient.clone(), ctx.group), None


def _sum(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """In place, over the group; None: this rank is alone in it."""
    if group is not None:
        dist.all_reduce(tensor, group=group)
    return tensor


def _fill(shape: tuple[int, int], salt: int) -> torch.Tensor:
    """Numbers between -1 and 1 that look drawn and are computed."""
    index = torch.arange(math.prod(shape), dtype=torch.int64) + 7_919 * (salt + 1)
    mixed = (index * index % 2_147_483_647 * 48_271 + salt) % 2_147_483_647
    return (mixed.double() * (2.0 / 2_147_483_647) - 1.0).float().view(shape)
