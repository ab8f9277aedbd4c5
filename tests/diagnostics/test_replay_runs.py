"""What the runs of a group say, and how sure that is."""

from __future__ import annotations

import random

import pytest

from minder.diagnose.diagnostics.replay_layout import ReplayGroup
from minder.diagnose.diagnostics.replay_runs import GroupOutcome, ReplayRun, chance_missed, join_runs, judge_group, judge_phase, repeats_for
from minder.model.errors import BadInputError
from minder.model.replay import RankRun
from minder.model.topology import Parallelism

GOOD = tuple(f"s{step}" for step in range(100))


def finished(*wrong: int) -> ReplayRun:
    """A run whose state is another one from that step on (counted from 1)."""
    return ReplayRun("finished", tuple(f"x{step}" if wrong and step + 1 >= wrong[0] else text for step, text in enumerate(GOOD)))


def group(index: int = 0) -> ReplayGroup:
    machines = (f"m{2 * index}", f"m{2 * index + 1}")
    return ReplayGroup(f"h{index}", machines, dict(enumerate(machines)), Parallelism(data=2))


@pytest.mark.parametrize(
    ("runs", "state", "reason", "failed"),
    [
        ([finished(), finished()], "passed", "2 runs without a failure", 0),
        ([finished(), finished(38)], "failed", "two identical runs differ from step 38 on", 1),
        ([finished(), finished(), finished(7)], "failed", "two identical runs differ from step 7 on", 1),
        ([ReplayRun("nan", GOOD[:9], "step 10")], "failed", "nan: step 10", 1),
        ([finished(), ReplayRun("crash", (), "SIGSEGV in m1")], "failed", "crash: SIGSEGV in m1", 1),
        ([ReplayRun("hang"), ReplayRun("hang")], "failed", "hang", 2),
        ([finished()], "unknown", "it ran once: its hashes were compared with nothing", 0),
        ([ReplayRun("finished")], "passed", "1 run without a failure", 0),
        ([ReplayRun("not run", (), "no port")], "unknown", "it did not run: no port", 0),
        ([finished(), finished(), ReplayRun("not run")], "passed", "2 runs without a failure", 0),
        ([], "unknown", "it did not run", 0),
    ],
)
def test_a_group_fails_on_nan_crash_hang_or_runs_that_differ(runs: list[ReplayRun], state: str, reason: str, failed: int) -> None:
    outcome = judge_group(group(), runs)
    assert (outcome.state, outcome.reason, outcome.failed) == (state, reason, failed)


def phase(*runs: list[ReplayRun], hardware: dict[str, str] | None = None) -> list[GroupOutcome]:
    groups = [group(index) for index in range(len(runs))]
    alike = {machine: "H100" for one in groups for machine in one.machines}
    return list(
        judge_phase(groups, {one.name: own for one, own in zip(groups, runs, strict=True)}, alike if hardware is None else hardware)
    )


def test_a_machine_that_is_wrong_in_the_same_way_each_time_is_found_beside_the_other_groups() -> None:
    outcomes = phase([finished()] * 2, [finished(38)] * 2, [finished()] * 2)
    assert [outcome.state for outcome in outcomes] == ["passed", "failed", "passed"]
    assert outcomes[1].reason == "its runs differ from most of 3 groups from step 38 on"


def test_one_run_of_each_of_three_groups_is_enough_to_compare() -> None:
    assert [outcome.state for outcome in phase([finished()], [finished(38)], [finished()])] == ["passed", "failed", "passed"]


def test_two_groups_that_differ_accuse_neither() -> None:
    assert [outcome.state for outcome in phase([finished()] * 2, [finished(38)] * 2)] == ["passed", "passed"]


def test_one_group_that_ran_once_is_compared_with_no_other() -> None:
    assert [outcome.state for outcome in phase([finished()], [], [])] == ["unknown"] * 3


