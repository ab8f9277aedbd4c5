"""What the policy is told of the engine: who is free, whom others hold, who shares a node, and that silence frees nobody."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.context import with_engine
from minder.act.controller.engine.watch import EngineWatch
from minder.act.controller.state import JobState
from minder.act.policy import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.policy import Policy
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.model.history import History
from tests.fakes.slurm_fake import FakeJob, FakeSlurm

NODES = ("n1", "n2", "n3", "n4", "n5")


class Scene:
    """A job on n1 to n3; n4 and n5 are elsewhere."""

    def __init__(self) -> None:
        self.slurm = FakeSlurm(NODES)
        self.slurm.jobs[7] = FakeJob(["n1", "n2", "n3"])
        self.now_s = 1000.0
        self.watch = EngineWatch(SlurmEngine(7, self.slurm, lambda: self.now_s, max_drained=1), NODES)
        self.state = JobState("llm", generation=1, rank_machine={0: "n1", 1: "n2", 2: "n3"}, phase="running")

    def context(self, restarts_elsewhere: bool = True, standbys: tuple[str, ...] = ()) -> PolicyContext:
        def make(state: JobState, ready: Any, now_s: float) -> PolicyContext:
            return PolicyContext(now_s, state.view(ready), tuple(ready), other_jobs={"n1": ("seen-by-its-agent",)})

        return with_engine(make, self.watch, restarts_elsewhere, 3)(self.state, standbys, self.now_s)

    def decide(self, **config: Any) -> Decision:
        verdict = Verdict(self.now_s, "machine", "evict", ("n2",), "explicit", 0.97, self.now_s - 5)
        (decision,) = Policy(PolicyConfig(dry_run=False, **config)).decide([verdict], History(), self.context())
        return decision


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_where_the_job_is_started_again_free_nodes_are_its_standbys(scene: Scene) -> None:
    scene.slurm.nodes["n4"].states, scene.slurm.nodes["n4"].reason = {"DRAIN"}, "fan"
    scene.watch.look()
    assert scene.context().standbys_ready == ("n5",)
    decision = scene.decide()
    assert (decision.action, decision.replacements) == ("evict", ("n5",)) and "engine: pass" in decision.stages


def test_a_spare_that_somebody_holds_does_not_take_over(scene: Scene) -> None:
    scene.slurm.nodes["n4"].states, scene.slurm.nodes["n4"].reason = {"DRAIN"}, "fan"
    scene.watch.look()
    assert scene.context(False, ("n4", "n5")).standbys_ready == ("n5",)
    assert scene.context(False).engine_refuses == {}


def test_no_answer_frees_nobody_and_an_old_one_counts_as_none(scene: Scene) -> None:
    assert scene.context().standbys_ready == () and set(scene.context().engine_refuses) == {"n1", "n2", "n3"}
    scene.watch.look()
    assert scene.decide().action == "evict"
    scene.slurm.silent = 1
    scene.watch.look()
    assert scene.decide().action == "evict", "one answer that did not come; the last one is not a minute old"
    scene.now_s += 61.0
    decision = scene.decide()
    assert (decision.action, decision.reason) == ("page", "engine") and "slurm does not answer: Slurm did not answer" in decision.detail
    spare = scene.context(False, ("n5",))
    assert spare.standbys_ready == ("n5",) and spare.engine_refuses == {}, "our own spares need no scheduler"


def test_a_decision_lists_every_job_on_the_node_and_takes_it_only_where_that_is_allowed(scene: Scene) -> None:
    scene.slurm.jobs[9] = FakeJob(["n2", "n5"], user="alice")
    scene.watch.look()
    assert scene.context().other_jobs == {"n1": ("seen-by-its-agent",), "n2": ("slurm job 9 of alice",), "n5": ("slurm job 9 of alice",)}
    decision = scene.decide()
    assert (decision.action, decision.reason) == ("page", "shared_machine")
    assert decision.jobs_affected == ("llm", "slurm job 9 of alice")
    assert scene.decide(allow_shared_machines=True).action == "evict"


def test_the_limit_counts_what_every_controller_of_minder_holds(scene: Scene) -> None:
    scene.slurm.nodes["n5"].states, scene.slurm.nodes["n5"].reason = {"DRAIN"}, "minder evict-of-another-job: stall"
    scene.watch.look()
    decision = scene.decide()
    assert (decision.action, decision.reason) == (
        "page",
        "engine",
    ) and "keeps n5 out of slurm already, and 1 is the limit" in decision.detail


def test_a_job_that_may_not_be_requeued_is_not_requeued(scene: Scene) -> None:
    scene.slurm.jobs[7].requeue = False
    scene.watch.look()
    assert scene.decide().detail == "Slurm job 7 may not be requeued: submit it with --requeue"


def restarting(scene: Scene, **changes: Any) -> str:
    """Why a plain restart of the watched job is refused, where the site leaves it to minder."""
    for name, value in changes.items():
        setattr(scene.slurm.jobs[7], name, value)
    scene.watch = EngineWatch(SlurmEngine(7, scene.slurm, lambda: scene.now_s), NODES, restarts=True)
    scene.watch.look()
    return scene.context().restart_refused


def test_a_plain_restart_is_its_owners_unless_the_site_says_otherwise(scene: Scene) -> None:
    scene.watch.look()
    assert 'set restart = "requeue"' in scene.context().restart_refused
    assert restarting(scene) == ""
    assert scene.context(restarts_elsewhere=False).restart_refused == ""


@pytest.mark.parametrize(("changes", "told"), [
    ({"script": "srun torchrun --max-restarts 3 train.py"}, "one owner of retries: its script gives its launcher --max-restarts 3"),
    ({"script": "until srun python train.py; do sleep 5; done"}, "one owner of retries"), ({"requeue": False}, "submit it with --requeue"),
])  # fmt: skip
def test_one_owner_of_retries(scene: Scene, changes: dict[str, Any], told: str) -> None:
    assert told in restarting(scene, **changes)


def test_requeues_of_slurm_itself_count(scene: Scene) -> None:
    assert "3 times within a day" not in restarting(scene, restarts=5), "what was before we watched is not known to be of this day"
    for count in (6, 7, 8):
        scene.slurm.jobs[7].restarts = count
        scene.watch.look()
    assert scene.watch.refuses_restart(scene.now_s, 4) == ""
    assert "has started it again 3 times within a day" in scene.watch.refuses_restart(scene.now_s, 3)
    scene.watch._look = None
    assert "does not answer" in scene.watch.refuses_restart(scene.now_s, 3)


def test_where_the_restart_is_refused_a_person_is_told(scene: Scene) -> None:
    scene.watch.look()
    verdict = Verdict(scene.now_s, "job", "evict", (), "explicit", 0.95, scene.now_s - 5, sources=("crash",))
    (decision,) = Policy(PolicyConfig(dry_run=False)).decide([verdict], History(), scene.context())
    assert (decision.action, decision.reason) == ("page", "engine")
