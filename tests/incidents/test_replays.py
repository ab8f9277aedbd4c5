"""A replay in the ledger: its phases, and where failing groups cross."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.replays import ReplayedGroup, fold_replays, replay_payload
from minder.record.incidents.timeline import describe

Groups = Sequence[tuple[int, str, str, str, str]]
DUAL: Groups = [
    (1, "horizontal", "h0", "m0 m1", "passed"),
    (1, "horizontal", "h1", "m2 m3", "failed"),
    (2, "vertical", "v0", "m0 m2", "failed"),
    (2, "vertical", "v1", "m1 m3", "passed"),
]


def events(groups: Groups, ended: bool = True) -> list[LedgerEvent]:
    found = []
    for number, (phase, kind, name, machines, outcome) in enumerate(groups, 2):
        begun = ReplayedGroup(name, tuple(machines.split()), (number, number))
        rows = [begun] + [ReplayedGroup(name, begun.machines, (number, number), outcome, "why", 2, 1)] * ended
        found += [LedgerEvent(number, 5.0, kinds.REPLAY, "llm", "llm-1", "replay-1", replay_payload(phase, kind, row)) for row in rows]
    return found


def test_failing_groups_cross_in_the_suspect() -> None:
    (record,) = fold_replays(events(DUAL))
    assert record.suspects == ("m2",) and [group.name for group in record.failing] == ["h1", "v0"]
    cross = record.crossing()
    assert cross is not None and cross.cells == ((("m0",), ("m1",)), (("m2",), ("m3",)))
    assert all(phase.is_over for phase in record.phases.values())


def test_a_phase_that_runs_is_not_over_and_crosses_nothing() -> None:
    (record,) = fold_replays(events(DUAL[:2], ended=False))
    assert record.crossing() is None and record.suspects == () and not record.phases[1].is_over


def test_of_many_groups_those_that_did_not_pass_are_shown() -> None:
    many = [(1, "horizontal", f"h{index}", f"m{index}", "failed" if index == 7 else "passed") for index in range(32)]
    (record,) = fold_replays(events(many))
    assert [group.name for group in record.phases[1].shown()] == ["h7"]


def test_what_a_newer_version_wrote_otherwise_is_left_out() -> None:
    odd = LedgerEvent(1, 5.0, kinds.REPLAY, "llm", None, "replay-1", {"state": "begin", "phase": "one"})
    assert fold_replays([odd]) == []


@pytest.mark.parametrize(("place", "said"), [(2, "group h1 (m2, m3) begins"), (3, "group h1 (m2, m3) failed: why")])
def test_each_group_is_a_line_of_the_timeline(place: int, said: str) -> None:
    assert describe(events(DUAL)[place]) == f"replay, phase 1: {said}"
