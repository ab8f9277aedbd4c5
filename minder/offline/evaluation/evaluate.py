"""Labelled recordings through the online pipeline, in other processes; what cannot be evaluated is named, the others still are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from minder.diagnose.load_detector import MakeDetector, load_detector, model_at_hand
from minder.model.errors import BadInputError, RecordingError
from minder.offline.evaluation.apart import answers_apart
from minder.offline.evaluation.cases import Case, case_of, facts_of
from minder.offline.evaluation.labels import Labelled, find_recordings, label_recordings

__all__ = ["Evaluation", "evaluate", "evaluate_labelled", "evaluate_one"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """cases in the order of the recordings that were named; problems: one line for each thing that could not be evaluated."""

    detector: str
    cases: tuple[Case, ...]
    problems: tuple[str, ...] = ()


def evaluate(
    paths: Sequence[Path],
    detector: str = "default",
    truth: Path | None = None,
    jobs: int = 1,
    on_case: Callable[[int, int], None] = lambda done, of: None,
) -> Evaluation:
    """Every labelled recording of these folders. detector: a name, or a model's URI (minder/diagnose/load_detector.py); jobs: processes.

    Raises BadInputError for a truth or a detector that cannot be read at all.
    """
    labelled, problems = label_recordings(find_recordings(paths), truth)
    found = evaluate_labelled(labelled, detector, jobs, on_case)
    cases = tuple(item for item in found if isinstance(item, Case))
    return Evaluation(detector, cases, (*problems, *(item for item in found if isinstance(item, str))))


def evaluate_labelled(
    labelled: Sequence[Labelled], detector: str, jobs: int = 1, on_case: Callable[[int, int], None] = lambda done, of: None
) -> list[Case | str]:
    """Each recording's case, or the line that says why there is none, in the given order. Raises BadInputError for the detector."""
    found: dict[int, Case | str] = {}
    with model_at_hand(detector) as name:
        for done, (index, item) in enumerate(_run(labelled, name, jobs), start=1):
            found[index] = item
            on_case(done, len(labelled))
    return [found[index] for index in range(len(labelled))]


def evaluate_one(labelled: Labelled, make: MakeDetector) -> Case | str:
    """One recording judged, or the line that says why it cannot be."""
    from minder.ingest.sources.recording import read_recording
    from minder.offline.evaluation.replay import replay_recording

    try:
        recording = read_recording(labelled.path)
        known = {*recording.machines, *recording.job.standbys}
        strangers = sorted({name for name in (labelled.truth.machine, *labelled.truth.machines) if name} - known)
        if strangers:
            return f'{labelled.path}: its truth names machine "{strangers[0]}", which its job.toml does not: mend one of the two'
        verdicts = list(replay_recording(recording, None, make))
    except BadInputError as error:
        return str(error)
    return case_of(labelled.truth, facts_of(recording), verdicts, str(labelled.path))


def _evaluate_elsewhere(labelled: Labelled, detector: str) -> Case | str:
    """In a process that reads the model once."""
    return evaluate_one(labelled, _read_once(detector))


_read_once = functools.cache(load_detector)


def _run(labelled: Sequence[Labelled], detector: str, jobs: int) -> Iterator[tuple[int, Case | str]]:
    load_detector(detector)  # one that cannot be had is refused before anything is read
    orders = [(item.path, (item, detector)) for item in labelled]
    for index, answer in answers_apart(_evaluate_elsewhere, orders, jobs):
        yield index, str(answer) if isinstance(answer, RecordingError) else answer
