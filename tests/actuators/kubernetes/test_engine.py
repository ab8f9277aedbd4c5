"""What the engine says of a job's machines, and a job that is started again elsewhere by evictions alone."""

from __future__ import annotations

from typing import Any

import pytest

from minder.model.errors import ActuatorError, EngineUnavailableError

OPERATION = "evict-0123456789ab"


def look(cluster: Any) -> Any:
    return cluster.engine.look(["n1", "n2", "n3"])


def test_members_in_the_order_of_ranks_and_the_free_ones(cluster: Any) -> None:
    found = look(cluster)
    assert (found.members, found.free, found.refusal) == (("n1", "n2", "n3"), ("n4", "n5"), "")
    assert dict(found.cordoned) == dict(found.cordoned_by_minder) == dict(found.neighbours) == {}


def test_what_changes_is_followed_and_what_expired_is_read_anew(cluster: Any) -> None:
    look(cluster)
    cluster.by_hand("n4", {"unschedulable": True})
    assert look(cluster).free == ("n5",) and look(cluster).cordoned == {"n4": "cordoned by kubectl-cordon"}
    cluster.api.forget()  # 410: too old
    cluster.by_hand("n5", {"unschedulable": True})
    assert look(cluster).free == ()
    cluster.api.silent = 1
    with pytest.raises(EngineUnavailableError):
        look(cluster)


def test_minders_own_and_a_foreign_taint_are_held_and_a_tolerated_one_is_not(cluster: Any) -> None:
    cluster.nodes.cordon("n2", OPERATION, "stall")
    cluster.by_hand("n4", {"taints": [{"key": "hpc/repair", "effect": "NoSchedule"}]})
    cluster.by_hand("n5", {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]})
    pods = "/api/v1/namespaces/training/pods"
    for pod in cluster.api.items(pods):
        cluster.api.put(pods, {**pod, "spec": {**pod["spec"], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}})
    found = look(cluster)
    assert found.cordoned == {"n2": f"minder {OPERATION}", "n4": "tainted hpc/repair:NoSchedule"}
    assert found.free == ("n5",) and found.cordoned_by_minder == {"n2": OPERATION}


