"""Leaving a generation: the old process groups, tensors and connections go, the process stays."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from typing import Any

from minder.edge.worker.connections import cut_connections
from minder.edge.worker.device import abort_device_groups, device_groups, free_device, holds_too_much

__all__ = ["tear_down"]

_DESTROY_LIMIT_S = 3.0
_DEVICE_LIMIT_S = 5.0


def tear_down(error: BaseException | None, keep: frozenset[str], exit_code: int, memory_before: int = 0) -> None:
    """Abort and cut what waits, destroy the groups, drop main's frames, free the GPU. Ends the process with `exit_code` if one hangs.

    memory_before: bytes of the GPU that were in use before main began.
    """
    abort_device_groups()  # before the cut: NCCL's own threads would report a cut connection as a failed peer
    cut_connections(keep)  # a group's destructor joins its threads, and one may still wait for a silent peer
    groups = device_groups()
    worker = threading.Thread(target=_destroy_groups, name="minder-teardown", daemon=True)
    worker.start()
    worker.join(_DESTROY_LIMIT_S)
    if worker.is_alive() or _is_initialised() or not _forget_names():
        print("minder: the old process group could not be destroyed in place: this process ends", file=sys.stderr, flush=True)
        os._exit(exit_code)
    _drop_frames(error)
    gc.collect()
    # The last reference to a group must be ours: DDP's reducer would drop it while it holds the interpreter lock, and the group's
    # destructor joins a thread that may want that lock. Python's own reference is released without it.
    groups.clear()
    cut_connections(keep)  # a thread of the old generation (an asynchronous checkpoint) may have connected again
    gc.collect()
    if not free_device(_DEVICE_LIMIT_S) or holds_too_much(memory_before):
        print("minder: the GPU does not come back from the old generation: this process ends", file=sys.stderr, flush=True)
        os._exit(exit_code)


def _distributed() -> Any:
    """torch.distributed if it is loaded and has a group."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def _is_initialised() -> bool:
    return _distributed() is not None


def _destroy_groups() -> None:
    distributed = _distributed()
    if distributed is None:
        return
    try:
        distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - an aborted group may complain while it goes; whether it went is looked at afterwards
        print(f"minder: destroy_process_group: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _forget_names() -> bool:
    """Groups are met under numbers that each process counts for itself, and only the end of a whole default group sets the count back.
    A process that was interrupted while it met its peers would look for them under the next number for ever, while a fresh standby
    waits under the first. False if a half made group is left that cannot be forgotten."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    if world is None:
        return True
    world.group_count = 0
    getattr(world, "pg_default_device", {}).clear()  # torch leaves it: it keeps every group that ever exchanged an object
    return not world.pg_map


def _drop_frames(error: BaseException | None) -> None:
    """The traceback holds main's locals (model, optimiser, groups): without it the next generation needs twice the memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        former, error = error, error.__cause__ or error.__context__
        former.__context__ = former.__cause__ = None
