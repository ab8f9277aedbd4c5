"""Who else would restart the job: exactly one may own its retries. What is found is named, with the setting that ends it.

Read from the objects' own specifications: batch/v1 Job, JobSet v1alpha2, PyTorchJob kubeflow.org/v1 (docs/assumptions.md says which of
these ever ran here).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["rival_of"]

_QUEUE = "kueue.x-k8s.io/queue-name"
_DISRUPTED = "podFailurePolicy: its first rule must be `action: Ignore` on the condition DisruptionTarget"


def rival_of(workload: str, found: Mapping[str, Any], kueue: str = "none") -> str:
    """The rival and its setting in one line; "" if minder's evictions are the only restarts. kueue: engine.kueue."""
    name = f"{workload} {found['metadata']['name']}"
    if _QUEUE in (found["metadata"].get("labels") or {}) and kueue != "admission":
        return f"Kueue admits {name} and may evict or requeue it by itself: switch its recovery off, then set engine.kueue = admission"
    return _READERS[workload](name, found.get("spec") or {})


def _job(name: str, spec: Mapping[str, Any]) -> str:
    if spec.get("completionMode") != "Indexed":
        return f"{name} is not Indexed: a new pod would not get the evicted pod's rank (completionMode: Indexed)"
    if spec.get("backoffLimitPerIndex") is not None:
        return f"the Job controller retries each index of {name} by itself: leave backoffLimitPerIndex out"
    if spec.get("backoffLimit", 6) != 0:
        return f"the Job controller retries pods of {name} by itself: set backoffLimit: 0 (it is {spec.get('backoffLimit', 6)})"
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
    first = rules[0] if rules else {}
    patterns = [item.get("type") for item in first.get("onPodConditions") or ()]
    if first.get("action") != "Ignore" or "DisruptionTarget" not in patterns:
        return f"an eviction would count as a failure and end {name}: set {_DISRUPTED}"
    return _template(name, spec.get("template") or {}, ("Never",))


def _jobset(name: str, spec: Mapping[str, Any]) -> str:
    most = (spec.get("failurePolicy") or {}).get("maxRestarts", 0)
    if most:
        return f"JobSet recreates every Job of {name} by itself: set failurePolicy.maxRestarts: 0 (it is {most})"
    for job in spec.get("replicatedJobs") or ():
        why = _job(f"{name}'s Job {job.get('name')}", (job.get("template") or {}).get("spec") or {})
        if why:
            return why
    return "" if spec.get("replicatedJobs") else f"{name} has no replicatedJobs"


def _pytorch(name: str, spec: Mapping[str, Any]) -> str:
    if (spec.get("elasticPolicy") or {}).get("maxRestarts"):
        return f"torchrun restarts the workers of {name} by itself: set elasticPolicy.maxRestarts: 0"
    if (spec.get("runPolicy") or {}).get("backoffLimit") is not None:
        return f"an eviction would count as a failure of {name}: leave runPolicy.backoffLimit out"
    replicas: Mapping[str, Any] = spec.get("pytorchReplicaSpecs") or {}
    for role, replica in replicas.items():
        policy = replica.get("restartPolicy", "OnFailure")
        if policy == "Never":
            return f"an eviction would end {name}: set {role}.restartPolicy: ExitCode"
        if policy != "ExitCode":
            return f"the kubelet restarts containers of {name} by itself: set {role}.restartPolicy: ExitCode (it is {policy})"
        why = _template(name, replica.get("template") or {}, ("Never", "OnFailure", "Always", None))  # the operator overrides it
        if why:
            return why
    return "" if replicas else f"{name} has no pytorchReplicaSpecs"


def _template(name: str, template: Mapping[str, Any], policies: tuple[str | None, ...]) -> str:
    spec = template.get("spec") or {}
    policy = spec.get("restartPolicy")
    if policy not in policies:
        return f"the kubelet restarts containers of {name} by itself: set restartPolicy: {policies[0]} (it is {policy})"
    for item in spec.get("tolerations") or ():
        if not item.get("key") and item.get("effect") in (None, "", "NoSchedule"):
            return f"pods of {name} tolerate every taint, and would come back to the evicted node: name the taints that they must tolerate"
    return ""


_READERS: dict[str, Callable[[str, Mapping[str, Any]], str]] = {"Job": _job, "JobSet": _jobset, "PyTorchJob": _pytorch}
