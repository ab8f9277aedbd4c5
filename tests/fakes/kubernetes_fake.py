"""A Kubernetes API server in memory, for tests: strict about versions, conflicts, selectors and what it is asked, and it can be slow,
down, or forget. `kubernetes_site_fake` puts nodes, pods and controllers into it.

`tests/actuators/kubernetes` runs one suite against this and the real calls: both are changed together.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from minder.act.actuators.kubernetes.calls import Json
from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError

__all__ = ["FakeApi"]

_OBJECT = re.compile(r"(?P<collection>/api/v1/nodes|/api/v1/pods|/apis?/[^?]*/namespaces/[^/]+/[a-z]+)(?:/(?P<name>[a-z0-9.-]+))?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_PATHS = re.compile(r"/api/v1/(nodes|pods)|/apis?/.+/namespaces/[^/]+/(pods|configmaps|jobs|jobsets|pytorchjobs|poddisruptionbudgets)")


class FakeApi:
    """calls.Calls. `calls` holds what it was asked. `silent`: this many further calls are not answered; `lost_answer`: the next write
    happens, and its answer is lost; `before_write`: called once, before the next write (somebody else is faster);
    `page`: objects a page."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.silent = 0
        self.lost_answer = False
        self.before_write: Callable[[], None] | None = None
        self.page = 2
        self.eviction_version = "v1"
        self.namespaces = {"default", "minder", "training", "kube-system"}
        self.may_evict: Callable[[Json], str] = lambda pod: ""
        self._objects: dict[str, dict[str, Json]] = {}
        self._events: list[tuple[int, str, Json]] = []  # version, collection, event
        self._version = 100
        self._oldest = 0

    # What a client may do

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None) -> Json:
        self._enter(method, path)
        if method != "GET" and self.before_write is not None:
            hook, self.before_write = self.before_write, None
            hook()
        answer = self._answer(method, path, copy.deepcopy(dict(body or {})), dict(query or {}))
        if method != "GET" and self.lost_answer:
            self.lost_answer = False
            raise EngineUnavailableError(f"Kubernetes did not answer {method} {path} within 5 s")
        return copy.deepcopy(answer)

    def watch(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        self._enter("WATCH", path)
        since = int(query["resourceVersion"])
        assert set(query) <= {"resourceVersion", "allowWatchBookmarks", "labelSelector", "fieldSelector"}, query
        if since < self._oldest:  # a real one says so in the stream
            return [
                {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}}
            ]
        found = []
        for version, collection, event in self._events:
            if version > since and _covers(path, collection):
                gone = event["type"] == "DELETED" or not _selected(event["object"], query)
                found.append({"type": "DELETED" if gone else event["type"], "object": event["object"]})
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
        return copy.deepcopy([*found, bookmark])

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.calls if method in ("POST", "PATCH")]

    # What only a test may do

    def put(self, collection: str, item: Json) -> Json:
        """Create or replace, as some other client."""
        about = item["metadata"]
        key = about["name"]
        kind = "MODIFIED" if key in self._objects.setdefault(collection, {}) else "ADDED"
        self._version += 1
        about.setdefault("uid", f"uid-{self._version}")
        about["resourceVersion"] = str(self._version)
        self._objects[collection][key] = item
        self._events.append((self._version, collection, {"type": kind, "object": copy.deepcopy(item)}))
        return item

    def remove(self, collection: str, name: str) -> None:
        item = self._objects[collection].pop(name)
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, collection, {"type": "DELETED", "object": copy.deepcopy(item)}))

    def items(self, path: str) -> list[Json]:
        found = [(name, item) for collection, held in self._objects.items() if _covers(path, collection) for name, item in held.items()]
        return [item for _, item in sorted(found, key=lambda pair: pair[0])]

    def forget(self) -> None:
        """Compaction: watches and pages of before are expired."""
        self._version += 1
        self._oldest, self._events = self._version, []

    # How it answers

    def _enter(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        if self.silent:
            self.silent -= 1
            raise EngineUnavailableError(f"Kubernetes did not answer {method} {path} within 5 s")

    def _answer(self, method: str, path: str, body: Json, query: Json) -> Json:
        if (method, path) == ("GET", "/api/v1"):
            return {"resources": [{"name": "pods"}, {"name": "pods/eviction", "group": "policy", "version": self.eviction_version}]}
        if method == "POST" and path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), body)
        match = _OBJECT.fullmatch(path)
        assert match is not None and _PATHS.fullmatch(match["collection"]), f"the fake API server does not know {method} {path}"
        name = match["name"]
        if method == "GET" and name is None:
            return self._list(path, query)
        if method == "GET":
            return self._get(match["collection"], name)
        assert set(query) == {"fieldManager"}, query
        if method == "POST" and name is None:
            return self._create(path, body)
        assert method == "PATCH" and name is not None, f"the fake API server does not know {method} {path}"
        return self._patch(match["collection"], name, body, query["fieldManager"])

    def _list(self, path: str, query: Json) -> Json:
        assert set(query) <= {"labelSelector", "fieldSelector", "limit", "continue"}, query
        start, version = 0, self._version
        if "continue" in query:
            start, version = map(int, str(query["continue"]).split("@"))
            if version < self._oldest:
                raise _refused(410, "The provided continue parameter is too old", path)
        found = [item for item in self.items(path) if _selected(item, query)]
        end = start + min(self.page, int(query.get("limit", self.page)))
        about = {"resourceVersion": str(version), **({"continue": f"{end}@{version}"} if end < len(found) else {})}
        return {"metadata": about, "items": found[start:end]}

    def _get(self, collection: str, name: str) -> Json:
        if name not in self._objects.get(collection, {}):
            raise _refused(404, f'"{name}" not found', collection)
        return self._objects[collection][name]

    def _create(self, collection: str, body: Json) -> Json:
        namespace = collection.split("/namespaces/")[1].split("/")[0]
        if namespace not in self.namespaces:
            raise _refused(404, f'namespaces "{namespace}" not found', collection)
        if body["metadata"]["name"] in self._objects.get(collection, {}):
            raise _refused(409, f'"{body["metadata"]["name"]}" already exists', collection)
        body["metadata"]["namespace"] = namespace
        return self.put(collection, body)

    def _patch(self, collection: str, name: str, body: Json, manager: str) -> Json:
        before = self._get(collection, name)
        wanted = body["metadata"].get("resourceVersion")
        assert wanted, "a write that does not say what it was made from overwrites somebody else's"
        if wanted != before["metadata"]["resourceVersion"]:
            raise _refused(409, f'Operation cannot be fulfilled on "{name}": the object has been modified', collection)
        after = _merged(before, body)
        _validate(after)
        if after.get("spec", {}).get("unschedulable") != before.get("spec", {}).get("unschedulable"):
            fields: Json = {"f:spec": {"f:unschedulable": {}}}
            after["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}] if after["spec"].get("unschedulable") else []
        return after if after == before else self.put(collection, after)

    def _evict(self, path: str, body: Json) -> Json:
        assert body["apiVersion"] == f"policy/{self.eviction_version}" and body["kind"] == "Eviction", body
        collection, _, name = path.rpartition("/")
        pod = self._get(collection, name)
        uid = body["deleteOptions"]["preconditions"]["uid"]
        if uid != pod["metadata"]["uid"]:
            raise _refused(409, f"Precondition failed: UID in precondition: {uid}", path)
        told = self.may_evict(pod)
        if told:
            raise EngineRefusalError(f"Kubernetes refused POST {path}/eviction: {told}", 429, ("DisruptionBudget",))
        if "deletionTimestamp" not in pod["metadata"]:
            self.put(collection, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        return {"kind": "Status", "status": "Success"}


def _covers(path: str, collection: str) -> bool:
    return path == collection or (path == "/api/v1/pods" and collection.endswith("/pods"))


def _selected(item: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, equal, value = part.partition("=")
        assert equal, f"the fake API server does not know the selector {part}"
        if labels.get(key) != value:
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        key, unequal, value = part.partition("!=")
        assert (key, unequal) == ("status.phase", "!="), f"the fake API server does not know the selector {part}"
        if item.get("status", {}).get("phase") == value:
            return False
    return True


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = copy.deepcopy(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


def _validate(item: Json) -> None:
    for key, value in (item["metadata"].get("labels") or {}).items():
        if not _LABEL.fullmatch(str(value)):
            raise _refused(422, f"metadata.labels: Invalid value: {key}={value}", "")
    for taint in (item.get("spec") or {}).get("taints") or ():
        if not _LABEL.fullmatch(taint.get("value", "")) or taint.get("effect") not in ("NoSchedule", "NoExecute", "PreferNoSchedule"):
            raise _refused(422, f"spec.taints: Invalid value: {taint}", "")
    for key, value in (item["metadata"].get("annotations") or {}).items():
        assert isinstance(value, str), f"annotation {key} is no text"
    for key, value in (item.get("data") or {}).items():
        assert isinstance(value, str) and re.fullmatch(r"[-._a-zA-Z0-9]+", key), f"data {key} cannot stand in a ConfigMap"


def _refused(status: int, told: str, path: str) -> ActuatorError:
    return EngineRefusalError(f"Kubernetes refused {path}: {told}", status)
