"""Whether a rack or a switch is at fault, or the group of machines that stands in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy.case import Case
from minder.act.policy.domains import shared_domain
from minder.model.evidence import Evidence, Verdict
from minder.model.history import History, PastEviction

Make = Callable[..., Case]
Accuse = Callable[..., Verdict]
Evicted = Callable[..., PastEviction]

RACKS = {f"m{n}": {"rack": "r1" if n < 4 else "r2", "switch": f"leaf-{n % 4}", "pod": "p1"} for n in range(8)}


def test_two_suspects_that_share_a_rack_or_a_switch_evict_nobody(case: Make, accuse: Accuse) -> None:
    assert shared_domain(case(accuse("m1"), suspects=("m1",), domains=RACKS)).action is None
    for other, shared in (("m2", "rack r1"), ("m5", "switch leaf-1")):
        ruling = shared_domain(case(accuse("m1"), suspects=("m1", other), domains=RACKS))
        assert (ruling.action, ruling.reason) == ("page", "shared_domain")
        assert shared in ruling.say
    assert shared_domain(case(accuse("m1"), suspects=("m1", "m6"), domains=RACKS)).action is None
    assert shared_domain(case(accuse("m1", "m2"), domains=RACKS)).action == "page"


def test_an_eviction_just_before_counts_as_a_suspect(case: Make, accuse: Accuse, evicted: Evicted) -> None:
    domains = {**RACKS, "gone": {"rack": "r1"}}
    assert shared_domain(case(domains=domains, history=History(actions=(evicted("gone", ago_s=299),)))).action == "page"
    assert shared_domain(case(domains=domains, history=History(actions=(evicted("gone", ago_s=301),)))).action is None
    restart = evicted(ago_s=10, action="restart")
    assert shared_domain(case(domains=domains, history=History(actions=(restart,)))).action is None


def test_what_the_whole_job_shares_tells_nothing(case: Make, accuse: Accuse) -> None:
    one_rack = {f"m{n}": {"rack": "r1"} for n in range(8)}
    assert shared_domain(case(accuse("m1"), suspects=("m1", "m2"), domains=one_rack)).action is None


PIPELINE = ("m0", "m1", "m2", "m3")  # all of rack r1
EVERYBODY = frozenset({*(f"m{n}" for n in range(8)), "s0"})
RACK = {f"m{n}": {"rack": "r1" if n < 4 else "r2"} for n in range(8)} | {"s0": {"rack": "r1"}}


@pytest.fixture
def in_rack(case: Make, accuse: Accuse) -> Make:
    """A pipeline that fills a rack; m1's own stack stands apart; the machines that answer are given."""

    def make(*outliers: str, source: str = "stacks", kind: str = "rack", **changes: Any) -> Case:
        evidence = tuple(Evidence(source, name, "busy elsewhere") for name in outliers)
        group = replace(accuse(*PIPELINE), evidence=(*evidence, Evidence("progress", None, "the whole job stands still")))
        domains = {name: {kind: found["rack"]} for name, found in RACK.items()}
        values = {"domains": domains, "answering": EVERYBODY, "suspects": PIPELINE, "standbys_ready": ("s0",), **changes}
        return case(group, **values)

    return make


@pytest.mark.parametrize("source", ["stacks", "collectives"])
def test_a_group_that_fills_a_rack_goes_where_the_rack_is_proven_alive(in_rack: Make, source: str) -> None:
    ruling = shared_domain(in_rack("m1", source=source))
    assert ruling.action is None
    assert ruling.say == "pass, rack r1 is not at fault: m1 stand apart in it and m0 answers"


@pytest.mark.parametrize("source", ["flows", "launcher", "telemetry", "steps"])
def test_what_a_dead_switch_looks_like_too_does_not_acquit_it(in_rack: Make, source: str) -> None:
    ruling = shared_domain(in_rack("m1", source=source))
    assert (ruling.action, ruling.reason) == ("page", "shared_domain")
    assert "neither stacks nor dumps show an outlier" in ruling.say


@pytest.mark.parametrize(
    "answering", [frozenset[str](), frozenset({"m1"}), frozenset({"m4", "m7"})], ids=["none", "the outlier", "elsewhere"]
)
def test_without_a_living_witness_in_the_rack_a_person_looks(in_rack: Make, answering: frozenset[str]) -> None:
    ruling = shared_domain(in_rack("m1", answering=answering))
    assert (ruling.action, ruling.reason) == ("page", "shared_domain")
    assert "no other machine of it is proven alive" in ruling.say


def test_where_all_of_the_group_stand_apart_a_machine_outside_it_is_the_witness(in_rack: Make) -> None:
    assert shared_domain(in_rack(*PIPELINE)).action is None, "the standby of the rack waits at the barrier"
    assert shared_domain(in_rack(*PIPELINE, standbys_ready=())).action == "page"
    barred = History(barred=frozenset({"s0"}))
    assert shared_domain(in_rack(*PIPELINE, history=barred)).action == "page"


def test_a_standby_says_nothing_of_a_switch_that_carries_the_jobs_traffic(in_rack: Make) -> None:
    assert shared_domain(in_rack(*PIPELINE, kind="switch")).action == "page"
    assert shared_domain(in_rack("m1", kind="switch")).action is None
    wider = {name: {"switch": "leaf-1" if name in (*PIPELINE, "m4") else "leaf-2"} for name in RACK}
    assert shared_domain(in_rack(*PIPELINE, domains=wider)).action is None, "m4 trains behind the same switch"


def test_one_accused_machine_of_the_rack_outside_the_group_accuses_the_rack(in_rack: Make, evicted: Evicted) -> None:
    wider = {name: {"rack": "r1" if name in (*PIPELINE, "m4", "m5") else "r2"} for name in RACK}
    assert shared_domain(in_rack("m1", domains=wider)).action is None
    assert shared_domain(in_rack("m1", domains=wider, suspects=(*PIPELINE, "m5"))).action == "page"
    gone = History(actions=(evicted("old", ago_s=100),))
    assert shared_domain(in_rack("m1", domains={**wider, "old": {"rack": "r1"}}, history=gone)).action == "page"
    assert shared_domain(in_rack("m1", domains=wider, planned=("m5",))).action == "page"


def test_a_group_across_racks_is_asked_nothing(in_rack: Make) -> None:
    spread = {name: {"rack": f"r{n}"} for n, name in enumerate(RACK)}
    assert shared_domain(in_rack("m1", source="flows", domains=spread, answering=frozenset())).say == "pass"


def test_two_single_machines_of_a_rack_are_no_group(in_rack: Make) -> None:
    both = in_rack("m1")
    single = replace(both.verdict, kind="machine", machines=("m1",))
    assert shared_domain(replace(both, verdict=single, suspects=("m1", "m2"))).action == "page"
