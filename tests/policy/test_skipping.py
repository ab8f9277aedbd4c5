"""Numbers that go wrong: whose they are by the batch, and the rung that leaves a batch out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.blame import FOLLOWS, STAYS, attribute
from minder.act.policy.context import Skips
from minder.act.policy.ladder import OFFERED
from minder.model.decision import Decision
from minder.model.errors import ConfigError
from minder.model.evidence import SPOILT, Evidence, Failure, Verdict
from minder.model.history import History

NOW_S, START_S = 10_000.0, 9_900.0
SAVED = ((119, ""), (118, ""))
LOADER = Skips(saved=SAVED)


def fail(sort: str = "batch", batch: int | None = 120, generation: int = 4, machine: str = "m1", rank: int = 1, **changes: Any) -> Failure:
    time_s = 9_990.0 if generation == 4 else 9_000.0 + generation
    step = None if batch is None else batch + 1
    return replace(Failure(time_s, machine, (rank,), sort, step=step, generation=generation, batch=batch), **changes)


def whole(failure: Failure | None = None, **changes: Any) -> Verdict:
    failures = (fail() if failure is None else failure,)
    verdict = Verdict(9_995.0, "job", "page", (), "numeric", 0.8, 9_990.0, sources=("numeric",), failures=failures)
    return replace(verdict, **changes)


def spoilt(failure: Failure | None = None) -> Verdict:
    """The job trains on with it."""
    return whole(failure, tier="evict", evidence=(Evidence(SPOILT, None, "no own gradient is finite up to step 124"),))


def single(failure: Failure) -> Verdict:
    return whole(failure, kind="machine", tier="evict", machines=(failure.machine,))


@pytest.fixture
def numbered(context: PolicyContext) -> PolicyContext:
    """Generation 4 of a job whose loader numbers its batches; its workers are dead."""
    placed = {rank: f"m{rank}" for rank in range(4)}
    job = replace(context.job, generation=4, generation_start_s=START_S, rank_machine=placed, machines=tuple(placed.values()))
    offers = OFFERED | {"skip_batch", "diagnose", "probes"}
    return replace(context, now_s=NOW_S, job=job, workers_dead=True, standbys_ready=("s0",), offers=offers, skips=LOADER)


def decide(context: PolicyContext, verdict: Verdict, *failures: Failure, **config: Any) -> list[Decision]:
    policy = Policy(PolicyConfig(**{"dry_run": False, "skip_batches": "auto", **config}))
    return policy.decide([verdict], History(failures=failures), context)


def test_the_same_batch_again_in_all_ranks_is_left_out(numbered: PolicyContext) -> None:
    first = decide(numbered, whole())[0]
    assert (first.rung, first.trouble, first.skip) == ("reattempt", "data", ""), "once it may have been anything"
    again = decide(numbered, whole(), fail(generation=3))[0]
    assert (again.rung, again.action, again.skip, again.machines) == ("skip_batch", "restart", "120", ())
    assert again.operation_id.startswith("skip-") and "batch 120 is left out" in again.detail
    policy = Policy(PolicyConfig(dry_run=False, skip_batches="auto"))
    assert policy.recheck(again, History(failures=(fail(generation=3),)), numbered).skip == "120"


def test_a_spike_while_the_job_trains_on_is_left_out_as_well(numbered: PolicyContext) -> None:
    living = replace(numbered, workers_dead=False)
    assert decide(living, whole())[0].action == "page"
    assert decide(living, whole(), fail(generation=3))[0].skip == "120"


def test_a_job_that_trains_on_with_spoilt_weights_goes_back_at_the_first_time(numbered: PolicyContext) -> None:
    """The verdict comes first as a page, then graver: no number is finite any more."""
    living = replace(numbered, workers_dead=False)
    dying = decide(living, whole(tier="evict"))[0]
    assert (dying.rung, dying.skip) == ("reattempt", ""), "graver by another rule, such as that of dead workers: no word of the weights"
    (found,) = decide(living, spoilt())
    assert (found.rung, found.action, found.skip, found.machines) == ("skip_batch", "restart", "120", ())
    assert decide(living, whole())[0].action == "page"
    off = replace(living, skips=replace(LOADER, refused="off"))
    page = decide(off, spoilt(), skip_batches="off")[0]
    assert page.action == "page" and any("`minder job skip" in item.detail for item in page.passed_over), "only where the site says so"
    nameless = decide(replace(living, offers=OFFERED), spoilt(fail(batch=None, step=121)))[0]
    assert nameless.action == "page", "a restart would meet the same batch"
    too_late = replace(living, skips=Skips(saved=((125, ""),)))
    assert [item.action for item in decide(too_late, spoilt())] == ["page"]


@pytest.mark.parametrize("past", [fail("nonfinite", generation=3, machine="m9", rank=1), fail("batch", generation=3, machine="m9", rank=7)])
def test_numbers_that_follow_the_batch_to_another_machine_are_the_datas(numbered: PolicyContext, past: Failure) -> None:
    found = decide(numbered, single(fail("nonfinite")), past)
    assert [item.action for item in found] == ["restart"] and found[0].skip == "120"
    blame = attribute(single(fail("nonfinite")), History(failures=(past,)), numbered)
    assert (blame.trouble, blame.finding) == ("data", FOLLOWS if past.ranks == (1,) else "")


def test_a_batch_that_went_well_since_speaks_against_the_machine(numbered: PolicyContext) -> None:
    past = fail("nonfinite", batch=100, generation=3)
    blame = attribute(single(fail("nonfinite")), History(failures=(past,)), numbered)
    assert (blame.trouble, blame.machines, blame.finding) == ("machine", ("m1",), STAYS)
    (found,) = decide(numbered, single(fail("nonfinite")), past)
    assert (found.action, found.machines, found.skip) == ("evict", ("m1",), "")


@pytest.mark.parametrize(
    "past",
    [
        (),
        (fail("nonfinite", generation=3),),  # the same machine at the same batch: both fit
        (fail("nonfinite", batch=140, generation=3),),  # a later batch was never done again
        (fail("nonfinite", batch=None, step=100, generation=3),),
        (fail("spike", batch=100, generation=3),),
    ],
)
def test_what_the_batch_does_not_say_is_tested_and_tried_as_before(numbered: PolicyContext, past: tuple[Failure, ...]) -> None:
    blame = attribute(single(fail("nonfinite")), History(failures=past), numbered)
    assert (blame.trouble, blame.machines) == ("nan", ("m1",))
    assert not any(item.skip for item in decide(numbered, single(fail("nonfinite")), *past))


def test_without_numbers_of_batches_the_step_of_all_ranks_says_data_and_nothing_is_left_out(numbered: PolicyContext) -> None:
    nameless = fail(batch=None, step=121)
    context = replace(numbered, offers=OFFERED)
    found = decide(context, whole(nameless), replace(nameless, generation=3, time_s=9_003.0))[0]
    assert (found.rung, found.trouble, found.skip) == ("reattempt", "data", "")
    assert any("does not skip" in item.detail for item in found.passed_over) and "step 121 again" in found.detail


@pytest.mark.parametrize("past", [fail(batch=80, generation=3), fail(batch=None, generation=3)], ids=["another", "not known"])
def test_numbers_of_all_ranks_that_come_back_at_another_batch_are_tested(numbered: PolicyContext, past: Failure) -> None:
    """It went well past the first batch, so that is not it: a machine may compute wrongly, and all ranks have the sum."""
    raised = fail(fingerprint="RuntimeError:clip_grad_norm_")
    found = decide(numbered, whole(raised, tier="evict"), past)[0]
    assert (found.rung, found.action, found.trouble, found.machines, found.skip) == ("diagnose", "diagnose", "nan", (), "")
    own = decide(numbered, whole(), past)[0]
    assert (own.rung, own.trouble) == ("reattempt", "data"), "all ranks' own gradients, from before the sum, are no one machine's"


def test_a_job_whose_ranks_have_failed_is_started_again_while_its_processes_end(numbered: PolicyContext) -> None:
    """Nothing but a person is left; that ranks raised is as good as dead workers."""
    living, raised = replace(numbered, workers_dead=False, offers=OFFERED), fail(fingerprint="RuntimeError:clip_grad_norm_")
    verdict = whole(raised, tier="evict", sources=("crash",), cause="explicit")
    found = decide(living, verdict, fail(batch=80, generation=3))
    assert [item.action for item in found] == ["restart", "page"] and "ranks have failed" in found[0].detail


@pytest.mark.parametrize("dead", [True, False])
def test_off_gives_a_person_the_exact_command(numbered: PolicyContext, dead: bool) -> None:
    context = replace(numbered, skips=replace(LOADER, refused="off"), workers_dead=dead)
    found = decide(context, whole(), skip_batches="off")
    assert not any(item.skip for item in found) and found[0].action == ("restart" if dead else "page")
    assert any(f"`minder job skip {context.job.name} 120`" in item.detail for item in found[0].passed_over)


def test_a_dry_run_says_what_it_would_skip(numbered: PolicyContext) -> None:
    context = replace(numbered, skips=replace(LOADER, refused="dry_run"))
    found = decide(context, whole(), fail(generation=3), dry_run=True)
    assert any("would skip batch 120" in item.detail for item in found[0].passed_over) and not any(item.skip for item in found)


@pytest.mark.parametrize(
    ("skips", "reason", "words"),
    [
        (Skips(saved=SAVED, today=8), "used_up", "8 batches were left out within 24 hours, 8 are allowed"),
        (Skips(saved=None), "not_available", "is not known"),
        (Skips(saved=((121, ""), (130, ""))), "not_available", "no complete checkpoint is from before it"),
        (Skips(saved=((119, "3"),)), "not_available", "no complete checkpoint"),
        (Skips(saved=(), ), "not_available", "no complete checkpoint"),
    ],
)  # fmt: skip
def test_what_cannot_be_left_out_is_for_a_person(numbered: PolicyContext, skips: Skips, reason: str, words: str) -> None:
    living = replace(numbered, skips=skips, workers_dead=False)
    (page,) = decide(living, whole(), fail(generation=3))
    assert (page.action, page.reason, page.skip) == ("page", reason, "") and words in page.detail
    if skips.saved:
        restart, page = decide(replace(living, workers_dead=True), whole(), fail(generation=3))
        assert (restart.action, restart.skip, page.action) == ("restart", "", "page"), "dead workers are started again as they were"


@pytest.mark.parametrize(
    ("skips", "words"), [(Skips("120", saved=SAVED), "left out already"), (Skips(saved=SAVED, waits="skip-1"), "skip-1 waits")]
)
def test_a_batch_is_left_out_once(numbered: PolicyContext, skips: Skips, words: str) -> None:
    found = decide(replace(numbered, skips=skips), whole(), fail(generation=3))[0]
    assert found.rung == "reattempt" and any(words in item.detail for item in found.passed_over)


def test_its_crash_is_an_echo_and_no_restart_of_its_own(numbered: PolicyContext) -> None:
    crash = Failure(9_990.0, "m1", (1,), "crash", fingerprint="NonFiniteGradient:x", generation=4)
    before = replace(crash, machine="m9", generation=3, time_s=9_003.0)
    verdicts = [single(fail("nonfinite")), Verdict(9_995.0, "job", "evict", (), "explicit", 0.6, 9_990.0, failures=(crash,))]
    history = History(failures=(before, fail("nonfinite", generation=3, machine="m9")))
    found = Policy(PolicyConfig(dry_run=False, skip_batches="auto")).decide(verdicts, history, numbered)
    assert [(item.action, item.skip) for item in found] == [("restart", "120"), ("none", "")]


def test_evidence_of_the_machine_comes_first(numbered: PolicyContext) -> None:
    own = (Evidence("kernel", "m1", "Xid 79"),)
    broken = replace(single(fail("nonfinite")), cause="explicit", sources=("numeric", "signals"), evidence=own)
    found = decide(numbered, broken, fail("nonfinite", generation=3, machine="m9"))
    assert found[0].action == "evict" and not any(item.skip for item in found)


def test_settings() -> None:
    assert (PolicyConfig().skip_batches, PolicyConfig().max_skipped_batches) == ("off", 8)
    for wrong in ({"skip_batches": "yes"}, {"max_skipped_batches": -1}):
        with pytest.raises(ConfigError, match="policy"):
            PolicyConfig(**wrong)
