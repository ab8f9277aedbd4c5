"""Checkpoints from inside a training loop: saved in the background, complete or not at all, verified before they are loaded.

Built on torch.distributed.checkpoint. Every rank calls the same methods in the same order:

    checkpoints = Checkpointer("/shared/checkpoints")
    step = checkpoints.load_latest({"model": model, "optimizer": optimizer}) or 0
    ...
    checkpoints.save(step, {"model": model, "optimizer": optimizer})
    ...
    checkpoints.close()

Model, optimiser and anything else with `state_dict`/`load_state_dict`, tensors and plain values go into the state; the random
generators of every rank are added. Checkpoints hold pickled plain values: load them only from folders that you trust.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from minder.errors import CheckpointError
from minder.recovery import manifest as manifests
from minder.recovery import random_state
from minder.recovery.hashing import HashingFiles
from minder.recovery.manifest import Manifest
from minder.recovery.ranks import Ranks

__all__ = ["Checkpointer"]

_log = logging.getLogger("minder.checkpoint")
_OWN_KEY = "minder"
# What a save may die of: the disk, a peer, its own deadline, a state that cannot be written.
_SAVE_FAILURES = (OSError, RuntimeError, ValueError, TypeError, CheckpointError, CheckpointException)


class Checkpointer:
    """Saves and loads the state of one job in one folder that all its machines share.

    keep: complete checkpoints that stay (at least 3). process_group: the ranks that save together (default: all); a gloo
    group of its own is made for them. sync_files=False leaves flushing to the kernel: after a power failure an older one may
    have to be used. timeout_s: how long a rank waits for the slowest writer. Without torch.distributed it serves one process.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        process_group: dist.ProcessGroup | None = None,
        *,
        sync_files: bool = True,
        timeout_s: float = 600.0,
    ) -> None:
        if keep < 3:
            raise CheckpointError(f"keep={keep}: at least 3 complete checkpoints must stay, so that a damaged one can be passed over")
        self.directory = Path(directory)
        self._keep = keep
        self._sync_files = sync_files
        self._ranks = Ranks(process_group, timeout_s)
        self._stager = _stager()
        self._thread: threading.Thread | None = None
        self._saved_step: int | None = None
        self._error: CheckpointError | None = None
        self.generation: int = self._ranks.from_first(self._choose_generation)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Copy the state after `step` steps and write it in the background; waits for the previous save first.

        Never raises for a failed write: see `wait`. The same step twice is saved once.
        """
        self.wait()
        if step == self._saved_step:
            return
        self._error = None
        self._saved_step = step
        staged = self._stager.stage(self._with_random_state(state))
        path = manifests.checkpoint_path(self.directory, step, self.generation)
        # a daemon: a save that hangs in the group of a dead generation must not keep the process
        self._thread = threading.Thread(target=self._write, args=(path, step, staged), name="minder-checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> CheckpointError | None:
        """Wait for the save in flight. Returns why the last save failed, None if it is published (or there was none)."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._error

    def close(self) -> CheckpointError | None:
        """Wait for the save in flight and give the group back. Returns what `wait` returns."""
        error = self.wait()
        self._stager.close()
        self._ranks.close()
        return error

    def load_latest(self, state: dict[str, Any]) -> int | None:
        """Load the newest complete and verified checkpoint into `state`, in place. Returns its step; None if there is none.

        The first rank chooses, all verify a share of the files, all take the same one. Raises CheckpointError if every
        complete one is damaged (starting from nothing in silence would lose the run), or if one is whole but does not fit
        the given state.
        """
        self.wait()
        chosen = self._choose()
        if chosen is None:
            return None
        for value in state.values():
            if isinstance(value, torch.optim.Optimizer):
                _materialise(value)
        full = dict(state)
        if own := self._own_random_tensors(chosen):
            full[_OWN_KEY] = own
        try:
            dcp.load(full, checkpoint_id=chosen.path, process_group=self._ranks.group, no_dist=self._ranks.group is None)
        except CheckpointException as error:
            raise CheckpointError(f"checkpoint {chosen.path} does not fit this model or optimiser: {_first_line(error)}") from error
        _restore_random(full.pop(_OWN_KEY, {}), str(self._ranks.rank))
        state.update(full)
        return chosen.step

    def _choose(self) -> Manifest | None:
        candidates: list[Manifest] = self._ranks.from_first(lambda: manifests.complete_checkpoints(self.directory))
        for candidate in candidates:
            share = candidate.files[self._ranks.rank :: self._ranks.size]
            problems = [problem for found in self._ranks.gather_all(manifests.verify(candidate, share)) for problem in found]
            if not problems:
                return candidate
            if self._ranks.rank == 0:
                _log.warning("checkpoint %s is damaged and passed over: %s", candidate.path, "; ".join(problems))
        if candidates:
            raise CheckpointError(
                f"all {len(candidates)} complete checkpoints in {self.directory} are damaged: repair one, or move them away to start again"
            )
        return None

    def _own_random_tensors(self, chosen: Manifest) -> dict[str, Any]:
        """Tensors to load this rank's generators into, as far as the checkpoint has them (it may come from fewer ranks)."""
        known = dcp.FileSystemReader(chosen.path).read_metadata().state_dict_metadata
        rank = str(self._ranks.rank)
        return {kind: found for kind, found in _random_tensors(self._ranks.rank).items() if f"{_OWN_KEY}.{kind}.{rank}" in known}

    def _choose_generation(self) -> int:
        """The launcher's generation, or one above what the folder knows: a restart must never write over its forerunner."""
        self.directory.mkdir(parents=True, exist_ok=True)
        given = os.environ.get("MINDER_GENERATION") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
        return max(int(given), manifests.newest_generation(self.directory) + 1)

    def _with_random_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        if _OWN_KEY in state:
            raise CheckpointError(f"the key {_OWN_KEY!r} in the state is taken: rename it")
        plain = {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in state.items()}
        return {**plain, _OWN_KEY: _random_tensors(self._ranks.rank)}

    def _write(self, path: Path, step: int, staged: dict[str, Any]) -> None:
        try:
            self._error = self._write_and_publish(path, step, staged)
        except _SAVE_FAILURES as error:
            self._error = CheckpointError(f"checkpoint of step {step} in {self.directory} failed: {_first_line(error)}")
            if isinstance(error, CheckpointException) and self._ranks.rank == 0:
                manifests.remove(path)  # all ranks have answered, so nobody writes there any more
        if self._error is not None and self._ranks.rank == 0:
            _log.error("%s; training goes on, the next save tries again", self._error)

    def _write_and_publish(self, path: Path, step: int, staged: dict[str, Any]) -> CheckpointError | None:
        writer = dcp.FileSystemWriter(path, sync_files=self._sync_files)
        writer.fs = HashingFiles()
        dcp.save(staged, storage_writer=writer, process_group=self._ranks.group, no_dist=self._ranks.group is None)
        written = self._ranks.gather_all(writer.fs.written())

        def publish() -> CheckpointError | None:
            files = tuple(sorted((file for share in written for file in share), key=lambda file: file.name))
            manifest = Manifest(path, step, self.generation, self._ranks.size, time.time(), files)
            try:
                manifests.publish(manifest)
                manifests.prune(self.directory, manifest, self._keep)
            except (OSError, CheckpointError) as error:
                manifests.remove(path)
                return CheckpointError(f"checkpoint of step {step} in {self.directory} failed: {error}")
            return None

        outcome: CheckpointError | None = self._ranks.from_first(publish)
        return outcome


def _stager() -> DefaultStager:
    cuda = torch.cuda.is_available()
    options = StagingOptions(use_pinned_memory=cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=cuda)
    return DefaultStager(options)


def _random_tensors(rank: int) -> dict[str, Any]:
    state: dict[str, Any] = {"random": {str(rank): random_state.capture()}}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = {str(rank): torch.cuda.get_rng_state()}
    return state


def _restore_random(loaded: Mapping[str, Any], rank: str) -> None:
    if "random" in loaded:
        random_state.restore(loaded["random"][rank])
    if "cuda" in loaded:
        torch.cuda.set_rng_state(loaded["cuda"][rank])


def _materialise(optimizer: torch.optim.Optimizer) -> None:
    """Give a fresh optimiser its state tensors, so that there is something to load into: one step that changes nothing."""
    if optimizer.state:
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
    gradients = [parameter.grad for parameter in parameters]
    rates = [group["lr"] for group in optimizer.param_groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def _first_line(error: BaseException) -> str:
    """The line of a long report that says what happened: the last one names the exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