def test_other_peoples_pods_with_a_device_are_neighbours_and_a_daemon_is_not(cluster: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    gpu = [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    daemon = [{"kind": "DaemonSet", "name": "agents", "controller": True}]
    for name, containers, owners in (("jo", gpu, []), ("dns", [{"name": "x"}], []), ("agent", gpu, daemon)):
        about = {"name": name, "namespace": "default", "ownerReferences": owners}
        status = {"phase": "Running"}
        cluster.api.put(pods, {"metadata": about, "spec": {"nodeName": "n4", "containers": containers}, "status": status})
    found = look(cluster)
    assert found.neighbours == {"n4": ("pod default/jo",)} and found.free == ("n5",)


def test_another_kind_of_machine_is_no_spare(cluster: Any) -> None:
    cluster.site.add_node("n6", "serial-6", {"nvidia.com/gpu.product": "A100"})
    assert "nvidia.com/gpu.product is A100, theirs H100" in look(cluster).cordoned["n6"]
    assert "n6" not in look(cluster).free


def test_a_machine_without_the_jobs_device_or_whose_devices_are_all_ill_is_no_spare(cluster: Any) -> None:
    for name, amounts in (("n4", {"cpu": "64"}), ("n5", {"cpu": "64", "nvidia.com/gpu": "0"})):
        (node,) = [item for item in cluster.api.items("/api/v1/nodes") if item["metadata"]["name"] == name]
        cluster.api.put("/api/v1/nodes", {**node, "status": {**node["status"], "allocatable": amounts}})
    assert look(cluster).free == () and look(cluster).cordoned["n4"] == "unlike the job's machines: it has no nvidia.com/gpu"


def test_a_standing_by_pod_of_another_image_takes_no_rank(make_cluster: Any) -> None:
    cluster = make_cluster(machines=3)
    cluster.site.set_image("llm", "llm:2")
    cluster.site._jobs["llm"] = ("PyTorchJob", 4, "llm:2")
    cluster.site.tick()
    assert cluster.pods()["llm-3"] == "n4" and "it runs llm:2, they llm:1" in look(cluster).cordoned["n4"]


def test_the_whole_job_starts_again_elsewhere(cluster: Any) -> None:
    before = cluster.uids()
    cluster.engine.cordon("n2", OPERATION, "stall")
    told = cluster.engine.restart_without(["n2"])
    assert told == "3 pods of PyTorchJob training/llm were evicted; it starts again without n2"
    cluster.site.tick()
    assert "n2" not in cluster.pods().values() and len(cluster.pods()) == 3
    assert not set(before.values()) & set(cluster.uids().values())
    again = cluster.uids()
    assert cluster.engine.restart_without(["n2"]) == "PyTorchJob training/llm runs without n2"
    assert cluster.uids() == again
    assert not [path for method, path in cluster.api.calls if method == "DELETE"]


def test_a_restart_that_broke_off_is_finished_and_touches_no_new_pod(cluster: Any) -> None:
    cluster.engine.cordon("n2", OPERATION, "stall")
    before = cluster.uids()

    def silence_after_two() -> None:  # the register is noted, one pod evicted, then nobody answers
        cluster.api.before_write = lambda: setattr(cluster.api, "before_write", lambda: setattr(cluster.api, "silent", 3))

    cluster.api.before_write = silence_after_two
    with pytest.raises(EngineUnavailableError):
        cluster.engine.restart_without(["n2"])
    cluster.api.silent = 0
    cluster.site.tick()
    between = cluster.uids()
    fresh = {name for name in between if between[name] != before[name]}
    assert 0 < len(fresh) < 3
    cluster.engine.restart_without(["n2"])
    cluster.site.tick()
    after = cluster.uids()
    assert all(after[name] == between[name] for name in fresh), "new pods stay"
    assert not set(after.values()) & set(before.values())


def test_a_budget_that_says_no_is_waited_for_then_told_and_nothing_is_deleted_round_it(cluster: Any) -> None:
    cluster.engine.cordon("n2", OPERATION, "stall")
    cluster.site.budget = 3
    before = cluster.uids()
    with pytest.raises(ActuatorError, match=r"0 of 3 pods were evicted, not llm-1 within 5 s: a PodDisruptionBudget says no"):
        cluster.engine.restart_without(["n2"])
    assert cluster.uids() == before
    asked = [path for method, path in cluster.api.calls if path.endswith("/eviction")]
    assert len(asked) == 10 and all("llm-1" in path for path in asked), "only the bad machine's pod was asked for"
    cluster.site.budget = 0
    assert "3 pods" in cluster.engine.restart_without(["n2"])


def test_a_kubelet_that_is_gone_is_told(cluster: Any) -> None:
    cluster.site.dead.add("n2")
    cluster.engine.cordon("n2", OPERATION, "absence")
    with pytest.raises(ActuatorError, match=r"still ending after 5 s: llm-1 on n2.*by force"):
        cluster.engine.restart_without(["n2"])


def test_the_evicted_machines_pod_alone_is_released(cluster: Any) -> None:
    before = cluster.uids()
    cluster.engine.cordon("n2", OPERATION, "stall")
    assert "was evicted from n2" in cluster.engine.release("n2")
    after = cluster.uids()
    assert {name for name in after if after[name] != before[name]} == {"llm-1"}
    assert cluster.engine.release("n2") == "PyTorchJob training/llm has no pod on n2 any more"


def test_a_rival_is_named_and_nothing_is_evicted(cluster: Any) -> None:
    worker = {"restartPolicy": "OnFailure", "template": {}}
    cluster.site.submit(3, pytorchReplicaSpecs={"Worker": worker})
    assert "the kubelet restarts containers" in look(cluster).refusal
    written = len(cluster.api.changes)
    for ask in (lambda: cluster.engine.restart_without(["n2"]), lambda: cluster.engine.release("n2")):
        with pytest.raises(ActuatorError, match="nothing is evicted: the kubelet restarts containers of PyTorchJob llm"):
            ask()
    assert len(cluster.api.changes) == written


def test_a_job_that_is_over_or_gone_is_told(cluster: Any) -> None:
    path = "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs"
    (found,) = cluster.api.items(path)
    cluster.api.put(path, {**found, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})
    assert look(cluster).refusal == "PyTorchJob training/llm is over (Succeeded)"
    cluster.api.remove(path, "llm")
    with pytest.raises(ActuatorError, match="there is no PyTorchJob training/llm"):
        look(cluster)


def test_a_machine_that_comes_back_under_another_name_is_known_by_its_hardware(cluster: Any) -> None:
    cluster.engine.cordon("n2", OPERATION, "stall")
    cluster.api.remove("/api/v1/nodes", "n2")
    cluster.site.add_node("n7", "serial-2")
    found = look(cluster)
    assert "the same hardware as n2" in found.cordoned["n7"] and "n7" not in found.free and found.cordoned_by_minder == {"n2": OPERATION}
    cluster.engine.restart_without(["n2"])
    cluster.site.tick()
    assert cluster.nodes.show("n7").annotations["minder/operation"] == OPERATION and "n7" not in cluster.pods().values()


def test_other_hardware_under_the_old_name_is_not_barred_by_kubernetes(cluster: Any) -> None:
    cluster.engine.cordon("n4", OPERATION, "stall")
    cluster.api.remove("/api/v1/nodes", "n4")
    cluster.site.add_node("n4", "serial-new")
    assert "n4" in look(cluster).free


def test_a_person_who_takes_the_marks_away_is_obeyed(cluster: Any) -> None:
    cluster.engine.cordon("n4", OPERATION, "stall")
    cluster.by_hand("n4", {"unschedulable": None, "taints": []})
    found = look(cluster)
    assert "n4" in found.free and found.cordoned_by_minder == {} and found.cordoned == {}
    cluster.engine.restart_without(["n2"])
    assert not cluster.nodes.show("n4").unschedulable
    assert cluster.engine.uncordon("n4", "return-1", {OPERATION}).outcome == "done"


@pytest.mark.parametrize("workload", ["Job", "JobSet", "PyTorchJob"])
def test_each_kind_of_job_is_found_by_its_labels(make_cluster: Any, workload: str) -> None:
    cluster = make_cluster(workload=workload)
    assert (look(cluster).members, look(cluster).refusal) == (("n1", "n2", "n3"), "")
