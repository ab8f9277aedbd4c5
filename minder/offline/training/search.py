"""The default detector's thresholds: every combination that a recipe names, judged on the training recordings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minder.diagnose.load_detector import detector_maker
from minder.offline.evaluation.cases import Case
from minder.offline.evaluation.evaluate import evaluate_labelled
from minder.offline.evaluation.labels import Labelled
from minder.offline.evaluation.scoring import Summary, summarise
from minder.offline.training.recipe import SearchRules
from minder.record.registry.folder import Model, write_model

__all__ = ["Trial", "choose_trial", "combinations", "search"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination and what it made of the training recordings."""

    parameters: Mapping[str, float]
    summary: Summary


def combinations(rules: SearchRules) -> list[dict[str, float]]:
    """All of them, in the recipe's order.

    >>> combinations(SearchRules(parameters={"patience_s": (60.0, 90.0), "leak_s": (25.0,)}))
    [{'patience_s': 60.0, 'leak_s': 25.0}, {'patience_s': 90.0, 'leak_s': 25.0}]
    """
    names = list(rules.parameters)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(rules.parameters[name] for name in names))]


def search(
    detector: str,
    rules: SearchRules,
    labelled: Sequence[Labelled],
    scratch: Path,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    jobs: int = 1,
) -> list[Trial]:
    """Each combination over all of the recordings; a recording that cannot be read counts for none of them. A single combination needs
    no choice, and is not tried. Raises ConfigError for a parameter that the detector does not have."""
    trials = []
    tried = combinations(rules)
    for number, parameters in enumerate(tried):
        folder = scratch / f"trial-{number}"
        model = Model(detector, parameters)
        detector_maker(model)
        if len(tried) == 1:
            return [Trial(parameters, summarise([]))]
        write_model(model, folder)
        cases = [case for case in evaluate_labelled(labelled, str(folder), jobs) if isinstance(case, Case)]
        trials.append(Trial(parameters, summarise([case.judged for case in cases])))
        on_trial(trials[-1])
    return trials


def choose_trial(trials: Sequence[Trial], least_precision: float) -> Trial:
    """A wrong name costs more than a late one: first enough precision (else the most there is), then F1, then the median delay."""
    sure = [trial for trial in trials if trial.summary.precision >= least_precision]
    if not sure:
        return max(trials, key=lambda trial: (_known(trial.summary.precision), _known(trial.summary.f1)))
    return max(sure, key=lambda trial: (round(_known(trial.summary.f1), 6), -_known(trial.summary.median_delay_s)))


def _known(value: float) -> float:
    return value if value == value else 0.0
