"""A fitted learned detector: trees, how they are accumulated, when they speak, and what their posterior is worth. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from minder.diagnose.detectors.learned.decide import Calibration, Decision
from minder.diagnose.detectors.learned.describe import FEATURES
from minder.diagnose.detectors.learned.posterior import Accumulation
from minder.diagnose.detectors.learned.trees import Margin, TreeSet
from minder.model.errors import ConfigError

__all__ = ["LearnedModel"]

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class LearnedModel:
    margin: Margin
    accumulation: Accumulation = field(default_factory=Accumulation)
    decision: Decision = field(default_factory=Decision)
    calibration: Calibration = field(default_factory=Calibration)

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.margin.signed.arrays("signed"), **self.margin.monotone.arrays("monotone")}

    def record(self) -> dict[str, Any]:
        """What the arrays are fed with and followed by; JSON-serialisable."""
        return {
            "features": list(FEATURES), "accumulation": asdict(self.accumulation), "decision": asdict(self.decision),
            "calibration": asdict(self.calibration),
        }  # fmt: skip

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> LearnedModel:
        """From what `arrays` and `record` gave. Raises ConfigError for a model of another version, or one with a part missing."""
        if list(record.get("features", ())) != list(FEATURES):
            raise ConfigError("the learned model was fitted to other features than this minder computes: run `minder train default` again")
        try:
            margin = Margin(TreeSet.of(arrays, "signed"), TreeSet.of(arrays, "monotone"))
        except (KeyError, ValueError) as error:
            raise ConfigError(f"the learned model lacks a part ({error}): run `minder train default` again") from error
        parts = (_part(Accumulation, record), _part(Decision, record), _part(Calibration, record))
        return cls(margin, *parts)


def _part(kind: type[C], record: Mapping[str, Any]) -> C:
    name = kind.__name__.lower()
    found, known = record.get(name), {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(found, Mapping) or set(found) != known:
        raise ConfigError(f"the learned model has no {name} of this version: run `minder train default` again")
    return kind(**{key: float(value) for key, value in found.items()})
