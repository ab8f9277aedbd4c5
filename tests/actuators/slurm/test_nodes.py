"""Drained with our own reason, read back, given back; what others hold is left alone."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from minder.act.actuators.slurm.commands import SlurmCommands
from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.model.errors import ActuatorError, EngineUnavailableError

OPERATION = "evict-0123456789ab"


def test_a_drain_carries_the_operation_and_is_read_back(cluster: Any) -> None:
    result = cluster.nodes.drain("n2", OPERATION, "stall, confidence 0.95")
    assert result.outcome == "done" and result.operation_id == OPERATION
    assert result.undo == "minder machine return n2 --config job.toml"
    shown = cluster.nodes.show("n2")
    assert shown.is_drained and shown.is_held and not shown.is_idle
    assert (shown.reason, shown.reason_by) == (f"minder {OPERATION}: stall, confidence 0.95", "root")
    assert cluster.nodes.ours() == {"n2": OPERATION}
    assert [record.name for record in cluster.nodes.show_all(["n1", "n2", "n3"]) if record.is_idle] == ["n1", "n3"]


def test_the_same_operation_again_changes_nothing(cluster: Any) -> None:
    cluster.nodes.drain("n2", OPERATION, "stall")
    again = cluster.nodes.drain("n2", OPERATION, "stall, told otherwise")
    assert again.outcome == "already_done" and again.undo
    assert cluster.nodes.show("n2").reason == f"minder {OPERATION}: stall"


@pytest.mark.parametrize(
    "changes", [("State=DRAIN", "Reason=minder the fan, says Jo: loud"), ("State=DRAIN", "Reason=State=IDLE [root@1]")]
)
def test_a_persons_drain_is_never_touched(cluster: Any, changes: tuple[str, ...]) -> None:
    cluster.by_hand("n3", *changes)
    before = cluster.nodes.show("n3")
    result = cluster.nodes.drain("n3", OPERATION, "stall")
    assert result.outcome == "already_done" and result.undo == "" and before.reason in result.detail and "left as it is" in result.detail
    back = cluster.nodes.uncordon("n3", "return-1", {OPERATION})
    assert back.outcome == "failed" and "not ours to undo" in back.detail
    assert cluster.nodes.show("n3") == before


def test_a_drain_of_another_minder_is_not_ours_either(cluster: Any) -> None:
    cluster.nodes.drain("n3", "evict-another", "stall")
    assert cluster.nodes.drain("n3", OPERATION, "stall").undo == ""
    assert "does not know" in cluster.nodes.uncordon("n3", "return-1", {OPERATION}).detail
    assert cluster.nodes.show("n3").reason == "minder evict-another: stall"


def test_ours_is_given_back_once(cluster: Any) -> None:
    cluster.nodes.drain("n2", OPERATION, "stall")
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "done"
    shown = cluster.nodes.show("n2")
    assert not shown.is_held and shown.reason == ""
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "already_done"


def test_what_runs_on_a_drained_node_goes_on(cluster: Any) -> None:
    job = cluster.submit(3)
    assert cluster.nodes.drain(job.nodes()[1], OPERATION, "slowdown").outcome == "done"
    assert job.show().state == "RUNNING" and len(job.nodes()) == 3
    assert cluster.nodes.neighbours(["n1", "n2", "n3", "n4"], job.id) == {}
    assert cluster.nodes.neighbours(["n1", "n4"], 0) == {"n1": (f"slurm job {job.id} of root",)}


def test_no_more_nodes_are_held_than_allowed(cluster: Any) -> None:
    nodes = SlurmNodes(cluster.commands, lambda: 1000.0, max_drained=1)
    nodes.drain("n1", "evict-first", "stall")
    refused = nodes.drain("n2", OPERATION, "stall")
    assert refused.outcome == "failed" and "max_drained is 1" in refused.detail and "n1" in refused.detail
    assert nodes.show("n2").is_idle
    assert nodes.drain("n1", "evict-first", "stall").outcome == "already_done", "it is its own, not one more"


def test_a_node_that_slurm_does_not_know_is_an_error(cluster: Any) -> None:
    with pytest.raises(ActuatorError, match=r"refused.*not found"):
        cluster.nodes.drain("n99", OPERATION, "stall")


def test_a_node_that_went_down_by_itself_is_drained_and_one_that_was_put_down_is_not(fake: Any) -> None:
    fake.fake.nodes["n1"].states, fake.fake.nodes["n1"].reason = {"DOWN", "NOT_RESPONDING"}, "Not responding"
    fake.fake.nodes["n2"].states, fake.fake.nodes["n2"].reason = {"DOWN"}, "psu burnt"
    assert [record.is_idle for record in fake.nodes.show_all(["n1", "n2", "n3"])] == [False, False, True]
    assert fake.nodes.drain("n1", OPERATION, "absence").outcome == "done"
    assert "psu burnt" in fake.nodes.drain("n2", OPERATION, "absence").detail


def test_an_answer_that_is_lost_is_found_again(fake: Any) -> None:
    """Slurm was asked, and its answer never came: not known, then known."""
    fake.fake.lost_answer = True
    assert fake.nodes.drain("n2", OPERATION, "stall").outcome == "ambiguous"
    assert fake.nodes.drain("n2", OPERATION, "stall").outcome == "already_done"
    assert len(fake.fake.changes) == 1


def test_silence_before_anything_was_asked_concludes_nothing(fake: Any) -> None:
    fake.fake.silent = 1
    with pytest.raises(EngineUnavailableError):
        fake.nodes.drain("n2", OPERATION, "stall")
    assert fake.fake.changes == []


@pytest.mark.parametrize(
    "said", ["", "slurm_load: ok", "NodeName=n1\n   State=\n", "NodeName=n9\n   State=IDLE X=1\n", "NodeName=n1\n   State=idle\n"]
)
def test_an_odd_answer_is_no_healthy_node(said: str) -> None:
    class Odd:
        def call(self, words: object) -> str:
            return said

    with pytest.raises(EngineUnavailableError, match="cannot be read"):
        SlurmNodes(Odd(), time.time).show_all(["n1"])


def test_a_command_that_is_missing_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ActuatorError, match="scontrol is not on the PATH: install"):
        SlurmCommands().call(["scontrol", "show", "node", "n1"])


@pytest.mark.root
@pytest.mark.server("slurmctld", "slurmd", "munged")
def test_a_slurmctld_that_is_stopped_or_gone_is_told_in_time_and_changes_nothing(real: Any) -> None:
    nodes = SlurmNodes(real.commands(deadline_s=1.0), time.time)
    real.signal_controller(signal.SIGSTOP)
    try:
        with pytest.raises(EngineUnavailableError, match="within 1 s"):
            nodes.drain("n1", OPERATION, "stall")
    finally:
        real.signal_controller(signal.SIGCONT)
    real.end_controller()
    try:
        with pytest.raises(EngineUnavailableError):
            nodes.drain("n1", OPERATION, "stall")
    finally:
        real.start_controller()
    real.await_states(["idle"])
    assert SlurmNodes(real.commands(), time.time).ours() == {}
