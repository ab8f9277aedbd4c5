"""Is the challenger better? On the same recordings as the champion, recording by recording; a wrong name costs more than a late one."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minder.model.errors import BadInputError
from minder.offline.evaluation.cases import Case
from minder.offline.evaluation.evaluate import evaluate_labelled
from minder.offline.evaluation.intervals import f1_gain
from minder.offline.evaluation.labels import Labelled, find_recordings, label_recordings
from minder.offline.evaluation.scoring import Summary, summarise
from minder.offline.training.learned.page import VALIDATION
from minder.offline.training.train import EVALUATION_SET
from minder.record.registry.mlflow_registry import CHAMPION, MODEL_NAME, Registry, Version

__all__ = ["Comparison", "by_validation", "compare", "comparison_record", "promote"]

_SURE = 0.9  # share of resamples in which the challenger must be better
_PRECISION_SLACK = 0.005
_FEWEST = 10  # recordings; fewer decide nothing


@dataclass(frozen=True, slots=True)
class Comparison:
    """better: whether the alias may move; why: one line each, for and against. sure: share of resamples with a higher F1."""

    better: bool
    why: tuple[str, ...]
    champion: Summary
    challenger: Summary
    sure: float


def promote(number: int, registry: Registry, recordings: Sequence[Path] = (), jobs: int = 1) -> tuple[Comparison, str]:
    """Compare version `number` with the champion (the shipped default while there is none) and move the alias if it is better.

    recordings: the evaluation set; else what was held back when the challenger was trained. A model that was validated on families of
    worlds (`minder train default`) must have earned its place there first; without recordings, that decides. Returns the comparison and
    the opponent. Raises BadInputError for an unknown version, or an evaluation set that is gone or cannot be read.
    """
    version = registry.version(number)
    champion = registry.champion()
    if champion is not None and champion.number == number:
        raise BadInputError(f"version {number} is the champion already")
    opponent = "default" if champion is None else f"models:/{MODEL_NAME}/{champion.number}"
    validated = registry.read_file(version, VALIDATION)
    if validated is not None and not (json.loads(validated)["earned"] and recordings):
        return _settle(registry, number, by_validation(json.loads(validated)), opponent, champion)
    labelled = _evaluation_set(() if recordings else _held_back(registry, version), recordings)
    with tempfile.TemporaryDirectory(prefix="minder-promote-") as scratch:
        before = opponent if champion is None else _fetch(registry, champion, Path(scratch))
        old, new = (_cases(evaluate_labelled(labelled, name, jobs)) for name in (before, _fetch(registry, version, Path(scratch))))
    return _settle(registry, number, compare(old, new), opponent, champion)


def _settle(registry: Registry, number: int, found: Comparison, opponent: str, champion: Version | None) -> tuple[Comparison, str]:
    if found.better:
        registry.crown(number)
    registry.judge(number, found.better, opponent, found.why, time.time())
    return found, f"{opponent} ({CHAMPION})" if champion is not None else f"{opponent} (there is no {CHAMPION} yet)"


def by_validation(document: dict[str, Any]) -> Comparison:
    """By the conditions under which the pool may become the default (minder/offline/training/learned/measure.py), on families that neither
    has seen. document: what `minder train --cross-validate` measured."""
    sides = {line["way"]: line for line in document["sections"][0]["lines"]}
    before, after = (_summary(sides[way]) for way in ("default", "pool"))
    return Comparison(bool(document["earned"]), tuple(document["why"]), before, after, 1.0 if document["earned"] else 0.0)


def _summary(line: dict[str, Any]) -> Summary:
    precision, recall, f1, delay_s = (
        math.nan if line[name] is None else float(line[name]) for name in ("precision", "recall", "f1", "delay_s")
    )
    return Summary(precision, recall, f1, delay_s, line["found"], line["wrong"], line["missed"], line["quiet"])


def compare(old: Sequence[Case], new: Sequence[Case]) -> Comparison:
    """Better: F1 higher in nine of ten resamples, or all outcomes as good and the delays shorter; never with more wrong names among those
    that it names, nor with more false accusations while nothing was wrong."""
    judged = [[case.judged for case in cases] for cases in (old, new)]
    before, after = summarise(judged[0]), summarise(judged[1])
    gain, sure = f1_gain(judged[0], judged[1])
    against, alarms = [], [sum(case.false_alarms for case in cases) for cases in (old, new)]
    if len(new) < _FEWEST:
        against.append(f"{len(new)} recordings decide nothing: give at least {_FEWEST}")
    if math.isnan(after.precision) and not math.isnan(before.precision):
        against.append("the challenger names no machine")
    elif _share(after.precision) < _share(before.precision) - _PRECISION_SLACK:
        against.append(f"precision falls from {before.precision:.3f} to {after.precision:.3f}")
    if alarms[1] > alarms[0]:
        against.append(f"{alarms[1]} false accusations while nothing was wrong, {alarms[0]} before")
    wins = (
        f"F1 {_share(before.f1):.3f} to {_share(after.f1):.3f}, gain [{gain.low:.3f}, {gain.high:.3f}], better in {sure:.0%} of resamples"
    )
    sooner_s = _sooner_s(old, new)
    if sure < _SURE and not (_as_good(old, new) and sooner_s > 0.0):
        against.append(f"not surely better: {wins}")
    reasons = against or [wins, *([f"named {sooner_s:.1f} s sooner (median, surely)"] if sooner_s > 0 else [])]
    return Comparison(not against, tuple(reasons), before, after, sure)


def comparison_record(found: Comparison, number: int, opponent: str) -> dict[str, Any]:
    """As one JSON document; NaN is null."""
    sides = {
        name: {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in asdict(side).items()}
        for name, side in (("champion", found.champion), ("challenger", found.challenger))
    }
    return {"version": number, "opponent": opponent, "promoted": found.better, "why": list(found.why), "sure": found.sure, **sides}


def _fetch(registry: Registry, version: Version, scratch: Path) -> str:
    folder = scratch / str(version.number)
    folder.mkdir()
    return str(registry.fetch(f"models:/{MODEL_NAME}/{version.number}", folder))


def _held_back(registry: Registry, version: Version) -> list[Path]:
    return [Path(item) for item in json.loads(registry.read_file(version, EVALUATION_SET) or "[]")]


def _evaluation_set(held_back: Sequence[Path], recordings: Sequence[Path]) -> list[Labelled]:
    paths = list(recordings) or list(held_back)
    if not paths:
        raise BadInputError("this version was trained on recordings that are gone: name the evaluation set with --recordings")
    gone = [path for path in paths if not path.exists()]
    if gone:
        raise BadInputError(f"{gone[0]} of the evaluation set is gone: name another set with --recordings")
    labelled, problems = label_recordings(find_recordings(paths))
    if problems:
        raise BadInputError(f"the evaluation set must be whole: {problems[0]}")
    return labelled


def _cases(found: Sequence[Case | str]) -> list[Case]:
    for item in found:
        if isinstance(item, str):
            raise BadInputError(f"the evaluation set must be whole: {item}")
    return [item for item in found if isinstance(item, Case)]


def _as_good(old: Sequence[Case], new: Sequence[Case]) -> bool:
    """Right wherever the champion is."""
    right = ("found", "quiet")
    return all(b.judged.outcome in right or a.judged.outcome not in right for a, b in zip(old, new, strict=True))


def _sooner_s(old: Sequence[Case], new: Sequence[Case], resamples: int = 2000) -> float:
    """Median seconds saved on recordings that both found; 0 unless nine of ten resamples agree that it is above zero."""
    both = [(a.judged.delay_s, b.judged.delay_s) for a, b in zip(old, new, strict=True) if a.judged.outcome == b.judged.outcome == "found"]
    saved_N = np.array([before - after for before, after in both if before is not None and after is not None])
    if len(saved_N) < 2:
        return 0.0
    drawn_RN = np.random.default_rng(0).integers(0, len(saved_N), (resamples, len(saved_N)))
    agree = float((np.median(saved_N[drawn_RN], axis=1) > 0).mean())
    return float(np.median(saved_N)) if agree >= _SURE else 0.0


def _share(value: float) -> float:
    """NaN counts as nothing: a detector that names no machine has no precision to lose."""
    return value if value == value else 0.0
