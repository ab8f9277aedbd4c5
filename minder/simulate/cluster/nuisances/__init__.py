"""What healthy clusters do and detectors trip over. Each nuisance writes into the scene; `HELD_OUT` ones are not for tuning."""

from __future__ import annotations

from collections.abc import Callable

from minder.simulate.cluster.nuisances.activity import add_uneven_data, add_wander
from minder.simulate.cluster.nuisances.lasting import (
    add_drift,
    add_other_hardware,
    add_page_cache,
    add_sidecar,
    add_warm_slot,
)
from minder.simulate.cluster.nuisances.monitoring import (
    add_dead_exporter,
    add_late_dark,
    add_outage,
    add_skewed_clock,
    add_stuck_sensor,
)
from minder.simulate.cluster.nuisances.network import add_congestion, add_link_flap
from minder.simulate.cluster.nuisances.phases import add_evaluation, add_restart, add_start
from minder.simulate.cluster.scene import Scene

__all__ = ["HELD_OUT", "NUISANCES", "add_nuisances"]

# The kinds of recipe.py, in the same order.
NUISANCES: dict[str, Callable[[Scene], None]] = {
    "start": add_start,
    "evaluation": add_evaluation,
    "restart": add_restart,
    "congestion": add_congestion,
    "wander": add_wander,
    "uneven_data": add_uneven_data,
    "link_flap": add_link_flap,
    "drift": add_drift,
    "warm_slot": add_warm_slot,
    "sidecar": add_sidecar,
    "page_cache": add_page_cache,
    "other_hardware": add_other_hardware,
    "stuck_sensor": add_stuck_sensor,
    "skewed_clock": add_skewed_clock,
    "dead_exporter": add_dead_exporter,
    "outage": add_outage,
    "late_dark": add_late_dark,
}
HELD_OUT = ("uneven_data", "page_cache", "restart", "link_flap", "late_dark")


def add_nuisances(scene: Scene) -> None:
    """Draw some of the recipe's nuisances and apply them."""
    rules, rng = scene.recipe.nuisances, scene.streams.of("nuisances")
    count = min(int(rng.integers(rules.count[0], rules.count[1] + 1)), len(rules.kinds))
    chosen = set(rng.choice(rules.kinds, size=count, replace=False).tolist()) if count else set()
    scene.nuisances = tuple(kind for kind in NUISANCES if kind in chosen)
    for kind in scene.nuisances:
        NUISANCES[kind](scene)
