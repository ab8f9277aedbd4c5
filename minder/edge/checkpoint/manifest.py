"""What makes a checkpoint complete: a manifest, written last and renamed, that names every file with size and SHA-256.

Standard library only: the controller reads manifests without torch. A folder without a readable manifest that fits its own
name does not count, whatever else lies in it. Newer means a higher generation first, then a higher step: what a zombie of an
older generation still publishes never outranks the running one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.edge.cache.folder import sync_path
from minder.model.batch_ranges import SKIP_BATCHES, BatchRangesError, consumed_alike, format_ranges, parse_ranges
from minder.model.errors import CheckpointError

__all__ = [
    "Manifest",
    "ManifestFile",
    "checkpoint_path",
    "complete_checkpoints",
    "fits_skips",
    "foreign_updates",
    "newest_generation",
    "newest_step",
    "own_version",
    "prune",
    "publish",
    "readable_checkpoints",
    "verify",
    "why_same_size",
]

_NAME = re.compile(r"step-(\d{9,})-generation-(\d{5,})")
_FILE = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of a checkpoint; sha256 in hex."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint: the state after `step` steps, written by `world_size` ranks of `generation`. any_size: another number of ranks
    can read it. update, code_version: the version of the job's code that wrote it; 0 and "" where none is known. skipped: batches that its
    run leaves out (minder.model.batch_ranges)."""

    path: Path
    step: int
    generation: int
    world_size: int
    time_s: float
    files: tuple[ManifestFile, ...]
    any_size: bool = True
    update: int = 0
    code_version: str = ""
    skipped: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater."""
        return self.generation, self.step


def checkpoint_path(directory: str | os.PathLike[str], step: int, generation: int) -> Path:
    """Where the checkpoint of a step and generation lies.

    >>> checkpoint_path("/c", 12, 3).name
    'step-000000012-generation-00003'
    """
    return Path(directory) / f"step-{step:09d}-generation-{generation:05d}"


def complete_checkpoints(directory: str | os.PathLike[str]) -> list[Manifest]:
    """The complete ones, newest first. Files are not read here: see `verify`. A missing folder holds none."""
    manifests = [manifest for path in _folders(directory) if (manifest := _read(path)) is not None]
    return sorted(manifests, key=lambda manifest: manifest.order, reverse=True)


def readable_checkpoints(directory: str | os.PathLike[str]) -> list[Manifest]:
    """The complete ones without those of versions whose checkpoints this process does not read (MINDER_CHECKPOINTS_NOT_OF), and without
    those that have learned from a batch which this run leaves out (MINDER_SKIP_BATCHES). Raises CheckpointError where only such are left:
    to begin anew in silence would lose the run."""
    found = complete_checkpoints(directory)
    not_of = foreign_updates()
    skipped = os.environ.get(SKIP_BATCHES, "")
    left = [manifest for manifest in found if manifest.update not in not_of]
    fitting = [manifest for manifest in left if fits_skips(manifest, skipped)]
    if left and not fitting:
        raise CheckpointError(
            f"all {len(left)} complete checkpoints in {directory} have learned from other batches than this run, which leaves out "
            f"{skipped or 'none'}: move them away to start again, or take the skip back with `minder job skip JOB --undo`"
        )
    if found and not left:
        raise CheckpointError(
            f"all {len(found)} complete checkpoints in {directory} were written by updates that this version does not read: "
            "move them away to start again, or set checkpoints_compatible = true"
        )
    return fitting


def foreign_updates() -> frozenset[int]:
    """Updates of the job's code whose checkpoints this process does not read, as its launcher says."""
    return frozenset(int(text) for text in os.environ.get("MINDER_CHECKPOINTS_NOT_OF", "").split(",") if text.isdigit())


def own_version() -> tuple[int, str, str]:
    """(update, code version, batches that are left out) of this process, as its launcher says."""
    number = os.environ.get("MINDER_UPDATE", "")
    skipped = format_ranges(parse_ranges(os.environ.get(SKIP_BATCHES, "")))
    return int(number) if number.isdigit() else 0, os.environ.get("MINDER_CODE_VERSION", "")[:64], skipped


def newest_step(directory: str | os.PathLike[str], not_of: Collection[int] = (), skipped: str = "") -> int | None:
    """The step of the checkpoint that a new generation would resume from; None where none is complete. not_of: updates whose checkpoints it
    does not read. skipped: batches that it leaves out. Raises CheckpointError, OSError."""
    found = [item for item in complete_checkpoints(directory) if item.update not in not_of and fits_skips(item, skipped)]
    return found[0].step if found else None


def fits_skips(manifest: Manifest, skipped: str) -> bool:
    """Whether what it holds was learned from the batches that a run which leaves these out has had by then."""
    return consumed_alike(manifest.step, parse_ranges(manifest.skipped), parse_ranges(skipped))


