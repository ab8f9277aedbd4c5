"""Small recordings: a fixed shape, one fault or none, no nuisance that was not asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from minder.simulate.cluster.recipe import Recipe
from minder.simulate.cluster.simulate import Made, make

QUIET = {"jitters_per_machine_hour": 0.0, "housekeeping_per_hour": 0.0}


@dataclass(frozen=True)
class Grid:
    """A recording as (seconds, machines) per metric, and its truth in seconds since the start."""

    made: Made
    culprit: int
    onset: int

    def of(self, metric: str) -> np.ndarray:
        """values_TM with NaN where nothing was scraped."""
        k = [model.name for model in self.made.site.models].index(metric)
        values_TM = np.full((int(self.made.scene.duration_s) + 60, self.made.scene.machines), np.nan)
        values_TM[self.made.rows.time_R // 1000, self.made.rows.machine_R] = self.made.rows.values_RK[:, k]
        return values_TM

    def change(self, metric: str, machines: int | list[int], after_s: int = 60) -> float:
        """Median from `after_s` after the onset, relative to the median before it."""
        values_TM = self.of(metric)[:, machines]
        return float(np.nanmedian(values_TM[self.onset + after_s :]) / np.nanmedian(values_TM[: self.onset]))

    @property
    def peers(self) -> list[int]:
        faulty = self.made.scene.fault.machines if self.made.scene.fault else ()
        return [machine for machine in range(self.made.scene.machines) if machine not in faulty]


@pytest.fixture
def recipe() -> Callable[..., Recipe]:
    def build(**changes: Any) -> Recipe:
        rules: dict[str, Any] = {
            "name": "test", "title": "test", "seed": 1, "duration_s": (600.0, 600.0),
            "job": {"machines": (8, 8), "pipeline": (2,), "step_s": (2.0, 4.0), "host_share": (0.0, 0.0)},
            "schedule": QUIET | {"checkpoint_every_s": (1e5, 1e5)},
            "faults": {"healthy_share": 1.0}, "monitoring": {"lost_scrapes": 0.0, "lost_values": 0.0},
        }  # fmt: skip
        for key, value in changes.items():
            rules[key] = {**rules.get(key, {}), **value} if isinstance(value, dict) else value
        return Recipe.model_validate(rules)

    return build


@pytest.fixture
def grid(recipe: Callable[..., Recipe]) -> Callable[..., Grid]:
    def build(fault: str | None = None, index: int = 1, **changes: Any) -> Grid:
        if fault:
            faults = {"kinds": (fault,), "healthy_share": 0.0, "onset_s": (300.0, 300.0), "echo_s": (0.0, 5.0), "severity": (1.0, 1.0)}
            changes["faults"] = {**faults, **changes.get("faults", {})}
        made = make(recipe(**changes), 1, index)
        plan = made.scene.fault
        return Grid(made, plan.culprit if plan else -1, int(plan.onset_s) if plan else 0)

    return build
