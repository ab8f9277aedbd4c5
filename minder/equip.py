"""From a word to a detector: a detector's name, or the URI of a registered model. Registry and detectors meet only here.

The registry reads weights and parameters, the detector takes arrays; `app` and `evaluation` ask here for what the configuration names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from minder.detectors.contract import Detector
from minder.detectors.default import DefaultDetector
from minder.errors import ConfigError

__all__ = ["MakeDetector", "equip_detector"]

MakeDetector = Callable[[Mapping[str, object]], Detector]  # from each machine's pipeline stage(s)


@functools.lru_cache(maxsize=8)
def equip_detector(name: str = "default") -> MakeDetector:
    """What makes a detector for one job. Raises ConfigError for a name that nobody has, naming those that there are."""
    if name == "default":
        return DefaultDetector
    raise ConfigError(f'there is no detector "{name}": use default')
