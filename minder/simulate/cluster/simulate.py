"""From a recipe to recordings on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minder.ingest.sources.events import Truth
from minder.model.evidence import Signal
from minder.simulate.cluster.fault_plan import draw_fault
from minder.simulate.cluster.heartbeat import COUNTERS, count
from minder.simulate.cluster.levels import EXTRA_METRICS, METRICS
from minder.simulate.cluster.recipe import Recipe
from minder.simulate.cluster.render import act, render
from minder.simulate.cluster.scene import Scene, new_scene
from minder.simulate.cluster.scrape import Rows, Site, draw_site, scrape
from minder.simulate.cluster.shape import draw_shape
from minder.simulate.cluster.signals import recorded_signals
from minder.simulate.cluster.streams import Streams, draw
from minder.simulate.cluster.writer import prepare_folder, write_events, write_recording, write_truths

__all__ = ["Made", "make", "simulate", "summary"]

_BEGIN_S = 1_772_409_600  # 2026-03-02T00:00:00Z


@dataclass(frozen=True, slots=True)
class Made:
    """One recording in memory; begin_ms: unix time of its start in milliseconds."""

    name: str
    scene: Scene
    site: Site
    rows: Rows
    begin_ms: int
    signals: list[Signal]

    @property
    def truth(self) -> Truth:
        plan = self.scene.fault
        if plan is None:
            return Truth(self.name)
        names = tuple(self.scene.shape.machines[machine] for machine in plan.machines)
        return Truth(self.name, plan.kind, names[0], round(self.begin_ms / 1000.0 + plan.onset_s, 3), names)


def make(recipe: Recipe, seed: int, index: int, *, without_fault: bool = False) -> Made:
    """Recording number `index` (from 1) of a recipe and a seed, always the same. without_fault: its twin, with the same random numbers."""
    streams = Streams(recipe.name, seed, index)
    shape = draw_shape(recipe.job, streams.of("shape"))
    models = METRICS + EXTRA_METRICS if recipe.monitoring.extra_metrics else METRICS
    site = draw_site(recipe.monitoring, models, streams.of("site"))
    times = streams.of("times")
    duration_s = draw(times, recipe.duration_s)
    scene = new_scene(recipe, shape, streams, site.models, duration_s)
    scene.fault = draw_fault(recipe.faults, shape, streams, duration_s)
    iteration = act(scene, without_fault)
    values_TMK = render(scene, iteration)
    if recipe.monitoring.extra_metrics:
        site = replace(site, models=site.models + COUNTERS)
        values_TMK = np.concatenate([values_TMK, count(scene, iteration)], axis=2)
    begin_ms = 1000 * _BEGIN_S + int(times.integers(86_400_000))
    signals = recorded_signals(scene, iteration, begin_ms / 1000.0, site.signals) if site.events else []
    return Made(f"r{index:04d}", scene, site, scrape(scene, site, values_TMK), begin_ms, signals)


def simulate(recipe: Recipe, out: Path, seed: int, count: int) -> Iterator[Made]:
    """Write recordings r0001 to r<count> and truth.json into a new folder, yielding each when it is written.

    Raises BadInputError if the folder cannot be used.
    """
    prepare_folder(out)
    truths: list[Truth] = []
    for index in range(1, count + 1):
        made = make(recipe, seed, index)
        write_recording(out / made.name, made.scene.shape, made.site, made.rows, made.begin_ms)
        write_events(out / made.name, made.signals)
        truths.append(made.truth)
        yield made
    write_truths(out, truths)


def summary(made: Made) -> dict[str, str | int | float]:
    """What is in a recording, for people."""
    return {
        "recording": made.name,
        "machines": made.scene.machines,
        "metrics": len(made.site.models),
        "interval_s": made.site.interval_s,
        "fault": made.truth.fault or "healthy",
        "nuisances": ",".join(made.scene.nuisances) or "-",
    }
