"""Groups of machines that do not exist replay a job that does not run: the ranks of a group with a faulty machine compute other bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from minder.model.probes import ProbeResult

__all__ = ["ReplayGroups"]


class ReplayGroups:
    """Who was ordered into which group: by the generation at which its ranks first meet."""

    def __init__(self) -> None:
        self.machines: dict[int, set[str]] = {}
        self.orders: dict[tuple[str, str], Mapping[str, Any]] = {}  # operation and machine

    def note(self, operation: str, machine: str, order: Mapping[str, Any]) -> None:
        self.orders[operation, machine] = order
        self.machines.setdefault(int(order["meetings"][0]["generation"]), set()).add(machine)

    def result(self, order: Mapping[str, Any], faulty: Collection[str], now_s: float) -> ProbeResult:
        """Of one machine, once all of its group have their orders."""
        group = self.machines[int(order["meetings"][0]["generation"])]
        world = int(order["ranks"][0]["WORLD_SIZE"])
        if len(group) < world // len(order["ranks"]):
            return ProbeResult("replay", 1, "not_judged", "its group never met", started_s=now_s)
        bad = bool(group & set(faulty))
        hashes = [["a", f"b{run}" if bad else "b", "c"] for run in range(order["runs"])]
        runs = [{"end": "finished", "begun": True, "hashes": own, "detail": ""} for own in hashes]
        ranks = {str(rank["RANK"]): runs for rank in order["ranks"]}
        return ProbeResult("replay", 1, "measured", facts={"processor": "equal"}, started_s=now_s, seconds=1.0, data={"ranks": ranks})
