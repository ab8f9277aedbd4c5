"""Pods that stand by, as a Deployment of the site's own: made larger where standbys are missing, smaller again by what did not come.

A Deployment that becomes smaller loses pods that have no node first. Which operation made it larger, and from how many, stands in an
annotation of it: a second call changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.marks import MANAGER
from minder.model.errors import ActuatorError, EngineRefusalError

__all__ = ["KubernetesStandbys"]

_ASKED = "minder/standbys"  # "<operation> <replicas before>"
_TRIES = 5


class KubernetesStandbys:
    """deployment: its name, None where the site has none. confirm: called last before every write."""

    def __init__(self, calls: Calls, namespace: str, deployment: str | None, confirm: Callable[[], None]) -> None:
        self._calls, self._confirm, self._deployment = calls, confirm, deployment
        self._name = f"Deployment {namespace}/{deployment}"
        self._path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"

    def ask(self, count: int, operation_id: str) -> str:
        """`count` more pods. Raises ActuatorError without a Deployment, EngineUnavailableError."""
        if self._deployment is None:
            raise ActuatorError("no standby is asked of Kubernetes: give engine.standby_deployment, whose pods run agent and launcher")

        def more(found: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
            if _asked(found)[:1] == [operation_id]:
                return None, f"{self._name} was asked for {count} more pods already"
            before = int(found["spec"].get("replicas", 1))
            body = _change(found, before + count, f"{operation_id} {before}")
            return body, f"{self._name} is asked for {before + count} pods in place of {before}"

        return self._patch(more)

    def forgo(self, operation_id: str) -> str:
        """Back to what is ready, and to no fewer than before. Raises EngineUnavailableError."""

        def fewer(found: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
            asked = _asked(found)
            if asked[:1] != [operation_id]:
                return None, f"{self._name} is not what {operation_id} left: nothing is changed"
            now, ready = int(found["spec"].get("replicas", 1)), int((found.get("status") or {}).get("readyReplicas") or 0)
            kept = min(now, max(ready, int(asked[1])))
            return _change(found, kept, None), f"{self._name} has {kept} pods: {now - kept} did not come in time"

        return self._patch(fewer)

    def _patch(self, make: Callable[[Mapping[str, Any]], tuple[dict[str, Any] | None, str]]) -> str:
        for _ in range(_TRIES):
            body, said = make(self._calls.call("GET", self._path))
            if body is None:
                return said
            self._confirm()
            try:
                self._calls.call("PATCH", self._path, body, {"fieldManager": MANAGER})
            except EngineRefusalError as error:
                if error.status != 409:
                    raise
                continue
            return said
        raise ActuatorError(f"{self._name} changed under {_TRIES} tries: nothing is asked")


def _asked(found: Mapping[str, Any]) -> list[str]:
    return str((found["metadata"].get("annotations") or {}).get(_ASKED) or "").split()


def _change(found: Mapping[str, Any], replicas: int, asked: str | None) -> dict[str, Any]:
    about = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {_ASKED: asked}}
    return {"metadata": about, "spec": {"replicas": replicas}}