def why_same_size(directory: str | os.PathLike[str]) -> str:
    """Why what a new generation would resume from is not read by another number of ranks, "" if it is. A folder that holds nothing at all
    is that of a job that begins anew. Raises OSError."""
    found = complete_checkpoints(directory)
    if found:
        fixed = f"its checkpoint {found[0].path.name} can be read by {found[0].world_size} ranks only (any_size=False)"
        return "" if found[0].any_size else fixed
    folder = Path(directory)
    if not folder.is_dir() or all(_NAME.fullmatch(path.name) for path in folder.iterdir()):
        return ""
    return f"whether what lies in {folder} can be read by another number of ranks is not known: set checkpoints_any_size"


def newest_generation(directory: str | os.PathLike[str]) -> int:
    """The highest generation that any folder names, complete or not; -1 without any."""
    return max((_identity(path)[1] for path in _folders(directory)), default=-1)


def verify(manifest: Manifest, files: Iterable[ManifestFile] | None = None) -> tuple[str, ...]:
    """Read the files (all, or the given share) and compare size and SHA-256. Returns what is wrong; empty: nothing.

    A flipped bit in a tensor loads without any error, so this must come before every load.
    """
    problems = []
    for file in manifest.files if files is None else files:
        path = manifest.path / file.name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != file.size_bytes:
                problems.append(f"{file.name} has {size_bytes} bytes instead of {file.size_bytes}")
                continue
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            problems.append(f"{file.name}: {error.strerror}")
            continue
        if digest != file.sha256:
            problems.append(f"{file.name} was changed after it was written (SHA-256 differs)")
    return tuple(problems)


def publish(manifest: Manifest) -> None:
    """Make a written checkpoint count. Raises CheckpointError if a newer generation writes here already, OSError if the disk refuses."""
    newest = newest_generation(manifest.path.parent)
    if newest > manifest.generation:
        raise CheckpointError(f"generation {newest} has taken over {manifest.path.parent}: step {manifest.step} is not published")
    content = _content(manifest)
    draft = manifest.path / f"{_FILE}.draft"
    with draft.open("w") as stream:
        json.dump({**content, "sha256": _digest(content)}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.rename(manifest.path / _FILE)
    for folder in (manifest.path, manifest.path.parent):
        sync_path(folder)


def prune(directory: str | os.PathLike[str], published: Manifest, keep: int) -> None:
    """After `published` counts: remove all but the newest `keep` complete ones, and unfinished ones older than it. The newest one that
    another version of the job's code wrote stays: a rollback may have nothing else to go on from. What has learned from a batch that this
    run leaves out does not count among those that are kept: it must not push out what the run can go on from."""
    complete = complete_checkpoints(directory)
    kept = {manifest.path for manifest in [item for item in complete if fits_skips(item, published.skipped)][:keep]}
    kept |= {manifest.path for manifest in [item for item in complete if item.update != published.update][:1]}
    for path in _folders(directory):
        step, generation = _identity(path)
        if path not in kept and (generation, step) < published.order:
            remove(path)


def remove(path: Path) -> None:
    """Take a checkpoint away; the manifest goes first, so that a half-removed one does not count."""
    (path / _FILE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _folders(directory: str | os.PathLike[str]) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(directory) if _NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return []


def _identity(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def _read(path: Path) -> Manifest | None:
    try:
        content = json.loads((path / _FILE).read_text())
        digest = content.pop("sha256")
        files = tuple(ManifestFile(name, int(size), sha256) for name, (size, sha256) in content["files"].items())
        any_size = bool(content.get("any_size", True))
        update, version = int(content.get("update", 0)), str(content.get("code_version", ""))
        about = (content["step"], content["generation"], content["world_size"], content["time_s"])
        manifest = Manifest(path, *about, files, any_size, update, version, format_ranges(parse_ranges(content.get("skipped", ""))))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, BatchRangesError):
        return None  # absent, cut off, or nonsense: not complete
    fits = content.get("format") == _FORMAT and digest == _digest(content) and (manifest.step, manifest.generation) == _identity(path)
    safe = all(Path(file.name).name == file.name for file in files)
    return manifest if fits and safe and files else None


def _content(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "step": manifest.step,
        "generation": manifest.generation,
        "world_size": manifest.world_size,
        "time_s": manifest.time_s,
        "files": {file.name: [file.size_bytes, file.sha256] for file in manifest.files},
        **({} if manifest.any_size else {"any_size": False}),
        **({"update": manifest.update} if manifest.update else {}),
        **({"code_version": manifest.code_version} if manifest.code_version else {}),
        **({"skipped": manifest.skipped} if manifest.skipped else {}),
    }


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
