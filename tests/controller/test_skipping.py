"""Which batch a step consumed, whether loaders skip, and what a generation leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from minder.act.controller.context import JobWork
from minder.act.controller.failures import identify
from minder.act.controller.orders.skipping import Skipping
from minder.act.controller.state import JobState, fold_job
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.clock import FakeClock
from minder.model.decision import Decision
from minder.model.evidence import Failure, Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.skips import order_skip

PLACED = {0: "m0", 1: "m1"}


@dataclass
class Launchers:
    """What each of them says."""

    said: dict[str, dict[str, Any]] = field(default_factory=dict)

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        return self.said.get(machine, {})

    def ask(self, generation: int, *machines: str) -> None:
        self.said |= {machine: {"generation": generation, "offers": ["probes", "skips"]} for machine in machines}


class Saved:
    def __init__(self, *saved: tuple[int, str]) -> None:
        self.found: tuple[tuple[int, str], ...] | None = saved

    def saved(self) -> tuple[tuple[int, str], ...] | None:
        return self.found


class Scene:
    def __init__(self, path: Path, **policy: Any) -> None:
        self.clock, self.fleet, self.saved = FakeClock(), Launchers(), Saved((8, ""), (9, ""))
        self.ledger = Ledger(path / "ledger.db", clock=self.clock)
        self.state = JobState("llm", 1, 1, dict(PLACED), "running", first_step_seen=True)
        self.ledger.append(kinds.JOB_REGISTERED, {"machines": ["m0", "m1"]}, job="llm")
        self.fleet.ask(1, "m0", "m1")
        self.work = work = JobWork(None)
        work.checkpoints = cast(Any, self.saved)
        self.config = PolicyConfig(**{"dry_run": False, "skip_batches": "auto", **policy})
        self.skipping = Skipping(self.state, self.ledger, cast(Any, self.fleet), self.config, self.clock, work)

    def order(self, batches: str | None, undo: bool = False) -> str:
        return order_skip(self.ledger, "llm", batches, undo, "odd", "ann").operation_id

    def start(self, generation: int) -> dict[str, Any]:
        payload = self.skipping.choose()
        event = {"generation": generation, "rank_machine": {str(rank): name for rank, name in PLACED.items()}, **payload}
        self.ledger.append(kinds.GENERATION_STARTED, event, job="llm")
        self.state.place(generation, dict(PLACED))
        self.state.skip_batches = payload.get("skip_batches", "")
        return payload

    def failed(self) -> list[str]:
        return [str(event.payload["detail"]) for event in self.ledger.events(kinds=[kinds.SKIP_FAILED])]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_order_asks_for_a_restart_once_and_one_generation_applies_it(scene: Scene) -> None:
    name = scene.order("9")
    scene.skipping.tick()
    (verdict,) = scene.skipping.orders(1.0)
    assert (verdict.kind, verdict.sources, verdict.machines) == ("job", ("skip",), ()) and scene.skipping.orders(2.0) == []
    assert scene.start(2) == {"skip_batches": "9", "skip_operations": [name]}
    scene.fleet.ask(2, "m0", "m1")
    assert scene.start(3) == {"skip_batches": "9"}, "it stays, and is applied no second time"
    events = scene.ledger.events(job="llm")
    assert fold_job("llm", events).skip_batches == "9", "for the controller that takes over"


def test_orders_that_wait_are_applied_together_and_taken_back_alike(scene: Scene) -> None:
    first, second = scene.order("9"), scene.order("20-21")
    assert scene.start(2) == {"skip_batches": "9,20-21", "skip_operations": [first, second]}
    scene.fleet.ask(2, "m0", "m1")
    scene.saved.found = ((9, ""), (15, "9"))
    back = scene.order("20", undo=True)
    assert scene.start(3) == {"skip_batches": "9,21", "skip_operations": [back]}


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (None, "is not known"),
        ((), "nothing is saved yet"),
        (((12, ""), (11, "")), "no complete checkpoint is from before it: the oldest is step 11"),
    ],
)
def test_without_a_checkpoint_from_before_it_the_order_fails_and_nothing_is_restarted(scene: Scene, saved: Any, why: str) -> None:
    scene.saved.found = saved
    scene.order("9")
    scene.skipping.tick()
    assert why in scene.failed()[0] and scene.skipping.orders(1.0) == [] and scene.start(2) == {}


def test_a_loader_that_does_not_ask_is_waited_for_and_then_said(scene: Scene) -> None:
    scene.fleet.said["m1"] = {"generation": 1, "offers": ["probes"]}
    scene.order("9")
    scene.skipping.tick()
    assert scene.failed() == [] and scene.skipping.orders(1.0) == [] and scene.start(2) == {}, "it may come up yet"
    scene.clock.sleep(11.0)
    scene.skipping.tick()
    assert "does not skip: it has to ask minder.skipped_batches()" in scene.failed()[0]


def test_what_launchers_said_of_ranks_that_ended_holds_and_of_another_version_it_does_not(scene: Scene) -> None:
    scene.skipping.tick()
    scene.fleet.said = {}
    name = scene.order("9")
    assert scene.start(2)["skip_operations"] == [name], "the launchers may be gone: their loaders had asked"
    scene.order("20")
    scene.state.update = 1
    assert scene.start(3) == {"skip_batches": "9"}, "the code is another one: its loaders are asked first"


def test_the_ladders_order_is_written_once(scene: Scene) -> None:
    verdict = Verdict(1.0, "job", "page", (), "numeric", 0.8, 1.0)
    decision = Decision("skip-1", 1.0, "restart", (), "act", "batch 9 is left out", verdict, rung="skip_batch", skip="9")
    for _ in range(2):
        scene.skipping.order(decision, "llm-1")
    (event,) = scene.ledger.events(kinds=[kinds.SKIP_ASKED])
    assert (event.payload["by"], event.operation_id, event.incident) == ("minder", "skip-1", "llm-1")
    assert scene.start(2)["skip_operations"] == ["skip-1"]


@pytest.mark.parametrize(
    ("policy", "refused"),
    [({}, ""), ({"dry_run": True}, "dry_run"), ({"skip_batches": "off"}, "off"), ({"skip_batches": "off", "dry_run": True}, "off")],
)
def test_the_policy_knows_what_may_be_left_out(tmp_path: Path, policy: dict[str, Any], refused: str) -> None:
    scene = Scene(tmp_path, **policy)
    scene.skipping.tick()
    scene.order("3-5")
    context = PolicyContext(scene.clock.now_s(), scene.state.view(()))
    found = scene.skipping.in_context(lambda *unused: context)(scene.state, (), scene.clock.now_s())
    assert found.skips is not None and (found.skips.refused, found.skips.today, found.skips.saved) == (refused, 3, ((8, ""), (9, "")))
    assert "skip_batch" in found.offers and found.skips.waits
    scene.clock.sleep(90_000.0)
    assert scene.skipping.in_context(lambda *unused: context)(scene.state, (), scene.clock.now_s()).skips.today == 0


@pytest.mark.parametrize(("numbered", "step", "batch"), [(True, 10, 12), (True, 4, 3), (False, 10, None), (True, 0, None)])
def test_wrong_numbers_have_the_batch_of_their_step(scene: Scene, numbered: bool, step: int, batch: int | None) -> None:
    scene.state.skip_batches, scene.state.numbers_batches = "4-6", numbered
    failure = Failure(1.0, "m1", (1,), "nonfinite", step=step)
    found = identify(Verdict(1.0, "machine", "evict", ("m1",), "numeric", 0.9, 1.0, failures=(failure,)), scene.state, JobTracker())
    assert found.failures[0].batch == batch
    said = "is not known" if batch is None else f"consumed batch {batch}"
    assert said in found.evidence[-1].message


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        ((9, 8), ""),  # batch 9 is that of step 10, which no record has seen
        ((10, 9), "ring or flush_dir keeps older ones"),  # 9 is gone before the ranks have ended
        ((30, 20, 9, 1), ""),
        (None, "caches that answer"),
    ],
)
def test_a_job_that_saves_in_memory_goes_back_as_far_as_its_caches_say(tmp_path: Path, kept: Any, why: str) -> None:
    scene = Scene(tmp_path)
    scene.work.in_memory, scene.saved.found = True, ()
    for said in scene.fleet.said.values():
        said |= (
            {}
            if kept is None
            else {"kept": [{"step": step, "generation": 1, "time_s": 4.0 * step} for step in kept], "now_s": 4.0 * kept[0]}
        )
    scene.order("9")
    scene.skipping.tick()
    assert (why in scene.failed()[0]) if why else scene.failed() == []
    assert len(scene.skipping.orders(1.0)) == (not why)
    assert ("skip_batches" in scene.start(2)) is not bool(why)
