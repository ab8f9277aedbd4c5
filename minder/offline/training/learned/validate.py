"""Nested leave-one-group-out and leave-one-nuisance-out: how well the learned part and the pool do on families that no fit has seen.

For each group of families (catalogue.py) that is left out, the settings are chosen on the other groups, each judged by a model that saw
neither it nor the group left out. Nothing that is printed for a group was fitted or chosen on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from minder.diagnose.detectors.learned.decide import Decision
from minder.diagnose.detectors.learned.posterior import Accumulation
from minder.offline.evaluation.scoring import summarise
from minder.offline.training.learned.folds import Folds
from minder.offline.training.learned.recording import Recording
from minder.offline.training.learned.trial import WAYS, Outcome, follow, try_recording
from minder.simulate.worlds.catalogue import TUNED_ON, group_of

__all__ = ["CONCEPTS", "Row", "Settings", "Validation", "choose", "settings_grid", "validate"]

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
_NEAR_BEST = 0.02  # of F1: within it, precision decides


@dataclass(frozen=True, slots=True)
class Settings:
    accumulation: Accumulation = field(default_factory=Accumulation)
    decision: Decision = field(default_factory=Decision)


@dataclass(frozen=True, slots=True)
class Row:
    """One recording, judged by models that saw nothing of its group."""

    recording: Recording
    outcomes: Mapping[str, Outcome]
    p_BM: np.ndarray


@dataclass(frozen=True, slots=True)
class Validation:
    """rows: of every recording whose group was left out. settings: chosen for each group. nuisances: concept to the rows of recordings that
    have it, judged by a model that saw none of them. inner: group to rows of the other groups by the chosen settings (for calibration)."""

    rows: tuple[Row, ...]
    settings: Mapping[str, Settings]
    nuisances: Mapping[str, tuple[Row, ...]]
    inner: Mapping[str, tuple[Row, ...]]
    data_sha256: str


def settings_grid() -> Iterator[Settings]:
    """What is tried, alike in their accumulation one after the other."""
    for gamma, bias in ((0.4, 0.0), (0.4, 1.0), (0.2, 0.0)):
        for (speak_p, speak_s), veto_times in itertools.product(((0.8, 30.0), (0.9, 60.0), (0.97, 60.0)), (0.1, 1.0)):
            yield Settings(Accumulation(gamma, bias), Decision(speak_p, speak_s, veto_times))


def validate(recordings: Sequence[Recording], folds: Folds, say: Callable[[str], None], with_nuisances: bool = True) -> Validation:
    """Everything, family groups first. Needs three groups or more (ValueError): one is left out, one judges the choice, one teaches."""
    groups = sorted({group_of(item.family) for item in recordings})
    if len(groups) < 3:
        raise ValueError(f"{len(groups)} groups of families cannot be nested: give families of three groups or more")
    rows: list[Row] = []
    settings, inner = dict[str, Settings](), dict[str, tuple[Row, ...]]()
    unseen = {group_of(item.family) for item in recordings if item.family not in TUNED_ON}
    for group in sorted(groups, key=lambda name: (name not in unseen, name)):  # what decides comes first
        margins = dict[str, np.ndarray]()
        for other in groups:
            if other != group:
                left = {group, other}
                margins |= folds.margins(
                    f"without {group} and {other}",
                    lambda item, left=left: group_of(item.family) not in left,  # type: ignore[misc]
                    lambda item, left=left: group_of(item.family) in left,  # type: ignore[misc]
                )
        others = [item for item in recordings if group_of(item.family) != group]
        settings[group], inner[group] = choose(others, margins)
        say(f"{group} left out: {settings[group]}")
        final = folds.margins(
            f"without {group}",
            lambda item, group=group: group_of(item.family) != group,  # type: ignore[misc]
            lambda item, group=group: group_of(item.family) == group,  # type: ignore[misc]
        )
        rows += judge([item for item in recordings if group_of(item.family) == group], final, settings[group])
    nuisances = _leave_nuisances_out(recordings, folds, _common(settings)) if with_nuisances else {}
    return Validation(tuple(rows), settings, nuisances, inner, folds.data_sha256)


def judge(recordings: Sequence[Recording], margins: Mapping[str, np.ndarray], settings: Settings, ways: Sequence[str] = WAYS) -> list[Row]:
    found = []
    for item in recordings:
        p_BM = follow(item, margins[item.name], settings.accumulation)
        found.append(_row(item, p_BM, settings, ways))
    return found


def _row(recording: Recording, p_BM: np.ndarray, settings: Settings, ways: Sequence[str]) -> Row:
    rest_p = settings.accumulation.at_rest(len(recording.machines))
    return Row(recording, try_recording(recording, p_BM, settings.decision, rest_p, ways), p_BM)


def choose(recordings: Sequence[Recording], margins: Mapping[str, np.ndarray]) -> tuple[Settings, tuple[Row, ...]]:
    """Of the settings whose mean F1 of the pool over families is within 0.02 of the best, the most precise; and its rows."""
    tried = []
    for _, same in itertools.groupby(settings_grid(), key=lambda item: item.accumulation):
        alike = list(same)
        paths = [follow(item, margins[item.name], alike[0].accumulation) for item in recordings]
        for settings in alike:
            rows = tuple(_row(item, p_BM, settings, ("pool",)) for item, p_BM in zip(recordings, paths, strict=True))
            tried.append((family_mean(rows, "pool", "f1"), family_mean(rows, "pool", "precision"), settings, rows))
    best = max(item[0] for item in tried)
    chosen = max((item for item in tried if item[0] >= best - _NEAR_BEST), key=lambda item: (item[1], item[0]))
    return chosen[2], chosen[3]


def family_mean(rows: Sequence[Row], way: str, measure: str) -> float:
    """The mean over families; a family in which nothing is named has precision and F1 0."""
    families = sorted({row.recording.family for row in rows})
    found = []
    for family in families:
        summary = summarise([row.outcomes[way].judged for row in rows if row.recording.family == family])
        found.append(float(np.nan_to_num(getattr(summary, measure))))
    return fmean(found) if found else 0.0


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


def _common(settings: Mapping[str, Settings]) -> Settings:
    """The settings that most groups chose."""
    chosen = list(settings.values())
    return max(chosen, key=chosen.count)
