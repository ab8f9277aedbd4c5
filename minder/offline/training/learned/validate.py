"""Nested leave-one-group-out and leave-one-nuisance-out: how well the learned part and the pool do on families that no fit has seen.

For each group of families (catalogue.py) that is left out, what accusations are worth is fitted on the other groups, each judged by a
model that saw neither it nor the group left out. Nothing that is printed for a group was fitted on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import fmean

import numpy as np

from minder.diagnose.detectors.learned.decide import Calibration, Decision
from minder.diagnose.detectors.learned.posterior import Accumulation
from minder.offline.training.learned.calibrate import fit_calibration
from minder.offline.training.learned.folds import Folds
from minder.offline.training.learned.recording import Recording
from minder.offline.training.learned.trial import WAYS, Outcome, Path, follow, snapshots, try_recording
from minder.simulate.worlds.catalogue import TUNED_ON, group_of

__all__ = ["CONCEPTS", "Row", "Settings", "Validation", "calibrate", "common_settings", "judge", "validate", "validate_group"]

# What families call their nuisances, by parts of the names: a nuisance is left out in all families at once.
CONCEPTS: Mapping[str, tuple[str, ...]] = {
    "congestion": ("congest", "jam"),
    "restart": ("restart", "reload", "exchange"),
    "evaluation": ("evaluat",),
    "clock": ("clock", "lag"),
    "exporter": ("exporter", "late_dark", "agent"),
    "outage": ("outage", "blackout"),
    "frozen gauge": ("stuck", "froz", "freeze"),
    "lasting change": ("warm", "sidecar", "page_cache", "new_level", "hot_aisle", "tenant"),
    "uneven work": ("wander", "lean", "uneven", "shift"),
    "link flap": ("flap",),
    "drift": ("drift", "creep"),
    "writer": ("writer", "checkpoint", "save"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    accumulation: Accumulation = field(default_factory=Accumulation)
    decision: Decision = field(default_factory=Decision)
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True, slots=True)
class Row:
    """One recording, judged by models that saw nothing of its group."""

    recording: Recording
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class Validation:
    """rows: of every recording whose group was left out. settings: calibrated for each group on the others. nuisances:
    concept to the rows of recordings that have it, judged by a model that saw none of them."""

    rows: tuple[Row, ...]
    settings: Mapping[str, Settings]
    nuisances: Mapping[str, tuple[Row, ...]]
    data_sha256: str


def validate(recordings: Sequence[Recording], folds: Folds, say: Callable[[str], None], with_nuisances: bool = True) -> Validation:
    """Everything, what decides first. Needs three groups or more (ValueError): one is left out, one is calibrated on, one teaches."""
    groups = sorted({group_of(item.family) for item in recordings})
    if len(groups) < 3:
        raise ValueError(f"{len(groups)} groups of families cannot be nested: give families of three groups or more")
    unseen = {group_of(item.family) for item in recordings if item.family not in TUNED_ON}
    parts = [validate_group(group, recordings, folds, say) for group in sorted(groups, key=lambda name: (name not in unseen, name))]
    settings = {group: chosen for group, chosen, _ in parts}
    nuisances = _leave_nuisances_out(recordings, folds, common_settings(settings)) if with_nuisances else {}
    return Validation(tuple(row for _, _, rows in parts for row in rows), settings, nuisances, folds.data_sha256)


def validate_group(
    group: str, recordings: Sequence[Recording], folds: Folds, say: Callable[[str], None]
) -> tuple[str, Settings, list[Row]]:
    """(group, what was fitted on the other groups, the rows of its recordings)."""
    margins, judges = dict[str, np.ndarray](), _calibrated_on(group, recordings)
    for other in judges:
        left = {group, other}
        margins |= folds.margins(
            f"without {' and '.join(sorted(left))}",
            lambda item, left=left: group_of(item.family) not in left,  # type: ignore[misc]
            lambda item, left=left: group_of(item.family) in left,  # type: ignore[misc]
        )
    settings = calibrate([item for item in recordings if group_of(item.family) in judges], margins)
    say(f"{group} left out: {settings}")
    final = folds.margins(f"without {group}", lambda item: group_of(item.family) != group, lambda item: group_of(item.family) == group)
    return group, settings, judge([item for item in recordings if group_of(item.family) == group], final, settings)


def _calibrated_on(group: str, recordings: Sequence[Recording]) -> list[str]:
    """Groups that the default detector was not tuned on: what its word is worth there is what it is worth at a site."""
    others = [item.family for item in recordings if group_of(item.family) != group]
    return sorted({group_of(name) for name in others if name not in TUNED_ON} or {group_of(name) for name in others})


def judge(recordings: Sequence[Recording], margins: Mapping[str, np.ndarray], settings: Settings, ways: Sequence[str] = WAYS) -> list[Row]:
    return [_row(item, follow(item, margins[item.name], settings.accumulation), settings, ways) for item in recordings]


def _row(recording: Recording, path: Path, settings: Settings, ways: Sequence[str]) -> Row:
    return Row(recording, try_recording(recording, path, settings.decision, settings.calibration, ways))


def calibrate(recordings: Sequence[Recording], margins: Mapping[str, np.ndarray]) -> Settings:
    """What accusations are worth on these recordings, by margins of models that saw none of them."""
    settings = Settings()
    snapped = [snapshots(item, follow(item, margins[item.name], settings.accumulation), settings.decision.speak_p) for item in recordings]
    return replace(settings, calibration=fit_calibration(snapped, fmean([item.fault is not None for item in recordings])))


def has_concept(recording: Recording, concept: str) -> bool:
    names = (*recording.nuisances, recording.cause or "")
    return any(part in name for name in names for part in CONCEPTS[concept])


def _leave_nuisances_out(recordings: Sequence[Recording], folds: Folds, settings: Settings) -> dict[str, tuple[Row, ...]]:
    found = {}
    for concept in CONCEPTS:
        with_it = [item for item in recordings if has_concept(item, concept)]
        families = {item.family for item in with_it}
        if len(with_it) < 10 or len(families) < 2 or len(with_it) > 0.8 * len(recordings):
            continue
        margins = folds.margins(
            f"without {concept}",
            lambda item, concept=concept: not has_concept(item, concept),  # type: ignore[misc]
            lambda item, concept=concept: has_concept(item, concept),  # type: ignore[misc]
        )
        found[concept] = tuple(judge(with_it, margins, settings))
    return found


def common_settings(settings: Mapping[str, Settings]) -> Settings:
    """For all: the mean of what was calibrated for each group."""
    every = [item.calibration for item in settings.values()]
    mean = Calibration(**{item.name: fmean([getattr(one, item.name) for one in every]) for item in fields(Calibration)})
    return replace(next(iter(settings.values())), calibration=mean)
