"""The ledger read once for all that is folded out of it: an event is fetched and decoded once, however many folds want it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from minder.model.history import LedgerEvent
from minder.record.store.events import EventStore
from minder.record.store.follow import EventFollower

__all__ = ["OneReading"]


@dataclass(slots=True)
class _Fold:
    names: frozenset[str]
    take: Callable[[LedgerEvent], None]
    taken_id: int = 0


class OneReading:
    """Safe for several threads: folds change while `current` is entered, and are to be read within it."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._folds: list[_Fold] = []
        self._wanted: dict[str, bool] = {}  # kind to whether a fold looks into its payload
        self._follower: EventFollower | None = None
        self._lock = threading.RLock()

    def feed(self, names: Sequence[str], take: Callable[[LedgerEvent], None], bare: Sequence[str] = ()) -> None:
        """From now on `take` is given each event of these kinds, oldest first, each once unless it raises. bare: of these kinds it does
        not look at the payload. Before anything is read."""
        assert self._follower is None
        self._folds.append(_Fold(frozenset(names), take))
        for name in names:
            self._wanted[name] = self._wanted.get(name, False) or name not in bare

    @contextmanager
    def current(self) -> Iterator[None]:
        """Within it, every fold has what the ledger has now. Raises LedgerError."""
        with self._lock:
            if self._follower is None:
                bare = tuple(name for name, wanted in self._wanted.items() if not wanted)
                self._follower = EventFollower(self._events, tuple(self._wanted), bare=bare)
            for event in self._follower.new():
                self._give(event)
            yield

    def _give(self, event: LedgerEvent) -> None:
        for fold in self._folds:
            if event.kind in fold.names and fold.taken_id < event.id:  # where a fold raises, the event comes again
                fold.take(event)
                fold.taken_id = event.id
