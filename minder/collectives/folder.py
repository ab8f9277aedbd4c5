"""A folder of dumps as one collection (docs/collectives.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from minder.collectives.dumpfile import UnreadableDumpError, read_dump
from minder.collectives.groups import resolve_groups, with_local_peers, world_of
from minder.collectives.records import Collection, RankDump, Signatures
from minder.collectives.stale import without_stale
from minder.errors import BadInputError
from minder.topology import Parallelism

__all__ = ["collect", "dump_files", "read_folder"]

_IGNORED = {"job.toml", "labels.json", "ranks.json", "truth.json"}


def dump_files(folder: Path) -> dict[int, Path]:
    """Dump files by rank, the last integer of the name without its extension. Of two files of one rank the shorter name counts."""
    if not folder.is_dir():
        raise BadInputError(f"{folder} is no folder: give the folder that holds one Flight Recorder dump per rank")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name)):
        numbers = re.findall(r"\d+", path.stem if path.suffix and not path.suffix[1:].isdigit() else path.name)
        if numbers and len(numbers[-1]) <= 7 and path.name not in _IGNORED and not path.name.startswith(".") and path.is_file():
            found.setdefault(int(numbers[-1]), path)
    return found


def read_folder(folder: Path, parallelism: Parallelism | None = None) -> Collection:
    """Read every dump in `folder`. A file that is no dump makes its rank missing; raises BadInputError where there is no file."""
    files = dump_files(folder)
    if not files:
        raise BadInputError(f"{folder} holds no dumps: a dump's file name ends in its rank, like rank_07.json or trace_7")
    signatures = Signatures()
    dumps, unreadable = {}, {}
    for rank, path in sorted(files.items()):
        try:
            dumps[rank] = read_dump(path, rank, signatures)
        except UnreadableDumpError as error:
            unreadable[rank] = str(error)
    return collect(dumps.values(), signatures, unreadable, parallelism)


def collect(
    dumps: Iterable[RankDump], signatures: Signatures, unreadable: Mapping[int, str] | None = None, parallelism: Parallelism | None = None
) -> Collection:
    """Put parsed dumps together: the job's ranks, and its process groups. A dump that is older than its peers' is none."""
    by_rank = {dump.rank: dump for dump in dumps}
    world = world_of(by_rank, unreadable or {}, parallelism)
    groups = resolve_groups(by_rank, world, parallelism)
    by_rank = with_local_peers(by_rank, groups)
    return without_stale(Collection(by_rank, tuple(groups), world, tuple(signatures.known), dict(unreadable or {})))
