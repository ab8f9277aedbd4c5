"""The matrix: trainers that know nothing of minder, and what happens to them. Ten cells for real; its table and its judge by hand."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minder.model.errors import LabError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.lab.capabilities import find_capabilities

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

cells: ModuleType = importlib.import_module("matrix_lab.cells")
judging: ModuleType = importlib.import_module("matrix_lab.judge")
rungs: ModuleType = importlib.import_module("matrix_lab.rungs")
playing: ModuleType = importlib.import_module("matrix_lab.play")
traces: ModuleType = importlib.import_module("matrix_lab.traces")
NEEDS = {"hf": ("transformers", "accelerate"), "lightning": ("lightning",)}


# Three to five minutes each. Two machines that hang in turn; and two faults whose kinds shorter cells stand for: a machine that hangs
# whatever rank it gets (sigstop), an unknown crash (sigkill). That a polling rank is found is in test_hang.py, too, and that a crash
# which comes twice has all machines tested, and costs none, in test_diagnosis.py.
LONG = {"lightning:two-stops", "hf:busy-poll", "lightning:sigkill-twice"}
PLAYED = (*cells.CI_CELLS, cells.Cell("hf", "busy-poll"), cells.Cell("lightning", "sigkill-twice"))


@pytest.mark.lab
@pytest.mark.timeout(480)
@pytest.mark.parametrize("cell", [pytest.param(cell, marks=pytest.mark.release) if str(cell) in LONG else cell for cell in PLAYED], ids=str)
def test_no_healthy_machine_goes_the_bad_one_does_and_no_job_stands(cell: Any, tmp_path: Path) -> None:
    for name in NEEDS.get(cell.trainer, ()):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install -e '.[trainers]'")
    if cells.FAULTS[cell.fault].outside is not None and not find_capabilities().can("namespaces"):
        pytest.skip("needs network namespaces and cgroups (root)")
    try:
        row = playing.play_cell(cell, tmp_path / "cell", 0)
    except LabError as error:
        if "needs root" in str(error):
            pytest.skip(str(error))
        raise
    assert row["right"], row


def test_the_ten_cells_hold_every_trainer_twice_and_every_pair_of_the_table() -> None:
    chosen = cells.CI_CELLS
    assert len(chosen) == 10 and len({cell.fault for cell in chosen}) == 10
    assert all(sum(cell.trainer == name for cell in chosen) == 2 for name in cells.TRAINERS)
    every = set().union(*(cells.pairs(cell) for cell in cells.every_cell()))
    assert every - set().union(*(cells.pairs(cell) for cell in chosen)) == set()


def test_every_fault_has_a_cell_for_every_trainer_that_it_is_meant_for() -> None:
    every = cells.every_cell()
    assert len(every) == len(set(every)) >= 5 * 16
    assert {cell.fault for cell in every} == set(cells.FAULTS)


def test_a_machine_that_may_be_evicted_is_at_fault_and_one_at_fault_must_go() -> None:
    for fault in cells.FAULTS.values():
        for trainer in cells.TRAINERS:
            expect = fault.expectation(trainer)
            assert set(expect.gone) <= set(expect.evictable)
            assert bool(expect.evictable) == (fault.blame == "machine")
            assert (expect.end == "failed") == bool(expect.evidence)


# The judge, on ledgers written by hand

TARGET, SECOND, HEALTHY, STANDBY = "lab-0000-m2", "lab-0000-m3", "lab-0000-m0", "lab-0000-s0"
AT_FIRST = {"0": HEALTHY, "1": "lab-0000-m1", "2": TARGET, "3": SECOND}
SWAPPED = AT_FIRST | {"2": STANDBY}


def ledger(*events: tuple[str, dict[str, Any]]) -> list[LedgerEvent]:
    return [LedgerEvent(number, float(number), kind, "lab-0000", None, None, payload) for number, (kind, payload) in enumerate(events)]


def taken(end_s: float) -> list[Any]:
    """All four ranks took steps 1 to 10, the last one at `end_s`."""
    steps = tuple(range(1, 11))
    return [traces.Trained("m", 1, rank, 1, steps, tuple(end_s - 10 + step for step in steps), 0.0) for rank in range(4)]


LATE_S = 100.0  # after everything in the ledgers below, whose events come a second apart
TAKEN_AT_ONCE = taken(0.5)


def played(events: list[LedgerEvent], **changes: Any) -> Any:
    values: dict[str, Any] = {
        "events": events,
        "traces": taken(LATE_S),
        "failures": [{"machine": TARGET}],
        "roles": {TARGET: "target", SECOND: "second"},
        "standbys": [STANDBY],
        "steps": 10,
        "ranks": 4,
        "complete": True,
        "saved": True,
        "given_up": "",
    }
    return judging.Played(**{**values, **changes})


STARTED = (kinds.GENERATION_STARTED, {"generation": 1, "rank_machine": AT_FIRST})
AGAIN = (kinds.GENERATION_STARTED, {"generation": 2, "rank_machine": AT_FIRST})
REPLACED = (kinds.GENERATION_STARTED, {"generation": 2, "rank_machine": SWAPPED})
FINISHED = (kinds.JOB_ENDED, {"outcome": "finished"})
FAILED = (kinds.JOB_ENDED, {"outcome": "failed", "detail": "exit code 3 of rank 2"})
BAD = cells.Expectation(("target",), ("target",))
FINE = cells.Expectation()
ANY = rungs.Climb(".*", "whatever was climbed")
PROGRAM = cells.Expectation(end="failed", evidence=r"exit code 3\b")


@pytest.mark.parametrize(
    ("expect", "events", "changes", "wrong"),
    [
        (BAD, [STARTED, (kinds.BARRED, {"machine": TARGET}), REPLACED, FINISHED], {}, []),
        (BAD, [STARTED, REPLACED, FINISHED], {}, []),  # on trial: gone without an eviction
        (BAD, [STARTED, AGAIN, FINISHED], {}, ["target still has a rank after 1 failures"]),
        (BAD, [STARTED, REPLACED, FINISHED], {"failures": [{"machine": TARGET}] * 4}, ["target failed 4 times"]),
        (BAD, [STARTED, (kinds.BARRED, {"machine": HEALTHY}), REPLACED, FINISHED], {}, ["healthy m0 was evicted"]),
        (FINE, [STARTED, AGAIN, FINISHED], {}, []),
        (FINE, [STARTED, (kinds.BARRED, {"machine": TARGET}), REPLACED, FINISHED], {}, ["healthy target was evicted"]),
        (FINE, [STARTED], {"given_up": "standing"}, ["standing instead of finished"]),
        (FINE, [STARTED], {"given_up": "not done"}, ["not done instead of finished"]),
        (FINE, [STARTED], {}, ["cut off instead of finished"]),
        (FINE, [STARTED, FINISHED], {"steps": 11}, ["rank 0 never took step 11"]),
        (FINE, [STARTED, AGAIN, FINISHED], {"traces": TAKEN_AT_ONCE}, ["started again after all ranks had taken their last step"]),
        (FINE, [STARTED, FINISHED], {"saved": False}, ["finished without a final model"]),
        (FINE, [STARTED, FINISHED], {"complete": False}, ["the fault did not come in full"]),
        (PROGRAM, [STARTED, FAILED], {}, []),
        (PROGRAM, [STARTED, (kinds.JOB_ENDED, {"outcome": "failed", "detail": "exit code 31"})], {}, ["failed without evidence"]),
        (PROGRAM, [STARTED, FINISHED], {}, ["finished instead of failed"]),
    ],
)
def test_the_judge_says_what_is_wrong(expect: Any, events: list[Any], changes: dict[str, Any], wrong: list[str]) -> None:
    row = judging.judge(expect, ANY, played(ledger(*events), **changes))
    assert row["right"] == (wrong == [])
    assert [said[: len(start)] for said, start in zip(row["wrong"], wrong, strict=True)] == wrong


def test_a_row_counts_restarts_and_standbys_and_shows_what_was_accused() -> None:
    verdict = (kinds.VERDICT, {"kind": "machine", "tier": "page", "machines": [SECOND]})
    row = judging.judge(BAD, ANY, played(ledger(STARTED, verdict, REPLACED, FINISHED)))
    assert (row["restarts"], row["standbys"], row["accused"], row["evicted"]) == (1, 1, ["second"], [])


def test_a_row_has_each_rung_that_was_climbed_with_the_seconds_to_the_jobs_next_first_step() -> None:
    steps = (kinds.FIRST_STEP, {"step": 1, "generation": 1})
    acts = [(kinds.INTENT, {"action": "restart", "decision": {"rung": rung}}) for rung in ("reattempt", "diagnose")]
    events = ledger(STARTED, steps, acts[0], (kinds.INTENT, {"action": "rejoin"}), AGAIN, steps, acts[1], FINISHED)
    row = judging.judge(FINE, ANY, played(events, traces=TAKEN_AT_ONCE))
    assert row["rungs"] == [("reattempt", 3.0), ("diagnose", None)]


def test_a_first_step_that_minder_did_not_see_is_read_from_the_scripts_traces() -> None:
    restart = (kinds.INTENT, {"action": "restart", "decision": {"rung": "reattempt"}})
    row = judging.judge(FINE, ANY, played(ledger(STARTED, restart, AGAIN, FINISHED), traces=[*TAKEN_AT_ONCE, *taken(15.0)]))
    assert row["rungs"] == [("reattempt", 5.0)]


def test_traces_are_read_as_the_scripts_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scripts' own writer, in this process."""
    monkeypatch.syspath_prepend(str(BENCH / "jobs" / "trainers"))
    monkeypatch.setenv("MINDER_MACHINE", "lab-0000-m1")
    trouble = pytest.importorskip("trouble")
    trace = trouble.Trace(tmp_path, 3)
    (fresh,) = traces.read_traces(tmp_path)
    assert (fresh.machine, fresh.rank, fresh.step, fresh.alive) == ("lab-0000-m1", 3, 0, True)
    for step in (11, 12):
        trace.add(step)
    (found,) = traces.read_traces(tmp_path)
    assert found.steps == (11, 12) and trace.last_step() == found.step == 12


