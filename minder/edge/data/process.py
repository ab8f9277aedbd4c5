"""The loader process of a rank: a child of the training process that reads the plan's units in order and sends them.

torchdata's StatefulDataLoader runs in here, and not in the training process: when one of its workers is killed it raises RuntimeError
in the process that iterates, from a signal handler, wherever that process is. Here it ends the loader process, and a shadow goes on.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torchdata.stateful_dataloader import StatefulDataLoader

from minder.edge.data.channel import Channel
from minder.edge.data.position import Position, Unit
from minder.edge.data.recipe import Fetched, Recipe, keeps_state, planned
from minder.model.children import end_with_parent

__all__ = ["BATCH", "END", "READY", "SNAPSHOT", "START", "Snapshot", "Start", "load_units"]

START, READY, BATCH, SNAPSHOT, END = range(5)
_ORPHAN_S = 1.0
# A terminal, a launcher or a scheduler means the training process with them, and this one ends with it.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of a dataset that keeps a state: where the loader that took it began, and what StatefulDataLoader says of itself since then."""

    begin: int
    state: Any = None


@dataclass(frozen=True, slots=True)
class Start:
    """Send the units from number `first` on, of a run that leaves out what `position` says."""

    first: int
    position: Position
    snapshot: Snapshot | None = None


def load_units(channel: Channel, others: tuple[Channel, ...], by_main_thread: bool, recipe: Recipe) -> None:
    """What a loader process runs: it waits for a start, which may come much later, and then sends units as they are asked for.

    others: the training process's ends, which a fork inherits. by_main_thread: of the training process this one was started.
    """
    _settle(others, by_main_thread)
    packet = channel.receive()
    if packet is None:
        return
    start: Start = packet.value
    channel.send(READY, start.first, 0.0, None)
    begin = start.first if start.snapshot is None else start.snapshot.begin
    loader = _stateful_loader(recipe, start.position, begin)
    if start.snapshot is not None and start.snapshot.state is not None:
        loader.load_state_dict(start.snapshot.state)
    following, asked_s = start.first, time.monotonic()
    for fetched in loader:
        if fetched.number < start.first:
            continue  # after the snapshot, and trained on already: read again for what it does to the dataset
        seconds = time.monotonic() - asked_s
        if not channel.await_grant():
            return
        _send(channel, seconds, fetched)
        following = fetched.number + 1
        if keeps_state(recipe.dataset) and following % recipe.snapshot_every == 0:
            channel.send(SNAPSHOT, following, 0.0, Snapshot(begin, loader.state_dict()))
        asked_s = time.monotonic()
    channel.send(END, following, 0.0, None)


def _send(channel: Channel, seconds: float, fetched: Fetched) -> None:
    try:
        channel.send(BATCH, fetched.number, seconds, fetched)
    except (pickle.PicklingError, TypeError, AttributeError):  # the program's batch has no form as bytes: its error, as in any DataLoader
        failed = replace(fetched, value=None, failed=ExceptionWrapper(where="while a batch was sent to the training process"))
        channel.send(BATCH, fetched.number, seconds, failed)


class _Units:
    """A sampler whose samples are units. Every loop over it begins at the same unit."""

    def __init__(self, recipe: Recipe, position: Position, begin: int) -> None:
        self._recipe, self._position, self._begin = recipe, position, begin

    def __iter__(self) -> Iterator[Unit]:
        return self._position.units(self._recipe.plan, self._recipe.share.parts, self._begin)


def _stateful_loader(recipe: Recipe, position: Position, begin: int) -> Any:
    several: dict[str, Any] = {}
    if recipe.num_workers:
        several = {"prefetch_factor": recipe.prefetch_factor, "multiprocessing_context": recipe.context}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own use of torch
        return StatefulDataLoader(
            planned(recipe),
            batch_size=None,
            sampler=_Units(recipe, position, begin),
            num_workers=recipe.num_workers,
            collate_fn=_as_it_is,
            worker_init_fn=_WorkerStart(recipe),
            snapshot_every_n_steps=recipe.snapshot_every,
            **several,
        )


def _as_it_is(value: Any) -> Any:
    return value


class _WorkerStart:
    """A worker ends with its loader process, at once: torch's own watchdog looks every five seconds."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def __call__(self, worker: int) -> None:
        end_with_parent()
        _ignore_signals()  # torch has set its own for SIGTERM since
        if self._recipe.worker_init is not None:
            self._recipe.worker_init(worker)


def _settle(others: tuple[Channel, ...], by_main_thread: bool) -> None:
    """Take off what was inherited from the training process, and end when it does."""
    parent = os.getppid()
    if by_main_thread:  # the kernel's signal follows the thread that made this process: another one may end long before
        end_with_parent()
    for channel in others:
        channel.close()
    _ignore_signals()
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), name="minder-orphan", daemon=True).start()


def _ignore_signals() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHAN_S)
    os._exit(0)
