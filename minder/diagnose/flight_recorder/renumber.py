"""Recorders that number the operations of all groups of a process in one row (torchcomms, ncclx).

Everything else here compares numbers that each group counts for itself. In such a dump the number of one operation differs from rank to
rank as soon as ranks are in different groups, so it is replaced by the operation's place in its group: from the first on where all
members' rings go back to it, else counted from the last one that the member completed, which is the same for all while a job stands.

Shape legend: E entries of one rank, G those of them in one group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from minder.diagnose.flight_recorder.groups import groups_of_ranks
from minder.diagnose.flight_recorder.records import COLLECTIVE, COMPLETED, Group, RankDump

__all__ = ["with_group_numbers"]

_LEAST = 4  # entries: fewer may follow one another by chance


def with_group_numbers(dumps: Mapping[int, RankDump], groups: Sequence[Group]) -> dict[int, RankDump]:
    """The dumps, their numbers each group's own. Unchanged where no dump numbers its groups in one row."""
    if not any(_is_recorder_wide(dump) for dump in dumps.values()):
        return dict(dumps)
    index = groups_of_ranks(groups)
    rows = {rank: _rows(dump, index) for rank, dump in dumps.items()}
    numbers = {rank: (np.zeros_like(dump.sequence_E), np.zeros_like(dump.p2p_E)) for rank, dump in dumps.items()}
    for number in range(len(groups)):
        for collective, column in ((True, 0), (False, 1)):
            members = {rank: _of_kind(dumps[rank], own[number], collective) for rank, own in rows.items() if number in own}
            for rank, (at, places) in _places(dumps, members).items():
                numbers[rank][column][at] = places
    return {
        rank: replace(dump, sequence_E=_carried(dump, rows[rank], numbers[rank][0]), p2p_E=numbers[rank][1], status={})
        for rank, dump in dumps.items()
    }


def _is_recorder_wide(dump: RankDump) -> bool:
    """Numbers follow one another over all groups and kinds, and in no group for themselves."""
    for rows_E in (np.arange(dump.entries), np.flatnonzero(dump.kind_E == COLLECTIVE)):
        sequence = dump.sequence_E[rows_E]
        if len(rows_E) < _LEAST or not (np.diff(sequence) == 1).all():
            continue
        for name in np.unique(dump.name_E[rows_E]).tolist():
            own = dump.sequence_E[(dump.name_E == name) & (dump.kind_E == COLLECTIVE)]
            if (np.diff(own) > 1).any():
                return True
        if len(np.unique(dump.name_E[rows_E])) > 1:  # each group once: its first number is no first one
            return True
    return False


def _rows(dump: RankDump, index: Mapping[tuple[str, int], int]) -> dict[int, np.ndarray]:
    """The rank's entries by group."""
    return {
        index[name, dump.rank]: np.flatnonzero(dump.name_E == number)
        for number, name in enumerate(dump.names)
        if (name, dump.rank) in index
    }


def _of_kind(dump: RankDump, rows_G: np.ndarray, collective: bool) -> np.ndarray:
    found: np.ndarray = rows_G[(dump.kind_E[rows_G] == COLLECTIVE) == collective]
    return found


def _places(dumps: Mapping[int, RankDump], members: Mapping[int, np.ndarray]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """(entries, their places from 1 on) of each member of a group."""
    if all(dumps[rank].record_E[0] == 0 for rank in members if dumps[rank].entries):
        return {rank: (at, _count(dumps[rank], at)) for rank, at in members.items()}
    counts = {rank: _count(dumps[rank], at) for rank, at in members.items()}
    done = {rank: int(counts[rank][dumps[rank].state_E[at] == COMPLETED].max(initial=0)) for rank, at in members.items()}
    most = max(done.values(), default=0)
    return {rank: (at, counts[rank] + most - done[rank]) for rank, at in members.items()}


def _count(dump: RankDump, at: np.ndarray) -> np.ndarray:
    """1, 2, 3 for operations one after the other; the parts of a coalesced batch share their number, and so their place."""
    sequence = dump.sequence_E[at]
    return np.cumsum(np.r_[1, (np.diff(sequence) != 0)]) if len(at) else sequence


def _carried(dump: RankDump, rows: Mapping[int, np.ndarray], sequence_E: np.ndarray) -> np.ndarray:
    """Messages carry the number of the collective before them in their group, as other recorders write it."""
    found = sequence_E.copy()
    for rows_G in rows.values():
        found[rows_G] = np.maximum.accumulate(sequence_E[rows_G]) if len(rows_G) else found[rows_G]
    return found
