"""What a loader process needs to know, and how it fetches one unit of the plan: in the process itself, or in its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from minder.edge.data.order import fingerprint
from minder.edge.data.plan import Plan, Share
from minder.edge.data.position import Unit
from minder.edge.data.randomness import seed_loading

__all__ = ["Fetched", "PlannedDataset", "Recipe", "keeps_state", "planned"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """num_workers: processes that the loader process starts for itself, 0 for none. prefetch: batches that lie ready for the training
    process; prefetch_factor: for each worker besides. snapshot_every: batches between two snapshots of a dataset that keeps a state."""

    dataset: Any
    plan: Plan
    share: Share
    collate: Callable[[list[Any]], Any] | None = None
    num_workers: int = 0
    prefetch: int = 2
    prefetch_factor: int = 2
    worker_init: Callable[[int], None] | None = None
    snapshot_every: int = 16
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """number: of the unit. fingerprint: of the samples that were read. failed: what dataset or collation raised, in place of a value."""

    number: int
    fingerprint: int
    value: Any
    failed: ExceptionWrapper | None = None


class PlannedDataset:
    """The dataset by units of the plan, for a StatefulDataLoader that makes no batches itself."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __len__(self) -> int:
        return self.recipe.plan.batches_per_epoch * self.recipe.share.parts

    def __getitem__(self, unit: Unit) -> Fetched:
        share = self.recipe.share
        samples = self.recipe.plan.samples_of(unit.batch, share, unit.part)
        try:
            found = self._read(unit.batch, samples)
            seed_loading(self.recipe.plan.seed, unit.batch, share.rank, unit.part)
            value = (self.recipe.collate or default_collate)(found)
        except Exception:  # noqa: BLE001 - whatever the program's own code raises is raised again in the training process
            return Fetched(unit.number, 0, None, ExceptionWrapper(where=f"while samples of step {unit.step} were loaded"))
        return Fetched(unit.number, fingerprint(samples), value)

    def _read(self, batch: int, samples: Sequence[int]) -> list[Any]:
        dataset, seed = self.recipe.dataset, self.recipe.plan.seed
        if hasattr(dataset, "__getitems__") and dataset.__getitems__ is not None:  # torch's own words for "many at once"
            seed_loading(seed, batch, *samples[:1])
            return list(dataset.__getitems__(samples))
        found = []
        for sample in samples:
            seed_loading(seed, batch, sample)
            found.append(dataset[sample])
        return found


class _KeepingDataset(PlannedDataset):
    """The same for a dataset that changes while it is read: its state is part of a snapshot."""

    def state_dict(self) -> dict[str, Any]:
        return dict(self.recipe.dataset.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recipe.dataset.load_state_dict(state)


def planned(recipe: Recipe) -> PlannedDataset:
    """The dataset of a recipe, by units."""
    return _KeepingDataset(recipe) if keeps_state(recipe.dataset) else PlannedDataset(recipe)


def keeps_state(dataset: Any) -> bool:
    """Whether reading changes it: then it has both halves of torchdata's Stateful."""
    return hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
