"""The figures of the notebooks: PNGs, the same each time, also of data with holes. What they look like was looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from minder.model.telemetry import Window
from minder.offline.plots import scores
from minder.offline.plots.hang import draw_collectives, draw_stacks
from minder.offline.plots.heatmap import render_heatmap
from minder.offline.plots.pointing import point_scatter, point_telemetry, point_workers
from minder.offline.plots.pool import draw_departures, draw_pool
from minder.offline.plots.realism import describe
from minder.offline.plots.scores import Outcome, draw_scores, draw_sweep
from minder.offline.plots.steps import draw_repairs, draw_slowdowns, draw_steps
from minder.offline.plots.telemetry import draw_gaps, draw_noise, draw_telemetry

METRICS = ("gpu_power_draw_watts", "gpu_duty_cycle_ratio", "pfc_tx_packets_per_second")
GROUPS = {"m$0": "stage 0", "m1": "stage 0", "m2": "stage 1"}


@dataclass(frozen=True)
class Advice:
    machines: int
    standbys: int
    low: int
    high: int


def window() -> Window:
    """Three machines; one metric without any data, a hole in another."""
    values_TMK = np.random.default_rng(0).uniform(0.2, 0.8, (40, 3, 3))
    values_TMK[10:20, 1, 0] = np.nan
    values_TMK[:, :, 2] = np.nan
    return Window(1000.0 + np.arange(40.0), tuple(GROUPS), METRICS, values_TMK, np.isfinite(values_TMK).any(axis=2))


def stacks() -> dict[str, object]:
    group = {"size": 2, "kind": "collective", "frames": ["all_reduce", "step"], "processes": ["m0:pid1", "m1:pid2"]}
    return {"groups": [group, {**group, "size": 1, "kind": "other", "processes": ["m2:pid3"]}], "suspects": [{"machine": "m2", "pid": 3}]}


DEPARTURES = [("m1", 1e9, "confirmed"), ("m1", 1.1e9, None), ("m2", 1e9, "no-fault-found")]

FIGURES: dict[str, Callable[[], bytes]] = {
    "telemetry": lambda: draw_telemetry(window(), METRICS, GROUPS, "title", {"fault": 1020.0}),
    "gaps": lambda: draw_gaps(window(), "title"),
    "noise": lambda: draw_noise({name: describe(window().values_TMK[:, :, k]) for k, name in enumerate(METRICS)}, "title"),
    "scores": lambda: draw_scores(np.arange(5.0), np.array([[0.1, np.nan]] * 5), ("m0", "m1"), ["m1"], {"onset": 2.0, "verdict": 3.0}),
    "scores without data": lambda: draw_scores(np.arange(2.0), np.full((2, 1), np.nan), ("m0",), [], {}),
    "sweep": lambda: draw_sweep([Outcome("r1", 90.0, "found", 12.0), Outcome("r2", 45.0, "missed", None)], "patience", 90.0, "title"),
    "stacks": lambda: draw_stacks(stacks(), "title"),
    "nobody": lambda: draw_stacks({"groups": [], "suspects": []}, "title"),
    "collectives": lambda: draw_collectives({0: (5, 4), 1: (4, 4), 2: None}, [1], "title"),
    "no dumps": lambda: draw_collectives({0: None}, [], "title"),
    "steps": lambda: draw_steps([1, 2, 3], np.array([3.0, 3.1, 3.0]), np.array([3.0, 3.0, 3.0]), 2.0, "title"),
    "slowdowns": lambda: draw_slowdowns({"forward-compute": 1.4, "gc": 0.99}, 1.5, "title"),
    "repairs": lambda: draw_repairs({"worker": 1.02, "stage imbalance": -0.1}, "title"),
    "departures": lambda: draw_departures(
        [("m1", 1e9, "confirmed"), ("m1", 1.1e9, None), ("m2", 1e9, "no-fault-found")], "title", (9e8, 1.2e9)
    ),
    "pool": lambda: draw_pool([Advice(128, 2, 1, 4), Advice(256, 3, 2, 5)], [Advice(128, 2, 2, 2), Advice(256, 2, 2, 2)], "title"),
    "heat map": lambda: render_heatmap(np.array([[1.0, np.nan], [1.9, 1.0]]), "a title that is longer than its picture is wide", [(0, 1)]),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.lab
def test_a_figure_is_a_picture_and_the_same_each_time(name: str) -> None:
    picture = FIGURES[name]()
    assert picture.startswith(b"\x89PNG") and len(picture) > 5000
    assert picture == FIGURES[name]()


def test_a_sweep_s_axis_says_what_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "to_png", lambda figure: figure.axes[0].get_xlabel().encode())
    assert draw_sweep([Outcome("r1", 90.0, "found", 12.0), Outcome("r2", 45.0, "missed", None)], "patience", 90.0, "title") == b"patience"


def test_figures_to_point_at_carry_names_and_values() -> None:
    pytest.importorskip("plotly", reason="needs the notebooks extra: pip install 'minder-cluster[notebooks]'")
    lines = point_telemetry(window(), METRICS[0], GROUPS, "title", marked=["m2"])
    assert [trace.name for trace in lines.data] == list(GROUPS)
    assert lines.layout.yaxis.title.text == "gpu_power_draw_watts, W"
    assert np.isnan(lines.data[1].y[12])  # a gap stays a gap
    assert point_scatter(["a", "b"], [1.0, 2.0], [0.5, 0.9], ("x", "y"), "title").data[1].name == "b"
    workers = point_workers(np.ones((2, 3)), "title", [(0, 1)])
    assert len(workers.layout.shapes) == 1
    assert workers.layout.xaxis.dtick == workers.layout.yaxis.dtick == 1  # nobody is rank 0.5
    assert point_workers(np.ones((2, 33)), "title").layout.xaxis.dtick == 3


def test_next_to_nothing_is_no_negative_nothing() -> None:
    slow, none, below = {"worker": 1.0}, {"stage imbalance": 0.0}, {"stage imbalance": -0.0001}
    assert draw_repairs({**slow, **below}, "title") == draw_repairs({**slow, **none}, "title")
    assert draw_slowdowns({"gc": 0.99999}, 1.5, "title") == draw_slowdowns({"gc": 1.0}, 1.5, "title")
