"""Jobs by the recipes of `minder simulate` (datasets/recipes), each seed with a recipe of its own. Legend: R rows, K metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from minder.model.errors import ConfigError
from minder.simulate.cluster.faults import FAULTS as _KNOWN
from minder.simulate.cluster.recipe import NUISANCE_KINDS, Recipe, load_recipe
from minder.simulate.cluster.simulate import Made, make
from minder.simulate.worlds.world import NO_FAULT, Truth, World

NAME = "recipes"
FAULTS: Mapping[str, str] = {
    kind: f"{fault.effect} of a machine as published for {kind.replace('_', ' ')}" for kind, fault in _KNOWN.items()
}
CAUSES = {
    "congestion": "the network is slow for all, for minutes",
    "evaluation": "all but one stage rest",
    "restart": "all end together and come back one by one",
    "start": "the job starts in the recording",
    "outage": "the monitoring hears no machine",
}
NUISANCES: Mapping[str, str] = {kind: f"see simulate/cluster/nuisances: {kind.replace('_', ' ')}" for kind in NUISANCE_KINDS}
_USED = ("plain", "hard", "grey", "held-out-kinds", "held-out-nuisances", "a100", "healthy")
_SHARE = (0.15, 0.3, 0.2, 0.1, 0.1, 0.05, 0.1)


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (see world.py). Raises ConfigError for a fault that recipes do not have."""
    recipe = load_recipe(str(np.random.default_rng([seed, 5]).choice(_USED, p=_SHARE)))
    made = make(_asked(recipe, fault, machines, duration_s), recipe.seed, seed + 1, without_fault=fault == NO_FAULT)
    return _world(made, seed, fault == NO_FAULT)


def _asked(recipe: Recipe, fault: str | None, machines: int | None, duration_s: float | None) -> Recipe:
    changed: dict[str, object] = {}
    if fault not in (None, NO_FAULT):
        if fault not in FAULTS:
            raise ConfigError(f'recipes have no fault "{fault}": use one of {", ".join(sorted(FAULTS))}')
        changed["faults"] = recipe.faults.model_copy(update={"kinds": (fault,), "healthy_share": 0.0, "even": True})
    if machines is not None:
        changed["job"] = recipe.job.model_copy(update={"machines": (float(machines), float(machines))})
    if duration_s is not None:
        changed["duration_s"] = (duration_s, duration_s)
    return recipe.model_copy(update=changed)


def _world(made: Made, seed: int, without_fault: bool) -> World:
    shape, rows, nuisances = made.scene.shape, made.rows, made.scene.nuisances
    cause = next((name for name in nuisances if name in CAUSES), None)
    known, truth = made.truth, Truth(cause=cause, nuisances=nuisances)
    plan = made.scene.fault
    if plan is not None and not without_fault:
        several = len(known.machines) > 1
        truth = Truth(
            () if several else known.machines, known.machines if several else (), known.fault, known.onset_s, None,
            plan.severity < 0.6 or _KNOWN[plan.kind].grey, cause, nuisances,
        )  # fmt: skip
    domains = shape.recorded("world", made.site.interval_s).domains
    return World(
        NAME, seed, shape.machines, tuple(model.name for model in made.site.models), made.site.interval_s, shape.step_s,
        (made.begin_ms + rows.time_R) / 1000.0, rows.machine_R, np.full(len(rows.time_R), -1), rows.values_RK, truth,
        stages=MappingProxyType({name: int(stage) for name, stage in zip(shape.machines, shape.stage_M, strict=True)}),
        racks=MappingProxyType({name: place["rack"] for name, place in domains.items()}),
        switches=MappingProxyType({name: place["switch"] for name, place in domains.items()}),
    )  # fmt: skip
