"""Cordoned and tainted with the operation that did it, given back; what others hold is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from minder.model.errors import EngineRefusalError, EngineUnavailableError, LeaseLostError

OPERATION = "evict-0123456789ab"


def test_a_node_carries_the_operation_its_owner_and_why(cluster: Any) -> None:
    result = cluster.nodes.cordon("n2", OPERATION, "stall, confidence 0.95")
    assert (result.outcome, result.operation_id) == ("done", OPERATION)
    assert result.undo == "minder machine return n2 --config job.toml"
    shown = cluster.nodes.show("n2")
    assert shown.unschedulable and [(taint.key, taint.effect) for taint in shown.taints] == [("minder/evicted", "NoSchedule")]
    assert shown.annotations["minder/operation"] == OPERATION and shown.annotations["minder/owner"] == "training/llm"
    assert shown.annotations["minder/why"] == "stall, confidence 0.95"
    assert list(cluster.nodes.register.entries()) == ["n2"]


def test_the_same_operation_again_changes_nothing(cluster: Any) -> None:
    cluster.nodes.cordon("n2", OPERATION, "stall")
    written = len(cluster.api.changes)
    again = cluster.nodes.cordon("n2", OPERATION, "stall, told otherwise")
    assert again.outcome == "already_done" and again.undo and len(cluster.api.changes) == written


@pytest.mark.parametrize(
    "spec", [{"unschedulable": True}, {"unschedulable": True, "taints": [{"key": "hpc/repair", "effect": "NoSchedule"}]}]
)
def test_a_persons_cordon_is_never_touched(cluster: Any, spec: dict[str, Any]) -> None:
    cluster.by_hand("n3", spec)
    before = cluster.nodes.show("n3")
    result = cluster.nodes.cordon("n3", OPERATION, "stall")
    assert result.outcome == "already_done" and result.undo == "" and "cordoned by kubectl-cordon" in result.detail
    back = cluster.nodes.uncordon("n3", "return-1", {OPERATION})
    assert back.outcome == "failed" and "not ours to undo" in back.detail
    assert cluster.nodes.show("n3") == before and cluster.nodes.register.entries() == {}


def test_other_taints_stay_where_they_are(cluster: Any) -> None:
    gpu = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
    cluster.by_hand("n2", {"taints": [gpu]})
    cluster.nodes.cordon("n2", OPERATION, "stall")
    assert [taint.key for taint in cluster.nodes.show("n2").taints] == ["nvidia.com/gpu", "minder/evicted"]
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "done"
    assert [(taint.key, taint.value) for taint in cluster.nodes.show("n2").taints] == [("nvidia.com/gpu", "present")]


def test_ours_is_given_back_once_and_nothing_of_it_is_left(cluster: Any) -> None:
    before = cluster.nodes.show("n2")
    cluster.nodes.cordon("n2", OPERATION, "stall")
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "done"
    shown = cluster.nodes.show("n2")
    assert (shown.unschedulable, shown.taints, shown.annotations, shown.labels) == (False, (), {}, before.labels)
    assert cluster.nodes.register.entries() == {}
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "already_done"


def test_a_cordon_that_a_person_set_anew_stays_when_ours_goes(cluster: Any) -> None:
    cluster.nodes.cordon("n2", OPERATION, "stall")
    cluster.by_hand("n2", {"unschedulable": None})
    cluster.by_hand("n2", {"unschedulable": True})
    back = cluster.nodes.uncordon("n2", "return-1", {OPERATION})
    assert back.outcome == "done" and "stays cordoned by kubectl-cordon" in back.detail
    shown = cluster.nodes.show("n2")
    assert shown.unschedulable and shown.taints == ()


def test_a_mark_of_another_minder_is_not_ours_either(cluster: Any) -> None:
    cluster.nodes.cordon("n3", "evict-another", "stall")
    assert cluster.nodes.cordon("n3", OPERATION, "stall").undo == ""
    assert "does not know" in cluster.nodes.uncordon("n3", "return-1", {OPERATION}).detail
    assert cluster.nodes.show("n3").annotations["minder/operation"] == "evict-another"


def test_a_node_that_changes_under_our_hands_is_read_again(cluster: Any) -> None:
    cluster.nodes.cordon("n1", "evict-first", "so that the register is there")
    taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}

    def kubelet() -> None:  # between our reading of the node and our writing of it
        cluster.api.before_write = lambda: cluster.by_hand("n2", {"taints": [taint]})

    cluster.api.before_write = kubelet
    assert cluster.nodes.cordon("n2", OPERATION, "stall").outcome == "done"
    assert [taint.key for taint in cluster.nodes.show("n2").taints] == ["node.kubernetes.io/memory-pressure", "minder/evicted"]


def test_a_person_who_is_faster_keeps_the_node(cluster: Any) -> None:
    def person() -> None:
        cluster.api.before_write = lambda: cluster.by_hand("n2", {"unschedulable": True})

    cluster.api.before_write = person
    result = cluster.nodes.cordon("n2", OPERATION, "stall")
    assert result.outcome == "already_done" and "cordoned by kubectl-cordon" in result.detail
    assert cluster.nodes.show("n2").taints == () and cluster.nodes.register.entries() == {}


def test_no_more_nodes_are_held_than_allowed_by_whichever_controller(cluster: Any) -> None:
    cluster.nodes.cordon("n1", "evict-first", "stall")
    other = cluster.new_engine(job="other", max_held=1).nodes
    refused = other.cordon("n2", OPERATION, "stall")
    assert refused.outcome == "failed" and "max_held is 1" in refused.detail and "n1" in refused.detail
    assert not cluster.nodes.show("n2").unschedulable
    assert other.cordon("n1", "evict-first", "stall").outcome == "already_done", "it is its own, not one more"


def test_two_controllers_at_the_same_moment_do_not_pass_the_limit(cluster: Any) -> None:
    one, other = cluster.new_engine(max_held=1).nodes, cluster.new_engine(max_held=1).nodes
    cluster.api.before_write = lambda: other.cordon("n3", "evict-other", "stall")
    assert one.cordon("n2", OPERATION, "stall").outcome == "failed"
    assert not cluster.nodes.show("n2").unschedulable and cluster.nodes.show("n3").unschedulable


def test_an_answer_that_is_lost_is_found_again(cluster: Any) -> None:
    cluster.nodes.cordon("n1", "evict-first", "so that the register is there")

    def lose() -> None:
        cluster.api.before_write = lambda: setattr(cluster.api, "lost_answer", True)

    cluster.api.before_write = lose
    assert cluster.nodes.cordon("n2", OPERATION, "stall").outcome == "ambiguous"
    assert cluster.nodes.cordon("n2", OPERATION, "stall").outcome == "already_done"


def test_silence_before_anything_was_asked_concludes_nothing(cluster: Any) -> None:
    cluster.api.silent = 1
    with pytest.raises(EngineUnavailableError):
        cluster.nodes.cordon("n2", OPERATION, "stall")
    assert cluster.api.changes == []


def test_the_lease_is_read_last_and_a_controller_that_lost_it_writes_nothing(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise LeaseLostError("another controller leads")

    monkeypatch.setattr(cluster.nodes, "_confirm", lost)
    with pytest.raises(LeaseLostError):
        cluster.nodes.cordon("n2", OPERATION, "stall")
    assert not cluster.nodes.show("n2").unschedulable


def test_a_node_that_kubernetes_does_not_know_is_an_error(cluster: Any) -> None:
    with pytest.raises(EngineRefusalError, match="not found"):
        cluster.nodes.cordon("n99", OPERATION, "stall")


def test_a_node_that_is_gone_is_given_back_too(cluster: Any) -> None:
    cluster.nodes.cordon("n2", OPERATION, "stall")
    cluster.api.remove("/api/v1/nodes", "n2")
    assert cluster.nodes.uncordon("n2", "return-1", set()).outcome == "failed", "another ledger's"
    assert cluster.nodes.uncordon("n2", "return-1", {OPERATION}).outcome == "done"
    assert cluster.nodes.register.entries() == {}
