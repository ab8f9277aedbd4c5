"""A folder of dumps as one collection (docs/collectives.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from minder.diagnose.flight_recorder.dumpfile import UnreadableDumpError, read_dump
from minder.diagnose.flight_recorder.filenames import dump_files, says_rank
from minder.diagnose.flight_recorder.groups import resolve_groups, with_local_peers, world_of
from minder.diagnose.flight_recorder.records import Collection, RankDump, Signatures
from minder.diagnose.flight_recorder.renumber import with_group_numbers
from minder.diagnose.flight_recorder.stale import without_stale
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism

__all__ = ["collect", "read_folder"]


def read_folder(folder: Path, parallelism: Parallelism | None = None) -> Collection:
    """Read every dump in `folder`. A file that is no dump makes its rank missing; of several dumps of a rank the newest counts. Raises
    BadInputError where there is no dump at all, or no saying whose dumps they are.
    """
    files = dump_files(folder)
    if not files:
        raise BadInputError(f"{folder} holds no dumps: a dump's file name holds its rank, like rank_07.json or trace_7")
    signatures = Signatures()
    dumps: dict[int, RankDump] = {}
    unreadable: dict[int, str] = {}
    for rank, paths in files.items():
        try:
            dumps[rank] = _newest(rank, paths, signatures)
        except UnreadableDumpError as error:
            unreadable[rank] = str(error)
    if not dumps:
        first = next(iter(unreadable.values()))
        raise BadInputError(f"{folder} holds no Flight Recorder dump: none of {len(unreadable)} files can be read ({first})")
    _check_ranks(folder, dumps)
    known = {rank for dump in dumps.values() for group in dump.groups for rank in group.ranks}
    for rank in [rank for rank in unreadable if known and rank not in known and not any(map(says_rank, files[rank]))]:
        del unreadable[rank]  # no dump, and a number that no group has: some other file
    return collect(dumps.values(), signatures, unreadable, parallelism)


def _newest(rank: int, paths: Sequence[Path], signatures: Signatures) -> RankDump:
    """Of several files of one rank the dump whose newest entry is the latest. Raises UnreadableDumpError, BadInputError."""
    found: dict[Path, RankDump] = {}
    for path in paths:
        try:
            found[path] = read_dump(path, rank, signatures)
        except UnreadableDumpError:
            if path is paths[-1] and not found:
                raise
    order = sorted(found, key=lambda path: _age(found[path]))
    ages = [_age(found[path]) for path in order]
    if len(order) > 1 and (ages[0][0] == 0 or (ages[-2][0] == ages[-1][0] and ages[-2] != ages[-1])):
        names = " and ".join(path.name for path in order[-2:])
        raise BadInputError(f"{paths[0].parent}: {names} are both of rank {rank}, and nothing says which is newer: take one away")
    return found[order[-1]]


def _age(dump: RankDump) -> tuple[int, int]:
    """When its newest entry was made (0 where nothing says), and how many entries it has."""
    return (int(dump.created_E.max()) if dump.entries else 0), dump.entries


def _check_ranks(folder: Path, dumps: Mapping[int, RankDump]) -> None:
    """Numbers that no dump's own groups know are no ranks: a pid, a time, a counter of the site's."""
    strange = [rank for rank, dump in dumps.items() if dump.groups and not any(rank in group.ranks for group in dump.groups)]
    if len(strange) * 2 > len(dumps):
        raise BadInputError(
            f"{folder}: the names say rank {strange[0]}, which is in none of that dump's groups: put the rank in each name, like rank_3.pkl"
        )


def collect(
    dumps: Iterable[RankDump], signatures: Signatures, unreadable: Mapping[int, str] | None = None, parallelism: Parallelism | None = None
) -> Collection:
    """Put parsed dumps together: the job's ranks, and its process groups. A dump that is older than its peers' is none."""
    by_rank = {dump.rank: dump for dump in dumps}
    world = world_of(by_rank, unreadable or {}, parallelism)
    groups = resolve_groups(by_rank, world, parallelism)
    by_rank = with_local_peers(with_group_numbers(by_rank, groups), groups)
    return without_stale(Collection(by_rank, tuple(groups), world, tuple(signatures.known), dict(unreadable or {})))
