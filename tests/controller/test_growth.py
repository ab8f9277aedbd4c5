"""When a job that is short asks for the restart that makes it whole again, and whether its checkpoint lets it change its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.orders.job_work import JobWork
from minder.act.controller.standbys.growth import Growth
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext, Sizes
from minder.diagnose.stacks.places import topology_of
from minder.edge.checkpoint.manifest import Manifest, ManifestFile, checkpoint_path, complete_checkpoints, publish
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger

SIZES = Sizes(1, 3, Parallelism(data=3))


class Short:
    """A job with two of its three machines, which steps."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger(path)
        self.state = JobState("llm", 1, 2, {0: "m0", 1: "m2"}, "running", first_step_seen=True, full_machines=3)
        self.growth = Growth(self.state, self.ledger, PolicyConfig(dry_run=False), 30.0)

    def at(self, now_s: float, *standbys: str) -> list[Any]:
        return self.growth.look(lambda: PolicyContext(now_s, self.state.view(standbys), standbys, sizes=SIZES))


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Short]:
    made = Short(tmp_path / "ledger.db")
    yield made
    made.ledger.close()


def test_a_standby_that_is_ready_for_long_enough_is_asked_for_once(short: Short) -> None:
    assert short.at(100.0) == [] == short.at(110.0, "m1") == short.at(139.0, "m1")
    (verdict,) = short.at(140.0, "m1")
    assert (verdict.kind, verdict.sources, verdict.machines) == ("job", ("grow",), ())
    assert "m1 could join for 30 s: the job has 2 of 3 machines" in verdict.evidence[0].message
    assert short.at(200.0, "m1") == []


def test_a_standby_that_goes_in_between_begins_anew(short: Short) -> None:
    assert short.at(100.0, "m1") == [] == short.at(120.0) == short.at(131.0, "m1") == short.at(160.0, "m1")
    assert short.at(161.0, "m1")


@pytest.mark.parametrize("change", [{"rank_machine": {0: "m0", 1: "m1", 2: "m2"}}, {"phase": "starting"}, {"first_step_seen": False}])
def test_a_job_that_is_whole_or_on_its_way_asks_for_nothing(short: Short, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(short.state, name, value)
    assert short.at(100.0, "s0") == [] == short.at(1000.0, "s0")


def test_without_a_time_it_waits_for_the_next_restart(short: Short) -> None:
    short.growth = Growth(short.state, short.ledger, PolicyConfig(dry_run=False), 0.0)
    assert short.at(100.0, "s0") == [] == short.at(1e6, "s0")


def test_the_groups_of_a_short_job_are_those_of_fewer_replicas() -> None:
    state = JobState("llm", 1, 2, {rank: f"m{rank}" for rank in range(4)}, "running", full_machines=6)
    found = topology_of(state.view(()), Parallelism(pipeline=2, data=3))
    assert found is not None and found.parallelism.data == 2
    watched = replace(state.view(()), is_short=False)
    assert topology_of(watched, Parallelism(pipeline=2, data=3)) is None, "some ranks are not seen: nothing is known of the groups"


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Why a job that saves in tmp_path keeps its size."""

    def ask(any_size: bool | None = None, folder: Path | None = tmp_path) -> str:
        sizes = JobWork(None if folder is None else str(folder), sizes=SIZES, any_size=any_size).sizes()
        assert sizes is not None
        return sizes.refused

    return ask


def save(folder: Path, step: int, any_size: bool) -> None:
    path = checkpoint_path(folder, step, 1)
    path.mkdir(parents=True)
    (path / "part").write_bytes(b"x")
    publish(Manifest(path, step, 1, 3, 0.0, (ManifestFile("part", 1, "0" * 64),), any_size))


def test_the_newest_checkpoint_says_whether_another_size_reads_it(refused: Callable[..., str], tmp_path: Path) -> None:
    assert refused() == "", "nothing is saved yet: the job begins anew at any size"
    save(tmp_path, 10, any_size=True)
    assert refused() == ""
    save(tmp_path, 20, any_size=False)
    assert "step-000000020-generation-00001 can be read by 3 ranks only" in refused()
    assert [item.any_size for item in complete_checkpoints(tmp_path)] == [False, True]
    assert refused(True) == "" and "checkpoints_any_size = false" in refused(False)


def test_what_minder_did_not_write_is_not_known_to_be_readable(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "where the job saves is not known" in refused(folder=None)
    (tmp_path / "epoch-3.pt").write_bytes(b"x")
    assert "is not known: set checkpoints_any_size" in refused() and refused(True) == ""
