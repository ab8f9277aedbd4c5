"""Every fault of the lab, for real: the right machine, evicted, and losses equal to the undisturbed run's, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.ingest.sources.events import read_events
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.play import Played, play
from minder.simulate.lab.capabilities import find_capabilities

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]

NEEDS_NAMESPACES = ("slow-cpu", "slow-link", "dead-link", "oom")


def run(fault: str, out: Path, deadline_s: float = 300.0, **settings: object) -> Played:
    if fault in NEEDS_NAMESPACES and not find_capabilities().can("namespaces"):
        pytest.skip(f"{fault} needs network namespaces and cgroups (root)")
    return play(DemoOptions(fault, out, **settings), lambda stage, message: None, deadline_s=deadline_s)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [
        "slow-cpu",
        # A hang, a lost machine and an Xid end as they must in test_chaos.py too, with equal losses. A machine that kills what it gets goes
        # in test_matrix.py (killer-machine); equal losses after all were tested and its ranks went elsewhere: nan, below.
        *(
            pytest.param(fault, marks=pytest.mark.release)
            for fault in ("crash-sticky", "hang", "xid", "machine-lost", "dead-link", "slow-link")
        ),
    ],
)
def test_the_faulty_machine_is_evicted_and_the_job_goes_on_as_if_nothing_had_happened(fault: str, tmp_path: Path) -> None:
    played = run(fault, tmp_path)
    assert played.outcome.wrong == ()
    assert played.outcome.evicted == (played.target,)
    assert played.comparison.equal, played.comparison.detail
    assert played.outcome.steps_lost is not None and played.outcome.steps_lost <= 2


@pytest.mark.parametrize("fault", ["crash", pytest.param("crash-cascade", marks=pytest.mark.release), "oom", "nan"])
def test_what_alone_accuses_no_machine_costs_none(fault: str, tmp_path: Path) -> None:
    """A bare signal, a kill within the machine's own limit: restarted in place. A NaN of one rank: its machine is tried, not evicted."""
    played = run(fault, tmp_path)
    assert played.outcome.wrong == ()
    assert played.outcome.evicted == ()
    assert played.comparison.equal, played.comparison.detail
    assert played.outcome.steps_lost is not None and played.outcome.steps_lost <= 2
    if fault == "crash-cascade":
        assert_every_peer_died_of_the_first(tmp_path)


def assert_every_peer_died_of_the_first(out: Path) -> None:
    """By what the launchers told of their workers' exits, which the recording keeps. Theirs are the times: a launcher notes an exit when
    it next gets a processor, hence a second more than the two that the injector sees to. The controller acts within the second, and
    who then still lived was ended by it, not by the first's death: a minority."""
    exits = [event for event in read_events(out / "recording" / "events.jsonl") if event.kind == "exit" and event.generation == 1]
    exits = [event for event in exits if event.rank is not None]
    assert [event.rank for event in exits[:1]] == [2]
    assert sorted(event.rank for event in exits) == list(range(6)), "a peer lived on"
    died = [event.rank for event in exits if not event.data["expected"]]
    assert len(died) > 3, f"only {died} died; the others were ended by the controller"
    assert exits[-1].time_s - exits[0].time_s < 3.0


@pytest.mark.release
def test_an_exception_of_every_rank_is_the_jobs_own_and_evicts_nobody(tmp_path: Path) -> None:
    played = run("exception", tmp_path)
    assert played.outcome.wrong == ()
    assert played.comparison.equal, played.comparison.detail


@pytest.mark.parametrize(
    "fault", ["none", "agent-lost", *(pytest.param(fault, marks=pytest.mark.release) for fault in ("slow-disk", "slow-store"))]
)
def test_a_healthy_job_is_left_alone(fault: str, tmp_path: Path) -> None:
    played = run(fault, tmp_path)
    assert played.outcome.wrong == ()
    assert played.outcome.generations == 1
    assert played.comparison.equal, played.comparison.detail


@pytest.mark.parametrize(
    "fault", ["dead-link", *(pytest.param(fault, marks=pytest.mark.release) for fault in ("hang", "slow-cpu", "slow-link"))]
)
def test_no_verdict_rests_on_the_injectors_fingerprints(fault: str, tmp_path: Path) -> None:
    """Stopped states, throttle and OOM counters are hidden, and the script calls no minder function."""
    played = run(fault, tmp_path, masked=True, plain=True)
    assert played.outcome.wrong == ()
    assert played.outcome.evicted == (played.target,)


def test_process_groups_are_machines_enough_where_there_is_no_root(tmp_path: Path) -> None:
    played = run("hang", tmp_path, mode="processes", telemetry="scrape")
    assert played.outcome.wrong == ()
    assert played.comparison.equal, played.comparison.detail


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "machines"), [("slow-link", 4), ("slow-cpu", 6)])
def test_where_a_proof_is_wanted_a_slow_machine_goes_after_its_job_was_tested(fault: str, machines: int, tmp_path: Path) -> None:
    """The exchange of data by pairs shows a slow link, among four machines already; the probes of speed, which compare with four equal
    ones, a slow processor. On a busy host these may not be judged, and then a person is called and no machine goes."""
    played = run(fault, tmp_path, 780.0, slow_machines="prove", machines=machines, standbys=1)  # the tests alone may take 180 s
    climbed = [event.payload["decision"]["rung"] for event in played.events if event.kind == kinds.INTENT and "decision" in event.payload]
    assert climbed[0] == "diagnose", climbed
    assert any(event.kind == kinds.PAIRS for event in played.events)
    assert set(played.outcome.evicted) <= {played.target}
    if fault == "slow-link":
        assert played.outcome.evicted == (played.target,)
    assert played.comparison.equal, played.comparison.detail
