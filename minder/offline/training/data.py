"""The data of a training: labelled recordings from folders or the simulator, unlabelled ones from a Prometheus, split and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minder.ingest.sources.events import Truth
from minder.model.errors import BadInputError
from minder.offline.evaluation.apart import answers_apart
from minder.offline.evaluation.labels import Labelled, find_recordings, label_recordings
from minder.offline.training.recipe import PrometheusRules, SimulateRules, TrainingRecipe

__all__ = ["TrainingData", "gather_data", "hash_data"]

_HASHED = ("job.toml", "telemetry.parquet", "events.jsonl", "ranks.json")


@dataclass(frozen=True, slots=True)
class TrainingData:
    """train and held_back: labelled. usual: without labels, taken as healthy. sha256: of all their bytes and truths."""

    train: tuple[Labelled, ...]
    held_back: tuple[Labelled, ...]
    usual: tuple[Path, ...]
    sha256: str
    problems: tuple[str, ...] = ()

    @property
    def healthy(self) -> tuple[Labelled, ...]:
        """What may be learned as usual: all but what is held back; a labelled one up to its onset."""
        return self.train + tuple(Labelled(path, Truth(path.name)) for path in self.usual)


def gather_data(recipe: TrainingRecipe, scratch: Path, jobs: int = 1) -> TrainingData:
    """Find or make the recordings; one that cannot be read is left out, with a line. scratch: a folder for what is made; jobs: processes
    to read with. Raises BadInputError if there is nothing to train on."""
    folders = [(recipe.folder / Path(item).expanduser()).resolve() for item in recipe.data.recordings]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        raise BadInputError(f"data.recordings: {missing[0]} is no folder: paths are relative to the recipe's own folder")
    if recipe.data.simulate is not None:
        folders.append(_simulated(recipe.data.simulate, recipe.folder, scratch / "simulated"))
    labelled, problems = label_recordings(find_recordings(folders)) if folders else ([], [])
    labelled = _readable(labelled, problems, jobs)
    usual = [_pulled(recipe.data.prometheus, scratch / "prometheus")] if recipe.data.prometheus is not None else []
    if not labelled and not usual:
        raise BadInputError(f"recipe {recipe.name} has no labelled recording to train on{': ' + problems[0] if problems else ''}")
    held_back = [item for item in labelled if _draw(item.truth.recording, recipe.seed) < recipe.data.held_back]
    train = [item for item in labelled if item not in held_back]
    if labelled and not train:
        raise BadInputError(f"all {len(labelled)} recordings are held back: give more of them, or lower data.held_back")
    digest = hash_data([*labelled, *(Labelled(path, Truth(path.name)) for path in usual)])
    return TrainingData(tuple(train), tuple(held_back), tuple(usual), digest, tuple(problems))


def hash_data(labelled: Sequence[Labelled]) -> str:
    """sha256 of every recording's name, truth and files, in name order: the same data gives the same hash anywhere."""
    total = hashlib.sha256()
    for item in sorted(labelled, key=lambda each: each.truth.recording):
        total.update(repr(item.truth).encode())
        for name in _HASHED:
            path = item.path / name
            if path.is_file():
                total.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _readable(labelled: list[Labelled], problems: list[str], jobs: int) -> list[Labelled]:
    """Without those that cannot be read, a line for each: what fits them reads them in this process, which a damaged table could end."""
    refused: dict[int, str] = {}
    for index, answer in answers_apart(_refusal, [(item.path, (item.path,)) for item in labelled], jobs):
        if answer is not None:
            refused[index] = str(answer)
    problems.extend(refused[index] for index in sorted(refused))
    return [item for index, item in enumerate(labelled) if index not in refused]


def _refusal(path: Path) -> str | None:
    """Why a recording cannot be read, None if it can."""
    from minder.ingest.sources.recording import read_recording

    try:
        read_recording(path)
    except BadInputError as error:
        return str(error)
    return None


def _draw(name: str, seed: int) -> float:
    """A recording's own number in [0, 1): it stays on its side of the split when others come or go."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8]) / 2.0**64


def _simulated(rules: SimulateRules, beside: Path, out: Path) -> Path:
    from minder.simulate.cluster.recipe import load_recipe
    from minder.simulate.cluster.simulate import simulate

    own = beside / rules.recipe
    for _ in simulate(load_recipe(str(own) if own.is_file() else rules.recipe), out, rules.seed, rules.count):
        pass
    return out


def _pulled(rules: PrometheusRules, out: Path) -> Path:
    """The last minutes as a recording. Raises SourceError if the Prometheus does not answer, BadInputError if it has nothing."""
    from minder.ingest.sources.jobfile import RecordedJob
    from minder.ingest.sources.mapping import load_mapping
    from minder.ingest.sources.pull import pull_recording
    from minder.model.clock import SystemClock
    from minder.model.topology import Parallelism

    now_s = SystemClock().now_s()
    layout = Parallelism(tensor=1, pipeline=1, data=len(rules.machines))
    job = RecordedJob("prometheus", rules.machines, (), 1, layout, rules.interval_s, {})
    span_s = (now_s - 60.0 * rules.minutes, now_s)
    return pull_recording(rules.options(), rules.identity(), load_mapping(rules.mapping), job, out, span_s)
