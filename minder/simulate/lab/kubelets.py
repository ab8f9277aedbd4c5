"""What stands in for kubelets and a job's operator at a real API server: nodes are kept ready, pods run as soon as they are placed and end
when they are asked to, and pods of a PyTorchJob that are missing are made anew. No container runs.

The PyTorchJob's own object stands beside the API server, too: 1.20 built with Go 1.19 dies of any custom resource (docs/experiments.md).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from minder.act.actuators.kubernetes.calls import Calls, Json
from minder.model.errors import ActuatorError, LabError

__all__ = ["JobBeside", "Kubelets", "node_object", "pytorch_job"]

_EVERY_S = 0.2
_BEAT_S = 10.0
_GPU = "nvidia.com/gpu"
_UNSAID = (
    *("machineID", "bootID", "architecture", "operatingSystem"),
    *("containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion"),
)


def node_object(name: str, serial: str) -> Json:
    """A node as a kubelet registers it: ready, eight GPUs."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", _GPU: "8"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "H100"}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [_ready()],
            "nodeInfo": {**dict.fromkeys(_UNSAID, ""), "systemUUID": serial, "kernelVersion": "6.1", "osImage": "Debian 12"},
        },
    }


def pytorch_job(name: str, replicas: int) -> Json:
    """Whose only owner of restarts is minder; each pod takes a whole node."""
    container = {"name": "pytorch", "image": "train:1", "resources": {"limits": {_GPU: "8"}}}
    worker = {"replicas": replicas, "restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}
    about = {"name": name, "namespace": "training", "uid": f"uid-{name}"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": about, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}


class JobBeside:
    """calls.Calls: a real API server's, and one PyTorchJob that it does not know."""

    def __init__(self, calls: Calls, job: Json) -> None:
        self._calls = calls
        self._job = job
        about = job["metadata"]
        self._path = f"/apis/kubeflow.org/v1/namespaces/{about['namespace']}/pytorchjobs/{about['name']}"

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None) -> Json:
        if (method, path) == ("GET", self._path):
            return self._job
        return self._calls.call(method, path, body, query)

    def watch(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        return self._calls.watch(path, query)


class Kubelets:
    """`with Kubelets(calls, nodes) as kubelets`: the nodes are registered and ready. `dead`: nodes whose kubelet is gone; `jobs`: those
    whose pods are made."""

    def __init__(self, calls: Calls, nodes: Sequence[str]) -> None:
        self._calls = calls
        self.jobs: list[Json] = []
        self.nodes = tuple(nodes)
        self.dead: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def __enter__(self) -> Kubelets:
        for number, name in enumerate(self.nodes, 1):
            self._calls.call("POST", "/api/v1/nodes", node_object(name, f"serial-{number}"))
        self._thread.start()
        self._await_ready()
        return self

    def __exit__(self, *unused: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def _await_ready(self, limit_s: float = 60.0) -> None:
        """Until the API server's own taint of a new node is gone."""
        end_s = time.monotonic() + limit_s
        while any(item["spec"].get("taints") for item in self._calls.call("GET", "/api/v1/nodes")["items"]):
            if time.monotonic() > end_s:
                raise LabError(f"the nodes are not ready after {limit_s:.0f} s")
            time.sleep(0.1)

    def _run(self) -> None:
        beaten_s = 0.0
        while not self._ending.wait(_EVERY_S):
            with contextlib.suppress(ActuatorError):  # the server was stopped, or another client was faster: the next turn sees it
                if time.monotonic() - beaten_s > _BEAT_S:
                    beaten_s = time.monotonic()
                    self._beat()
                self._move_pods()
                self._make_pods()

    def _beat(self) -> None:
        for name in self.nodes:
            if name not in self.dead:
                self._calls.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [_ready()]}})

    def _move_pods(self) -> None:
        for pod in self._calls.call("GET", "/api/v1/pods")["items"]:
            about, node = pod["metadata"], pod["spec"].get("nodeName")
            path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
            if node in self.dead:
                continue
            if "deletionTimestamp" in about:
                self._calls.call("DELETE", path, {"gracePeriodSeconds": 0})
            elif node and pod["status"].get("phase") == "Pending":
                status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
                self._calls.call("PATCH", f"{path}/status", {"status": status})

    def _make_pods(self) -> None:
        for job in list(self.jobs):
            about, worker = job["metadata"], job["spec"]["pytorchReplicaSpecs"]["Worker"]
            path = f"/api/v1/namespaces/{about['namespace']}/pods"
            there = {item["metadata"]["name"] for item in self._calls.call("GET", path)["items"]}
            for index in range(worker["replicas"]):
                if f"{about['name']}-worker-{index}" not in there:
                    self._calls.call("POST", path, _worker(about, worker["template"], index))


def _worker(job: Mapping[str, str], template: Json, index: int) -> Json:
    labels = {
        "training.kubeflow.org/job-name": job["name"],
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": str(index),
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job["name"], "uid": job["uid"], "controller": True}
    about = {"name": f"{job['name']}-worker-{index}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": about, "spec": {**template["spec"], "restartPolicy": "Never"}}


def _ready() -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    reason = {"reason": "KubeletReady", "message": "stands in for a kubelet"}
    return {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now, **reason}
