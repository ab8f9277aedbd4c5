"""What the API server says of nodes and pods, read strictly: what is missing or odd is an error, never a healthy node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from minder.model.errors import EngineUnavailableError

__all__ = ["NodeRecord", "PodRecord", "Taint", "read_node", "read_pod"]

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node. version: of the object, as the API server counts; hardware: what it is known by, "" if nothing says;
    cordoned_by: the program that last set spec.unschedulable, "" if it is not recorded."""

    name: str
    uid: str
    version: str
    unschedulable: bool
    is_ready: bool
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    system_uuid: str = ""
    address: str = ""
    cordoned_by: str = ""
    image: str = ""  # operating system and kernel
    devices: frozenset[str] = frozenset()  # what pods may ask for: "nvidia.com/gpu"

    def hardware(self, key: str | None) -> str:
        """Its serial number under an annotation or label, else the provider's id, else the system's UUID; "" if none is known."""
        serial = self.annotations.get(key, "") or self.labels.get(key, "") if key else ""
        return serial or self.provider or self.system_uuid


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod. owner: kind and name of its controller ("Job llm"), "" without one; images: what its containers run, by digest where
    the node has reported it."""

    name: str
    namespace: str
    uid: str
    phase: str
    node: str = ""
    is_ending: bool = False
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    images: tuple[str, ...] = ()
    devices: frozenset[str] = frozenset()
    tolerations: tuple[Mapping[str, str], ...] = ()

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_of_the_node(self) -> bool:
        """A DaemonSet's or the kubelet's own: it belongs to the node, and is never evicted."""
        return self.owner.startswith(("DaemonSet ", "Node ")) or "kubernetes.io/config.mirror" in self.annotations

    def tolerates(self, taint: Taint) -> bool:
        for item in self.tolerations:
            key, effect = item.get("key", ""), item.get("effect", "")
            fits = not key or (key == taint.key and (item.get("operator") == "Exists" or item.get("value", "") == taint.value))
            if fits and effect in ("", taint.effect):
                return True
        return False


def read_node(found: Mapping[str, Any]) -> NodeRecord:
    """Raises EngineUnavailableError if that is no node."""
    return _strict(_node, found, "node")


def read_pod(found: Mapping[str, Any]) -> PodRecord:
    """Raises EngineUnavailableError if that is no pod."""
    return _strict(_pod, found, "pod")


def _strict(read: Callable[[Mapping[str, Any]], Record], found: Mapping[str, Any], what: str) -> Record:
    try:
        return read(found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        text = " ".join(str(found).split())[:120]
        raise EngineUnavailableError(f"Kubernetes' answer about a {what} cannot be read ({error!r}): {text}") from error


def _node(found: Mapping[str, Any]) -> NodeRecord:
    about, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    info = status.get("nodeInfo") or {}
    addresses = {item["type"]: item["address"] for item in status.get("addresses") or ()}
    return NodeRecord(
        name=str(about["name"]),
        uid=str(about["uid"]),
        version=str(about["resourceVersion"]),
        unschedulable=bool(spec.get("unschedulable", False)),
        is_ready=any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ()),
        taints=tuple(Taint(item["key"], item["effect"], item.get("value", "")) for item in spec.get("taints") or ()),
        labels=dict(about.get("labels") or {}),
        annotations=dict(about.get("annotations") or {}),
        provider=spec.get("providerID", ""),
        system_uuid=info.get("systemUUID", ""),
        address=addresses.get("InternalIP", ""),
        cordoned_by=_cordoned_by(about.get("managedFields") or ()),
        image=" ".join(filter(None, (info.get("osImage", ""), info.get("kernelVersion", "")))),
        devices=frozenset(name for name, amount in (status.get("allocatable") or {}).items() if "/" in name and str(amount) != "0"),
    )


def _cordoned_by(fields: Any) -> str:
    """managedFields: who owns a field set it last to what it is now."""
    owners = [item["manager"] for item in fields if "f:unschedulable" in (item.get("fieldsV1") or {}).get("f:spec", {})]
    return str(owners[-1]) if owners else ""


def _pod(found: Mapping[str, Any]) -> PodRecord:
    about, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    owners = [item for item in about.get("ownerReferences") or () if item.get("controller")]
    containers = spec["containers"]
    images = [item.get("imageID") or item.get("image", "") for item in status.get("containerStatuses") or ()]
    resources = [(item.get("resources") or {}).get("requests") or (item.get("resources") or {}).get("limits") or {} for item in containers]
    return PodRecord(
        name=str(about["name"]),
        namespace=str(about["namespace"]),
        uid=str(about["uid"]),
        phase=str(status.get("phase", "Pending")),
        node=spec.get("nodeName") or "",
        is_ending="deletionTimestamp" in about,
        owner=f"{owners[0]['kind']} {owners[0]['name']}" if owners else "",
        labels=dict(about.get("labels") or {}),
        annotations=dict(about.get("annotations") or {}),
        address=status.get("podIP") or "",
        images=tuple(sorted(images or [item.get("image", "") for item in containers])),
        devices=frozenset(name for item in resources for name in item if "/" in name),
        tolerations=tuple(spec.get("tolerations") or ()),
    )
