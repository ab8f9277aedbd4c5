"""Chaos: one job under faults of all kinds. A short schedule for real; schedule, shrinking, table and judge by hand."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from minder.model.errors import LabError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.lab.capabilities import find_capabilities

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

schedules: ModuleType = importlib.import_module("chaos_lab.schedule")
judging: ModuleType = importlib.import_module("chaos_lab.judge")
shrinking: ModuleType = importlib.import_module("chaos_lab.shrink")
tables: ModuleType = importlib.import_module("chaos_lab.table")
Step: Any = importlib.import_module("chaos_lab.steps").Step
Wound: Any = importlib.import_module("chaos_lab.wound").Wound
NAMES = [f"m{index}" for index in range(4)]


@pytest.mark.lab
@pytest.mark.root
@pytest.mark.timeout(1200)  # five minutes of faults; start, last recovery and undisturbed run took as long again on a busy machine
def test_a_job_under_faults_for_five_minutes_ends_with_the_losses_of_an_undisturbed_one(tmp_path: Path) -> None:
    """The first two faults of this seed come alone, and twelve other kinds follow: on a busy machine seven of them in time."""
    if not find_capabilities().can("namespaces"):
        pytest.skip("needs network namespaces and cgroups (root)")
    play: ModuleType = importlib.import_module("chaos_lab.play")
    lab: dict[str, Any] = {"machines": 4, "standbys": 2, "step_seconds": 1.0, "telemetry": "scrape", "for_s": 300.0}
    has_clock = Path(importlib.import_module("chaos_lab.machines").FAKETIME).exists()
    drawn = schedules.draw(3046, 3 * len(schedules.CI_KINDS), (2.0, 5.0), schedules.CI_KINDS)
    struck = [strike for strike in drawn if has_clock or strike.kind != "agent-clock"][:9]  # as many as a busy machine plays in time
    rows: list[dict[str, Any]] = []
    end = play.play(struck, importlib.import_module("chaos_lab.stage").Size(**lab), tmp_path / "out", 3046, rows.append)
    assert end["wrong"] == [] and end["end"] == "whole", (end, rows)
    assert not [detail for row in rows for detail in row["detail"] if detail.startswith("not struck")], rows
    assert end["ettr"]["ettr"] is not None
    assert [row["kinds"] for row in rows[:2]] == [["hang"], ["machine-lost"]]
    for row in rows:
        if {"hang", "machine-lost", "xid"} & set(row["kinds"]):
            evicted = {machine for item in row["recoveries"] for machine in item["evicted"]}
            assert evicted and evicted <= set(row["hit"]), row


@pytest.mark.lab
def test_a_process_with_a_wrong_clock_sleeps_as_any_other_and_counts_time_as_any_other() -> None:
    """Its wall clock alone is wrong: else a strike would end the process that it should mislead."""
    machines: ModuleType = importlib.import_module("chaos_lab.machines")
    if not Path(machines.FAKETIME).exists():
        pytest.skip("needs libfaketime")
    says = "import time; time.sleep(0.01); print(time.time(), time.monotonic())"
    environment = {**os.environ, **machines.wrong_clock(120)}
    done = subprocess.run([sys.executable, "-c", says], env=environment, capture_output=True, text=True, check=True)
    wall_s, monotonic_s = map(float, done.stdout.split())
    assert wall_s - time.time() == pytest.approx(120.0, abs=30.0) and monotonic_s == pytest.approx(time.monotonic(), abs=30.0)


@pytest.mark.parametrize(
    ("again_s", "settled"), [(None, False), (103.0, True), (99.0, False)], ids=["no restart", "went on between the two", "restarted before"]
)
def test_a_round_has_settled_when_the_job_went_on_after_what_stopped_it_whatever_struck_after_that(
    again_s: float | None, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a GPU at 100 s, and the clock of an agent at 105 s: the shortest schedule that waited for a second restart."""
    playing: ModuleType = importlib.import_module("chaos_lab.play")
    wounds = [Wound(1, "xid", ("m1",), faulty=True, stops=True, begin_s=100.0), Wound(2, "agent-clock", ("m2",), begin_s=105.0)]
    run = playing.Run(SimpleNamespace(output=Path("none"), events=lambda *wanted: []))
    run.steps.taken = [Step(number, 1 if again_s is None or 90.0 + number < again_s else 2, 90.0 + number) for number in range(40)]
    monkeypatch.setattr(playing, "time", SimpleNamespace(time=lambda: 130.0))
    assert run._settled(wounds) is settled