@pytest.mark.parametrize(
    ("phase", "now_s", "over"),
    [
        pytest.param("running", 149.0, False, id="soon after a step"),
        pytest.param("running", 151.0, True, id="long after a step"),
        pytest.param("diagnosing", 900.0, False, id="tested"),
        pytest.param("replaying", 900.0, False, id="replayed"),
    ],
)
def test_a_job_stands_a_while_after_its_last_step_unless_minder_holds_it(phase: str, now_s: float, over: bool) -> None:
    patience = playing.Patience(100.0, 0.0)
    assert not patience.is_over({"generation": 1, "phase": "starting"}, 0.0, 10.0)
    assert patience.is_over({"generation": 1, "phase": phase}, 50.0, now_s) == over


def test_a_generation_has_three_times_as_long_for_its_first_step_and_so_has_one_after_the_tests() -> None:
    patience = playing.Patience(100.0, 0.0)
    assert not patience.is_over({"generation": 1, "phase": "diagnosing"}, 50.0, 400.0)
    assert not patience.is_over({"generation": 2, "phase": "starting"}, 50.0, 420.0)
    assert not patience.is_over({"generation": 2, "phase": "starting"}, 50.0, 719.0)
    assert patience.is_over({"generation": 2, "phase": "starting"}, 50.0, 721.0)


