"""Two rounds of pair tests against machines and links that are known to be bad."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minder.diagnose.diagnostics.pairs import PairResult, PairTest, judge_pairs, plan_first_round, plan_second_round
from minder.model.errors import BadInputError
from minder.model.pairs import PairGraph

Play = Callable[[PairTest], PairResult]


def names(count: int) -> list[str]:
    return [f"m{index:02d}" for index in range(count)]


def world(faulty: Collection[str] = (), slow: Collection[str] = (), links: Mapping[tuple[str, str], str] | None = None) -> Play:
    """Tests as they would end: links maps a pair, in either order, to "dead" or "slow"."""
    bad = {frozenset(pair): how for pair, how in (links or {}).items()}

    def play(test: PairTest) -> PairResult:
        link = bad.get(frozenset(test.machines))
        passed = not set(test.machines) & set(faulty) and link != "dead"
        seconds = 5.0 if link == "slow" or set(test.machines) & set(slow) else 1.0 + 0.01 * int(test.machines[0][1:])
        return PairResult(test, passed, seconds if passed else None, 1e9 / seconds if passed else None, 1e-4)

    return play


def judge(machines: list[str], play: Play, domains: Mapping[str, Mapping[str, str]] | None = None) -> PairGraph:
    first = [play(test) for test in plan_first_round(machines, domains)]
    second = [play(test) for test in plan_second_round(first, domains)]
    return judge_pairs([*first, *second], domains)


@pytest.mark.parametrize("count", range(2, 13))
def test_round_one_tests_every_machine_and_no_machine_twice_at_once(count: int) -> None:
    tests = plan_first_round(names(count))
    assert {machine for test in tests for machine in test.machines} == set(names(count))
    for wave in {test.wave for test in tests}:
        busy = [machine for test in tests if test.wave == wave for machine in test.machines]
        assert len(busy) == len(set(busy))
    assert {test.wave for test in tests} == ({0, 1, 2} if count % 2 else {0})


@pytest.mark.parametrize("count", range(3, 13))
def test_every_single_faulty_machine_is_named_and_no_other(count: int) -> None:
    for machine in names(count):
        graph = judge(names(count), world(faulty=[machine]))
        assert graph.faulty == (machine,)
        assert graph.slow == graph.links == ()


@pytest.mark.parametrize("count", range(3, 13))
def test_every_single_slow_machine_is_named_as_slow(count: int) -> None:
    for machine in names(count):
        graph = judge(names(count), world(slow=[machine]))
        assert graph.slow == (machine,)
        assert graph.faulty == graph.links == ()


@pytest.mark.parametrize("how", ["dead", "slow"])
@pytest.mark.parametrize("count", range(4, 13))
def test_a_bad_link_names_the_link_and_no_machine(count: int, how: str) -> None:
    for test in plan_first_round(names(count)):
        graph = judge(names(count), world(links={test.machines: how}))
        assert graph.links == (test.machines,)
        assert graph.faulty == graph.slow == ()
        assert all(node.state == "good" for node in graph.nodes)


@given(st.integers(5, 12), st.data())
def test_two_faulty_machines_are_named_also_in_one_pair(count: int, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.sampled_from(names(count)), min_size=2, max_size=2))
    graph = judge(names(count), world(faulty=faulty))
    tests = plan_first_round(names(count))
    if any(not set(test.machines) & faulty for test in tests):
        assert set(graph.faulty) == faulty
    else:
        assert graph.faulty == ()
    assert graph.links == ()


@given(st.integers(2, 12), st.data())
def test_whatever_fails_a_healthy_machine_is_not_named(count: int, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.sampled_from(names(count))))
    slow = data.draw(st.sets(st.sampled_from(names(count)), max_size=1)) - faulty
    graph = judge(names(count), world(faulty=faulty, slow=slow))
    assert set(graph.faulty) <= faulty
    assert set(graph.slow) <= slow


def test_with_no_machine_proven_good_nothing_is_judged() -> None:
    for machines in (names(2), names(8)):
        first = [PairResult(test, False) for test in plan_first_round(machines)]
        assert plan_second_round(first) == ()
        graph = judge_pairs(first)
        assert {node.state for node in graph.nodes} == {"not_judged"}
        assert "no machine is proven good" in graph.nodes[0].reason


def test_round_two_never_joins_two_suspects_and_uses_a_good_machine_once_in_a_wave() -> None:
    first = [world(faulty=["m00", "m02", "m05", "m07", "m09"])(test) for test in plan_first_round(names(12))]
    second = plan_second_round(first)
    good = {"m10", "m11"}
    assert sorted(test.machines[0] for test in second) == names(10)
    assert all(test.machines[1] in good and test.round == 2 for test in second)
    for wave in range(5):
        assert {test.machines[1] for test in second if test.wave == wave} == good


def test_round_two_takes_a_partner_that_the_suspect_has_not_met() -> None:
    """One of three has met both others: nothing new can be learned of it, unless a test could not be run."""
    first = [PairResult(test, "m00" not in test.machines, 1.0) for test in plan_first_round(names(3))]
    assert plan_second_round(first) == ()
    assert judge_pairs(first).faulty == ("m00",)
    for unknown in (0, 1):
        known = [PairResult(result.test, None) if index == unknown else result for index, result in enumerate(first)]
        assert [test.machines for test in plan_second_round(known)] == [("m00", f"m0{unknown + 1}")]


def test_a_test_that_could_not_be_run_says_nothing_of_its_machines() -> None:
    first = [PairResult(test, None if "m00" in test.machines else True, 1.0) for test in plan_first_round(names(6))]
    states = {node.machine: node.state for node in judge_pairs(first).nodes}
    assert (states["m00"], states["m01"], states["m02"]) == ("not_judged", "not_judged", "good")
    again = plan_second_round(first)
    assert {test.machines[0] for test in again} == {"m00", "m01"}
    failed = [*first, *(PairResult(test, test.machines[0] != "m00") for test in again)]
    assert "a second test with a machine proven good is needed" in judge_pairs(failed).nodes[0].reason
    third = plan_second_round(failed)
    assert [test.machines[0] for test in third] == ["m00"] and third[0].round == 3
    assert len({frozenset(result.test.machines) for result in [*failed, PairResult(third[0], False)]}) == len(failed) + 1
    assert judge_pairs([*failed, PairResult(third[0], False)]).faulty == ("m00",)


def test_pairs_stay_on_one_switch_where_they_can_and_say_what_they_share() -> None:
    domains = {name: {"rack": "r1", "switch": f"leaf-{index % 2}"} for index, name in enumerate(names(6))}
    tests = plan_first_round(names(6), domains)
    assert [test.shared for test in tests] == ["switch:leaf-0", "rack:r1", "switch:leaf-1"]
    first = [world(faulty=["m00"])(test) for test in tests]
    assert all(domains[one]["switch"] == domains[two]["switch"] for one, two in (t.machines for t in plan_second_round(first, domains)[:1]))


def test_where_all_machines_of_a_switch_fail_the_switch_is_said_and_no_machine_named() -> None:
    domains = {name: {"switch": "leaf-1" if index < 4 else "leaf-2"} for index, name in enumerate(names(8))}
    graph = judge(names(8), world(faulty=names(4)), domains)
    assert graph.domain == "switch:leaf-1"
    assert graph.faulty == ()
    assert "all tested machines of switch:leaf-1 fail" in graph.nodes[0].reason
    alone = judge(names(8), world(faulty=["m01"]), domains)
    assert (alone.faulty, alone.domain) == (("m01",), "")


def test_the_graph_has_units_states_and_both_rounds() -> None:
    graph = judge(names(4), world(faulty=["m00"]))
    assert [(edge.round, edge.state) for edge in graph.edges] == [(1, "failed"), (1, "passed"), (2, "failed"), (2, "passed")]
    assert graph.edges[1].bandwidth_bytes_per_s is not None and graph.edges[1].seconds is not None
    assert graph.median_s == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("machines", [[], ["a"], ["a", "a"]])
def test_a_plan_needs_two_different_machines(machines: list[str]) -> None:
    with pytest.raises(BadInputError, match="pair tests need two machines or more"):
        plan_first_round(machines)


@pytest.mark.parametrize(("sends", "said"), [(True, "in what it sends"), (False, "in what it receives")])
def test_a_machine_that_is_slow_in_one_direction_is_named_with_the_direction(sends: bool, said: str) -> None:
    def play(test: PairTest) -> PairResult:
        one, other = (machine == "m03" for machine in test.machines)
        forward, backward = (1e7 if (one if sends else other) else 1e9), (1e7 if (other if sends else one) else 1e9)
        slower = min(forward, backward)
        return PairResult(test, True, 1e9 / slower, slower, 1e-4, "", forward, backward)

    graph = judge(names(6), play)
    assert graph.slow == ("m03",) and graph.links == graph.faulty == ()
    (node,) = [node for node in graph.nodes if node.state == "slow"]
    assert node.reason.startswith(said)
    slow = [edge for edge in graph.edges if edge.state == "slow"]
    way = [" to ".join(edge.machines if (edge.machines[0] == "m03") == sends else edge.machines[::-1]) for edge in slow]
    assert len(slow) == 2 and [edge.detail for edge in slow] == [f"slow from {item} only" for item in way]
