"""Nodes, jobs and those who act on them, in the API server in memory: a scheduler, a controller that replaces pods, kubelets, a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.act.actuators.kubernetes.calls import Json
from minder.act.actuators.kubernetes.records import read_node, read_pod
from tests.fakes.kubernetes_fake import FakeApi

__all__ = ["FakeSite", "job_object"]

_NODES = "/api/v1/nodes"
_KINDS = {
    "Job": ("/apis/batch/v1/namespaces/training/jobs", "job-name", "batch.kubernetes.io/job-completion-index"),
    "PyTorchJob": (
        "/apis/kubeflow.org/v1/namespaces/training/pytorchjobs",
        "training.kubeflow.org/job-name",
        "training.kubeflow.org/replica-index",
    ),
    "JobSet": (
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/training/jobsets",
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/job-index",
    ),
}
_DEVICE = "nvidia.com/gpu"


class FakeSite:
    """Nodes n1, n2, ... with eight GPUs each. `budget`: pods of the job that must stay, at least. `dead`: nodes whose kubelet is gone."""

    def __init__(self, nodes: int = 5) -> None:
        self.api = FakeApi()
        self.budget = 0
        self.dead: set[str] = set()
        self._jobs: dict[str, tuple[str, int, str]] = {}
        self.api.may_evict = self._may_evict
        for index in range(1, nodes + 1):
            self.add_node(f"n{index}", f"serial-{index}")

    def add_node(self, name: str, serial: str, labels: Mapping[str, str] | None = None) -> None:
        status = {
            "allocatable": {"cpu": "64", _DEVICE: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": f"10.0.0.{name[1:]}"}],
            "nodeInfo": {"systemUUID": serial, "osImage": "Debian 12", "kernelVersion": "6.1"},
        }
        about = {"name": name, "labels": {"nvidia.com/gpu.product": "H100", **(labels or {})}}
        self.api.put(_NODES, {"metadata": about, "spec": {}, "status": status})

    def submit(self, count: int, name: str = "llm", kind: str = "PyTorchJob", **spec: Any) -> None:
        collection, _, _ = _KINDS[kind]
        self.api.put(collection, job_object(kind, name, **spec))
        self._jobs[name] = (kind, count, f"{name}:1")
        self.tick()

    def set_image(self, name: str, image: str) -> None:
        """Of the pods that are made from now on."""
        kind, count, _ = self._jobs[name]
        self._jobs[name] = (kind, count, image)

    def end_pod(self, name: str) -> None:
        self.api.remove("/api/v1/namespaces/training/pods", name)

    def tick(self) -> None:
        """Kubelets end what was told to end, controllers make what is missing, the scheduler places it."""
        pods = "/api/v1/namespaces/training/pods"
        for pod in map(read_pod, self.api.items(pods)):
            if pod.is_ending and pod.node not in self.dead:
                self.end_pod(pod.name)
        for name, (kind, count, image) in self._jobs.items():
            there = {item["metadata"]["name"] for item in self.api.items(pods)}
            for index in range(count):
                if f"{name}-{index}" not in there:
                    self.api.put(pods, _pod(name, kind, index, image))
        self._schedule(pods)

    def _schedule(self, pods: str) -> None:
        for item in self.api.items(pods):
            if item["spec"].get("nodeName"):
                continue
            taken = {other["spec"].get("nodeName") for other in self.api.items(pods)}
            free = [node for node in map(read_node, self.api.items(_NODES)) if not node.unschedulable and not node.taints]
            fit = [node.name for node in free if node.name not in taken and node.name not in self.dead]
            if fit:
                status = {**item["status"], "phase": "Running", "podIP": f"10.1.0.{fit[0][1:]}"}
                self.api.put(pods, {**item, "spec": {**item["spec"], "nodeName": fit[0]}, "status": status})

    def _may_evict(self, pod: Json) -> str:
        living = [item for item in map(read_pod, self.api.items("/api/v1/namespaces/training/pods")) if not item.is_ending and item.node]
        if len(living) <= self.budget:
            return "Cannot evict pod as it would violate the pod's disruption budget."
        return ""


def _pod(name: str, kind: str, index: int, image: str) -> Json:
    _, label, rank = _KINDS[kind]
    owner = {"kind": kind, "name": name, "controller": True}
    about = {"name": f"{name}-{index}", "namespace": "training", "labels": {label: name, rank: str(index)}, "ownerReferences": [owner]}
    container = {"name": "main", "image": image, "resources": {"limits": {_DEVICE: "8"}}}
    return {"metadata": about, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}


def job_object(kind: str, name: str, **spec: Any) -> Json:
    """One whose only owner of restarts is minder; `spec` overrides parts of it."""
    template = {"spec": {"restartPolicy": "Never"}}
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    job = {
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": rules},
        "podReplacementPolicy": "Failed",  # what an API server of 1.29 or newer puts beside a podFailurePolicy, and the only value there
        "template": template,
    }
    specs: dict[str, Json] = {
        "Job": job,
        "JobSet": {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode", "template": template}}},
    }
    return {"metadata": {"name": name, "namespace": "training"}, "spec": {**specs[kind], **spec}, "status": {}}
