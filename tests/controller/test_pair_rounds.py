"""Pair tests while a job stands: when they are made, and what they make of a machine that is said to be slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from held_job import acted, fails, result_of, rungs, until

from minder.act.policy.ladder import read_ladder
from minder.model.evidence import Verdict
from minder.model.pairs import PairGraph, PairNode
from minder.record.incidents import kinds
from minder.record.incidents.pairs import fold_pairs, pairs_payload

TICKS = 24


def slow(world: Any, *machines: str, **changes: Any) -> Callable[[Any], list[Verdict]]:
    """A rule says that these slow the job down, as long as they have ranks."""

    def script(observation: Any) -> list[Verdict]:
        job = observation.job
        if job.phase != "running" or not set(machines) <= set(job.machines):
            return []
        verdict = world.accuse(*machines, cause="slowdown", **changes)
        return [replace(verdict, since_s=job.generation_start_s, sources=("slowdown", "telemetry"))]

    return script


@pytest.fixture
def world(new_world: Callable[[], Any]) -> Any:
    found = new_world()
    found.fleet.offers = ["probes"]
    found.policy = replace(found.policy, ladder=read_ladder({"slow_machines": "prove"}))
    found.script = slow(found, "m1")
    return found


def graph_of(world: Any) -> Any:
    (run,) = fold_pairs(world.events(kinds.PAIRS))
    return run.graph


def test_a_slow_machine_goes_once_pair_tests_name_it(world: Any) -> None:
    world.fleet.launchers["m1"].faults["pair"] = "slow"
    app = world.life(TICKS)
    assert rungs(world) == ["diagnose", "evict"] and app.state.barred == {"m1"} and app.state.phase == "running"
    evict = acted(world)[1]
    assert evict.verdict.sources == ("pairs",) and evict.verdict.evidence[0].message.startswith(
        "pair tests: slow: in what it sends, it took"
    )
    assert graph_of(world).slow == ("m1",)
    assert result_of(world)["detail"].endswith("pair tests of 4 machines: m1 is slow")
    assert {item["probe"] for event in world.events(kinds.PROBES) for item in event.payload["results"]} == {
        "links", "device_health", "memory", "loopback", "gemm",
    }, "the tests of speed alone"  # fmt: skip


def test_each_meeting_has_a_secret_of_its_own_that_the_ledger_does_not_have(world: Any) -> None:
    world.fleet.launchers["m1"].faults["pair"] = "slow"
    world.life(TICKS)
    by_secret: dict[str, set[tuple[str, str, str]]] = {}
    for own, peer, role, secret in world.fleet.meetings:
        by_secret.setdefault(secret, set()).add((own, peer, role))
    assert len(by_secret) >= 3
    for ends in by_secret.values():
        (one, other) = sorted(ends, key=lambda item: item[2])
        assert one[:2] == other[1::-1] and (one[2], other[2]) == ("connect", "listen")
    assert world.fleet.pair_orders and all(order["collective"] and order["gpus_only"] for order in world.fleet.pair_orders)
    said = repr(world.events())
    assert not any(secret in said for secret in by_secret)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({}, "no machine and no link stands out"),
        ({"m0": "m1", "m1": "m0"}, "the link of m0 and m1 failed"),
        ({"m3": "slow"}, "m3 is slow"),
    ],
)
def test_a_machine_that_the_tests_do_not_name_stays(world: Any, faults: dict[str, str], words: str) -> None:
    """A link is no machine's own; another machine goes in its place; and where nothing is found, a person is called."""
    for name, fault in faults.items():
        world.fleet.launchers[name].faults["pair"] = fault
    app = world.life(TICKS)
    assert "m1" not in app.state.barred and app.state.phase == "running"
    assert words in result_of(world)["detail"]
    if "m3" in faults:
        assert app.state.barred == {"m3"}
    else:
        paged = [event.payload for event in world.events(kinds.DECISION) if event.payload["action"] == "page"]
        assert paged and {"evict": "unproven"}.items() <= {item["rung"]: item["reason"] for item in paged[-1]["passed_over"]}.items()
        assert rungs(world) == ["diagnose", "reattempt"], "it is tested once, not at each start"


