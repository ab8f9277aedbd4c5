"""A data loader that goes on exactly where the training was, and whose processes may die.

loader = minder.DataLoader(dataset, global_batch=64, seed=7, num_workers=2)
step = checkpoints.load_latest({"model": model, "optimizer": optimizer, "data": loader})
for epoch in range(loader.epoch, 3):
    for batch in loader:
        ...
        checkpoints.save(loader.step, {"model": model, "optimizer": optimizer, "data": loader})
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import IterableDataset

from minder.edge.data.patience import Patience
from minder.edge.data.plan import Plan, Share
from minder.edge.data.position import Position
from minder.edge.data.process import Snapshot
from minder.edge.data.randomness import seed_step
from minder.edge.data.recipe import Fetched, Recipe, keeps_state
from minder.edge.data.record import StepRecord
from minder.edge.data.supply import LoaderProcess, Supply
from minder.edge.data.text_state import pack_state, unpack_state
from minder.edge.worker.skips import skipped_batches
from minder.model.errors import DataError

__all__ = ["DataLoader"]


class DataLoader:
    """Gives each rank its share of every global batch, in an order that follows from the seed. A loop over it is an epoch, or the rest of
    the one in which the run stands. After a step `state_dict` is the place behind it, whatever was loaded ahead.

    dataset: `len` and `dataset[index]`, or `__getitems__(indices)`. global_batch: samples of all ranks in one step. epochs: None for no
    end. rank, world: of the ranks that read different data, where that is not all of them (tensor and pipeline parallel); default: of
    torch.distributed, else of RANK and WORLD_SIZE. accumulate: a step's share comes in so many batches.

    num_workers: processes that read for the loader process; with 0 it reads by itself. prefetch: batches that lie ready. shadows: loader
    processes that wait to take over (0: the next one starts when it is needed). hang_after_s: no loader counts as hung before.
    log_dir: where the planner's log goes (`minder job data DIR`). seed_random: set the random generators before each step, from seed,
    step and rank, so that they too go on exactly; False for a script whose checkpoints hold them. snapshot_every: batches between two
    snapshots of a dataset that has `state_dict` and `load_state_dict`. version: a text that stands for what the samples hold (a
    revision, a hash of a list of files): a state of another version is refused. collate_fn, worker_init_fn, pin_memory, prefetch_factor
    and multiprocessing_context are those of torch's DataLoader.

    Raises DataError for numbers that make no plan, and for a dataset without a length. What the dataset raises comes out of the loop,
    at the batch in which it happened; the next loop tries that batch again.
    """

    def __init__(  # noqa: PLR0913 - keywords of a loader
        self,
        dataset: Any,
        global_batch: int,
        *,
        seed: int = 0,
        epochs: int | None = None,
        shuffle: bool = True,
        rank: int | None = None,
        world: int | None = None,
        accumulate: int = 1,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | None = None,
        prefetch: int = 2,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
        shadows: int = 1,
        hang_after_s: float = 30.0,
        log_dir: str | os.PathLike[str] | None = None,
        seed_random: bool = True,
        snapshot_every: int = 16,
        version: str = "",
    ) -> None:
        _demand_samples_by_index(dataset)
        self.dataset = dataset
        self.plan = Plan(len(dataset), global_batch, seed, epochs, shuffle, str(version))
        self.accumulate = accumulate
        self._given = (rank, world)
        self._options = {
            "collate": collate_fn, "num_workers": num_workers, "prefetch": max(1, prefetch), "prefetch_factor": prefetch_factor,
            "worker_init": worker_init_fn, "snapshot_every": snapshot_every, "context": multiprocessing_context,
        }  # fmt: skip
        self._pin, self._seed_random = pin_memory, seed_random
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._shadows, self._patience = shadows, Patience(hang_after_s)
        self._position = Position().skipping(skipped_batches())
        self._units = 0  # that were given to the training loop
        self._fingerprint = 0  # of the step that is being given
        self._generation = int(os.environ.get("MINDER_GENERATION") or 1)
        self._snapshot: Snapshot | None = None
        self._share: Share | None = None
        self._supply: Supply | None = None
        self._record: StepRecord | None = None

    def __len__(self) -> int:
        """Batches that a rank is given in an epoch; the last epoch of a run that skips batches has fewer."""
        return self.plan.batches_per_epoch * self.accumulate

    @property
    def step(self) -> int:
        """Steps whose data was given out as a whole."""
        return self._units // self.accumulate

    @property
    def epoch(self) -> int:
        """The epoch in which the next loop goes on, from 0."""
        return self.step // self.plan.batches_per_epoch

    @property
    def pids(self) -> list[int]:
        """Of the loader processes, the one at work first."""
        found = [] if self._supply is None else self._supply.processes
        return [each.pid for each in found if isinstance(each, LoaderProcess)]

    def __iter__(self) -> Iterator[Any]:
        end = (self._units // len(self) + 1) * len(self)
        while self._units < end:
            fetched = self._take()
            if fetched is None:
                self.close()
                return
            yield _pinned(fetched.value) if self._pin else fetched.value

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last whole step. The same on all ranks, but for a dataset that keeps a state."""
        state = {**Position(self.step, self._position.skipped).state(self.plan), "generation": self._generation}
        if keeps_state(self.dataset):
            snapshot = self._snapshot if self._supply is None else self._supply.snapshot()
            share = self._own_share()
            begin, inner = (0, None) if snapshot is None else (snapshot.begin, snapshot.state)
            state["dataset"] = {"rank": share.rank, "world": share.world, "begin": begin, "state": pack_state(inner)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Raises DataError for a state of another plan; for a dataset that keeps a state, for another rank's too."""
        position = Position.of_state(state, self.plan)
        snapshot = self._own_snapshot(state) if keeps_state(self.dataset) else None
        self.close()
        self._generation = int(os.environ.get("MINDER_GENERATION") or int(state.get("generation", 0)) + 1)
        self._position, self._snapshot = position.skipping(skipped_batches()), snapshot
        self._units = position.step * self.accumulate

    def seek(self, step: int) -> None:
        """Go on after so many steps of this plan. For trainers that count steps and keep no state of their loader."""
        self.load_state_dict({**Position(step, self._position.skipped).state(self.plan), "generation": self._generation})

    def close(self) -> None:
        """End the loader processes. The next loop starts them again, at the same place."""
        if self._supply is not None:
            self._snapshot = self._supply.snapshot()
            self._supply.end()
            self._supply = None
        if self._record is not None:
            self._record.close()
            self._record = None

    def _take(self) -> Fetched | None:
        share, supply = self._own_share(), self._supply or self._start()
        unit = self._position.unit(self._units, share.parts)
        fetched = supply.take(unit.number)
        if fetched is None:
            return None
        if fetched.failed is not None:
            self.close()
            fetched.failed.reraise()
        self._units += 1
        if unit.part == 0:
            self._fingerprint = 0
            if self._seed_random:
                seed_step(self.plan.seed, unit.step, share.rank)
        self._fingerprint = (self._fingerprint + fetched.fingerprint) % 2**64
        if self._record is not None and unit.part == share.parts - 1:
            self._record.step(unit.step, unit.batch, self._fingerprint)
        return fetched

    def _start(self) -> Supply:
        share = self._own_share()
        self._units = self.step * share.parts  # a step that was given in part begins again
        if self._log_dir is not None:
            about = {
                **Position(self.step, self._position.skipped).state(self.plan),
                "epochs": self.plan.epochs, "rank": share.rank, "world": share.world, "generation": self._generation,
            }  # fmt: skip
            self._record = StepRecord(self._log_dir, share.rank, about)
        recipe = Recipe(self.dataset, self.plan, share, **self._options)  # type: ignore[arg-type]

        def make() -> LoaderProcess:
            return LoaderProcess(recipe, tuple(each.channel for each in supply.processes if isinstance(each, LoaderProcess)))

        def replaced(number: int, end: str) -> None:
            if self._record is not None:
                self._record.replaced(number // share.parts + 1, end)

        self._supply = supply = Supply(make, self._shadows, self._patience, recipe.prefetch, replaced)
        if keeps_state(self.dataset) and self._snapshot is None:
            self._snapshot = Snapshot(self._units)
        supply.begin(self._units, self._position, self._snapshot)
        return supply

    def _own_share(self) -> Share:
        """Known when the loop begins, not before: some trainers let their ranks meet later than they make loaders."""
        if self._share is None:
            rank, world = self._given
            if dist.is_available() and dist.is_initialized():
                found = (dist.get_rank(), dist.get_world_size())
            else:
                found = (int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
            share = Share(found[0] if rank is None else rank, found[1] if world is None else world, self.accumulate)
            self.plan.check_share(share)
            self._share = share
        return self._share

    def _own_snapshot(self, state: Mapping[str, Any]) -> Snapshot:
        share, kept = self._own_share(), dict(state.get("dataset") or {})
        if (kept.get("rank"), kept.get("world")) != (share.rank, share.world):
            raise DataError(
                f"the loader's state is that of rank {kept.get('rank')} of {kept.get('world')}, and this is rank {share.rank} of "
                f"{share.world}: the dataset keeps a state of its own, so save every rank's and load it with the same ranks"
            )
        return Snapshot(int(kept["begin"]), unpack_state(kept["state"]))


def _demand_samples_by_index(dataset: Any) -> None:
    """torch gives every IterableDataset a `__getitem__` that only raises, and some of them have a length."""
    by_index = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    if not (hasattr(dataset, "__len__") and by_index) or isinstance(dataset, IterableDataset):
        raise DataError(
            f"{type(dataset).__name__} is a stream, without a length or samples by index, so nothing can be planned: give a dataset with "
            "`__len__` and `__getitem__` (an index of its files and records), or keep its place with torchdata's StatefulDataLoader"
        )


def _pinned(value: Any) -> Any:
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(value)
