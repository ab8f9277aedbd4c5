"""The rung rollback: for which failures the last update is taken back, and what stops that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.context import Rollback
from minder.act.policy.ladder import OFFERED
from minder.model.decision import Climb, Decision
from minder.model.errors import ConfigError
from minder.model.evidence import Evidence, Failure, Verdict
from minder.model.history import History

NOW_S, APPLIED_S, START_S = 10_000.0, 9_000.0, 9_900.0
LAST = Rollback(of=7, to=6, since_s=APPLIED_S, since_generation=3)


def fail(time_s: float, generation: int, machine: str = "m1", **changes: Any) -> Failure:
    return replace(
        Failure(time_s, machine, (1,), "crash", fingerprint="KeyError:loss", generation=generation, code_version="v7"), **changes
    )


NEW = fail(9_990.0, 4)
SEEN = fail(9_500.0, 3)  # the same, in the update's first generation


def crash(failure: Failure = NEW, **changes: Any) -> Verdict:
    verdict = Verdict(9_995.0, "job", "evict", (), "explicit", 0.6, 9_990.0, sources=("crash",), failures=(failure,))
    return replace(verdict, **changes)


@pytest.fixture
def updated(context: PolicyContext) -> PolicyContext:
    """Generation 4, the second one of update 7; its workers are dead."""
    job = replace(context.job, generation=4, generation_start_s=START_S, rank_machine={rank: f"m{rank}" for rank in range(4)})
    job = replace(job, machines=("m0", "m1", "m2", "m3"))
    return replace(context, now_s=NOW_S, job=job, workers_dead=True, offers=OFFERED | {"rollback"}, rollback=LAST)


def decide(context: PolicyContext, verdict: Verdict, *failures: Failure, climbs: tuple[Climb, ...] = (), **config: Any) -> list[Decision]:
    policy = Policy(PolicyConfig(**{"dry_run": False, "rollback": "auto", **config}))
    return policy.decide([verdict], History(failures=failures, climbs=climbs), context)


@pytest.mark.parametrize("kind", ["program", "unknown"])
def test_a_failure_that_is_new_and_comes_back_takes_the_update_back(updated: PolicyContext, kind: str) -> None:
    first = decide(updated, crash(replace(NEW, kind=kind)))[0]
    assert (first.rung, first.update) == ("reattempt", None), "a rollback waits until the error has come back"
    again = decide(updated, crash(replace(NEW, kind=kind)), replace(SEEN, kind=kind))[0]
    assert (again.rung, again.action, again.update, again.machines) == ("rollback", "restart", 6, ())
    assert again.operation_id.startswith("rollback-") and "update 7 is taken back to 6" in again.detail
    policy = Policy(PolicyConfig(dry_run=False, rollback="auto"))
    assert policy.recheck(again, History(failures=(SEEN,)), updated).update == 6


@pytest.mark.parametrize(
    ("older", "known"),
    [
        (fail(8_000.0, 2), True),
        (fail(8_000.0, 2, "m3", code_version="v6"), True),
        (fail(8_000.0, 2, fingerprint="ValueError:x"), False),
        (fail(8_000.0, 2, fingerprint=""), False),
        (fail(8_000.0, 2, kind="machine"), False),
    ],
)
def test_a_failure_that_is_older_than_the_update_is_none_of_its(updated: PolicyContext, older: Failure, known: bool) -> None:
    found = decide(updated, crash(), older, SEEN)[0]
    assert (found.rung == "rollback") is not known
    if known:
        assert any("older than update 7" in item.detail for item in found.passed_over)


def test_a_bare_exit_is_the_same_failure_where_it_was_before(updated: PolicyContext) -> None:
    bare, seen = replace(NEW, fingerprint=""), replace(SEEN, fingerprint="")
    there, elsewhere = fail(8_000.0, 2, fingerprint=""), fail(8_000.0, 2, "m3", fingerprint="", ranks=(3,))
    assert decide(updated, crash(bare), there, seen)[0].rung != "rollback"
    assert decide(updated, crash(bare), elsewhere, seen)[0].rung == "rollback"


def test_evidence_of_a_machine_evicts_it_and_takes_nothing_back(updated: PolicyContext) -> None:
    broken = replace(NEW, kind="machine")
    verdict = crash(broken, kind="machine", machines=("m1",), confidence=0.95, evidence=(Evidence("kernel", "m1", "Xid 79"),))
    found = decide(updated, replace(verdict, sources=("signals",)), replace(SEEN, kind="machine"))
    assert found[0].action == "evict" and all(item.update is None for item in found)


def test_it_is_taken_back_once(updated: PolicyContext) -> None:
    climbs = (Climb("rollback", 9_800.0, "rollback-1", failures=(SEEN,), outcome="done"),)
    found = decide(updated, crash(), SEEN, climbs=climbs)[0]
    assert found.rung != "rollback" and ("rollback", "used_up") in [(item.rung, item.reason) for item in found.passed_over]


def test_what_the_site_does_not_let_minder_take_back_is_said(updated: PolicyContext) -> None:
    held = replace(updated, rollback=replace(LAST, refused="update 8 waits"))
    found = decide(held, crash(), SEEN)[0]
    assert found.rung != "rollback" and "update 8 waits" in [item.detail for item in found.passed_over]


def test_without_a_checkpoint_to_go_on_from_a_person_is_called_and_the_job_goes_on(updated: PolicyContext) -> None:
    restart, page = decide(replace(updated, rollback=replace(LAST, unreadable="no checkpoint is older")), crash(), SEEN)
    assert (page.action, page.update) == ("page", None) and "update 7 cannot be taken back: no checkpoint is older" in page.detail
    assert (restart.action, restart.rung, restart.update) == ("restart", "reattempt", None)


def test_no_restart_left_takes_nothing_back(updated: PolicyContext) -> None:
    found = decide(updated, crash(), SEEN, max_restarts=0)
    assert {item.reason for item in found} == {"max_restarts"} and not any(item.update for item in found)


def test_the_setting_is_off_or_auto() -> None:
    assert PolicyConfig().rollback == "off"
    with pytest.raises(ConfigError, match='"off" or "auto"'):
        PolicyConfig(rollback="yes")
