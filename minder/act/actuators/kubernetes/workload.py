"""One job in Kubernetes: its object, and its pods by the labels that its controller gives them, in the order of their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.mirror import list_all
from minder.act.actuators.kubernetes.records import PodRecord, read_pod
from minder.act.actuators.kubernetes.retries import rival_of
from minder.model.errors import ActuatorError, EngineRefusalError

__all__ = ["Workload", "WorkloadRecord"]

_PATHS = {
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{name}",
}
# The older label of a Job is set by every release; batch.kubernetes.io/job-name only since 1.27.
_LABELS = {"Job": "job-name", "JobSet": "jobset.sigs.k8s.io/jobset-name", "PyTorchJob": "training.kubeflow.org/job-name"}
_ROLE, _REPLICA = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_JOB_INDEX, _INDEX = "jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"
_OLDER_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """over: how it ended, "" while it has not. rival: what else would restart it, "" if there is nothing."""

    uid: str
    over: str
    rival: str
    is_suspended: bool


class Workload:
    """workload: "Job", "JobSet" or "PyTorchJob". kueue: engine.kueue."""

    def __init__(self, calls: Calls, namespace: str, workload: str, name: str, kueue: str = "none") -> None:
        self._calls = calls
        self.namespace, self.kind, self.name = namespace, workload, name
        self._kueue = kueue
        self._path = _PATHS[workload].format(namespace=namespace, name=name)
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.selector = f"{_LABELS[workload]}={name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def show(self) -> WorkloadRecord:
        """Raises EngineUnavailableError, or ActuatorError for a job that Kubernetes does not know (any more)."""
        try:
            found = self._calls.call("GET", self._path)
        except EngineRefusalError as error:
            if error.status == 404:
                raise ActuatorError(f"there is no {self} in Kubernetes (engine.job, engine.workload, engine.namespace)") from error
            raise
        spec, status = found.get("spec") or {}, found.get("status") or {}
        suspended = bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))
        return WorkloadRecord(str(found["metadata"]["uid"]), _over(status), rival_of(self.kind, found, self._kueue), suspended)

    def pods(self) -> list[PodRecord]:
        """Its pods that have not ended, those on their way out too, in the order of their ranks."""
        items, _ = list_all(self._calls, self.pods_path, {"labelSelector": self.selector})
        return self.ordered([read_pod(item) for item in items])

    def has(self, pod: PodRecord) -> bool:
        key, _, name = self.selector.partition("=")
        return pod.namespace == self.namespace and pod.labels.get(key) == name

    def ordered(self, pods: list[PodRecord]) -> list[PodRecord]:
        return sorted((pod for pod in pods if not pod.is_over and self.has(pod)), key=_rank)


def _over(status: Mapping[str, Any]) -> str:
    for item in status.get("conditions") or ():
        if item.get("status") == "True" and item.get("type") in ("Complete", "Completed", "Failed", "Succeeded"):
            return str(item["type"])
    return ""


def _rank(pod: PodRecord) -> tuple[int, int, int, str]:
    """The master first, then by job and index; pods without an index by name."""
    role = 0 if pod.labels.get(_ROLE, "").lower() == "master" else 1
    job = pod.labels.get(_JOB_INDEX) or pod.labels.get(_OLDER_JOB_INDEX) or "0"
    index = pod.labels.get(_REPLICA) or pod.labels.get(_INDEX) or pod.annotations.get(_INDEX) or "0"
    return role, int(job) if job.isdigit() else 0, int(index) if index.isdigit() else 0, pod.name
