"""One controller leads a job; another on the same ledger waits, and takes over when the leader's beats stand still.

A leader that was stopped and wakes up finds another token in the ledger: its next write is refused, and with it the action that the
write stands before (ADR 13). A controller in line shows that it waits, where the address of its metrics is free: on one machine the
leader has it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from minder.model.errors import ConfigError, LeaseLostError, LedgerError
from minder.record.store.leases import Lease, LeaseStore

__all__ = ["BEAT_S", "PATIENCE_S", "Leadership", "LeaseGauges", "Standing", "is_led", "wait_to_lead"]

BEAT_S = 1.0
PATIENCE_S = 5.0  # so long may the beats stand still
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Standing:
    """Who leads, as one controller sees it. token: of the lease that holds now, its own or another's; age_s: since that lease's last
    beat was written (its own) or seen (another's); both None where there is none."""

    leads: bool
    token: int | None
    age_s: float | None
    takeovers: int


def is_led(path_or_url: str, job: str, patience_s: float = 2.5 * BEAT_S) -> bool:
    """Whether a controller or a watcher of the job beats: looked at for `patience_s` at most. Raises LedgerError."""
    store, names, end_s = LeaseStore(path_or_url), (job, f"watch of {job}"), time.monotonic() + patience_s
    try:
        seen = {name: store.read(name) for name in names}
        left = [name for name, lease in seen.items() if lease is not None and not lease.released]
        while left and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
            if any(store.read(name) != seen[name] for name in left):
                return True
        return False
    finally:
        store.close()


class Leadership:
    """A place in the line of the controllers of one job. `lead` waits for it; `close` gives it back."""

    def __init__(self, path_or_url: str, name: str, *, beat_s: float = BEAT_S, patience_s: float = PATIENCE_S) -> None:
        self._store = LeaseStore(path_or_url)
        self._name = name
        self._beat_s, self._patience_s = beat_s, patience_s
        self._holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: Lease | None = None  # another's, while we wait
        self._beaten_s = 0.0  # when the newest beat was written, or seen; monotonic
        self._takeovers = 0
        self.mine: Lease | None = None
        self.lost = threading.Event()
        self.on_beat: Callable[[str], None] = lambda error: None  # "", or why the database did not take the beat

    def standing(self) -> Standing:
        """Safe to ask from any thread."""
        lease, leads = self.mine or self._seen, self.mine is not None and not self.lost.is_set()
        age_s = None if lease is None or (lease.released and not leads) else time.monotonic() - self._beaten_s
        return Standing(leads, None if lease is None else lease.token, age_s, self._takeovers)

    def lead(self, stopping: threading.Event, say: Callable[[str], None]) -> Lease | None:
        """Wait until this process leads; None if it was stopped before. Raises LedgerError where the ledger cannot be read at first."""
        seen, since_s, is_said = self._store.read(self._name), time.monotonic(), False
        self._seen, self._beaten_s = seen, since_s
        while not stopping.is_set():
            stale = seen is None or seen.released or time.monotonic() - since_s >= self._patience_s
            try:
                if stale and (mine := self._store.take(self._name, self._holder, seen)) is not None:
                    self._takeovers += seen is not None and not seen.released
                    return self._begin(mine)
                now = self._store.read(self._name)
            except LedgerError as error:  # not readable for a moment: that says nothing of the leader
                say(f"cannot see who leads: {error}")
                since_s = time.monotonic()
                stopping.wait(self._beat_s)
                continue
            if now != seen:
                seen, since_s = now, time.monotonic()
                self._seen, self._beaten_s = seen, since_s
            if not is_said and seen is not None and not seen.released:
                is_said = True
                say(f"{self._name} is led by {seen.holder}: waiting to take over")
            stopping.wait(_LOOK_S)
        return None

    def _begin(self, mine: Lease) -> Lease:
        self.mine, self._beaten_s = mine, time.monotonic()
        self._thread = threading.Thread(target=self._beat, args=(mine,), name="minder-lease", daemon=True)
        self._thread.start()
        return mine

    def _beat(self, mine: Lease) -> None:
        while not self._closing.wait(self._beat_s):
            try:
                self._store.beat(mine)
                self._beaten_s = time.monotonic()
                self.on_beat("")
            except LeaseLostError:
                self.lost.set()
                return
            except LedgerError as error:  # nothing can be written either: the ledger decides when it comes back
                self.on_beat(str(error))

    def close(self) -> None:
        """Let the next one lead at once."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self.mine is not None:
                with suppress(
                    LedgerError
                ):  # a lease that cannot be given back ends by itself: the next one waits for beats that do not come
                    self._store.release(self.mine)
        finally:
            self._store.close()


class _Closes(Protocol):
    def close(self) -> None: ...


class LeaseGauges:
    """A collector for prometheus_client: who leads, as this controller sees it. mode: run or watch, which have a lease each."""

    def __init__(self, leadership: Leadership, mode: str) -> None:
        self._leadership, self._mode = leadership, mode

    def collect(self) -> Iterator[Metric]:
        standing = self._leadership.standing()
        yield self._gauge("leader", "1: this controller leads its job; 0: it waits behind another.", float(standing.leads))
        if standing.token is not None:
            yield self._gauge("lease_token", "Grows whenever another process takes the lease.", standing.token)
        if standing.age_s is not None:
            yield self._gauge("lease_age_seconds", "Since the leader's last beat was written, or seen.", standing.age_s)
        about = "Leases that this controller took from one that had not given its own back."
        taken = CounterMetricFamily("minder_controller_takeovers", about, labels=["mode"])
        taken.add_metric([self._mode], standing.takeovers)
        yield taken

    def _gauge(self, name: str, about: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"minder_controller_{name}", about, labels=["mode"])
        family.add_metric([self._mode], float(value))
        return family


def wait_to_lead(
    leadership: Leadership, stopping: threading.Event, say: Callable[[str], None], page: Callable[[], _Closes] | None
) -> Lease | None:
    """Wait until this controller leads (None: it was stopped before), and show that it waits as long as it does. `page` opens what it
    shows; None where the configuration asks for no metrics. Raises LedgerError where the ledger cannot be read at first."""
    with ExitStack() as shown:
        left = [page] if page is not None else []

        def tell(line: str) -> None:
            say(line)
            if left:
                try:
                    shown.callback(left.pop()().close)
                except ConfigError as error:
                    say(f"{error} (the controller that leads has it, most likely): this one shows no metrics while it waits")

        return leadership.lead(stopping, tell)
