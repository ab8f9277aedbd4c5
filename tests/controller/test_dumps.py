"""Dumps of four real gloo ranks (tests/collectives/data), as agents send them."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.captures import judge_dumps
from minder.model.errors import WireError
from minder.model.evidence import Suspect
from minder.model.topology import Parallelism

DATA = Path(__file__).parents[1] / "collectives" / "data" / "gloo"
PLACES = {rank: f"m{rank}" for rank in range(4)}
PARALLELISM = Parallelism(tensor=2, data=2)
MOVED_S, NOW_S = 990.0, 1000.0


def answers(case: str, **changes: Any) -> dict[str, Any]:
    """One machine per rank; changes: fields of rank 2's entry."""
    found = {}
    for rank in range(4):
        data = base64.b64encode((DATA / case / f"rank_{rank}.pkl").read_bytes()).decode()
        row = {"pid": 100 + rank, "rank": rank, "time_s": NOW_S, "since_s": 0.0, "format": "fr-pickle", "data": data}
        found[f"m{rank}"] = {"time_s": NOW_S, "_received_s": NOW_S, "dumps": [row | (changes if rank == 2 else {})]}
    return found


def judge(found: dict[str, Any]) -> tuple[Suspect, ...]:
    return judge_dumps(found, PLACES, PARALLELISM, MOVED_S, NOW_S)


def test_real_dumps_name_the_rank_that_launched_nothing_more() -> None:
    (suspect,) = judge(answers("sleep"))
    assert (suspect.machines, suspect.source, suspect.cause, suspect.tier) == (("m2",), "collectives", "stall", "page")
    assert "not launched" in suspect.evidence[0].message


def test_a_mismatch_is_the_programs_and_an_idle_job_nobodys() -> None:
    assert [(item.kind, item.machines) for item in judge(answers("type"))] == [("job", ())]
    assert judge(answers("idle")) == ()


def behind(**changes: Any) -> dict[str, Any]:
    """All ranks but the third have launched a fifth all-reduce; changes: fields of its entry."""
    found = answers("sleep", **changes)
    for rank in range(4):
        entries = [
            {
                "record_id": index, "process_group": ("0", "default_pg"), "pg_id": 0, "collective_seq_id": index, "p2p_seq_id": 0,
                "profiling_name": "gloo:all_reduce", "time_created_ns": (900 + index) * 10**9, "state": "scheduled", "retired": index < 5,
                "input_sizes": ((8,),), "output_sizes": ((8,),), "input_dtypes": ["Float"], "output_dtypes": ["Float"], "is_p2p": False,
            }
            for index in range(1, 5 if rank == 2 else 6)
        ]  # fmt: skip
        row = found[f"m{rank}"]["dumps"][0]
        if rank != 2 or "data" not in changes:
            row["data"] = base64.b64encode(pickle.dumps({"version": "2.10", "entries": entries, "pg_config": {}}, 2)).decode()
    return found


def test_a_fresh_dump_of_the_one_that_all_wait_for_may_evict_it() -> None:
    (suspect,) = judge(behind())
    assert (suspect.machines, suspect.tier) == (("m2",), "evict")


@pytest.mark.parametrize("changes", [
    {"time_s": MOVED_S - 5}, {"format": "error", "data": "it keeps no dumps"}, {"data": "no base64!"}, {"data": ""},
    {"data": base64.b64encode(b"\x80\x02cos\nsystem\n(S'x'\ntR.").decode()},
])  # fmt: skip
def test_a_dump_that_is_old_or_no_dump_makes_its_rank_missing_which_pages_at_most(changes: dict[str, Any]) -> None:
    (suspect,) = judge(behind(**changes))
    assert suspect.machines == ("m2",) and suspect.tier == "page"


def test_the_age_is_counted_on_the_machines_own_clock() -> None:
    found = behind()
    found["m2"]["time_s"] = NOW_S + 500  # its clock is ahead, and so is the dump's time
    found["m2"]["dumps"][0]["time_s"] = MOVED_S - 5 + 500
    assert judge(found)[0].tier == "page"
    found["m2"]["dumps"][0]["time_s"] = NOW_S + 500
    assert judge(found)[0].tier == "evict"


def test_what_an_earlier_generation_launched_is_forgotten() -> None:
    assert judge(behind(since_s=903.0))[0].evidence[0].observed == 4.0
    (suspect,) = judge(behind(since_s=950.0))  # it has launched nothing in this one
    assert suspect.machines == ("m2",) and suspect.evidence[0].observed in (None, 0.0)


def test_ranks_of_other_machines_and_silent_machines_say_nothing() -> None:
    found = answers("sleep", rank=0)
    found["m3"] = WireError("no answer within 5 s")
    assert all(item.tier != "evict" for item in judge(found))
    assert judge({"m0": answers("sleep")["m0"]}) == ()
