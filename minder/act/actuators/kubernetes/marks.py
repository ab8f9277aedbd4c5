"""What minder writes at a node, and how it differs from what others wrote: a cordon, a taint, a label, and who did it and why.

A cordon is one bit that everybody shares, so it is only ours where our annotation says that we set it, and the API server's own record of
who set the field last (managedFields) does not name another program. Taints are a list: others' stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from minder.act.actuators.kubernetes.records import NodeRecord, Taint

__all__ = ["HELD_LABEL", "MANAGER", "TAINT", "held_by_others", "is_ours", "lifted", "marked", "operation_at"]

MANAGER = "minder"
TAINT = "minder/evicted"
HELD_LABEL = "minder/held"
_OPERATION, _OWNER, _WHY, _CORDONED = "minder/operation", "minder/owner", "minder/why", "minder/cordoned"
_OURS = (_OPERATION, _OWNER, _WHY, _CORDONED)
_KUBERNETES_OWN = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")  # a node that is down or full by itself: that is no order
_BY_HAND = "node.kubernetes.io/out-of-service"
_MOST = 300


def operation_at(node: NodeRecord) -> str:
    """The operation whose mark the node carries, "" if none does."""
    return node.annotations.get(_OPERATION, "")


def is_ours(node: NodeRecord) -> bool:
    """minder keeps it out: its taint is there, whatever became of the cordon."""
    return bool(operation_at(node)) and any(taint.key == TAINT for taint in node.taints)


def held_by_others(node: NodeRecord, tolerated: Callable[[Taint], bool] = lambda taint: False) -> str:
    """Why others keep work away from the node, "" if none do. tolerated: taints that the job's own pods live with."""
    ours = is_ours(node) and node.annotations.get(_CORDONED) == "true" and node.cordoned_by in ("", MANAGER)
    if node.unschedulable and not ours:
        by = node.cordoned_by if node.cordoned_by != MANAGER else ""
        return f"cordoned by {by or 'an unknown program'}"
    for taint in node.taints:
        own = taint.key == TAINT or (taint.key.startswith(_KUBERNETES_OWN) and taint.key != _BY_HAND)
        if not own and taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint):
            return f"tainted {taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
    return ""


def marked(node: NodeRecord, operation_id: str, owner: str, why: str) -> dict[str, Any]:
    """The merge patch that cordons and taints; refused by the API server if the node changed since it was read."""
    value = re.sub(r"[^A-Za-z0-9._-]", "_", operation_id)[:63].strip("._-")
    taints = [_as_json(taint) for taint in node.taints if taint.key != TAINT]
    plain = " ".join("".join(char if char.isprintable() else " " for char in why).split())[:_MOST]
    return {
        "metadata": {
            "resourceVersion": node.version,
            "annotations": {_OPERATION: operation_id, _OWNER: owner, _WHY: plain or "no reason given", _CORDONED: "true"},
            "labels": {HELD_LABEL: "true"},
        },
        "spec": {"unschedulable": True, "taints": [*taints, {"key": TAINT, "value": value, "effect": "NoSchedule"}]},
    }


def lifted(node: NodeRecord) -> dict[str, Any]:
    """The merge patch that takes away what is ours, and the cordon if it is."""
    spec: dict[str, Any] = {"taints": [_as_json(taint) for taint in node.taints if taint.key != TAINT]}
    if node.annotations.get(_CORDONED) == "true" and node.cordoned_by in ("", MANAGER):
        spec["unschedulable"] = None
    about = {"resourceVersion": node.version, "annotations": dict.fromkeys(_OURS), "labels": {HELD_LABEL: None}}
    return {"metadata": about, "spec": spec}


def _as_json(taint: Taint) -> dict[str, str]:
    return {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
