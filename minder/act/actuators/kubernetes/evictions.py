"""Pods taken away through the Eviction API and nothing else: where a PodDisruptionBudget says no, it is waited for, then reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.records import PodRecord, read_pod
from minder.model.errors import ActuatorError, EngineRefusalError

__all__ = ["Evictions"]

_PAUSE_S = 0.5


class Evictions:
    """deadline_s: for all pods of one call, until the last is gone. confirm: called last before every eviction."""

    def __init__(
        self, calls: Calls, confirm: Callable[[], None], deadline_s: float = 60.0, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._calls = calls
        self._confirm = confirm
        self._deadline_s = deadline_s
        self._sleep = sleep
        self._version = ""

    def evict(self, pods: Sequence[PodRecord], living: Callable[[], Sequence[PodRecord]]) -> None:
        """In their order, one after the other: the first that may not go keeps the rest where it is. Returns when all are gone; a pod
        that went meanwhile is gone, and its namesake is left alone. living: the job's pods now.

        Raises ActuatorError at the deadline, with the budget that says no or the node that does not let its pod go;
        EngineUnavailableError if Kubernetes stopped answering.
        """
        waiting, no = list(pods), ""
        for turn in range(max(1, round(self._deadline_s / _PAUSE_S))):
            if turn:
                self._sleep(_PAUSE_S)
            while waiting and not (no := self._ask(waiting[0])):
                waiting.pop(0)
            uids = {pod.uid for pod in living()}
            waiting = [pod for pod in waiting if pod.uid in uids]
            left = [pod for pod in pods if pod.uid in uids]
            if not left:
                return
        if waiting:
            raise ActuatorError(
                f"{len(pods) - len(waiting)} of {len(pods)} pods were evicted, not {waiting[0].name} within {self._deadline_s:g} s: {no}"
            )
        where = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in left[:5])
        raise ActuatorError(
            f"evicted, but still ending after {self._deadline_s:g} s: {where}; a kubelet that is gone never says that its pod ended: "
            "once the machine is off, delete the pod by force"
        )

    def _ask(self, pod: PodRecord) -> str:
        """Returns why it may not be evicted now, "" where it was asked for or is gone."""
        body = {
            "apiVersion": self._api_version(),
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        self._confirm()
        try:
            self._calls.call("POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)
        except EngineRefusalError as error:
            if error.status == 429:
                return f"a PodDisruptionBudget says no ({error})"
            if error.status == 409 and self._is_there(pod):
                return str(error)
            if error.status not in (404, 409):  # gone, or another pod has its name now
                raise
        return ""

    def _is_there(self, pod: PodRecord) -> bool:
        try:
            found = read_pod(self._calls.call("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))
        except EngineRefusalError as error:
            if error.status == 404:
                return False
            raise
        return found.uid == pod.uid

    def _api_version(self) -> str:
        """policy/v1 since 1.22, policy/v1beta1 before: the server says which."""
        if not self._version:
            found = self._calls.call("GET", "/api/v1")
            resources = [item for item in found.get("resources") or () if item.get("name") == "pods/eviction"]
            if not resources:
                raise ActuatorError("this Kubernetes has no Eviction API: nothing is evicted")
            self._version = f"{resources[0].get('group', 'policy')}/{resources[0].get('version', 'v1')}"
        return self._version
