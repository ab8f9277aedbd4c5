"""The real controller against simulated machines: whatever happens, in whatever order, the invariants hold (tests/fakes/invariants.py).

Schedules that were written for one trouble each. Drawn ones: test_drawn.py and test_drawn_more.py; more of them: bench/schedules.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.act.policy.ladder import LadderConfig
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeJudgement
from minder.record.incidents import Ledger
from minder.record.store.rows import EventQuery

SLOW = {
    "tests for ever",
    "never restarts what hangs",
    "forgets what was climbed",
    "evicts for a test that said nothing",
    "evicts for a replay that said nothing",
}


def test_the_same_schedule_is_the_same_story(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    drawn = schedule.Schedule.read(schedule.draw(1).text())
    assert drawn == schedule.draw(1)
    first, second = (scene.play(drawn, empty_ledger) for _ in range(2))
    assert first.trace == second.trace and first.trace


def test_what_is_read_from_memory_is_what_the_database_holds(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    asked = set[EventQuery]()

    def compare(played: Any) -> None:
        answer, end = played._memory._select, played.watch.end

        def noted(query: EventQuery) -> list[LedgerEvent]:
            asked.add(query)
            return list(answer(query))

        def ended(events: list[LedgerEvent], phase: str) -> None:
            with Ledger(played._location) as ledger:
                assert all(ledger._store.select(query) == answer(query) for query in asked)
                assert ledger._store.last_id() == events[-1].id
            end(events, phase)

        played._memory._select, played.watch.end = noted, ended

    actions = (schedule.Action(1.0, "disk", "m1", 2), schedule.Action(13.0, "kill", "", 12, "write"))
    assert scene.play(schedule.Schedule(0, actions), empty_ledger, compare).watch.broken == []
    assert len(asked) > 50


KILLED = [("write", 12)]
MORE = [*(("write", place) for place in range(1, 28)), *(("probe", place) for place in (2, *range(1, 28, 3))), ("effect", 3), ("effect", 6)]


@pytest.mark.parametrize(("what", "place"), [*KILLED, *(pytest.param(*item, marks=pytest.mark.lab) for item in MORE)])
def test_a_controller_killed_anywhere_in_a_diagnosis(scene: Any, schedule: Any, empty_ledger: Path, what: str, place: int) -> None:
    """m1's full disk, which only a probe sees, kills its process twice: from the second time on the controller dies at one place."""
    drawn = schedule.Schedule(0, (schedule.Action(1.0, "disk", "m1", 2), schedule.Action(13.0, "kill", "", place, what)))
    played = scene.play(drawn, empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    assert any("its machines are tested" in line for line in played.trace) and played.phase == "running"


@pytest.mark.parametrize(
    ("what", "place"),
    [
        ("write", 14),
        *(pytest.param("write", place, marks=pytest.mark.lab) for place in range(1, 44)),
        *(pytest.param("probe", place, marks=pytest.mark.lab) for place in range(1, 90, 9)),
    ],
)
def test_a_controller_killed_anywhere_in_a_replay(scene: Any, schedule: Any, empty_ledger: Path, what: str, place: int) -> None:
    """m1 computes other bits, of which its process dies three times: the published ladder tests, restarts, then replays."""
    drawn = schedule.Schedule(
        0, (schedule.Action(1.0, "bits", "m1", 3), schedule.Action(24.0, "kill", "", place, what)), ladder="published"
    )  # fmt: skip
    played = scene.play(drawn, empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    assert any("is replayed on groups" in line for line in played.trace) and played.phase == "running"
    assert sum(line.endswith("m1 is evicted") for line in played.trace) == 1, "\n".join(played.trace)


INVARIANT = {
    "evicts for a replay that said nothing": "no eviction by a replay of a machine that computes right",
    "tests for ever": "no job is tested for ever",
    "evicts for a test that said nothing": "no eviction by a probe that said nothing",
    "acts without an intent": "an intent before each action",
    "forgets who is barred": "a machine returns only with a proof",
    "never restarts what hangs": "no job stands for ever",
    "forgets what was climbed": "the state of a climb is in the ledger",
}


@pytest.fixture
def fails(scene: Any, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], bool]:
    """fails("acts without an intent", schedule): whether the product, broken in this way, breaks its invariant there."""

    def play(breaks: str, candidate: Any) -> bool:
        with monkeypatch.context() as broken:
            BREAKS[breaks](broken)
            return any(line.startswith(INVARIANT[breaks]) for line in scene.play(candidate, empty_ledger).watch.broken)

    return play


def params(whole: bool) -> list[Any]:
    """One of them at once, the others in the slow suite."""
    quick = set(INVARIANT) - SLOW if whole else {"acts without an intent"}
    return [name if name in quick else pytest.param(name, marks=pytest.mark.lab) for name in INVARIANT]


def among_noise(action: Any, breaks: str) -> tuple[Any, ...]:
    """What breaks the broken product, between two actions that do not."""
    needed = NEEDED[breaks](action)
    return (action(1.0, "agent_silent", "m2", 5.0), *needed, action(needed[-1].at_s + 1.0, "retest", "s0"))


@pytest.mark.parametrize("breaks", params(whole=True))
def test_a_broken_product_is_noticed(schedule: Any, fails: Callable[[str, Any], bool], breaks: str) -> None:
    assert fails(breaks, schedule.Schedule(0, among_noise(schedule.Action, breaks)))


@pytest.mark.parametrize("breaks", params(whole=False))
def test_a_schedule_shrinks_to_what_is_needed(schedule: Any, fails: Callable[[str, Any], bool], breaks: str) -> None:
    whole = schedule.Schedule(0, among_noise(schedule.Action, breaks))
    assert schedule.shrink(whole, lambda candidate: fails(breaks, candidate)).actions == NEEDED[breaks](schedule.Action)


NEEDED: dict[str, Any] = {
    "evicts for a replay that said nothing": lambda action: (action(5.0, "crash", "m1", 3),),
    "tests for ever": lambda action: (action(5.0, "crash", "m1", 2),),
    "evicts for a test that said nothing": lambda action: (action(5.0, "crash", "m1", 2),),
    "acts without an intent": lambda action: (action(5.0, "crash", "m1", 1),),
    "forgets who is barred": lambda action: (action(5.0, "ecc", "m1", 1), action(20.0, "ecc", "m0", 1)),
    "never restarts what hangs": lambda action: (action(5.0, "deadlock"),),
    "forgets what was climbed": lambda action: (action(5.0, "crash", "m1", 1), action(20.0, "crash", "m0", 1)),
}


def act_without_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes after the job's start."""
    from minder.act.recovery.generation_plan import GenerationPlan

    request_for = GenerationPlan.request_for

    def asked(self: Any, *rest: Any) -> Any:
        name = {} if self.generation == 1 else {"operation_id": f"x/{self.generation}"}
        return {**request_for(self, *rest), **name}

    monkeypatch.setattr(GenerationPlan, "request_for", asked)


def forget_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted machine stands in for the next one."""
    from minder.act.controller.recover import Recovery
    from minder.act.recovery.generation_plan import replace_machines

    def place(self: Any, decision: Any) -> Any:
        barred = sorted(self._state.barred - set(decision.machines))
        return replace_machines(self._state.rank_machine, decision.machines, barred or decision.replacements)

    monkeypatch.setattr(Recovery, "_place", place)


def never_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.act.controller.orders.hung import HungJob

    monkeypatch.setattr(HungJob, "look", lambda self, *unused: [])


def forget_climbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were in the controller's memory, and not in the ledger."""
    from minder.record.incidents.climbs import ClimbFold

    monkeypatch.setattr(ClimbFold, "climbs", lambda self, *unused: ())


def never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the answers nor the time limit end it."""
    from minder.act.controller.diagnosis.diagnosing import Diagnosing

    for name in ("_end_round", "_end", "give_up_overdue"):
        monkeypatch.setattr(Diagnosing, name, lambda self, *unused: None)


def accuse_by_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which nothing is known is taken for a faulty one."""
    from minder.act.controller.diagnosis import diagnosing

    def concluded(*parts: Any) -> Any:
        found = conclude(*parts)
        item = ProbeJudgement("m1", "disk", "fail", "nothing was heard")
        return replace(found, failed={"m1": (item,)})

    conclude = diagnosing.conclude
    monkeypatch.setattr(diagnosing, "conclude", concluded)


def accuse_where_nothing_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that did not come back on any group is taken for a machine's."""
    from minder.act.controller.diagnosis import replaying

    def looked(self: Any, run: Any) -> Any:
        found = look(self, run)
        return found if found.next is not None else replace(found, state="found", machines=("m1",), confidence=0.9)

    look = replaying.Replaying._look
    monkeypatch.setattr(replaying.Replaying, "_look", looked)
    monkeypatch.setattr("minder.act.policy.ladder._ORDERS", {"default": PUBLISHED, "published": PUBLISHED})


PUBLISHED = LadderConfig(order="published").steps[:-1]
BREAKS: dict[str, Any] = {
    "evicts for a replay that said nothing": accuse_where_nothing_came_back,
    "tests for ever": never_end,
    "evicts for a test that said nothing": accuse_by_silence,
    "forgets what was climbed": forget_climbs,
    "acts without an intent": act_without_intent,
    "forgets who is barred": forget_bars,
    "never restarts what hangs": never_restart,
}


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.lab)])
def test_a_machine_that_was_evicted_twice_is_tested_before_it_takes_a_place(
    scene: Any, schedule: Any, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """m1 goes and comes back, twice; it would be the first standby. asked: whether the product looks at its record."""
    orders = [(5.0, "evict", "m1"), (25.0, "return", "m1"), (40.0, "evict", "m0"), (150.0, "evict", "m1"), (170.0, "return", "m1")]
    orders += [(180.0, "standby_died", "s00", 1e9)]  # it has passed its probes, and would be taken before m1
    actions = [schedule.Action(*item) for item in (*orders, (200.0, "evict", "m2"))]
    if not asked:
        for room in ("minder.act.policy.limits", "minder.act.policy.trial", "minder.act.controller.standbys.pool"):
            monkeypatch.setattr(f"{room}.distrusted", lambda *unused: {})
    broken = scene.play(schedule.Schedule(0, tuple(actions)), empty_ledger).watch.broken
    assert [line.split(":")[0] for line in broken] == ([] if asked else ["a machine evicted twice passes a test first"])


def test_a_machine_that_hangs_right_after_a_kill_for_memory_is_named_at_once(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    """The restart has answered the kill: what it says of the job hides nothing, and one more restart alone is for the one that hangs."""
    actions = (schedule.Action(5.0, "oom", "m2", 1), schedule.Action(25.0, "hang", "m3", 1))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == []
    assert [sorted(set(placed.values())) for placed in played.watch.generations] == [["m0", "m1", "m2", "m3"]] * 2 + [
        ["m0", "m1", "m2", "s0"]
    ]


def sizes(played: Any) -> list[int]:
    """Machines of each generation."""
    return [len(placed) for placed in played.watch.generations]


def test_without_a_standby_the_job_shrinks_to_what_the_site_allows_and_grows_when_machines_return(
    scene: Any, schedule: Any, empty_ledger: Path
) -> None:
    """Both spares are gone for two minutes; two machines of four fail for good, and the second would leave too few."""
    act = schedule.Action
    actions = (act(1.0, "no_standby", "", 120.0), act(5.0, "ecc", "m1", 1), act(60.0, "ecc", "m2", 1), act(150.0, "return", "m1"))
    played = scene.play(schedule.Schedule(0, actions, least=3, grow_s=20.0), empty_ledger)
    assert played.watch.broken == []
    assert sizes(played)[:2] == [4, 3] and min(sizes(played)) == 3 and sizes(played)[-1] == 4


def test_a_job_without_min_machines_never_shrinks(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    act = schedule.Action
    played = scene.play(schedule.Schedule(0, (act(1.0, "no_standby", "", 120.0), act(5.0, "ecc", "m1", 1))), empty_ledger)
    assert played.watch.broken == [] and set(sizes(played)) == {4}


@pytest.mark.parametrize("killed", [False, True])
def test_an_eviction_that_waited_for_a_standby_is_taken_up_when_one_returns(
    scene: Any, schedule: Any, empty_ledger: Path, killed: bool
) -> None:
    """The machine's fault keeps for two minutes, a restart in place and a controller's death, without a person."""
    act = schedule.Action
    actions = (act(1.0, "no_standby", "", 120.0), act(5.0, "ecc", "m1", 1), *((act(60.0, "kill", "", 1, "write"),) if killed else ()))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == []
    assert "m1" in set(played.watch.generations[0].values()) and "m1" not in set(played.watch.generations[-1].values())


@pytest.mark.parametrize("skipped", [True, pytest.param(False, marks=pytest.mark.lab)])
def test_a_standby_whose_probe_failed_takes_no_ranks(
    scene: Any, schedule: Any, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch, skipped: bool
) -> None:
    """s0 would be the first standby. skipped: whether the product looks at what its probes prove."""
    if not skipped:
        monkeypatch.setattr("minder.record.incidents.proofs.Proof.keeps_out", "")
        monkeypatch.setattr("minder.record.incidents.proofs.Proof.turn", 0)
    actions = (schedule.Action(1.0, "standby_fails", "s0", 1e9), schedule.Action(170.0, "ecc", "m1", 1))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert [line.split(":")[0] for line in played.watch.broken] == ([] if skipped else ["a standby with a failed probe takes no ranks"])
    assert any("ecc m1" in line for line in played.trace) and any("links: fail" in line or "fail" in line for line in played.trace)


def test_probes_of_standbys_neither_end_nor_delay_a_job(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    actions = tuple(schedule.Action(1.0 + 20.0 * place, "standby_fails", name, 60.0) for place, name in enumerate(schedule.STANDBYS))
    played = scene.play(schedule.Schedule(0, (*actions, schedule.Action(200.0, "agent_silent", "s0", 5.0))), empty_ledger)
    assert played.watch.broken == [] and played.phase == "running"
    assert any("probes of standby s0: fail" in line for line in played.trace) and any(
        "passed its probes" in line or ": pass" in line for line in played.trace
    )


def versions(played: Any) -> list[int]:
    """Of each generation, in order."""
    return [number for _, number in sorted(played.watch._update.items())]


def test_an_update_waits_for_the_next_restart_and_an_urgent_one_does_not(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    act = schedule.Action
    lazy = (act(5.0, "update", "", 0, "good"), act(60.0, "crash", "m1", 1), act(120.0, "update", "", 1, "good"))
    played = scene.play(schedule.Schedule(0, lazy), empty_ledger)
    assert played.watch.broken == [] and versions(played) == [0, 1, 2]


def test_an_update_that_one_launcher_refuses_leaves_the_version_before(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    act = schedule.Action
    actions = (act(1.0, "refuses", "m2", 30.0), act(5.0, "update", "", 1, "good"), act(40.0, "crash", "m1", 1))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == [] and versions(played) == [0, 0]


@pytest.mark.parametrize("kind", ["bad", pytest.param("broken", marks=pytest.mark.lab)])
@pytest.mark.parametrize(("rollback", "ends"), [("auto", 0), ("off", 1)])
def test_a_bad_update_is_taken_back_where_the_site_says_so(
    scene: Any, schedule: Any, empty_ledger: Path, rollback: str, ends: int, kind: str
) -> None:
    """It fails a few steps in, or before the barrier, in every generation. Without the setting the ladder climbs on with the version that
    fails. Whatever it does, no machine is blamed for a version that ran nowhere."""
    played = scene.play(schedule.Schedule(0, (schedule.Action(5.0, "update", "", 1, kind),), rollback=rollback), empty_ledger)
    assert played.watch.broken == []
    assert kind == "bad" or not any("is evicted" in line or "goes on trial" in line for line in played.trace)
    assert (versions(played)[-1], set(versions(played)[1:3])) == (ends, {1})
    assert (played.phase == "running") is (rollback == "auto")


KILLED_IN_UPDATE = [("write", 4)]
MORE_IN_UPDATE = [*(("write", place) for place in range(1, 34)), *(("effect", place) for place in range(1, 12))]


@pytest.mark.parametrize(("what", "place"), [*KILLED_IN_UPDATE, *(pytest.param(*item, marks=pytest.mark.lab) for item in MORE_IN_UPDATE)])
def test_a_controller_killed_anywhere_in_an_update_and_its_rollback(
    scene: Any, schedule: Any, empty_ledger: Path, what: str, place: int
) -> None:
    actions = (schedule.Action(5.0, "kill", "", place, what), schedule.Action(5.0, "update", "", 1, "bad"))
    actions += (schedule.Action(12.0, "agent_silent", "s0", 0.0),)  # nothing, but a kill waits for its write until then
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    assert any("killed" in line for line in played.trace) and (played.phase, versions(played)[-1]) == ("running", 0)


def left_out(played: Any) -> list[str]:
    """Of each generation, in order."""
    return [text for generation, text in sorted(played.watch._left_out.items()) if generation]


@pytest.mark.parametrize("whose", ["1", pytest.param("-1", marks=pytest.mark.lab)])
def test_a_bad_batch_is_left_out_and_costs_no_machine(scene: Any, schedule: Any, empty_ledger: Path, whose: str) -> None:
    """Of all ranks, or in one rank's part: then another machine takes that rank once, to see whether the batch does it there too."""
    played = scene.play(schedule.Schedule(0, (schedule.Action(5.0, "bad_batch", "", 3, whose),)), empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    (batch,) = played.world.bad_batches
    assert left_out(played) == ["", "", str(batch)] and played.phase == "running"
    assert not any("is evicted" in line for line in played.trace)


@pytest.mark.parametrize(("change", "words"), [({"skip": "off"}, ""), ({}, "does not skip")])
def test_nothing_is_left_out_against_the_sites_wish_or_of_a_loader_that_does_not_ask(
    scene: Any, schedule: Any, empty_ledger: Path, change: dict[str, str], words: str
) -> None:
    actions = (schedule.Action(5.0, "bad_batch", "", 3, "-1"),)

    def deafen(played: Any) -> None:
        played.world.asks = not words

    played = scene.play(schedule.Schedule(0, actions, **change), empty_ledger, deafen)
    assert played.watch.broken == [] and set(left_out(played)) == {""}
    assert played.phase == "failed", "it comes again until no restart is left"


def test_a_persons_order_goes_back_and_is_taken_back(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    act = schedule.Action
    played = scene.play(schedule.Schedule(0, (act(20.0, "skip", "", -3), act(40.0, "unskip")), skip="off"), empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    first, second, third = left_out(played)
    assert (first, third) == ("", "") and second.isdecimal()


def test_a_third_bad_batch_of_a_day_is_for_a_person(scene: Any, schedule: Any, empty_ledger: Path) -> None:
    """The simulated site allows two."""
    actions = tuple(schedule.Action(5.0 + 60.0 * place, "bad_batch", "", 3, "-1") for place in range(3))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == [] and len(set(left_out(played))) == 3 and played.phase == "failed"


KILLED_IN_SKIP = [("effect", 6)]
MORE_IN_SKIP = [*(("write", place) for place in range(1, 29)), *(("effect", place) for place in range(1, 9))]


@pytest.mark.parametrize(("what", "place"), [*KILLED_IN_SKIP, *(pytest.param(*item, marks=pytest.mark.lab) for item in MORE_IN_SKIP)])
def test_a_controller_killed_anywhere_in_a_skip(scene: Any, schedule: Any, empty_ledger: Path, what: str, place: int) -> None:
    actions = (schedule.Action(5.0, "kill", "", place, what), schedule.Action(5.0, "bad_batch", "", 3, "-1"))
    played = scene.play(schedule.Schedule(0, actions), empty_ledger)
    assert played.watch.broken == [], "\n".join(played.trace)
    assert left_out(played)[-1].isdecimal() and played.phase == "running" and any("killed" in line for line in played.trace)


@pytest.mark.parametrize("flag", ["link", "page", pytest.param("evict", marks=pytest.mark.lab)])
def test_a_slow_machine_goes_only_with_a_proof_where_the_site_wants_one(scene: Any, schedule: Any, empty_ledger: Path, flag: str) -> None:
    """One whose link is slow indeed; a page stops no job."""
    actions = (schedule.Action(5.0, "slow", "m1", 1e9, flag),)
    played = scene.play(schedule.Schedule(1, actions, slow="prove"), empty_ledger)
    assert played.watch.broken == []
    assert any("evicting m1" in line for line in played.trace) is (flag == "link")
    assert any("by pairs" in line for line in played.trace) is (flag != "page")
