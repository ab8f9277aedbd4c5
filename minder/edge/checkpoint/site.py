"""Checkpoints that other programs wrote into a folder: which there are, whether each is complete, how old it is, and keeping one.

Known by what their writers document: torchtitan and plain DCP (step-N), Megatron's four formats (iter_N), DeepSpeed (global_stepN),
Hugging Face's Trainer (checkpoint-N), Lightning (*step=N*.ckpt, a file or a folder), NVRx's local checkpoints (RANK/iter_N_RANK_local.pt)
and minder's own. Standard library only, and nothing is unpickled: what is inside of the files is not looked at.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.edge.checkpoint.manifest import complete_checkpoints, newest_step
from minder.model.errors import CheckpointError

__all__ = ["SiteCheckpoint", "as_json", "as_rows", "newest_site_step", "pin", "site_checkpoints"]

_PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class SiteCheckpoint:
    """One step. paths: what belongs to it. missing: why it is not complete, "" if it is; None where only all machines together know.
    written_s: seconds since the epoch, of its newest file."""

    step: int
    format: str
    paths: tuple[Path, ...]
    missing: str | None
    written_s: float
    is_pinned: bool = False


def site_checkpoints(directory: str | os.PathLike[str]) -> list[SiteCheckpoint]:
    """The newest first. Raises OSError where the folder cannot be read."""
    folder = Path(directory)
    kept = folder / _PINNED
    entries = list(folder.iterdir())
    found = [_look(entry, False) for entry in entries] + [_look(entry, True) for entry in (kept.iterdir() if kept.is_dir() else ())]
    return sorted([*filter(None, found), *_nvrx(entries)], key=lambda each: (each.step, each.is_pinned), reverse=True)


def newest_site_step(directory: str | os.PathLike[str], not_of: Collection[int] = (), skipped: str = "") -> int | None:
    """The step that a new generation would resume from: minder's own newest one, else the newest that is surely complete; None where none
    is. not_of: updates of the job's code whose checkpoints of minder's it does not read. skipped: batches that it leaves out; what others
    wrote does not say which batches it has learned from, so then it is not known. Raises OSError."""
    own = newest_step(directory, not_of, skipped)
    if own is None and skipped:
        return None
    return own if own is not None else next((each.step for each in site_checkpoints(directory) if each.missing == ""), None)


def pin(directory: str | os.PathLike[str], step: int) -> Path:
    """Keep a complete step when its writer removes it: once more in DIRECTORY/pinned, as links, which take no room. Returns the copy.

    Raises CheckpointError where that step is not there, or not complete; OSError where the file system has no links.
    """
    found = [each for each in site_checkpoints(directory) if each.step == step]
    if any(each.is_pinned for each in found):
        return next(each.paths[0] for each in found if each.is_pinned)
    whole = next((each for each in found if each.missing == ""), None)
    if whole is None:
        why = next((each.missing for each in found if each.missing), None)
        raise CheckpointError(f"step {step} in {directory} cannot be kept: " + (why or "no complete checkpoint of it lies there"))
    (source,) = whole.paths
    target, draft = Path(directory) / _PINNED / source.name, Path(directory) / _PINNED / f".{source.name}.draft"
    draft.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft, copy_function=os.link)
    else:
        draft.unlink(missing_ok=True)
        os.link(source, draft)
    draft.rename(target)
    return target


def as_json(found: list[SiteCheckpoint], now_s: float) -> list[dict[str, Any]]:
    """complete: null where only all machines together know. age_s: since its newest file was written."""
    return [
        {
            "step": each.step, "format": each.format, "complete": None if each.missing is None else not each.missing,
            "missing": each.missing, "age_s": round(now_s - each.written_s, 1), "pinned": each.is_pinned,
            "paths": list(map(str, each.paths)),
        }
        for each in found
    ]  # fmt: skip


def as_rows(found: list[SiteCheckpoint], now_s: float) -> list[list[str]]:
    """A table, with its header."""
    rows = [["step", "format", "age", "complete", "where"]]
    for each in found:
        state = f"unknown: {len(each.paths)} shards here" if each.missing is None else f"no: {each.missing}" if each.missing else "yes"
        where = str(each.paths[0] if len(each.paths) == 1 else each.paths[0].parent.parent)
        rows.append([str(each.step), each.format, f"{(now_s - each.written_s) / 3600:.1f} h", state, where])
    return rows


def _look(entry: Path, is_pinned: bool) -> SiteCheckpoint | None:
    for name, pattern, missing in _FORMATS:
        match = pattern.fullmatch(entry.name)
        if match is not None and (entry.is_dir() or name == "Lightning"):
            step = int(match[1])
            return SiteCheckpoint(step, name, (entry,), "" if is_pinned else missing(entry, step), _written_s([entry]), is_pinned)
    return None


def _own(path: Path, step: int) -> str:
    return "" if any(each.path == path for each in complete_checkpoints(path.parent)) else "it has no manifest, or not that of its files"


def _dcp(path: Path, step: int) -> str:
    """DCP writes .metadata last, when all ranks have written."""
    if any(path.glob("model*.safetensors*")) and not any(path.glob("*.distcp")):
        return "it has weights only (safetensors), and no optimiser to go on with"
    if not (path / ".metadata").is_file():
        return "it has no .metadata, which its writer adds last"
    return "" if any(path.glob("*.distcp")) else "it has no .distcp file"


def _megatron(path: Path, step: int) -> str:
    """metadata.json ends a torch_dist folder, DCP's .metadata a torch_dcp or fsdp_dtensor one, which has no common.pt. Megatron's own loop
    then names the newest whole step in a file beside the folders, in every format; a loop of one's own around megatron-core has none."""
    tracker = path.parent / "latest_checkpointed_iteration.txt"
    newest = _text(tracker)
    has_tracker = tracker.exists()
    if has_tracker and (not newest.isdigit() or int(newest) < step):
        return f"latest_checkpointed_iteration.txt says {newest or 'nothing'}"
    if any(path.glob("mp_rank_*")):
        return "" if has_tracker else "latest_checkpointed_iteration.txt is missing"
    if (path / "metadata.json").is_file():
        return ""
    if (path / "common.pt").exists() or not any(path.glob("*.distcp")):
        return "it has no metadata.json, which its writer adds last"
    return _dcp(path, step)


