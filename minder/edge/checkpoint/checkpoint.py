"""Checkpoints from inside a training loop. Every rank calls the same methods in the same order:

    checkpoints = Checkpointer("/shared/checkpoints")     # or Checkpointer("memory")
    step = checkpoints.load_latest({"model": model, "optimizer": optimizer}) or 0
    ...
    checkpoints.save(step, {"model": model, "optimizer": optimizer})
    ...
    checkpoints.close()

A script that ends without `close` waits for its last save, for a minute at most; one that ends by an exception does not.

Model, optimiser and anything else with `state_dict`/`load_state_dict`, tensors and plain values go into the state; the random
generators of every rank are added.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from minder.edge.checkpoint import resumed
from minder.edge.checkpoint.folder_tier import FolderTier
from minder.edge.checkpoint.memory_tier import MemoryTier, Retention
from minder.model.errors import CheckpointError
from minder.model.topology import Parallelism

__all__ = ["Checkpointer"]

_MEMORY = "memory"
_LAST_SAVE_S = 60.0
_log = logging.getLogger("minder.checkpoint")


class Checkpointer:
    """Saves and loads the state of one job: in one folder that all its machines share, or, with "memory", in the machines' own memory.

    every: `save` takes only steps that it divides, so a loop may offer each: a failure costs so many steps at most, and saves so many times
    less (`minder plan ettr` says which number loses least). process_group: the ranks that save together (default: all); a gloo group of
    its own is made for them. timeout_s: how long a rank
    waits for the slowest one. Without torch.distributed it serves one process.

    Of a folder: keep: complete checkpoints that stay (at least 3). sync_files=False leaves flushing to the kernel: after a power failure
    an older one may have to be used. any_size=False: the state is only good for as many ranks as wrote it, so the job never goes on with
    fewer (min_machines).

    Of memory, which needs a cache process on each machine (`minder launch --cache-bytes`): flush_dir, flush_every: every so many steps
    the caches write to this folder too, shared or on local disks; `keep` steps stay there, and besides each that keep_every divides (a
    multiple of flush_every; 0: none). ring: so many steps stay in memory, for a run that has to go back by some. overlap: the
    optimisers' tensors are copied while the next forward runs, and an optimiser's step waits for that; False where a script writes into
    parameters elsewhere through `.data`. once_per: state that several ranks have alike (data-parallel replicas) is copied
    and kept by one of them in each "machine"; or a wider failure domain that job.toml names, such as "rack" or "switch"; None: by each
    rank. parallelism: decides whose cache holds whose backup (default: that of job.toml, else data
    parallel).

    Raises CheckpointError where that cannot work.
    """

    def __init__(  # noqa: PLR0913 - keywords of two tiers
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        process_group: dist.ProcessGroup | None = None,
        *,
        every: int = 1,
        sync_files: bool = True,
        timeout_s: float = 600.0,
        any_size: bool = True,
        flush_dir: str | os.PathLike[str] | None = None,
        flush_every: int = 100,
        ring: int = 1,
        keep_every: int = 0,
        overlap: bool = True,
        once_per: str | None = "machine",
        parallelism: Parallelism | None = None,
    ) -> None:
        if every < 1:
            raise CheckpointError(f"every={every}: give a number of steps, 1 or more")
        if flush_dir is not None and flush_every % every:
            raise CheckpointError(f"flush_every={flush_every}: flush_dir gets what was saved, so give a multiple of every={every}")
        self.every = every
        self._tier: FolderTier | MemoryTier
        if directory == _MEMORY:
            flush_to = None if flush_dir is None else Path(flush_dir).absolute()
            retention = Retention(flush_every, ring, keep, keep_every)
            self._tier = MemoryTier(
                process_group, timeout_s, flush_to, retention, overlap=overlap, once_per=once_per, parallelism=parallelism
            )
        elif flush_dir is not None or ring != 1 or keep_every:
            raise CheckpointError(f'flush_dir, ring and keep_every go with Checkpointer("memory"): {directory} is a folder already')
        else:
            self._tier = FolderTier(directory, keep, process_group, sync_files=sync_files, timeout_s=timeout_s, any_size=any_size)
        self._at_exit = functools.partial(_finish_last_save, weakref.ref(self._tier))
        atexit.register(self._at_exit)

    @property
    def generation(self) -> int:
        """Of what is saved now: above that of everything that was there."""
        return self._tier.generation

    def demand_memory(self, who: str) -> Checkpointer:
        """This one; raises CheckpointError for a folder, which `who` cannot use."""
        if not isinstance(self._tier, MemoryTier):
            raise CheckpointError(f'{who} needs Checkpointer("memory"), and this one saves to a folder')
        return self

    def gather_all(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank, in the order of the ranks: all call it together."""
        return self._tier._ranks.gather_all(value)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Take the state after `step` steps and save it in the background. The same step twice is saved once, one that is not due never.

        A folder waits for the previous save first; memory only where two are in flight. Never raises for a failed write: see `wait`.
        Memory that can never hold the state raises CheckpointError at the first save.
        """
        if self.is_due(step):
            self._tier.save(step, state)

    def is_due(self, step: int) -> bool:
        """Whether `save` takes this step: for a state that is dear to put together."""
        return step % self.every == 0

    def wait(self) -> CheckpointError | None:
        """Wait for what is in flight. Returns why the last save failed, None if all ranks have it safe (or there was none)."""
        return self._tier.wait()

    def close(self) -> CheckpointError | None:
        """This rank is done: wait for what is in flight and give the group back. Returns what `wait` returns."""
        atexit.unregister(self._at_exit)
        return self._tier.close()

    def load_latest(self, state: dict[str, Any]) -> int | None:
        """Load the newest complete and verified checkpoint into `state`, in place. Returns its step; None if there is none.

        All ranks take the same one. Raises CheckpointError if all that there was is damaged or lost (starting from nothing in silence
        would lose the run), or if one is whole but does not fit the given state.
        """
        step = self._tier.load_latest(state)
        resumed.note(step)
        return step


def _finish_last_save(of: weakref.ref[FolderTier | MemoryTier]) -> None:
    """At the end of a process whose script did not close: the thread of the save is a daemon, and one that the interpreter ends in a
    collective takes the process down with SIGABRT. After an exception the peers may be gone, and nothing is waited for."""
    tier = of()
    if tier is not None and getattr(sys, "last_value", None) is None and not tier.wait_at_most(_LAST_SAVE_S):
        _log.error("the process ends with a save in flight, %.0f s after its script: that checkpoint is not complete", _LAST_SAVE_S)
