"""A job goes on with fewer machines where no standby is left and the site allows it, and takes in what comes later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.context import Sizes
from minder.model.decision import Size
from minder.model.evidence import Evidence, Verdict
from minder.model.history import History
from minder.model.topology import Parallelism

DATA = Parallelism(data=8)


@pytest.fixture
def bare(context: PolicyContext) -> Callable[..., PolicyContext]:
    """bare(ready=(), ranks=None, least=6, ...): eight machines with a rank each, and no standby but those given."""

    def make(*ready: str, placed: dict[int, str] | None = None, **changes: Any) -> PolicyContext:
        placed = placed or {rank: f"m{rank}" for rank in range(8)}
        sizes = replace(Sizes(6, 8, DATA), **changes)
        job = replace(context.job, rank_machine=placed, machines=tuple(dict.fromkeys(placed.values())), is_short=len(placed) < 8)
        return replace(context, job=job, standbys_ready=ready, sizes=sizes)

    return make


def decide(config: PolicyConfig, context: PolicyContext, *verdicts: Verdict) -> Any:
    return Policy(config).decide(verdicts, History(), context)[0]


def test_without_a_standby_the_job_goes_on_with_one_machine_less(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, bare(), accuse("m1"))
    assert (found.action, found.machines, found.replacements, found.size) == ("evict", ("m1",), (), Size(7, 8))
    assert Policy(live).recheck(found, History(), bare()).size == Size(7, 8)


def test_a_standby_that_comes_before_the_eviction_takes_the_place_after_all(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    again = Policy(live).recheck(decide(live, bare(), accuse("m1")), History(), bare("s0"))
    assert (again.replacements, again.size) == (("s0",), None)


def test_never_below_min_machines(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, bare(least=8), accuse("m1"))
    assert (found.action, found.reason) == ("page", "no_standby")
    assert "with 7 machines, fewer than min_machines = 8" in found.detail


def test_two_verdicts_at_once_count_together(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    far = replace(live, domain_kinds=())
    both = decide(far, bare("s0"), accuse("m1"), accuse("m2"))
    assert (both.machines, both.replacements, both.size) == (("m1", "m2"), ("s0",), Size(7, 8))
    assert decide(far, bare(least=7), accuse("m1"), accuse("m2")).size == Size(7, 8)  # the second waits: six would be too few


def test_a_checkpoint_that_no_other_size_reads_keeps_the_job_waiting(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, bare(refused="checkpoint step-1 can be read by 8 ranks only"), accuse("m1"))
    assert (found.action, found.reason, found.size) == ("page", "no_standby", None)
    assert "does not go on with fewer machines: checkpoint step-1 can be read by 8 ranks only" in found.detail


def test_a_pipeline_over_all_machines_is_not_cut(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, bare(parallelism=Parallelism(pipeline=8), least=1), accuse("m1"))
    assert found.reason == "no_standby" and "no whole replica would be left" in found.detail


def test_a_pipeline_goes_as_a_whole_and_counts_its_machines(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    assert decide(live, bare(parallelism=Parallelism(pipeline=2, data=4)), accuse("m1")).size == Size(6, 8)


def test_a_dry_run_says_what_it_would_be(bare: Any, accuse: Any) -> None:
    found = decide(PolicyConfig(breaker_share=0.5), bare(), accuse("m1"))
    assert (found.action, found.reason, found.size) == ("page", "dry_run", Size(7, 8))


def test_a_job_that_was_never_to_shrink_pages_as_before(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, replace(bare(), sizes=None), accuse("m1"))
    assert (found.reason, found.detail) == ("no_standby", "0 standbys are ready, 1 needed")


def test_a_machine_that_slows_the_job_less_than_its_absence_would_stays(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    slow = accuse("m1", cause="slowdown")
    mild, bad = (replace(bare(), speed_lost_share=share) for share in (0.1, 0.3))
    assert decide(live, mild, slow).reason == "below_break_even"
    assert decide(live, bad, slow).size == Size(7, 8)
    assert decide(live, replace(bare("s0"), speed_lost_share=0.1), slow).action == "evict"


SEVEN = {rank: f"m{rank}" for rank in range(7)}


def test_what_is_left_of_the_standbys_makes_the_job_whole_again(live: PolicyConfig, bare: Any, accuse: Any) -> None:
    found = decide(live, bare("s0", "s1", "s2", placed=SEVEN), accuse("m1"))
    assert (found.replacements, found.joins, found.size) == (("s0",), ("s1",), Size(8, 8))
    assert decide(live, bare("s0", placed=SEVEN), accuse("m1")).size is None


def test_a_restart_takes_a_machine_in(live: PolicyConfig, bare: Any) -> None:
    order = Verdict(10_000.0, "job", "evict", (), "explicit", 0.99, 9_990.0, (Evidence("order", None, "ann orders it"),), (), ("order",))
    found = decide(live, bare("s0", placed=SEVEN), order)
    assert (found.action, found.joins, found.size) == ("restart", ("s0",), Size(8, 8))
    gone = Policy(live).recheck(found, History(), bare(placed=SEVEN))
    assert (gone.action, gone.joins, gone.size) == ("restart", (), None)


def test_a_restart_for_growth_alone_does_not_come_without_a_machine(live: PolicyConfig, bare: Any) -> None:
    grow = Verdict(10_000.0, "job", "evict", (), "explicit", 0.99, 9_990.0, (Evidence("grow", None, "s0 could join"),), (), ("grow",))
    assert decide(live, bare("s0", placed=SEVEN), grow).joins == ("s0",)
    assert decide(live, bare(placed=SEVEN), grow).action == "none"
    assert decide(replace(live, dry_run=True), bare("s0", placed=SEVEN), grow).reason == "dry_run"