@pytest.mark.parametrize("hardware", [{}, {"m0": "A100", **{f"m{index}": "H100" for index in range(1, 6)}}])
def test_groups_are_not_compared_where_their_hardware_differs_or_is_not_known(hardware: dict[str, str]) -> None:
    outcomes = phase([finished(38)] * 2, [finished()] * 2, [finished()] * 2, hardware=hardware)
    assert [outcome.state for outcome in outcomes] == ["passed"] * 3


def test_the_chance_that_a_faulty_group_passed_is_the_binomials() -> None:
    assert chance_missed(3, rate=0.2) == pytest.approx(0.8**3)
    assert chance_missed(5, rate=1.0) == 0.0
    assert chance_missed(0, failed=2, runs=2) == pytest.approx(1.0)
    draw = random.Random(7)
    rates = [rate for rate in (draw.random() for _ in range(40_000)) if all(draw.random() < rate for _ in range(3))]
    simulated = sum((1 - rate) ** 2 for rate in rates) / len(rates)
    assert chance_missed(2, failed=3, runs=3) == pytest.approx(simulated, rel=0.1)


@pytest.mark.parametrize(("rate", "missed"), [(0.3, 0.01), (0.5, 0.25), (0.05, 0.1), (1.0, 0.5), (0.9, 0.999)])
def test_repeats_are_the_fewest_that_reach_the_chance(rate: float, missed: float) -> None:
    repeats = repeats_for(rate, missed)
    assert chance_missed(repeats, rate=rate) <= missed + 1e-12
    assert repeats == 1 or chance_missed(repeats - 1, rate=rate) > missed


def test_a_chance_that_no_number_of_runs_reaches_is_refused() -> None:
    for rate, missed in ((0.0, 0.1), (0.5, 0.0), (1.5, 0.1)):
        with pytest.raises(BadInputError, match="no number of runs reaches"):
            repeats_for(rate, missed)
    with pytest.raises(BadInputError, match="the rate of failure is 2"):
        chance_missed(1, rate=2.0)


DONE = RankRun("finished", True, ("a", "b"))


LATE, LOST = RankRun("hang", True, (), "late"), RankRun("crash", True, ("a",), "its peer is gone")


@pytest.mark.parametrize(
    ("ranks", "silent", "ends", "said"),
    [
        ({0: [DONE, DONE], 1: [DONE, DONE]}, {}, ["finished", "finished"], ""),
        ({0: [DONE, LOST], 1: [DONE, RankRun("nan", True, (), "step 2")]}, {}, ["finished", "nan"], "rank 1: step 2"),
        ({0: [LATE], 1: [RankRun("crash", True, (), "ended by signal 11")]}, {}, ["crash"], "rank 1: ended by signal 11"),
        ({0: [LATE], 1: [LATE]}, {}, ["hang"], "rank 0: late"),
        ({0: [LATE], 1: [RankRun("crash", False, (), "no route")]}, {}, ["not run"], "rank 1 on m1 did not begin: no route"),
        ({0: [DONE, DONE]}, {}, ["not run"], "rank 1 on m1 did not begin"),
        ({0: [DONE]}, {"m1": "does not answer"}, ["not run"], "m1: does not answer"),
        ({0: [DONE], 1: [RankRun("finished", True, ("a",))]}, {}, ["not run"], "different numbers of steps"),
    ],
)
def test_a_run_of_a_group_is_what_all_of_its_ranks_made_of_it(
    ranks: dict[int, list[RankRun]], silent: dict[str, str], ends: list[str], said: str
) -> None:
    found = join_runs(group(), 2, ranks, silent)
    assert [run.end for run in found] == ends and said in found[-1].detail


def test_hashes_of_a_group_are_those_of_all_its_ranks_in_their_order() -> None:
    other = RankRun("finished", True, ("a", "c"))
    pairs = ((DONE, DONE), (DONE, other), (other, DONE))
    (one,), (two,), (three,) = (join_runs(group(), 1, {0: [first], 1: [second]}, {}) for first, second in pairs)
    assert one.hashes[0] == two.hashes[0] == three.hashes[0] and len({one.hashes[1], two.hashes[1], three.hashes[1]}) == 3
