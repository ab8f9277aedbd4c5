"""From a recipe to a registered model: data, fit, evaluation of what was held back, and one run in the registry that holds it all."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minder.model.clock import SystemClock, format_time
from minder.offline.evaluation.cases import Case
from minder.offline.evaluation.evaluate import Evaluation, evaluate_labelled
from minder.offline.evaluation.labels import Labelled
from minder.offline.evaluation.page import write_report
from minder.offline.evaluation.report import build_report
from minder.offline.training.card import write_card
from minder.offline.training.data import TrainingData, gather_data
from minder.offline.training.network import fit_network
from minder.offline.training.recipe import TrainingRecipe
from minder.offline.training.search import Trial, choose_trial, search
from minder.offline.training.usual import find_ranges, healthy_windows
from minder.record.registry.folder import Model, write_model
from minder.record.registry.mlflow_registry import MODEL_NAME, Log, Registry, Version

__all__ = ["EVALUATION_SET", "Trained", "train"]

EVALUATION_SET = "evaluation_set.json"  # where the held-back recordings are, for `minder promote`


@dataclass(frozen=True, slots=True)
class Trained:
    """What one training made. report: of the held-back recordings, None where none was. problems: recordings that were left out."""

    version: Version
    model: Model
    report: dict[str, Any] | None
    problems: tuple[str, ...]

    @property
    def uri(self) -> str:
        return f"models:/{MODEL_NAME}/{self.version.number}"


def train(
    recipe: TrainingRecipe, registry: Registry, out: Path | None = None, say: Callable[[str], None] = lambda line: None, jobs: int = 1
) -> Trained:
    """Train, evaluate, log and register. out: also write the model's folder there. jobs: processes.

    Raises MinderError, or BadInputError for the data.
    """
    with tempfile.TemporaryDirectory(prefix="minder-train-") as scratch:
        data = gather_data(recipe, Path(scratch), jobs)
        say(f"{len(data.train)} recordings to train on, {len(data.held_back)} held back, data {data.sha256[:12]}")
        model, log = _fit(recipe, data, Path(scratch), say, jobs)
        folder = Path(scratch) / "detector"
        write_model(model, folder)
        report, problems = _evaluate(data.held_back, folder, recipe.name, jobs)
        model = replace(model, card=write_card(f"{recipe.detector}: {recipe.name}", model.training, model.ranges, report))
        write_model(model, folder)
        if out is not None:
            write_model(model, out)
        _note(log, recipe, data, report, model)
        if report is not None:
            log.files |= _report_files(report, Path(scratch) / "report")
        version = registry.log_training(recipe.name, log, folder, tuple(model.ranges))
    return Trained(version, model, report, (*data.problems, *problems))


def _fit(recipe: TrainingRecipe, data: TrainingData, scratch: Path, say: Callable[[str], None], jobs: int) -> tuple[Model, Log]:
    log = Log()
    if recipe.detector == "minder":
        windows = list(healthy_windows(data.healthy))
        model, curve, errors = fit_network(recipe.network, recipe.seed, windows, data.train)
        ranges = find_ranges(windows)
        log.curves["loss"] = curve
        log.metrics |= {f"reconstruction_error.{name}": error for name, error in errors.items()}
    else:
        ranges = find_ranges(healthy_windows(data.healthy))
        trials = search(recipe.detector, recipe.search, data.train, scratch, lambda trial: say(_trial_line(trial)), jobs)
        chosen = choose_trial(trials, recipe.search.least_precision)
        model = Model(recipe.detector, chosen.parameters)
        log.curves |= _search_curves(trials)
        log.files["search.json"] = json.dumps([_trial_record(trial) for trial in trials], indent=1).encode()
    provenance = {
        "recipe": recipe.name,
        "time": format_time(SystemClock().now_s()),
        "seed": recipe.seed,
        "data_sha256": data.sha256,
        "recordings": len(data.train),
        "held_back": len(data.held_back),
    }
    return replace(model, ranges=ranges, training=provenance), log


def _evaluate(held_back: tuple[Labelled, ...], folder: Path, name: str, jobs: int) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    if not held_back:
        return None, ()
    found = evaluate_labelled(held_back, str(folder), jobs)
    cases = tuple(item for item in found if isinstance(item, Case))
    problems = tuple(item for item in found if isinstance(item, str))
    return build_report(Evaluation(name, cases, problems)), problems


def _note(log: Log, recipe: TrainingRecipe, data: TrainingData, report: dict[str, Any] | None, model: Model) -> None:
    log.parameters |= {"recipe_name": recipe.name, "detector": recipe.detector, "seed": recipe.seed, "data_sha256": data.sha256}
    log.parameters |= {"recordings": len(data.train), "held_back": len(data.held_back), **model.parameters}
    log.files["card.md"] = model.card.encode()
    log.files["recipe.json"] = recipe.model_dump_json(indent=1, exclude={"folder"}).encode()
    log.tags["minder.data_sha256"] = data.sha256
    if recipe.data.simulate is None:  # what was simulated is gone when the training ends
        log.files[EVALUATION_SET] = json.dumps([str(item.path) for item in data.held_back]).encode()
    if report is not None:
        summary, healthy = report["summary"], report["healthy"]
        figures = {f"heldout.{name}": summary[name]["value"] for name in ("precision", "recall", "f1", "median_delay_s")}
        figures |= {f"heldout.{name}": summary[name] for name in ("found", "wrong", "missed", "quiet")}
        figures["heldout.false_alarms"] = healthy["false_alarms"]
        log.metrics |= {name: math.nan if value is None else float(value) for name, value in figures.items()}


def _report_files(report: dict[str, Any], folder: Path) -> dict[str, bytes]:
    return {f"evaluation/{path.relative_to(folder)}": path.read_bytes() for path in write_report(report, folder)}


def _search_curves(trials: list[Trial]) -> dict[str, list[tuple[int, float]]]:
    """F1, precision and delay of each trial, by its number; nothing where nothing was measured."""
    found = {}
    for name in ("f1", "precision", "median_delay_s"):
        points = [(number, getattr(trial.summary, name)) for number, trial in enumerate(trials)]
        found[f"search.{name}"] = [point for point in points if point[1] == point[1]]
    return {name: points for name, points in found.items() if points}


def _trial_record(trial: Trial) -> dict[str, Any]:
    summary = trial.summary
    figures = {"precision": summary.precision, "recall": summary.recall, "f1": summary.f1, "median_delay_s": summary.median_delay_s}
    return {"parameters": dict(trial.parameters), **{name: value if value == value else None for name, value in figures.items()}}


def _trial_line(trial: Trial) -> str:
    summary, tried = trial.summary, ", ".join(f"{name}={value:g}" for name, value in trial.parameters.items()) or "as it is"
    figures = f"precision {summary.precision:.3f}, recall {summary.recall:.3f}, F1 {summary.f1:.3f}"
    return f"{tried}: {figures}, delay {summary.median_delay_s:.0f} s"