# The rungs, on rows made by hand


def test_every_fault_says_which_rungs_are_right_and_why() -> None:
    assert set(rungs.CLIMBS) == set(cells.FAULTS)
    assert all(rungs.right_climb(cell).why for cell in cells.every_cell())


@pytest.mark.parametrize(
    ("cell", "climbed", "wrong"),
    [
        ("ddp:sigkill", "reattempt", ""),
        ("ddp:sigkill", "evict", "climbed evict instead of"),
        ("ddp:sigkill", "reattempt page", "climbed reattempt page instead of"),
        ("ddp:sigkill", "", "climbed no rung instead of"),
        ("ddp:sigkill", "pray", "unknown rung pray"),
        ("ddp:sigstop", "evict", ""),
        ("ddp:sigstop", "reattempt", "climbed reattempt instead of"),
        ("fsdp2:killer-machine", "reattempt diagnose trial", ""),
        ("fsdp2:killer-machine", "reattempt diagnose evict", ""),
        ("fsdp2:killer-machine", "reattempt evict", "climbed reattempt evict instead of"),
        ("handler:xid", "reattempt evict", ""),
        ("handler:xid", "reattempt reattempt", "climbed reattempt reattempt instead of"),
        ("ddp:exception-always", "reattempt reattempt reattempt page", ""),
        ("ddp:exception-always", "reattempt reattempt reattempt", "climbed reattempt reattempt reattempt instead of"),
        ("ddp:exception-always", "reattempt diagnose trial page", "climbed reattempt diagnose trial page instead of"),
        ("ddp:loader", "page reattempt", ""),
        ("ddp:loader", "page", "climbed page instead of"),
        ("ddp:loader", "page reattempt page", "climbed page reattempt page instead of"),
        ("ddp:nan-rank", "", "climbed no rung instead of"),
        ("hf:nan-rank", "", ""),
        ("hf:nan-rank", "reattempt", "climbed reattempt instead of no rung"),
    ],
)
def test_a_cell_is_right_only_with_its_own_rungs(cell: str, climbed: str, wrong: str) -> None:
    right = rungs.right_climb(cells.Cell(*cell.split(":")))
    said = rungs.misclimbed(right, [(name, 1.0) for name in climbed.split()])
    assert [words[: len(wrong)] for words in said] == ([wrong] if wrong else [])


def test_no_rung_evicts_where_no_machine_is_at_fault() -> None:
    for cell in cells.every_cell():
        if cells.FAULTS[cell.fault].blame != "machine":
            assert "evict" not in rungs.right_climb(cell).must, cell


def test_a_wrong_rung_makes_the_row_wrong_and_a_person_is_a_rung() -> None:
    restart = (kinds.INTENT, {"action": "restart", "decision": {"rung": "reattempt"}})
    page = (kinds.DECISION, {"action": "page", "rung": "reattempt", "reason": "max_restarts"})
    events = ledger(STARTED, restart, AGAIN, page, page, FINISHED)
    row = judging.judge(FINE, rungs.Climb("evict", "made by hand"), played(events))
    assert row["rungs"] == [("reattempt", LATE_S - 10), ("page", None)]
    assert not row["right"] and row["wrong"] == ["climbed reattempt page instead of evict"]