def _deepspeed(path: Path, step: int) -> str:
    newest = re.search(r"\d+", _text(path.parent / "latest"))
    if newest is not None and int(newest[0]) >= step:
        return ""
    return f"the file latest names {'no step' if newest is None else newest[0]}"


def _hugging_face(path: Path, step: int) -> str:
    return "" if (path / "trainer_state.json").is_file() else "it has no trainer_state.json, which its writer adds last"


def _lightning(path: Path, step: int) -> str:
    """A file; or, of a sharded strategy, a folder of DCP's, which meta.pt ends; or one of DeepSpeed's, which latest ends."""
    if not path.is_dir():
        return "" if path.stat().st_size else "it is empty"
    if (path / "checkpoint").is_dir():
        return "" if (path / "latest").is_file() else "it has no file latest, which its writer adds last"
    return _dcp(path, step) or ("" if (path / "meta.pt").is_file() else "it has no meta.pt, which its writer adds last")


_FORMATS: tuple[tuple[str, re.Pattern[str], Callable[[Path, int], str]], ...] = (
    ("minder", re.compile(r"step-(\d{9,})-generation-\d{5,}"), _own),
    ("DCP", re.compile(r"step[-_]?(\d+)"), _dcp),
    ("Megatron", re.compile(r"iter_(\d+)"), _megatron),
    ("DeepSpeed", re.compile(r"global_step(\d+)"), _deepspeed),
    ("Hugging Face", re.compile(r"checkpoint-(\d+)"), _hugging_face),
    ("Lightning", re.compile(r".*step=(\d+).*\.ckpt"), _lightning),
)
_NVRX = re.compile(r"iter_(\d+)_(\d+)_local\.pt")


def _nvrx(entries: list[Path]) -> Iterator[SiteCheckpoint]:
    """One machine has the shards of its ranks, and copies of others'."""
    shards: dict[int, list[Path]] = {}
    for rank in entries:
        for path in rank.glob("iter_*_local.pt") if rank.name.isdigit() else ():
            match = _NVRX.fullmatch(path.name)
            if match is not None:
                shards.setdefault(int(match[1]), []).append(path)
    for step, paths in shards.items():
        yield SiteCheckpoint(step, "NVRx", tuple(sorted(paths)), None, _written_s(paths))


def _written_s(paths: list[Path]) -> float:
    files = [file for path in paths for file in ([path, *path.iterdir()] if path.is_dir() else [path])]
    return max(file.stat().st_mtime for file in files)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
