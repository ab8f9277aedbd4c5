"""Dual-phase replay over all small layouts: which machines are found, and what a group is."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.diagnose.diagnostics.replay import ReplayFinding, ReplayPhase, advance, price_of, usual_order
from minder.diagnose.diagnostics.replay_layout import ReplayLayout, fewer_layers, lay_out
from minder.diagnose.diagnostics.replay_runs import GroupOutcome
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism, Topology

ORDERS = tuple("-".join(axes) for axes in itertools.permutations(("tp", "dp", "pp")))


def topology(tensor: int, pipeline: int, data: int, ranks: int, order: str = "tp-dp-pp", **more: int) -> Topology:
    parallelism = Parallelism(tensor, pipeline, data, rank_order=order, **more)
    machines = tuple(f"m{index}" for index in range(parallelism.world_size // ranks))
    return Topology(machines, ranks, parallelism)


def small_layouts() -> Iterator[ReplayLayout]:
    """TP, PP, DP in 1..4 on machines of 1 to 8 ranks; each with another order of ranks."""
    orders = itertools.cycle(ORDERS)
    for tensor, pipeline, data in itertools.product(range(1, 5), repeat=3):
        for ranks in range(1, 9):
            if tensor * pipeline * data % ranks == 0:
                yield lay_out(topology(tensor, pipeline, data, ranks, next(orders)))


LAYOUTS = tuple(small_layouts())


def play(phase: ReplayPhase, faulty: Collection[str], runs: int = 2) -> list[GroupOutcome]:
    """As it would end: a group fails in all its runs if one of its machines is faulty."""
    return [
        GroupOutcome(group.name, group.machines, "failed" if bad else "passed", "", runs, runs * bad)
        for group in phase.groups
        for bad in [bool(set(group.machines) & set(faulty))]
    ]


def search(layout: ReplayLayout, faulty: Collection[str], **more: object) -> tuple[ReplayFinding, int]:
    """The conclusion, and after how many phases. No search may go on for ever."""
    history: list[list[GroupOutcome]] = []
    for phases in range(40):
        finding = advance(layout, history, **more)  # type: ignore[arg-type]
        if finding.next is None:
            return finding, phases
        history.append(play(finding.next, faulty))
    raise AssertionError(f"{layout} goes on for ever with {faulty}")


def test_the_published_example() -> None:
    """m = 4, n = 6, machine 13 of 24: H3 and V1."""
    layout = lay_out(topology(1, 4, 6, 1, "tp-pp-dp"))
    assert (layout.m, layout.n, layout.machines) == (4, 6, tuple(f"m{index}" for index in range(24)))
    one, two = (play(ReplayPhase(1, "horizontal", groups), ["m13"]) for groups in (layout.horizontal(), layout.vertical()))
    assert [outcome.group for outcome in (*one, *two) if outcome.state == "failed"] == ["h3", "v1"]
    finding = advance(layout, [one, two])
    assert (finding.state, finding.machines) == ("found", ("m13",))
    assert finding.reason == "m13 is the only machine of h3, v1 that passed in no other group"


@pytest.mark.parametrize("tensor", range(1, 5))
def test_every_single_faulty_machine_of_every_small_layout_is_found_exactly(tensor: int) -> None:
    for layout in [layout for layout in LAYOUTS if layout.parallelism.tensor == tensor and layout.n > 1]:
        for machine in layout.machines:
            finding, phases = search(layout, [machine])
            assert (finding.state, finding.machines, finding.suspects) == ("found", (machine,), ()), layout
            assert phases == 2 or layout.m > layout.n


def test_each_machine_is_in_one_group_of_each_phase_and_two_groups_cross_in_at_most_ceil_m_over_n() -> None:
    for layout in LAYOUTS:
        for groups in (layout.horizontal(), layout.vertical()):
            assert sorted(machine for group in groups for machine in group.machines) == sorted(layout.machines)
            assert {len(group.machines) for group in groups} == {layout.m}
        crossing = [set(one.machines) & set(two.machines) for one in layout.horizontal() for two in layout.vertical()]
        assert max(map(len, crossing)) <= -(-layout.m // layout.n)


def test_every_group_is_a_runnable_layout_with_the_tensor_and_pipeline_sizes_of_the_job() -> None:
    for layout in LAYOUTS:
        for group in (*layout.horizontal(), *layout.vertical()):
            job, own = layout.parallelism, group.parallelism
            assert (own.tensor, own.pipeline, own.rank_order) == (job.tensor, job.pipeline, job.rank_order)
            assert own.data * layout.n == job.data
            runnable = Topology(group.machines, layout.ranks_per_machine, own, rank_machine=group.rank_machine)
            assert sorted(group.rank_machine) == list(range(own.world_size))
            assert {len(runnable.ranks_of(machine)) for machine in group.machines} == {layout.ranks_per_machine}


def test_in_a_group_of_whole_pipelines_each_machine_keeps_its_stage() -> None:
    for order, ranks in itertools.product(ORDERS, (1, 2)):
        if ranks == 2 and order.startswith("dp"):
            continue  # a machine has two replicas then, and a group of one block is no whole number of them
        job = topology(2, 4, 6, ranks, order)
        for group in lay_out(job).horizontal():
            own = Topology(group.machines, ranks, group.parallelism, rank_machine=group.rank_machine)
            assert all(own.stages_of(machine) == job.stages_of(machine) for machine in group.machines)


def test_experts_and_context_stay_whole() -> None:
    layout = lay_out(topology(2, 2, 8, 4, expert=2, context=2))
    assert (layout.block, layout.n * layout.m) == (4, 16)
    assert all(group.parallelism.data % 2 == 0 and group.parallelism.context == 2 for group in layout.horizontal())


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([layout for layout in LAYOUTS if layout.n > 2]), st.data())
def test_several_faulty_machines_are_all_found_or_none_is_named(layout: ReplayLayout, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.sampled_from(layout.machines), min_size=2, max_size=min(4, len(layout.machines))))
    finding, _ = search(layout, faulty)
    first = play(ReplayPhase(1, "horizontal", layout.horizontal()), faulty)
    if all(outcome.state == "failed" for outcome in first):
        assert finding.state == "not_judged" and finding.machines == ()
    elif finding.state == "found":
        assert set(finding.machines) == faulty
    else:
        assert "too few machines are proven good" in finding.reason
        assert set(finding.machines) <= faulty <= {*finding.machines, *finding.suspects}


def test_two_faulty_machines_leave_four_suspects_which_one_more_phase_parts() -> None:
    layout = lay_out(topology(1, 2, 8, 1, "tp-pp-dp"))
    finding, phases = search(layout, ["m0", "m7"])
    assert (finding.machines, phases) == (("m0", "m7"), 3)


@pytest.mark.parametrize("order", ["dual", "bisection"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_both_orders_find_one_machine_in_as_many_phases_as_their_price_says(order: str, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from([layout for layout in LAYOUTS if layout.n > 2 and layout.m <= layout.n]))
    finding, phases = search(layout, [data.draw(st.sampled_from(layout.machines))], order=order)
    assert finding.state == "found"
    assert phases <= price_of(layout, 1.0, order=order).phases + (order == "bisection")  # type: ignore[arg-type]


def test_the_price_counts_the_whole_job_that_stands() -> None:
    layout = lay_out(topology(8, 8, 128, 8))
    dual, plain = (price_of(layout, 60.0, repeats=2, start_s=30.0, order=order) for order in ("dual", "bisection"))
    assert (len(layout.machines), dual.phases, plain.phases) == (1024, 2, 10)
    assert (dual.wall_s, dual.machine_s, plain.machine_s) == (300.0, 307_200.0, 1_536_000.0)


def test_a_job_of_one_group_is_searched_with_spares_only() -> None:
    layout = lay_out(topology(1, 4, 1, 1))
    assert layout.n == 1
    finding, _ = search(layout, ["m2"])
    assert (finding.state, finding.machines) == ("not_judged", ())
    assert "give them as spares" in finding.reason
    assert search(layout, ["m2"], spares=["s0"])[0].machines == ()
    for machine in layout.machines:
        assert search(layout, [machine], spares=["s0", "s1", "s2"])[0].machines == (machine,)


@pytest.mark.parametrize("machines", range(2, 14))
def test_where_no_groups_cross_the_replicas_are_halved(machines: int) -> None:
    """Pure data parallelism: a prime number of machines makes groups of one, which exchange nothing."""
    layout = lay_out(topology(1, 1, machines, 1))
    order = usual_order(layout)
    assert order == ("bisection" if machines in (2, 3, 5, 7, 11, 13) else "dual")
    for machine in layout.machines:
        finding, _ = search(layout, [machine], order=order)
        assert finding.machines == (machine,)


@pytest.mark.parametrize("order", ["dual", "bisection"])
def test_two_faulty_machines_never_blame_a_healthy_one(order: str) -> None:
    for layout in [layout for layout in LAYOUTS if layout.n > 1 and len(layout.machines) <= 8]:
        for pair in itertools.combinations(layout.machines, 2):
            finding, _ = search(layout, pair, order=order)
            assert set(finding.machines) <= set(pair), layout


def test_a_failure_of_every_group_or_of_none_names_no_machine() -> None:
    layout = lay_out(topology(1, 2, 4, 1))
    every, _ = search(layout, layout.machines)
    assert (every.state, every.machines) == ("not_judged", ()) and "every group fails" in every.reason
    none, _ = search(layout, [], rate=0.5)
    assert none.reason == "the failure did not come back in 2 runs of each group; one at a rate of 0.5 is missed with a probability of 0.25"


def test_a_failure_that_comes_and_goes_is_said_and_names_no_machine() -> None:
    layout = lay_out(topology(1, 2, 4, 1))
    one, two = (play(ReplayPhase(1, "horizontal", groups), bad) for groups, bad in ((layout.horizontal(), ["m0"]), (layout.vertical(), [])))
    finding = advance(layout, [one, two])
    assert (finding.state, finding.machines) == ("not_judged", ())
    assert finding.suspects == layout.horizontal()[0].machines
    assert "comes and goes" in finding.reason


def test_a_group_that_did_not_run_ends_the_search_until_its_outcome_is_known() -> None:
    layout = lay_out(topology(1, 2, 4, 1))
    one = play(ReplayPhase(1, "horizontal", layout.horizontal()), ["m0"])
    finding = advance(layout, [[GroupOutcome("h0", one[0].machines, "unknown", "it did not run: no port"), *one[1:]]])
    assert (finding.state, finding.next, finding.reason) == ("not_judged", None, "group h0 says nothing: it did not run: no port")
    assert advance(layout, [one]).state == "going_on"


def test_confidence_grows_with_the_repeats() -> None:
    layout = lay_out(topology(1, 4, 6, 1, "tp-pp-dp"))
    found = []
    for runs in (1, 2, 4):
        history = [play(ReplayPhase(1, "horizontal", groups), ["m13"], runs) for groups in (layout.horizontal(), layout.vertical())]
        found.append(advance(layout, history).confidence)
        assert advance(layout, history, rate=0.5).confidence == 1 - 0.5**runs
    assert found == sorted(found) and found[0] < 0.8 < found[1] < 0.97 < found[2]


def test_machines_with_different_numbers_of_ranks_and_a_wrong_k_are_refused() -> None:
    uneven = Topology(("a", "b"), 2, Parallelism(data=4), rank_machine={0: "a", 1: "a", 2: "a", 3: "b"})
    with pytest.raises(BadInputError, match="b holds 1 ranks and a 3"):
        lay_out(uneven)
    with pytest.raises(BadInputError, match="k = 4 does not divide the 6 blocks of 4 machines"):
        lay_out(topology(1, 4, 6, 1), k=4)
    assert lay_out(topology(1, 4, 6, 1), k=3).m == 12


def test_fewer_layers_keep_every_stage() -> None:
    assert (fewer_layers(80, 8), fewer_layers(80, 8, 2), fewer_layers(8, 8, 2)) == (8, 16, 8)
