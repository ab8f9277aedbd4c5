"""Is a spare the same kind of machine as those of the job? Device, driver, firmware by labels, operating system and kernel by the node's
own word, the image by what the pods run. What neither side says is not known, and stops nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minder.act.actuators.kubernetes.records import NodeRecord, PodRecord

__all__ = ["unlike", "unlike_image"]

_IMAGE = "its system"


def unlike(spare: NodeRecord, members: Sequence[NodeRecord], labels: Sequence[str], devices: frozenset[str] = frozenset()) -> str:
    """In what a spare differs from most of the job's machines, "" if in nothing that both sides tell. devices: what its pods ask for,
    which a spare must have."""
    missing = sorted(devices - spare.devices)
    if missing:
        return f"unlike the job's machines: it has no {', '.join(missing)}"
    for name in (*labels, _IMAGE):
        usual = Counter(value for value in (_value(node, name) for node in members) if value).most_common(1)
        own = _value(spare, name)
        if usual and own and own != usual[0][0]:
            return f"unlike the job's machines: {name} is {own}, theirs {usual[0][0]}"
    return ""


def unlike_image(spare: PodRecord, members: Sequence[PodRecord]) -> str:
    """In what image a standing-by pod differs from most of the job's pods, "" if in none."""
    usual = Counter(pod.images for pod in members if pod.images).most_common(1)
    if usual and spare.images and spare.images != usual[0][0]:
        return f"unlike the job's pods: it runs {', '.join(spare.images)}, they {', '.join(usual[0][0])}"
    return ""


def _value(node: NodeRecord, name: str) -> str:
    return node.image if name == _IMAGE else node.labels.get(name) or node.annotations.get(name, "")
