"""Whose dump a file is, by its name: the integer after `rank`, else the last integer that is neither a pid nor a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from minder.model.errors import BadInputError

__all__ = ["dump_files", "says_rank"]

_IGNORED = {"job.toml", "labels.json", "ranks.json", "truth.json"}
_NO_DUMPS = {".md", ".toml", ".log", ".py", ".csv", ".yaml", ".yml", ".parquet", ".jsonl"}
_PACKED = {".gz"}
_RANK = re.compile(r"(?<![a-z])(?P<local>local[_-]?)?(?:global[_-]?)?rank[_-]?(?P<rank>\d+)", re.IGNORECASE)
_BESIDE = re.compile(  # a pid, a date with or without its time, seconds since 1970, an id in hexadecimal
    r"(?<![a-z0-9])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}(?![a-z0-9])|pid[_-]?\d+|\d{4}-\d\d-\d\d(?:[T_-]?\d\d[:.-]?\d\d[:.-]?\d\d)?Z?|\d{8}[T_-]?\d{6}(?:\.\d+)?Z?|\d{8,}",
    re.IGNORECASE,
)
_LONGEST = 7  # digits of a rank
_SHOWN = 3


def dump_files(folder: Path) -> dict[int, list[Path]]:
    """Files that may be dumps, by rank. Raises BadInputError where files of different processes have one rank by their names."""
    if not folder.is_dir():
        raise BadInputError(f"{folder} is no folder: give the folder that holds one Flight Recorder dump per rank")
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name)):
        if path.name in _IGNORED or path.name.startswith(".") or path.suffix.lower() in _NO_DUMPS or not path.is_file():
            continue
        rank = _rank_of(_stem(path))
        if rank is not None:
            found.setdefault(rank, []).append(path)
    for rank, paths in found.items():
        found[rank] = [path for path in paths if says_rank(path)] or paths  # a log or a note beside rank_3.json is no dump of rank 3
        _check_one_process(rank, found[rank])
    return dict(sorted(found.items()))


def says_rank(path: Path) -> bool:
    """Whether the file's name calls its number a rank."""
    return _RANK.search(_stem(path)) is not None


def _stem(path: Path) -> str:
    """The name without what shows its format; a suffix of digits is a rank."""
    name = path.name[: -len(path.suffix)] if path.suffix.lower() in _PACKED else path.name
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix and not suffix[1:].isdigit() else name


def _rank_of(stem: str) -> int | None:
    named = list(_RANK.finditer(stem))
    if named:
        text = next((found["rank"] for found in named if not found["local"]), named[0]["rank"])
    else:
        numbers = re.findall(r"\d+", _BESIDE.sub(" ", stem))
        text = numbers[-1] if numbers else ""
    return int(text) if text and len(text) <= _LONGEST else None


def _check_one_process(rank: int, paths: Sequence[Path]) -> None:
    """Several files of one rank are several dumps of it; names that differ in anything but a pid, a time or an ending are others'."""
    if len({_who(_stem(path)) for path in paths}) < 2:
        return
    names = ", ".join(path.name for path in paths[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
    raise BadInputError(
        f"{paths[0].parent}: {len(paths)} files would all be rank {rank} ({names}): put the rank in each name, like rank_{rank}.pkl"
    )


def _who(stem: str) -> str:
    named = _RANK.search(stem)
    return _BESIDE.sub("", stem[: named.end()] if named else stem).rstrip("_-. ")