def test_a_slow_probe_that_a_second_look_shows_proves_it_too(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minder.diagnose.diagnostics.judgement.LEAST_PEERS", 3)
    for name in ("m0", "m1", "m2", "m3"):
        world.fleet.launchers[name].faults["gemm"] = "slow" if name == "m1" else "fast"
    app = world.life(TICKS)
    assert rungs(world) == ["diagnose", "evict"] and app.state.barred == {"m1"}
    assert acted(world)[1].verdict.sources == ("probes",) and "m1 is slow in gemm" in result_of(world)["detail"]


def test_without_the_setting_a_slow_machine_goes_at_once(world: Any) -> None:
    world.policy = replace(world.policy, ladder=read_ladder({}))
    app = world.life(TICKS)
    assert rungs(world) == ["evict"] and app.state.barred == {"m1"} and not world.events(kinds.PAIRS)


def test_a_page_about_a_slow_machine_is_tested_at_the_next_stop(world: Any) -> None:
    """What-if was not sure of m2: the job goes on. It stops for a crash of m1, and the pairs say that it is m2."""
    world.fleet.launchers["m2"].faults["pair"] = "slow"
    doubted, crashed = slow(world, "m2", tier="page"), fails(world)
    world.script = lambda observation: [*doubted(observation), *crashed(observation)]
    app = world.life(TICKS + 6)
    assert rungs(world)[:3] == ["reattempt", "diagnose", "evict"] and app.state.barred == {"m2"}
    assert graph_of(world).slow == ("m2",) and "gemm" in repr(world.events(kinds.PROBES)) and "disk" in repr(world.events(kinds.PROBES))


@pytest.mark.parametrize("state", ["slow", "good"])
def test_a_page_is_decided_again_once_a_persons_pair_tests_name_its_machine(world: Any, state: str) -> None:
    world.script = slow(world, "m2", tier="page")
    app = world.app()
    app.begin()
    until(world, app, lambda: any(event.payload["action"] == "page" for event in world.events(kinds.DECISION)))
    assert rungs(world) == []
    nodes = tuple(PairNode(name, state if name == "m2" else "good", "by hand") for name in ("m0", "m1", "m2", "m3"))  # type: ignore[arg-type]
    app.ledger.append(kinds.PAIRS, pairs_payload(PairGraph(nodes, (), None), by="ann", why="diagnose"), job="llm")
    world.tick(app, 4)
    app.close()
    assert rungs(world) == (["evict"] if state == "slow" else []) and app.state.barred == ({"m2"} if state == "slow" else set())


def test_a_stop_without_a_suspicion_of_slowness_has_no_pair_tests(world: Any) -> None:
    world.script = fails(world)
    world.life(TICKS)
    assert "diagnose" in rungs(world) and not world.events(kinds.PAIRS)


def test_a_machine_without_an_address_is_not_judged(world: Any) -> None:
    world.fleet.unknown = {"m1"}
    app = world.life(TICKS)
    states = {node.machine: node.state for node in graph_of(world).nodes}
    assert states == {"m0": "good", "m1": "not_judged", "m2": "good", "m3": "good"} and app.state.barred == set()


def test_pair_tests_end_with_the_limit_and_say_what_is_known(world: Any) -> None:
    world.policy = replace(world.policy, diagnose_limit_s=12.0)
    world.fleet.launchers["m3"].pairs_take = 1000
    app = world.life(40)
    assert app.state.phase == "running" and rungs(world)[0] == "diagnose" and app.state.barred == set()


@pytest.mark.parametrize("part", [1, *(pytest.param(part, marks=pytest.mark.release) for part in (0, 2))])
def test_killed_in_the_middle_of_pair_tests_the_next_controller_begins_them_anew(world: Any, part: int) -> None:
    world.fleet.launchers["m1"].faults["pair"] = "slow"
    app = world.app()
    app.begin()
    until(world, app, lambda: len({item[3] for item in world.fleet.meetings}) > part)
    app.close()
    first = set(world.fleet.meetings)
    app = world.life(TICKS)
    assert rungs(world) == ["diagnose", "evict"] and app.state.barred == {"m1"}
    assert not first & set(world.fleet.meetings[len(first) :]) and len(world.events(kinds.PAIRS)) == 1
