"""What a generator by another hand brought up: names of operations without an underscore, a number of its own for every group, and
messages between ranks as the job numbers them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from minder.diagnose.flight_recorder.analyse import Analysis

Judge = Callable[[dict[int, dict[str, Any]]], Analysis]
GROUPS: dict[str, list[int]] = {
    "0": list(range(8)),
    **{f"tp{k}": [2 * k, 2 * k + 1] for k in range(4)},
    **{f"dp{k}": list(range(k, 8, 2)) for k in range(2)},
}


@pytest.mark.parametrize("name", ["allreduce", "ALLREDUCE", "all_reduce", "_allgather_base", "reducescatter_tensor"])
def test_a_wrong_size_by_any_name_of_the_operation(name: str, judge: Judge, build: Any) -> None:
    named = {"profiling_name": f"nccl:{name}"}
    seen = {rank: [named, {**named, "done": False, "sizes": [[7 if rank == 2 else 8]]}] for rank in range(4)}
    analysis = judge({rank: build(entries) for rank, entries in seen.items()})
    assert ([one.rank for one in analysis.culprits], analysis.cause) == ([2], "mismatch")


def documents_with_numbers_of_their_own(build: Any, silent: int) -> dict[int, dict[str, Any]]:
    """Two steps of tensor-parallel, data-parallel and global operations; in the third rank `silent` launches nothing, and its ring is
    empty. Every rank numbers its groups in another order, so that no peer's number fits."""
    documents = {}
    for rank in range(8):
        names = [name for name, ranks in GROUPS.items() if rank in ranks]
        numbers = dict(zip(names, random.Random(rank).sample(range(3), 3), strict=True))
        entries, status = [], {}
        for name in names:
            count = {"0": 2, "t": 12, "d": 4}[name[0]]
            status[str(numbers[name])] = {"last_enqueued_collective": count, "last_started_collective": count}
            status[str(numbers[name])]["last_completed_collective"] = count
            for k in range(count):
                entries.append({"pg_id": numbers[name], "process_group": (name, ""), "collective_seq_id": k + 1})
        waits = next(name for name in (f"tp{rank // 2}", f"dp{rank % 2}", "0") if silent in GROUPS[name])
        if rank == silent:
            entries = []
        else:
            count = status[str(numbers[waits])]["last_enqueued_collective"] + 1
            status[str(numbers[waits])]["last_enqueued_collective"] = count
            entries.append({"pg_id": numbers[waits], "process_group": (waits, ""), "collective_seq_id": count, "done": False})
        config = {name: {"name": name, "desc": "", "ranks": str(GROUPS[name])} for name in names}
        documents[rank] = build(entries, pg_config=config, pg_status=status)
    return documents


@pytest.mark.parametrize("silent", range(8))
def test_counters_that_cannot_be_joined_are_no_evidence_of_an_old_dump(silent: int, judge: Judge, build: Any) -> None:
    analysis = judge(documents_with_numbers_of_their_own(build, silent))
    assert {one.rank for one in analysis.culprits} == {silent}
    assert analysis.cause == "not launched"


def pair_dumps(build: Any, ranks: list[int], first: str, second: str) -> dict[int, dict[str, Any]]:
    """Two ranks of a group of four: the first waits for a message that the second has not sent."""
    config = {"p": {"name": "p", "desc": "PIPELINE", "ranks": str(ranks)}}
    entry = {"process_group": ("p", "PIPELINE"), "is_p2p": True, "collective_seq_id": 0, "p2p_seq_id": 1}
    sent = {rank: [{**entry, "profiling_name": f"nccl:{title}"}] for rank, title in ((ranks[1], first), (ranks[2], second))}
    sent[ranks[1]].append({**entry, "p2p_seq_id": 2, "profiling_name": f"nccl:{first}", "done": False})
    return {rank: build(sent.get(rank, []), pg_config=config) for rank in ranks}


@pytest.mark.parametrize(
    ("ranks", "first", "second"),
    [
        ([1, 5, 9, 13], "recv 1<-2", "send 2->1"),  # as the library writes it: numbers inside the group
        ([1, 5, 9, 13], "recv 5<-9", "send 9->5"),  # as the job numbers them
        ([0, 1, 2, 3], "recv 1<-2", "send 2->1"),
        ([2, 0, 1, 3], "recv 1<-2", "send 2->1"),
    ],
)
def test_a_message_between_ranks_by_either_number(ranks: list[int], first: str, second: str, judge: Judge, build: Any) -> None:
    analysis = judge(pair_dumps(build, ranks, first, second))
    assert [one.rank for one in analysis.culprits] == [ranks[2]]


def test_a_message_to_itself_is_nobodys(judge: Judge, build: Any) -> None:
    entry = {"is_p2p": True, "collective_seq_id": 0, "p2p_seq_id": 1, "profiling_name": "nccl:send 0->1", "done": False}
    documents = {rank: build([{**entry}], ranks=2) for rank in range(2)}
    assert judge(documents).culprits == ()
