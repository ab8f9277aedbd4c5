"""A launcher's own metrics as Prometheus text (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from minder import __version__
from minder.model.observation import WorkerView

__all__ = ["CONTENT_TYPE", "LauncherFigures", "Tally", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STATES = ("starting", "waiting", "running", "interrupted", "exited", "ended")


@dataclass(slots=True)
class Tally:
    """What happened since the launcher began. exits: by (how, whether it was asked for)."""

    exits: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    register_errors: int = 0


@dataclass(frozen=True, slots=True)
class LauncherFigures:
    """One launcher at one moment."""

    job: str
    machine: str
    started_s: float
    generation: int
    slots: int
    workers: tuple[WorkerView, ...]
    tally: Tally


def render(figures: LauncherFigures) -> bytes:
    return bytes(generate_latest(_Collected(figures)))


class _Collected(CollectorRegistry):
    """A registry that holds one launcher's figures and nothing else."""

    def __init__(self, figures: LauncherFigures) -> None:
        super().__init__(auto_describe=False)
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        figures = self._figures
        about = {"version": __version__, "training_job": figures.job}
        yield _gauges("info", "What runs here; always 1.", list(about), {tuple(about.values()): 1.0})
        yield _gauges("start_time_seconds", "When the launcher began.", [], {(): figures.started_s})
        yield _gauges("generation", "The generation that was asked for last; 0 before the first.", [], {(): float(figures.generation)})
        yield _gauges("slots", "Worker processes that this machine has room for.", [], {(): float(figures.slots)})
        states: Counter[str] = Counter(worker.state for worker in figures.workers)
        yield _gauges("workers", "Worker processes by state.", ["state"], {(state,): float(states[state]) for state in _STATES})
        exits = CounterMetricFamily("minder_launcher_exits", "Worker processes that ended.", labels=["how", "expected"])
        for key, count in sorted(figures.tally.exits.items()):
            exits.add_metric(list(key), count)
        yield exits
        requests = CounterMetricFamily("minder_launcher_requests", "What the controller asked for, by what came of it.", labels=["outcome"])
        for outcome, count in sorted(figures.tally.requests.items()):
            requests.add_metric([outcome], count)
        yield requests
        about_register = "Failures to write the register that agent and launcher share."
        yield CounterMetricFamily("minder_launcher_register_errors", about_register, value=figures.tally.register_errors)


def _gauges(name: str, about: str, labels: list[str], values: dict[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(f"minder_launcher_{name}", about, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
