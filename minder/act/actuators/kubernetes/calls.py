"""The API server through Kubernetes' own client, as plain JSON, each call under a deadline. Nothing is concluded from silence.

Objects stay dictionaries: what the client's models do not know would be lost on the way back, and they take seconds for 5,000 nodes.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError, MissingExtraError
from minder.model.log import event

__all__ = ["Calls", "Json", "KubernetesCalls"]

_log = logging.getLogger("minder.actuators")

Json = dict[str, Any]
_MERGE = "application/merge-patch+json"


class Calls(Protocol):
    """Raises EngineUnavailableError if the API server did not answer in time (whether it did what it was asked is then unknown), and
    EngineRefusalError with the status if it refused."""

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None) -> Json:
        """GET, POST, or PATCH (a merge patch)."""
        ...

    def watch(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        """Events since query["resourceVersion"], after at most a second: {"type": "MODIFIED", "object": {...}}."""
        ...


class KubernetesCalls:
    """deadline_s: seconds for each call. kubeconfig, context: as kubectl's; without, those of the pod that we run in, else kubectl's."""

    def __init__(self, deadline_s: float = 5.0, kubeconfig: str | None = None, context: str | None = None) -> None:
        self._deadline_s = deadline_s
        self._kubeconfig, self._context = kubeconfig, context
        self._opened: Any = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None) -> Json:
        return _object(self._ask(method, path, body, query or {}, self._deadline_s) or b"{}", f"{method} {path}")

    def watch(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        said = self._ask("GET", path, None, {**query, "watch": "true", "timeoutSeconds": 1}, self._deadline_s + 1.0)
        return [_object(line, f"WATCH {path}") for line in said.splitlines() if line.strip()]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any], limit_s: float) -> bytes:
        import urllib3

        event(_log, logging.DEBUG if method == "GET" else logging.INFO, "engine asked", engine="kubernetes", command=f"{method} {path}")
        client = self._client()
        headers = {"Accept": "application/json", "Content-Type": _MERGE if method == "PATCH" else "application/json"}
        words = {key: str(value) for key, value in query.items()}
        parts = client.param_serialize(
            method, path, query_params=list(words.items()), header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = client.call_api(*parts, _request_timeout=limit_s)
            said = bytes(answer.read())
        except (urllib3.exceptions.HTTPError, OSError) as error:
            detail = " ".join(str(error).split())[:200]
            raise EngineUnavailableError(f"Kubernetes did not answer {method} {path} within {limit_s:g} s: {detail}") from error
        if answer.status < 300:
            return said
        raise _refusal(method, path, int(answer.status), said)

    def _client(self) -> Any:
        if self._opened is None:
            self._opened = _open(self._kubeconfig, self._context)
        return self._opened


def _open(kubeconfig: str | None, context: str | None) -> Any:
    """Raises MissingExtraError without the client, ActuatorError without a usable configuration."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise MissingExtraError.of("kubernetes", "kubernetes") from error
    made = client.Configuration()
    made.retries = False  # one call is one request: what is not answered is not known
    try:
        if kubeconfig is None and context is None:
            with contextlib.suppress(config.ConfigException):  # no pod: kubectl's own configuration
                config.load_incluster_config(client_configuration=made)
                return client.ApiClient(made)
        config.load_kube_config(kubeconfig, context, client_configuration=made, persist_config=False)
    except (config.ConfigException, OSError) as error:
        raise ActuatorError(f"no way to Kubernetes: {' '.join(str(error).split())[:200]} (engine.kubeconfig, engine.context)") from error
    return client.ApiClient(made)


def _object(said: bytes, asked: str) -> Json:
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineUnavailableError(f"Kubernetes' answer to {asked} cannot be read: {said[:120]!r}")
    return found


def _refusal(method: str, path: str, status: int, said: bytes) -> ActuatorError:
    try:
        answer = json.loads(said)
        detail = " ".join(str(answer["message"]).split())[:300]
        details = answer.get("details") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, details = said[:120].decode("utf-8", "replace"), {}
    causes = tuple(str(cause.get("reason", "")) for cause in details.get("causes") or ())
    if status >= 500 or (status == 429 and "DisruptionBudget" not in causes):
        # An eviction under two PodDisruptionBudgets is a 500 as well, and no moment's trouble.
        if "more than one PodDisruptionBudget" in detail:
            return EngineRefusalError(f"Kubernetes refused {method} {path}: {detail}", status, causes)
        return EngineUnavailableError(f"Kubernetes does not answer {method} {path}: {status} {detail}")
    more = " (its rights: serve/deploy/kubernetes/rbac.yaml)" if status == 403 else ""
    return EngineRefusalError(f"Kubernetes refused {method} {path}: {detail}{more}", status, causes)
