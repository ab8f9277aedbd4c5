"""Recordings and their truth, joined by name: what can be evaluated, and one line for each thing that cannot.

A truth is searched in the file that was named, else inside the recording, else beside it (docs/recordings.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minder.ingest.sources.events import Truth, read_truths
from minder.model.errors import BadInputError, RecordingError

__all__ = ["Labelled", "find_recordings", "label_recordings", "recordings_in"]

_FILE = "truth.json"


@dataclass(frozen=True, slots=True)
class Labelled:
    """One recording folder and what really happened in it."""

    path: Path
    truth: Truth


def find_recordings(paths: Iterable[Path]) -> list[Path]:
    """Recording folders, each once; a folder that is no recording but holds some stands for them, in name order."""
    return list(dict.fromkeys(found for path in paths for found in recordings_in(path.resolve())))


def recordings_in(folder: Path) -> list[Path]:
    """A recording itself; else those that the folder holds, in name order; else the folder, for its reader to refuse."""
    inner = [] if (folder / "job.toml").exists() else sorted(folder.glob("*/job.toml"))
    return [file.parent for file in inner] or [folder]


def label_recordings(paths: Sequence[Path], truth: Path | None = None) -> tuple[list[Labelled], list[str]]:
    """What can be evaluated, and one line per problem. Raises BadInputError if the named truth cannot be read."""
    problems: list[str] = []
    tables: dict[Path, dict[str, Truth]] = {}
    if truth is not None:
        tables[truth] = _read_table(truth, problems)
    labelled = []
    names: dict[str, Path] = {}
    for path in paths:
        if path.name in names:
            problems.append(f"{path} has the name of {names[path.name]}: truths are found by name, rename one of the two")
            continue
        names[path.name] = path
        found = _truth_of(path, truth, tables, problems)
        if found is not None:
            labelled.append(Labelled(path, found))
    for file, table in tables.items():
        for name in sorted(set(table) - set(names)):
            if not (file.parent / name).is_dir():
                problems.append(f'{file} names recording "{name}", which is not there: mend the name, or take the entry away')
    return labelled, problems


def _truth_of(path: Path, named: Path | None, tables: dict[Path, dict[str, Truth]], problems: list[str]) -> Truth | None:
    if not path.is_dir():
        problems.append(f"{path} is no folder: name a recording, a folder with a job.toml")
        return None
    if not (path / "job.toml").exists() and (sets := _sets_in(path)):
        problems.append(f"{path} holds no recordings, its folders do: name {sets[0]}" + (" and the others" if sets[1:] else ""))
        return None
    if (path / "recording/job.toml").exists():
        problems.append(f"{path} is the folder of a run: name its recording, {path / 'recording'}")
        return None
    for file in [named] if named is not None else [path / _FILE, path.parent / _FILE]:
        if file not in tables:
            tables[file] = _read_silently(file, problems)
        table = tables[file]
        if file == path / _FILE and len(table) == 1:  # the only entry of a recording's own file is its truth, whatever the folder is called
            tables[file] = table = {path.name: replace(next(iter(table.values())), recording=path.name)}
        truth = table.get(path.name)
        if truth is not None:
            return _checked(truth, file, problems)
    where = f"{named} has no entry for it" if named is not None else f"write {path.name}/{_FILE}, or {_FILE} beside it (docs/recordings.md)"
    problems.append(f"{path} has no truth: {where}")
    return None


def _sets_in(folder: Path) -> list[Path]:
    """Folders of recordings in it, in name order: each has a truth of its own, and names of recordings that others have too."""
    return sorted({file.parent.parent for file in folder.glob("*/*/job.toml")})


def _checked(truth: Truth, file: Path, problems: list[str]) -> Truth | None:
    where = f'{file}: recording "{truth.recording}"'
    if truth.fault is not None and truth.onset_s is None:
        problems.append(f"{where} has a fault without an onset: give the time at which it began")
        return None
    if truth.fault is None and (truth.machine or truth.machines):
        problems.append(f"{where} names a machine but no fault: give the fault's kind, or take the machine away")
        return None
    return truth


def _read_silently(file: Path, problems: list[str]) -> dict[str, Truth]:
    """Nothing where there is no such file; a problem where it cannot be read."""
    if not file.exists():
        return {}
    try:
        return _read_table(file, problems)
    except BadInputError as error:
        problems.append(str(error))
        return {}


def _read_table(file: Path, problems: list[str]) -> dict[str, Truth]:
    if not file.is_file():
        raise RecordingError(f"{file} is no file: give a truth.json (docs/recordings.md)")
    table: dict[str, Truth] = {}
    for truth in read_truths(file):
        if truth.recording in table:
            problems.append(f'{file} names recording "{truth.recording}" twice: the first entry counts, keep one')
            continue
        table[truth.recording] = truth
    return table
