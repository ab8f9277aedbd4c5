"""Checkpoints in a folder that all machines share: saved in the background, complete or not at all, verified before they are loaded.

Built on torch.distributed.checkpoint. Checkpoints hold pickled plain values: load them only from folders that you trust.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.api import CheckpointException

from minder.edge.checkpoint import equal_state, optimizer_state, random_state
from minder.edge.checkpoint import manifest as manifests
from minder.edge.checkpoint.hashing import HashingFiles
from minder.edge.checkpoint.manifest import Manifest, ManifestFile
from minder.edge.checkpoint.ranks import Ranks
from minder.model.errors import CheckpointError

__all__ = ["FolderTier"]

_log = logging.getLogger("minder.checkpoint")
_OWN_KEY = "minder"
# What a save may die of: the disk, a peer, its own deadline, a state that cannot be written.
_SAVE_FAILURES = (OSError, RuntimeError, ValueError, TypeError, CheckpointError, CheckpointException)


warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")  # a rank alone, on purpose


class FolderTier:
    """`Checkpointer(directory)`; its arguments stand there."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        process_group: dist.ProcessGroup | None = None,
        *,
        sync_files: bool = True,
        timeout_s: float = 600.0,
        any_size: bool = True,
    ) -> None:
        if keep < 3:
            raise CheckpointError(f"keep={keep}: at least 3 complete checkpoints must stay, so that a damaged one can be passed over")
        self.directory = Path(directory)
        self._keep = keep
        self._sync_files, self._any_size = sync_files, any_size
        self._ranks = Ranks(process_group, timeout_s)
        self._stager = StateDictStager(pin_memory=torch.cuda.is_available())
        self._thread: threading.Thread | None = None
        self._saved_step: int | None = None
        self._error: CheckpointError | None = None
        self._first_writes: bool | None = None  # whether the first rank writes for all; None until the ranks have compared
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
        plain = self._plain(state)
        note = torch.cat([equal_state.describe(plain), random_state.capture()])
        needed = self._ranks.rank == 0 or not self._first_writes
        staged = self._stage(plain) if needed else {}
        path = manifests.checkpoint_path(self.directory, step, self.generation)
        # a daemon: a save that hangs in the group of a dead generation must not keep the process
        self._thread = threading.Thread(target=self._write, args=(path, step, staged, note), name="minder-checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> CheckpointError | None:
        """Wait for the save in flight. Returns why the last save failed, None if it is published (or there was none)."""
        self.wait_at_most(None)
        self._thread = None
        return self._error

    def wait_at_most(self, limit_s: float | None) -> bool:
        """Whether no save is in flight any more. None: no limit."""
        if self._thread is not None:
            self._thread.join(limit_s)
        return self._thread is None or not self._thread.is_alive()

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
                optimizer_state.materialise(value)
        full = dict(state)
        randoms = full[_OWN_KEY] = {"random": torch.zeros(chosen.world_size, random_state.LENGTH, dtype=torch.uint8)}
        try:
            dcp.load(full, checkpoint_id=chosen.path, no_dist=True)  # every rank reads what it needs: nothing to agree on any more
        except CheckpointException as error:
            raise CheckpointError(f"checkpoint {chosen.path} does not fit this model or optimiser: {_last_line(error)}") from error
        del full[_OWN_KEY]
        if self._ranks.rank < chosen.world_size:  # otherwise the job has grown, and this rank keeps the seed that it was given
            random_state.restore(randoms["random"][self._ranks.rank])
        state.update(full)
        return chosen.step

    def _choose(self) -> Manifest | None:
        candidates: list[Manifest] = self._ranks.from_first(lambda: manifests.readable_checkpoints(self.directory))
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

    def _choose_generation(self) -> int:
        """The launcher's generation, or one above what the folder knows: a restart must never write over its forerunner."""
        self.directory.mkdir(parents=True, exist_ok=True)
        given = os.environ.get("MINDER_GENERATION") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
        return max(int(given), manifests.newest_generation(self.directory) + 1)

    def _plain(self, state: Mapping[str, Any]) -> dict[str, Any]:
        if _OWN_KEY in state:
            raise CheckpointError(f"the key {_OWN_KEY!r} in the state is taken: rename it")
        return {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in state.items()}

    def _stage(self, plain: dict[str, Any]) -> dict[str, Any]:
        """A copy in memory of the processor, page-locked where there is a GPU, and used again by the next save. torch's DefaultStager
        around it serves one save only in torch 2.11: it closes itself."""
        on_gpu = torch.cuda.is_available()
        staged: dict[str, Any] = self._stager.stage(plain, non_blocking=on_gpu)
        if on_gpu:
            torch.cuda.synchronize()
        return staged

    def _write(self, path: Path, step: int, staged: dict[str, Any], note: torch.Tensor) -> None:
        """The background thread."""
        try:
            self._error = self._write_and_publish(path, step, staged, note)
        except _SAVE_FAILURES as error:
            self._error = self._failure(step, error)
            if isinstance(error, CheckpointException) and self._ranks.rank == 0:
                manifests.remove(path)  # all ranks have answered, so no rank writes there any more
        if self._error is not None and self._ranks.rank == 0:
            _log.error("%s; training goes on, the next save tries again", self._error)

    def _write_and_publish(self, path: Path, step: int, staged: dict[str, Any], note: torch.Tensor) -> CheckpointError | None:
        notes = self._ranks.gather_tensors(note)
        same = equal_state.agree([each[: equal_state.NOTE_BYTES] for each in notes])
        if self._first_writes and not same:
            self._first_writes = False
            return self._failure(step, ValueError("the ranks now hold different state; from the next save on they write together"))
        self._first_writes = same
        staged[_OWN_KEY] = {"random": torch.stack([each[equal_state.NOTE_BYTES :] for each in notes])}
        written: list[tuple[ManifestFile, ...]] = []
        if not same:
            written = self._ranks.gather_all(self._write_files(path, staged, alone=False))

        def finish() -> CheckpointError | None:
            try:
                shares = written or [self._write_files(path, staged, alone=True)]
                files = tuple(sorted((file for share in shares for file in share), key=lambda file: file.name))
                about = (path, step, self.generation, self._ranks.size, time.time(), files, self._any_size)
                manifest = Manifest(*about, *manifests.own_version())
                manifests.publish(manifest)
                manifests.prune(self.directory, manifest, self._keep)
            except _SAVE_FAILURES as error:
                manifests.remove(path)
                return self._failure(step, error)
            return None

        outcome: CheckpointError | None = self._ranks.from_first(finish)
        return outcome

    def _write_files(self, path: Path, staged: dict[str, Any], alone: bool) -> tuple[ManifestFile, ...]:
        writer = dcp.FileSystemWriter(path, sync_files=self._sync_files)
        writer.fs = HashingFiles()
        alone = alone or self._ranks.group is None
        dcp.save(staged, storage_writer=writer, process_group=None if alone else self._ranks.group, no_dist=alone)
        written: tuple[ManifestFile, ...] = writer.fs.written()
        return written

    def _failure(self, step: int, error: BaseException) -> CheckpointError:
        return CheckpointError(f"checkpoint of step {step} in {self.directory} failed: {_last_line(error)}")


def _last_line(error: BaseException) -> str:
    """The line of a long report that says what happened: the last one names the exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
