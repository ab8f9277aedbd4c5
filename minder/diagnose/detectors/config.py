"""What a site or a model may set of the default detector."""

from __future__ import annotations

from dataclasses import dataclass

from minder.diagnose.detectors.numbers import numbers, read_sections

__all__ = ["DefaultConfig"]

_GIVEN = {name: entry["value"] for name, entry in read_sections()["default"].items()}


@dataclass(frozen=True, slots=True)
class DefaultConfig:
    """How much evidence convicts, and how it is heard: section [default] of detector.toml says what each number is."""

    patience_s: float = _GIVEN["patience_s"]
    warmup_s: float = _GIVEN["warmup_s"]
    z_span: float = _GIVEN["z_span"]
    stayed: float = _GIVEN["stayed"]
    came_back: float = _GIVEN["came_back"]
    leak_s: float = _GIVEN["leak_s"]
    smooth_s: float = _GIVEN["smooth_s"]
    slow_s: float = _GIVEN["slow_s"]
    relearn_s: float = _GIVEN["relearn_s"]
    far_z: float = _GIVEN["far_z"]
    effect_boost: float = _GIVEN["effect_boost"]
    eager_z: float = _GIVEN["eager_z"]
    most_alone: float = _GIVEN["most_alone"]
    most: float = _GIVEN["most"]
    alone: float = _GIVEN["alone"]
    most_at_once: float = _GIVEN["most_at_once"]
    sure_at_once: float = _GIVEN["sure_at_once"]
    kept: float = _GIVEN["kept"]
    lone_samples: float = _GIVEN["lone_samples"]
    least_s: float = _GIVEN["least_s"]
    links_least_s: float = _GIVEN["links_least_s"]
    lone_least_s: float = _GIVEN["lone_least_s"]
    lasting_s: float = _GIVEN["lasting_s"]
    together_s: float = _GIVEN["together_s"]
    group_least_s: float = _GIVEN["group_least_s"]
    group_pace: float = _GIVEN["group_pace"]


numbers("default", DefaultConfig)  # no number is missing, unknown or of another type
