"""Spikes of the job's loss and gradients on this machine: from the heartbeat pages of its ranks, and from the logs that are followed.

Here and not in the controller, which asks once a second: a page keeps the last 64 steps, so a spike of one step in a job that steps
every 20 ms is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from minder.edge.agent.steplog import StepLog
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.reading import Reading
from minder.edge.signals.spikes import OWN_GRADIENT, Spike, StepSpikes
from minder.model.errors import WireError
from minder.model.evidence import Signal
from minder.wire.heartbeat import HeartbeatView, read_heartbeat, was_said

__all__ = ["SpikeReader"]


class _Page:
    """How far one page was read. A new generation starts a new series, and so does a new process."""

    def __init__(self, life: tuple[int, int]) -> None:
        self.life, self.count, self.spike_count = life, 0, 0
        self.steps = StepSpikes()


class SpikeReader:
    """`read` at every sample. Of what several ranks of the machine say alike (a loss that was reduced), the first is reported."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._pages: dict[str, _Page] = {}

    def read(self, processes: Sequence[JobProcess], logs: Sequence[StepLog]) -> Reading:
        reading, reported = Reading(), set[str]()
        self._pages = {name: page for name, page in self._pages.items() if any(item.heartbeat == name for item in processes)}
        for process in sorted(processes, key=lambda item: (item.rank is None, item.rank or 0)):
            for spike, time_s, view in self._new(process):
                if spike.what == OWN_GRADIENT or spike.what not in reported:
                    reading.signals.append(self._signal(spike, time_s, process, view))
                reported.add(spike.what)
        for log in logs:
            reading.signals += [self._signal(spike, time_s) for time_s, spike in log.take_spikes()]
        return reading

    def _new(self, process: JobProcess) -> Iterator[tuple[Spike, float, HeartbeatView]]:
        if process.heartbeat is None:
            return
        try:
            view = read_heartbeat(process.heartbeat)
        except WireError:  # the exporter of heartbeats leaves its metrics out too
            return
        life = (view.pid, view.generation)
        page = self._pages.get(process.heartbeat)
        if page is None or page.life != life or view.count < page.count:
            page = self._pages[process.heartbeat] = _Page(life)
        new, page.count = view.count - page.count, view.count
        for record in view.recent[-new:] if new else ():
            if not record.flags:
                for spike in page.steps.read(record.step, _if_said(record.loss), _if_said(record.grad_norm)):
                    yield spike, record.time_s, view
        new, page.spike_count = view.spike_count - page.spike_count, view.spike_count
        for found in view.spikes[-new:] if new else ():
            yield Spike(OWN_GRADIENT, found.step, found.squared, found.usual), found.time_s, view

    def _signal(self, spike: Spike, time_s: float, process: JobProcess | None = None, view: HeartbeatView | None = None) -> Signal:
        data = {"step": spike.step, "what": spike.what, "value": _written(spike.value), "usual": _written(spike.usual)}
        message = f"{spike.what} {spike.value:.4g} at step {spike.step}, usually {spike.usual:.4g}"
        if process is None or view is None:
            return Signal(time_s, "spike", self._machine, message, data=data)
        rank = view.rank if view.rank >= 0 else process.rank
        generation = view.generation if view.generation >= 0 else process.generation
        return Signal(time_s, "spike", self._machine, message, rank=rank, pid=process.pid, generation=generation, data=data)


def _if_said(value: float) -> float | None:
    return value if was_said(value) else None


def _written(value: float) -> float | None:
    """Signals travel as JSON, which knows neither NaN nor infinity: None is "not finite"."""
    return value if math.isfinite(value) else None
