"""What a site or a model may set of the default detector."""

from __future__ import annotations

from dataclasses import dataclass

from minder.diagnose.detectors.numbers import number, numbers

__all__ = ["DefaultConfig"]


_PATIENCE_S = number("default", "patience_s")


@dataclass(frozen=True, slots=True)
class DefaultConfig:
    """How much evidence convicts, and how it is heard: section [default] of detector.toml says what each number is."""

    patience_s: float = number("default", "patience_s")
    warmup_s: float = number("default", "warmup_s")
    z_span: float = number("default", "z_span")
    stayed: float = number("default", "stayed")
    came_back: float = number("default", "came_back")
    leak_s: float = number("default", "leak_s")
    smooth_s: float = number("default", "smooth_s")
    slow_s: float = number("default", "slow_s")
    relearn_s: float = number("default", "relearn_s")
    far_z: float = number("default", "far_z")
    effect_boost: float = number("default", "effect_boost")
    eager_z: float = number("default", "eager_z")
    most_alone: float = number("default", "most_alone")
    most: float = number("default", "most")
    alone: float = number("default", "alone")
    most_at_once: float = number("default", "most_at_once")
    sure_at_once: float = number("default", "sure_at_once")
    kept: float = number("default", "kept")
    lone_samples: float = number("default", "lone_samples")
    least_s: float = number("default", "least_s")
    links_least_s: float = number("default", "links_least_s")
    lone_least_s: float = number("default", "lone_least_s")
    lasting_s: float = number("default", "lasting_s")
    together_s: float = number("default", "together_s")
    group_least_s: float = number("default", "group_least_s")
    group_pace: float = number("default", "group_pace")

    @property
    def slower(self) -> float:
        """How many times as long as usual what convicts by minutes must last, where more patience is asked for. Less patience makes it no
        faster."""
        return max(1.0, self.patience_s / _PATIENCE_S)


numbers("default", DefaultConfig)  # none is unknown
