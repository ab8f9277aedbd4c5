"""A controller in line behind another shows that it waits, where the address of its metrics is free: on one machine the leader has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from minder.act.controller.lease import Leadership
from minder.model.errors import ConfigError
from minder.record.store.leases import Lease

__all__ = ["LeaseGauges", "wait_to_lead"]


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
