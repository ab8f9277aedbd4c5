"""torch.distributed.checkpoint (DCP) through the cache: `dcp.save` and `dcp.load` as a script has them, into the machines' memory.

    checkpoints = Checkpointer("memory")
    dcp.save(state, checkpoint_id=f"step-{step}", storage_writer=CacheWriter(checkpoints))
    ...
    reader = CacheReader(checkpoints)
    if (step := reader.newest_step()) is not None:
        dcp.load(state, storage_reader=reader)

Each rank keeps all items of its own plan, not only those that DCP's planner leaves to it: then a rank goes on from its own record alone,
and replicas cost no transfer (equal bodies are kept once). The price is that a state must be cut as it was: DCP's resharding is refused.
"""

from __future__ import annotations

import io
import os
import re
from typing import Any, TypeAlias

import torch
from torch.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)  # fmt: skip
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from minder.edge.checkpoint.checkpoint import Checkpointer
from minder.model.errors import CheckpointError

__all__ = ["CacheReader", "CacheWriter"]

_KEY = "dcp"
_Place: TypeAlias = tuple[str, tuple[int, ...] | None]  # an item's name, and where in the whole tensor its part begins


class CacheWriter(StorageWriter):  # type: ignore[misc, unused-ignore]
    """checkpoint_id: the step, as a number or as a text that ends in it ("step-120"). What is saved is copied before `dcp.save` returns;
    its backup follows in the background: `checkpoints.wait()` says whether it went well. Raises CheckpointError."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints.demand_memory("CacheWriter")
        if checkpoints.every != 1:
            raise CheckpointError(f"every={checkpoints.every} with CacheWriter: dcp.save saves whenever it is called, so call it seldom")
        self._step: int | None = None
        self._own = SavePlan([])

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        self._step = _step_of(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up: no rank is special."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if plan.usable:  # a planner that caches its plans says "as before" in the next saves
            self._own = plan
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        assert self._step is not None
        tensors = [_bytes_or_tensor(planner.resolve_data(item)) for item in self._own.items]
        content = {"items": [_described(item) for item in self._own.items], "planner": self._own.planner_data, "tensors": tensors}
        self._checkpoints.save(self._step, {_KEY: content})
        written: Future[list[WriteResult]] = Future()
        written.set_result([WriteResult(item.index, 0, None) for item in plan.items])
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Every record describes itself: there is no file of metadata that could be missing."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _STEP.search(str(checkpoint_id)) is not None


class CacheReader(StorageReader):  # type: ignore[misc, unused-ignore]
    """Reads the newest step that is complete for all ranks; the random generators are set to what they were. All ranks call it together.
    Raises CheckpointError where the state is cut otherwise than it was saved."""

    def __init__(self, checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints.demand_memory("CacheReader")
        self._content: dict[str, Any] = {}
        self._position: dict[_Place, int] = {}
        self._step: int | None = None

    def newest_step(self) -> int | None:
        """Fetch it. None where nothing was saved yet."""
        state: dict[str, Any] = {_KEY: None}
        self._step = self._checkpoints.load_latest(state)
        self._content = state[_KEY] or {}
        self._position = {(item[0], item[1]): index for index, item in enumerate(self._content.get("items", ()))}
        return self._step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Whatever is asked for, it is the newest step: older ones are gone."""

    def read_metadata(self, *args: Any) -> Metadata:
        if self._step is None and self.newest_step() is None:
            raise CheckpointError("no step was saved in memory yet: ask newest_step() first")
        known: dict[str, Any] = {}
        planner: dict[str, Any] = {}
        for items, data in self._checkpoints.gather_all((self._content["items"], self._content["planner"])):
            planner |= data or {}
            for item in items:
                _enter(known, *item)
        return Metadata(known, planner_data=planner)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        for item in plan.items:
            if _place(item.storage_index) not in self._position:
                raise CheckpointError(
                    f"the checkpoint does not fit: {item.storage_index.fqn} from {tuple(item.storage_index.offset or ())} lay on another "
                    "rank; what is kept in memory is read by the layout that saved it, so save to a folder to change it"
                )
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            self._read(item, self._content["tensors"][self._position[_place(item.storage_index)]], planner)
        self._step, self._content = None, {}  # the copy is as large as the state
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, item: ReadItem, saved: torch.Tensor, planner: LoadPlanner) -> None:
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(saved.numpy().tobytes()))
            return
        for dim, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            saved = saved.narrow(dim, begin, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(saved)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


_STEP = re.compile(r"(\d+)/*$")


def _step_of(checkpoint_id: str | os.PathLike[str] | int | None) -> int:
    found = _STEP.search(str(checkpoint_id))
    if found is None:
        raise CheckpointError(f"checkpoint_id {checkpoint_id!r} names no step: give a number, or a text that ends in one (step-120)")
    return int(found[1])


def _bytes_or_tensor(found: torch.Tensor | io.BytesIO) -> torch.Tensor:
    return torch.frombuffer(bytearray(found.getvalue()), dtype=torch.uint8) if isinstance(found, io.BytesIO) else found.detach()


def _described(item: WriteItem) -> tuple[Any, ...]:
    """Name, where its part begins, the whole's shape, the part's shape, type; the last three are None for bytes."""
    if item.tensor_data is None:
        return (*_place(item.index), None, None, None)
    data = item.tensor_data
    return (*_place(item.index), tuple(data.size), tuple(data.chunk.sizes), data.properties.dtype)


def _place(index: MetadataIndex) -> _Place:
    return index.fqn, None if index.offset is None else tuple(index.offset)


def _enter(known: STATE_DICT_TYPE, name: str, begin: Any, whole: Any, part: Any, dtype: Any) -> None:
    """Add one item to what DCP knows of a state; a replica's is there already."""
    if whole is None:
        known[name] = BytesStorageMetadata()
        return
    entry = known.setdefault(name, TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(whole), []))
    chunk = ChunkStorageMetadata(torch.Size(begin or [0] * len(whole)), torch.Size(part))
    if chunk not in entry.chunks:
        entry.chunks.append(chunk)
