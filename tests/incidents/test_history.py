from __future__ import annotations

from collections.abc import Callable

from minder.model.history import LedgerEvent
from minder.record.incidents import fold_history, kinds
from minder.record.incidents.history import active_pauses, find_barrings, find_bars, fold_suspects

Event = Callable[..., LedgerEvent]


def act(event: Event, name: str, time_s: float, outcome: str | None = "done", **more: str) -> list[LedgerEvent]:
    """An intent and its result; more: job, action."""
    job, action = more.get("job", "llm"), more.get("action", "evict")
    found = [event(kinds.INTENT, {"action": action, "machines": ["m2"]}, time_s, operation_id=name, job=job)]
    return found + ([event(kinds.RESULT, {"outcome": outcome}, time_s + 1, operation_id=name, job=job)] if outcome else [])


def test_actions_of_this_run_and_of_the_last_hour(event: Event) -> None:
    events = [
        *act(event, "long ago", 0.0),
        *act(event, "other job", 5000.0, job="other"),
        *act(event, "other job long ago", 10.0, job="other"),
        *act(event, "run before", 5000.0),
        event(kinds.JOB_REGISTERED, {}, 6000.0),
        *act(event, "evict", 6100.0),
        *act(event, "restart", 6200.0, action="restart"),
        *act(event, "open", 6300.0, None),
        *act(event, "smaller step", 6300.0, action="end-workers"),
    ]
    history = fold_history(events, "llm", 7000.0)
    assert [item.operation_id for item in history.actions] == ["other job", "run before", "evict", "restart", "open"]
    assert [item.finished for item in history.actions] == [True, True, True, True, False]
    assert history.restarts == 1


def test_a_long_run_keeps_all_its_actions(event: Event) -> None:
    events = [event(kinds.JOB_REGISTERED, {}, 0.0), *act(event, "op", 10.0)]
    assert len(fold_history(events, "llm", 1e7).actions) == 1


def test_a_dry_run_is_no_action_and_a_failed_one_is(event: Event) -> None:
    events = [*act(event, "dry", 1.0, "dry_run"), *act(event, "failed", 2.0, "failed")]
    assert [item.operation_id for item in fold_history(events, "llm", 10.0).actions] == ["failed"]


def test_a_clock_that_was_set_back_changes_neither_the_run_nor_the_order(event: Event) -> None:
    events = [
        event(kinds.JOB_REGISTERED, {}, 5000.0),
        *act(event, "before", 5100.0, action="restart"),
        event(kinds.GENERATION_STARTED, {"generation": 2}, 5101.0),
        *act(event, "evict", 5200.0),
        event(kinds.PROGRESS, {"anew": True}, 1600.0),  # an hour back
        *act(event, "after", 1700.0, action="restart"),
        event(kinds.GENERATION_STARTED, {"generation": 3}, 1702.0),
    ]
    history = fold_history(events, "llm", 1800.0)
    assert [item.operation_id for item in history.actions] == ["after", "before", "evict"], "budgets of the run still know all of them"
    assert history.restarts == 1 and history.last_restart_s == 1702.0


def test_nothing_of_the_future_counts(event: Event) -> None:
    assert fold_history(act(event, "op", 100.0), "llm", 50.0).actions == ()


def test_the_first_generation_of_a_run_is_no_restart(event: Event) -> None:
    events = [event(kinds.GENERATION_STARTED, {"generation": 3}, 1.0), event(kinds.JOB_REGISTERED, {}, 10.0)]
    events.append(event(kinds.GENERATION_STARTED, {"generation": 0}, 11.0))
    assert fold_history(events, "llm", 20.0).last_restart_s is None
    events.append(event(kinds.GENERATION_STARTED, {"generation": 1}, 15.0))
    assert fold_history(events, "llm", 20.0).last_restart_s == 15.0


