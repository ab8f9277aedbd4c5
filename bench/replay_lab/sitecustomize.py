"""On the path of one machine of the lab: its ranks flip one bit of one product in one step of each run of a replay (REPLAY_FLIPS_SEED).

Nothing else is touched: the machine trains, and passes its other probes, like every other one.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import random
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODEL = "minder.edge.probes.replay_model"


class Broken(importlib.abc.MetaPathFinder):
    """Replaces the reference model by one that flips a bit, as soon as it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != MODEL:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            whole = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                whole(module)
                flip(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def flip(module: Any) -> None:
    from minder.simulate.lab.replay_faults import Fault, FaultyModel

    def make(task: Any) -> Any:
        draw = random.Random(f"{os.environ['REPLAY_FLIPS_SEED']}/{task.environment['MINDER_GENERATION']}")
        return FaultyModel(Fault("flip", tuple(draw.sample(range(1, task.steps + 1), len(task.files)))), task)

    module.ReplayModel = make


if os.environ.get("REPLAY_FLIPS_SEED"):
    sys.meta_path.insert(0, Broken())
