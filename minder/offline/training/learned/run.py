"""`minder train --cross-validate` and `minder train default`: from families and seeds to a report, and to a registered model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minder.diagnose.detectors.learned.model import LearnedModel
from minder.model.clock import SystemClock, format_time
from minder.model.errors import BadInputError, ConfigError
from minder.model.resources import default_state_dir
from minder.offline.training.learned.examples import join, sample
from minder.offline.training.learned.fit import PARAMETERS, fit
from minder.offline.training.learned.folds import Folds
from minder.offline.training.learned.page import document_of, table_of, write_validation
from minder.offline.training.learned.recording import Recording, made
from minder.offline.training.learned.validate import Validation, common_settings, validate
from minder.record.registry.folder import Model, write_model
from minder.record.registry.mlflow_registry import Log, Registry, Version
from minder.simulate.worlds.catalogue import family_names, group_of, load_family

__all__ = ["WorldsAsked", "cross_validate", "default_cache", "gather", "refit"]

Say = Callable[[str], None]
_EVERY = 20  # recordings between two lines of progress


@dataclass(frozen=True, slots=True)
class WorldsAsked:
    """families: which, all if empty. seeds: of each, from `first` on. cache: folder of features, margins and default verdicts."""

    families: tuple[str, ...] = ()
    seeds: int = 40
    first: int = 0
    cache: Path | None = None


def default_cache() -> Path:
    return default_state_dir() / "worlds"


def gather(asked: WorldsAsked, say: Say) -> list[Recording]:
    """Every recording, made where the cache does not have it.

    Raises ConfigError for a family that there is not, BadInputError if the cache cannot be written.
    """
    chosen = asked.families or family_names()
    for family in chosen:
        load_family(family)
    seeds, found = range(asked.first, asked.first + asked.seeds), list[Recording]()
    total = len(seeds) * len(chosen)
    try:
        for recording in made(dict.fromkeys(chosen, seeds), asked.cache or default_cache()):
            found.append(recording)
            if len(found) % _EVERY == 0 or len(found) == total:
                say(f"{len(found)} of {total} recordings")
    except OSError as error:
        where = asked.cache or default_cache()
        raise BadInputError(f"the cache {where} cannot be used ({error.strerror}): name another with --cache") from error
    return found


def cross_validate(asked: WorldsAsked, out: Path | None, registry: Registry | None, say: Say) -> dict[str, Any]:
    """The document of a validation; written to `out` and logged as a run of MLflow where these are given."""
    recordings = gather(asked, say)
    groups = {group_of(item.family) for item in recordings}
    if len(groups) < 3:
        known = ", ".join(family_names())
        raise ConfigError(f"families of {len(groups)} groups cannot be nested: give families of three groups or more ({known})")
    document = document_of(_validated(recordings, asked, say, with_nuisances=True))
    with tempfile.TemporaryDirectory(prefix="minder-validate-") as scratch:
        paths = write_validation(document, out or Path(scratch))
        if registry is not None:
            log = _log_of(document, len(recordings))
            log.files |= {path.name: path.read_bytes() for path in paths}
            registry.log_run("cross-validation", log)
    return document


def _validated(recordings: Sequence[Recording], asked: WorldsAsked, say: Say, with_nuisances: bool) -> Validation:
    samples = {item.name: sample(item) for item in recordings}
    return validate(recordings, Folds(recordings, samples, asked.cache or default_cache(), say), say, with_nuisances)


def _log_of(document: dict[str, Any], recordings: int) -> Log:
    log = Log(tags={"minder.data_sha256": document["data_sha256"]})
    log.parameters |= {"recordings": recordings, **{f"trees.{name}": value for name, value in PARAMETERS.items()}}
    for section in document["sections"][:3]:
        place = section["title"].replace(" ", "_")
        for line in section["lines"]:
            for name in ("f1", "precision", "recall", "delay_s", "grey_f1", "false_per_day"):
                if line[name] is not None:
                    log.metrics[f"{place}.{line['way']}.{name}"] = float(line[name])
    return log


def refit(
    asked: WorldsAsked, registry: Registry, out: Path | None, say: Say, detector: str = "pool"
) -> tuple[Version, Model, dict[str, Any]]:
    """Validate (from the cache, where it was done before), fit to everything, register. out: also write the model's folder there."""
    recordings = gather(asked, say)
    validation = _validated(recordings, asked, say, with_nuisances=False)
    document = document_of(validation)
    settings = common_settings(validation.settings)
    say(f"fit to all {len(recordings)} recordings")
    margin = fit(join([sample(item) for item in recordings])).margin()
    learned = LearnedModel(margin, settings.accumulation, settings.decision, settings.calibration)
    model = Model(detector, network=learned.record(), arrays=learned.arrays(), training=_provenance(recordings, document))
    model = replace(model, card=_card(model, document))
    with tempfile.TemporaryDirectory(prefix="minder-train-") as scratch:
        write_model(model, Path(scratch) / "detector")
        if out is not None:
            write_model(model, out)
        log = _log_of(document, len(recordings))
        log.files |= {path.name: path.read_bytes() for path in write_validation(document, Path(scratch) / "validation")}
        log.files["card.md"] = model.card.encode()
        version = registry.log_training("default", log, Path(scratch) / "detector", ())
    return version, model, document


def _provenance(recordings: Sequence[Recording], document: dict[str, Any]) -> dict[str, Any]:
    return {
        "recipe": "default", "time": format_time(SystemClock().now_s()), "data_sha256": document["data_sha256"],
        "recordings": len(recordings), "families": document["families"], "earned": document["earned"],
    }  # fmt: skip


def _card(model: Model, document: dict[str, Any]) -> str:
    families = ", ".join(f"{family} {count}" for family, count in document["families"].items())
    return (
        "# The learned part of the default detector\n\n"
        f"Two sets of boosted trees on peer-relative features (docs/default-detector.md). Recordings: {families}.\n"
        f"Data {document['data_sha256']}. It runs as a shadow; the table is of families that no fit has seen.\n\n"
        f"```\n{table_of({**document, 'sections': document['sections'][:3]})}\n```\n"
    )