def test_pauses_end_by_themselves_or_when_lifted(event: Event) -> None:
    def pause(scope: str, target: str | None, until_s: float) -> LedgerEvent:
        return event(kinds.PAUSE, {"scope": scope, "target": target, "until_s": until_s, "reason": "why"})

    events = [pause("all", None, 100.0), pause("job", "llm", 200.0), pause("rack", "r1", 300.0)]
    assert [item.scope for item in active_pauses(events, 150.0)] == ["job", "rack"]
    assert active_pauses(events, 300.0) == ()
    lifted = [*events, event(kinds.UNPAUSE, {"scope": "job", "target": "llm"})]
    assert [item.scope for item in active_pauses(lifted, 50.0)] == ["all", "rack"]
    assert active_pauses([*events, event(kinds.UNPAUSE, {"scope": "everything"})], 50.0) == ()
    shorter = [*events, pause("rack", "r1", 60.0)]
    assert [item.scope for item in active_pauses(shorter, 70.0)] == ["all", "job"]
    assert active_pauses([event(kinds.PAUSE, {"scope": "planet"})], 0.0) == ()


def test_bars_hold_for_a_job_or_for_all_until_they_are_lifted(event: Event) -> None:
    def bar(machine: str, job: str | None, kind: str = kinds.BARRED) -> LedgerEvent:
        return event(kind, {"machine": machine}, job=job)

    events = [bar("m1", "llm"), bar("m2", None), bar("m3", "other"), bar("m4", "llm"), bar("m4", "other")]
    assert set(find_bars(events)) == {("llm", "m1"), (None, "m2"), ("other", "m3"), ("llm", "m4"), ("other", "m4")}
    events.append(bar("m4", "llm", kinds.UNBARRED))
    assert set(find_bars(events)) == {("llm", "m1"), (None, "m2"), ("other", "m3"), ("other", "m4")}
    events.append(bar("m4", None, kinds.UNBARRED))
    assert set(find_bars(events)) == {("llm", "m1"), (None, "m2"), ("other", "m3")}


def test_every_bar_of_a_machine_is_found(event: Event) -> None:
    events = [event(kinds.BARRED, {"machine": "m1"}, job=job) for job in ("llm", "other", None)]
    assert list(find_barrings(events, "m1")) == ["llm", "other", None]
    assert find_barrings([*events, event(kinds.UNBARRED, {"machine": "m1"}, job=None)], "m1") == {}


def test_suspects_are_those_accused_lately_and_not_recovered(event: Event) -> None:
    def accuse(machine: str, time_s: float, **more: str) -> LedgerEvent:
        return event(kinds.VERDICT, {"kind": "machine", "tier": "page", "machines": [machine], **more}, time_s)

    events = [accuse("m1", 5.0), accuse("m2", 20.0), accuse("m3", 21.0, tier="watch"), accuse("m4", 22.0, tier="evict")]
    events += [accuse("m2", 30.0), accuse("m4", 31.0, kind="recovered")]
    assert fold_suspects(events, 10.0) == {"m2": 30.0}


def test_a_failure_counts_once_of_a_generation_and_again_in_a_new_run_that_counts_from_1(event: Event) -> None:
    accusation = {"kind": "machine", "tier": "evict", "machines": ["m1"]}

    def crash(time_s: float) -> LedgerEvent:
        row = {"time_s": time_s, "machine": "m1", "ranks": [0], "sort": "crash", "step": 5, "generation": 1, "text": "x"}
        return event(kinds.VERDICT, {**accusation, "failures": [row]}, time_s)

    first = [event(kinds.JOB_REGISTERED, {"machines": ["m1"]}, 1.0), crash(10.0), crash(11.0)]
    assert [item.time_s for item in fold_history(first, "llm", 30.0).failures] == [10.0]
    second = [event(kinds.JOB_REGISTERED, {"machines": ["m1"]}, 15.0), crash(20.0)]
    assert [item.time_s for item in fold_history([*first, *second], "llm", 30.0).failures] == [10.0, 20.0]