@pytest.mark.parametrize("reason", ["no_standby", "group_too_large"])
def test_a_page_that_too_few_stand_by_is_answered_once_by_giving_back_what_is_out(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three machines were hit, and two stood by: the shortest schedule is a dead link, and a pair that is lost beside it."""
    hurt: ModuleType = importlib.import_module("chaos_lab.hurt")
    events = [
        LedgerEvent(1, 0.0, kinds.BARRED, "llm", None, "evict-1", {"machine": "m3"}),
        LedgerEvent(2, 1.0, kinds.DECISION, "llm", None, "evict-2", {"action": "page", "reason": reason, "machines": ["m0"]}),
    ]
    stage = SimpleNamespace(events=lambda *wanted: [event for event in events if event.kind in wanted], controllers={})
    person, returned = hurt.Hurt(stage, None), []
    monkeypatch.setattr(hurt.Hurt, "_keep_controllers", lambda self: None)
    monkeypatch.setattr(hurt.Hurt, "repair_all", lambda self: returned.append(self.barred()))
    now_s = 1000.0
    monkeypatch.setattr(hurt, "time", SimpleNamespace(time=lambda: now_s))
    for passed_s, times in ((0.0, 0), (29.0, 0), (2.0, 1), (60.0, 1)):
        now_s += passed_s
        person.look(False)
        assert returned == [{"m3"}] * times


def test_a_seed_draws_every_kind_before_any_comes_again_and_the_same_each_time() -> None:
    every = sorted(name for name, kind in schedules.KINDS.items() if kind.drawn)
    count = len(every)
    drawn = schedules.draw(5, 2 * count)
    assert [sorted(strike.kind for strike in half) for half in (drawn[:count], drawn[count:])] == [every] * 2
    assert drawn == schedules.read(schedules.shown(schedules.draw(5, 2 * count))) != schedules.draw(6, 2 * count)
    assert 0.1 < sum(strike.joined for strike in drawn) / len(drawn) < 0.4
    assert all(60.0 <= strike.gap_s <= 120.0 for strike in drawn if not strike.joined)
    assert schedules.cut(drawn, until=4) == drawn[:4]
    assert schedules.read("\n" + schedules.shown(drawn[:2]) + "\n\n") == drawn[:2]


def test_a_schedule_that_goes_on_begins_with_a_round_of_its_own() -> None:
    drawn = [schedules.Strike(number, "crash", 70.0, 0.5, joined=number == 3) for number in range(1, 5)]
    assert [[strike.number for strike in strikes] for strikes in schedules.rounds(drawn)] == [[1], [2, 3], [4]]
    assert [[strike.number for strike in strikes] for strikes in schedules.rounds(schedules.cut(drawn, after=2))] == [[3], [4]]


@pytest.mark.parametrize("text", ['{"number": 1}', "[]", '{"number": 1, "kind": "flood", "gap_s": 60, "pick": 0.5}'])
def test_a_line_that_is_no_strike_is_refused_by_its_number(text: str) -> None:
    with pytest.raises(ValueError, match="line 1 of the schedule"):
        schedules.read(text)


@pytest.mark.parametrize("needed", [{7}, {2, 9}, {1, 5, 12}, set(range(1, 13))])
def test_a_failing_schedule_shrinks_to_what_it_needs(needed: set[int]) -> None:
    tries: list[int] = []

    def fails(left: Sequence[Any]) -> bool:
        tries.append(len(left))
        return needed <= {strike.number for strike in left} and not left[0].joined

    shortest = shrinking.shrink(schedules.draw(2, 12), fails)
    assert {strike.number for strike in shortest} == needed
    assert all(strike.gap_s <= 5.0 or strike.joined for strike in shortest) and len(tries) < 60
    few: list[Any] = shrinking.shrink(schedules.draw(2, 12), fails, most_tries=2)
    assert needed <= {strike.number for strike in few}, "what was found when the tries are spent still fails"


def test_the_table_goes_on_where_it_was_left(tmp_path: Path) -> None:
    row = {"kinds": ["hang"], "hit": ["m1"], "wrong": [], "recoveries": [], "steps_lost": 1, "stood_s": 9.0}
    tables.Rows(tmp_path).add({"run": "7", "numbers": [1, 2], **row})
    rows = tables.Rows(tmp_path)
    assert rows.done("7") == 2 and rows.done("8") == 0 and not rows.is_over("7")
    rows.add({"run": "7", "end": "whole", "faults": 2, "steps": 75, "wrong": [], "ettr": {"ettr": 0.91, "phases": {"detect": 3.5}}})
    assert tables.Rows(tmp_path).is_over("7") and "| 7 | 2 | yes | 75 | 0.91 |" in (tmp_path / "chaos.md").read_text()


def scripted(monkeypatch: pytest.MonkeyPatch, play: Any, out: Path, *words: str) -> int:
    """bench/chaos.py as it is called, with a lab by hand."""
    script: ModuleType = importlib.import_module("chaos")
    monkeypatch.setattr(script, "play", play)
    monkeypatch.setattr(sys, "argv", ["chaos.py", "--seed", "7", "--out", str(out), *words])
    return int(script.main())


@pytest.mark.parametrize("wrong", [[], ["healthy m1 was evicted"]], ids=["right", "wrong"])
def test_a_run_that_was_killed_goes_on_with_the_first_fault_that_has_no_row_and_its_verdict_is_of_all_parts(
    wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck: list[int] = []
    folders: list[Path] = []

    def play(schedule: Sequence[Any], size: Any, out: Path, seed: int, note: Any, *, earlier: Sequence[Path]) -> dict[str, Any]:
        assert list(earlier) == folders
        folders.append(out)
        for strikes in schedules.rounds(schedule):
            numbers = [strike.number for strike in strikes]
            if numbers[-1] >= 4 and len(folders) == 1:
                with (tmp_path / "chaos.jsonl").open("a") as log:
                    log.write('{"run": "7", "numbers": [4')
                raise KeyboardInterrupt
            struck.extend(numbers)
            row = {"kinds": [strike.kind for strike in strikes], "hit": [], "wrong": wrong if 1 in numbers else [], "recoveries": []}
            note({"numbers": numbers, "at_s": 9, "step": 1, "step_s": 4.0, "steps_lost": 0, "stood_s": 4.0, **row})
        return {"end": "whole", "faults": len(schedule), "steps": 50, "wrong": []}

    with pytest.raises(KeyboardInterrupt):
        scripted(monkeypatch, play, tmp_path, "--until", "6")
    assert scripted(monkeypatch, play, tmp_path, "--until", "6") == len(wrong)
    assert struck == [1, 2, 3, 4, 5, 6], "each once, and none left out"
    assert scripted(monkeypatch, play, tmp_path, "--until", "6") == len(wrong) and len(struck) == 6, (
        "a run that is over is not played again"
    )
    assert f"| 7 | 6 | {'NO' if wrong else 'yes'} | 50 |" in (tmp_path / "chaos.md").read_text()
    assert [folder.exists() for folder in folders] == [bool(wrong)] * 2, "what was right leaves nothing"


def test_the_losses_of_a_part_that_was_killed_are_compared_as_far_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    playing: ModuleType = importlib.import_module("chaos_lab.play")
    earlier: ModuleType = importlib.import_module("chaos_lab.earlier")

    def losses(folder: Path, *values: float, torn: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        rows = [json.dumps({"step": step, "generation": 1, "loss": value.hex(), "time": 1.0}) for step, value in enumerate(values, 1)]
        (folder / "losses.jsonl").write_text("".join(f"{row}\n" for row in rows) + '{"step": 3, "lo' * torn)
        (folder / "final.json").write_text('{"parameters_sha256": "aa", "ranks_agree": true}')
        return folder

    for name in ("run-7-1-100", "run-7-5-200", "run-7-b-1-100", "run-70-1-100"):
        losses(tmp_path / name / "train", 3.0, 2.5, torn=True)
    (tmp_path / "run-7-3-150").mkdir()  # killed before its first step
    parts = earlier.earlier_parts(tmp_path, "7", [{"end": "standing: no steps", "folder": "run-7-5-200"}, {"numbers": [1]}])
    assert [part.name for part in parts] == ["run-7-1-100", "run-7-3-150"]
    undisturbed = losses(tmp_path / "undisturbed", 3.0, 2.5, 2.25)
    monkeypatch.setattr(playing, "reference_losses", lambda *words, **more: undisturbed)
    ended = [LedgerEvent(1, 0.0, kinds.JOB_ENDED, "llm", None, None, {"outcome": "finished"})]
    stage = SimpleNamespace(
        output=losses(tmp_path / "own", 3.0, 2.5, 2.25),
        events=lambda *_: ended,
        size=SimpleNamespace(machines=4),
        options=SimpleNamespace(seed=7),
    )
    run = playing.Run(stage)
    assert run._compare(tmp_path, parts) == ""
    losses(tmp_path / "run-7-1-100" / "train", 3.0, 2.6, 2.25)
    assert "step 2" in run._compare(tmp_path, parts) and "run-7-1-100" in run._compare(tmp_path, parts)


def test_a_part_whose_lab_still_has_its_owner_is_not_played_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier: ModuleType = importlib.import_module("chaos_lab.earlier")
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "ledger.db").write_text("events")
    (tmp_path / "job.toml").write_text('name = "lab-3fa2"\n')
    running: list[str] = []
    monkeypatch.setattr(earlier, "clean_labs", lambda: SimpleNamespace(running=running))
    earlier.clear([tmp_path])
    assert (tmp_path / "ledger-kept" / "ledger.db").read_text() == "events", "its disk goes with the lab"
    running.append("3fa2")
    with pytest.raises(LabError, match="another process"):
        earlier.clear([tmp_path])


def test_shrinking_writes_the_shortest_schedule_and_each_try_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def play(schedule: Sequence[Any], size: Any, out: Path, seed: int, note: Any, whole: bool) -> dict[str, Any]:
        assert not out.exists(), "a job would go on from what lies there"
        out.mkdir(parents=True)
        folders.append(out)
        broken = ["equal_losses"] if {2, 5} <= {strike.number for strike in schedule} else []
        return {"end": "whole", "faults": len(schedule), "steps": 50, "wrong": broken, "broken": broken}

    for _ in range(2):
        assert scripted(monkeypatch, play, tmp_path, "--until", "6", "--shrink") == 0
        monkeypatch.setattr("time.time", lambda begun_s=time.time(): begun_s + 5.0)
    shortest = tmp_path / "shortest-7.jsonl"
    assert [strike.number for strike in schedules.read(shortest.read_text())] == [2, 5]
    assert sum(folder.exists() for folder in folders) < len(folders), "what was right leaves nothing"
    assert scripted(monkeypatch, play, tmp_path / "b", "--schedule", str(shortest), "--until", "2", "--shrink") == 1, "it does not fail"


def test_a_shrink_that_is_stopped_leaves_the_shortest_schedule_that_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def play(schedule: Sequence[Any], size: Any, out: Path, seed: int, note: Any, whole: bool) -> dict[str, Any]:
        tries.append(len(schedule))
        if len(tries) == 4:
            raise KeyboardInterrupt
        broken = ["equal_losses"] if 5 in {strike.number for strike in schedule} else []
        return {"end": "whole", "faults": len(schedule), "steps": 50, "wrong": broken, "broken": broken}

    with pytest.raises(KeyboardInterrupt):
        scripted(monkeypatch, play, tmp_path, "--until", "8", "--shrink")
    found = schedules.read((tmp_path / "shortest-7.jsonl").read_text())
    assert 5 in {strike.number for strike in found} and len(found) < 8


class History:
    """A job's ledger by hand, an event a second."""

    def __init__(self) -> None:
        self.events: list[LedgerEvent] = []

    def add(self, kind: str, payload: dict[str, Any], time_s: float, incident: str | None = None, operation: str | None = None) -> None:
        self.events.append(
            LedgerEvent(
                id=len(self.events) + 1, time_s=time_s, kind=kind, payload=payload, job="job", incident=incident, operation_id=operation
            )
        )

    def evicted(self, machine: str, time_s: float, operation: str, machines: Sequence[str] = ()) -> None:
        named = list(machines) or [machine]
        self.add(kinds.INTENT, {"action": "evict", "machines": named}, time_s, "i1", operation)
        self.add(kinds.BARRED, {"machine": machine}, time_s, "i1", operation)
        self.add(kinds.RESULT, {"outcome": "done"}, time_s, "i1", operation)
        self.add(kinds.CLOSED, {}, time_s + 1.0, "i1")


def played(history: History, **changes: Any) -> Any:
    values = {"steps": (), "wounds": (), "flush_every": 10, "stand_s": 60.0, "stood_s": 5.0, "over": True}
    return judging.Played(events=history.events, **(values | changes))


def test_an_eviction_is_right_while_its_machine_is_hurt_and_a_group_is_named_apart() -> None:
    history = History()
    history.evicted("m1", 105.0, "op1")
    wound = Wound(1, "hang", ("m1",), faulty=True, begin_s=100.0)
    assert judging.judge(played(history, wounds=[wound])) == {}
    late = Wound(1, "hang", ("m1",), faulty=True, begin_s=-900.0, end_s=-800.0)
    unhurt = Wound(2, "agent-lost", ("m1",), faulty=False, begin_s=100.0)
    for wounds in ([], [late], [unhurt], [Wound(1, "hang", ("m2",), faulty=True, begin_s=100.0)]):
        assert judging.judge(played(history, wounds=wounds)) == {"no_healthy_machine_evicted": ["healthy m1 was evicted"]}
    group = History()
    group.evicted("m2", 105.0, "op1", ("m1", "m2"))
    assert judging.judge(played(group, wounds=[wound])) == {"no_healthy_machine_evicted": ["over-evicted: m2 with m1"]}


def test_a_round_in_which_a_machine_is_given_back_does_not_show_its_eviction_again() -> None:
    accounts: ModuleType = importlib.import_module("chaos_lab.account")
    history = History()
    history.evicted("m1", 105.0, "op1")
    history.add(kinds.UNBARRED, {"machine": "m1"}, 300.0, "i1")
    shown = [[item["incident"] for item in accounts.recoveries(history.events, since_s, 400.0)] for since_s in (100.0, 290.0)]
    assert shown == [["i1"], []]


def test_what_is_done_twice_is_named() -> None:
    history = History()
    for time_s in (105.0, 109.0):
        history.evicted("m1", time_s, "op1")
        history.add(kinds.GENERATION_STARTED, {"generation": 2}, time_s)
    wound = Wound(1, "hang", ("m1",), faulty=True, begin_s=100.0)
    twice = [Step(3, 1, 1.0), Step(3, 1, 2.0)]
    found = judging.judge(played(history, wounds=[wound], steps=twice))["no_action_twice"]
    assert [line.split(" ")[0] for line in found] == ["2", "2", "generation", "m1", "step"]


def test_a_fault_that_stopped_the_job_stands_in_an_incident_that_ends() -> None:
    steps = [Step(1, 1, 100.0), Step(2, 1, 101.0), Step(3, 2, 120.0)]
    wound = Wound(4, "crash", ("m1",), stops=True, begin_s=102.0)
    silent = judging.judge(played(History(), steps=steps, wounds=[wound]))
    assert silent == {"no_incident_lost": ["no incident says why the job stood: crash (4)"]}
    history = History()
    history.add(kinds.NOTE, {"text": "x"}, 105.0, "i1")
    history.add(kinds.INTENT, {"action": "restart", "machines": []}, 106.0, "i1", "op1")
    left = judging.judge(played(history, steps=steps, wounds=[wound]))["no_incident_lost"]
    assert len(left) == 2 and "incident i1 is" in left[0] and left[1] == "op1 has no result"
    assert judging.judge(played(history, steps=steps, wounds=[wound], over=False)) == {}


@pytest.mark.parametrize(
    ("kind", "lost", "is_right"),
    [("machine-lost", 1, True), ("machine-lost", 2, False), ("pair-lost", 11, True), ("pair-lost", 12, False), ("cache-killed", 6, True)],
)
def test_steps_that_are_taken_again_are_those_in_flight_or_what_the_pages_promise(kind: str, lost: int, is_right: bool) -> None:
    before = [Step(number, 1, 100.0 + number) for number in range(1, 41)]
    after = [Step(number, 2, 150.0 + number) for number in range(41 - lost, 44)]
    wound = Wound(1, kind, ("m1",), begin_s=140.5, step=34 if kind == "cache-killed" else 40)
    found = judging.judge(played(History(), steps=[*before, *after], wounds=[wound]))
    assert (found == {}) == is_right, found


@pytest.mark.parametrize(
    ("out", "is_right"), [("m2 m3", True), ("m3 m0", True), ("m1 m3", False), ("m3", False)], ids=["neighbours", "around", "apart", "one"]
)
def test_two_faults_that_take_a_machine_and_its_backup_out_cost_what_was_not_on_a_disk(out: str, is_right: bool) -> None:
    """Whatever hit them: a process that ended again and again, and beside it an Xid. The generation between them took no step."""
    history, left = History(), out.split()
    for generation, gone in enumerate((left[:0], left[:1], left), 1):
        ranks = {str(rank): f"s{rank}" if name in gone else name for rank, name in enumerate(NAMES)}
        history.add(kinds.GENERATION_STARTED, {"generation": generation, "rank_machine": ranks}, 100.0 + 20 * generation)
    before = [Step(number, 1, 100.0 + number) for number in range(1, 36)]
    after = [Step(number, 3, 170.0 + number) for number in range(31, 36)]
    wounds = [Wound(number, "xid", (name,), faulty=True, begin_s=134.0) for number, name in enumerate(left)]
    found = judging.judge(played(history, steps=[*before, *after], wounds=wounds))
    assert found == ({} if is_right else {"at_most_one_step_lost": ["generation 3 took 5 steps again, 1 allowed"]})


@pytest.mark.parametrize(("faults", "generation", "is_right"), [(1, 3, True), (1, 4, False), (2, 5, True), (2, 6, False)])
def test_a_fault_may_cost_one_restart_in_vain(faults: int, generation: int, is_right: bool) -> None:
    """The last one helps."""
    steps = [Step(1, 1, 100.0), Step(2, 1, 101.0), Step(3, generation, 151.0)]
    wounds = [Wound(number, "dead-link", (f"m{number}",), faulty=True, begin_s=101.5 + number) for number in range(faults)]
    found = judging.judge(played(History(), steps=steps, wounds=wounds))
    allowed = f"{generation - 1} restarts up to generation {generation}, {2 * faults} allowed"
    assert found == ({} if is_right else {"no_restarts_in_vain": [allowed]})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"loss_error": "step 9"}, "equal_losses"), ({"stood_s": 61.0}, "never_stands_long"), ({"ended": ["a"]}, "controllers_live")],
)
def test_losses_standing_and_controllers_that_end_are_rules_of_their_own(changes: dict[str, Any], rule: str) -> None:
    assert list(judging.judge(played(History(), **changes))) == [rule]


def test_a_disk_that_is_not_the_labs_is_never_filled(tmp_path: Path) -> None:
    """With a server as the ledger, or without a mount, the folder is on the host's own disk."""
    around: ModuleType = importlib.import_module("chaos_lab.around")
    size = importlib.import_module("chaos_lab.stage").Size
    for server in ("", "postgresql://127.0.0.1/minder"):
        stage = SimpleNamespace(disk=tmp_path, size=size(ledger=server), controllers={})
        for strike in (around.ledger_full, around.ledger_read_only):
            with pytest.raises(LabError, match="not on a disk of this lab"):
                strike(stage, (), 1)
    assert list(tmp_path.iterdir()) == []
