"""Dual-phase replays in the ledger: each phase with its groups, what became of them, and where the failing ones cross (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minder.model.history import LedgerEvent

__all__ = ["Crossing", "ReplayRecord", "ReplayedGroup", "ReplayedPhase", "fold_replays", "replay_payload"]


_MOST_SHOWN = 8  # groups of a phase


@dataclass(slots=True)
class ReplayedGroup:
    """outcome: "passed", "failed" or "unknown"; "" while it runs. runs, failed: how many were run, how many of them failed. generations:
    the first and the last of its own."""

    name: str
    machines: tuple[str, ...]
    generations: tuple[int, int]
    outcome: str = ""
    reason: str = ""
    runs: int = 0
    failed: int = 0


@dataclass(slots=True)
class ReplayedPhase:
    """Groups that ran at once, in their order. kind: horizontal, vertical, halves or suspects."""

    number: int
    kind: str
    groups: dict[str, ReplayedGroup] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return bool(self.groups) and all(group.outcome for group in self.groups.values())

    def shown(self, most: int = _MOST_SHOWN) -> list[ReplayedGroup]:
        """All groups, or those that did not pass where there are many."""
        groups = list(self.groups.values())
        return groups if len(groups) <= most else [group for group in groups if group.outcome != "passed"][:most]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Groups of two phases, and the machines that each pair of them shares: cells[row][column]."""

    rows: tuple[ReplayedGroup, ...]
    columns: tuple[ReplayedGroup, ...]
    cells: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(slots=True)
class ReplayRecord:
    """One operation's replay."""

    operation_id: str
    time_s: float
    phases: dict[int, ReplayedPhase] = field(default_factory=dict)

    @property
    def failing(self) -> list[ReplayedGroup]:
        return [group for phase in self.phases.values() for group in phase.groups.values() if group.outcome == "failed"]

    @property
    def suspects(self) -> tuple[str, ...]:
        """Machines of failing groups that were in no group that passed: where the failing groups cross."""
        passed = {
            name
            for phase in self.phases.values()
            for group in phase.groups.values()
            if group.outcome == "passed"
            for name in group.machines
        }
        return tuple(dict.fromkeys(name for group in self.failing for name in group.machines if name not in passed))

    def crossing(self) -> Crossing | None:
        """Horizontal groups against vertical ones; None where a phase of them is missing, or none of its groups would be shown."""
        kinds = {phase.kind: phase.shown() for phase in self.phases.values()}
        rows, columns = kinds.get("horizontal"), kinds.get("vertical")
        if not rows or not columns:
            return None
        cells = tuple(tuple(tuple(name for name in row.machines if name in column.machines) for column in columns) for row in rows)
        return Crossing(tuple(rows), tuple(columns), cells)


def replay_payload(phase: int, kind: str, group: ReplayedGroup) -> dict[str, Any]:
    """Of a REPLAY event: "begin" as long as nothing is known of its outcome."""
    first, last = group.generations
    found: dict[str, Any] = {
        "state": "end" if group.outcome else "begin", "phase": phase, "kind": kind, "group": group.name,
        "machines": list(group.machines), "generation": first, "last_generation": last,
    }  # fmt: skip
    ended = {"outcome": group.outcome, "reason": group.reason, "runs": group.runs, "failed": group.failed}
    return found | (ended if group.outcome else {})


def fold_replays(events: Iterable[LedgerEvent]) -> list[ReplayRecord]:
    """From events of kind REPLAY, in ledger order. One that a newer version wrote otherwise is left out."""
    found: dict[str, ReplayRecord] = {}
    for event in events:
        try:
            number, group = int(event.payload["phase"]), _group(event.payload)
        except (KeyError, TypeError, ValueError):
            continue
        name = str(event.operation_id)
        record = found.setdefault(name, ReplayRecord(name, event.time_s))
        phase = record.phases.setdefault(number, ReplayedPhase(number, str(event.payload.get("kind") or "?")))
        if group.outcome or group.name not in phase.groups:
            phase.groups[group.name] = group
    return list(found.values())


def _group(payload: Mapping[str, Any]) -> ReplayedGroup:
    first = int(payload["generation"])
    ended = payload.get("state") == "end"
    return ReplayedGroup(
        str(payload["group"]), tuple(map(str, payload["machines"])), (first, int(payload.get("last_generation") or first)),
        str(payload["outcome"]) if ended else "", str(payload.get("reason") or ""), int(payload.get("runs") or 0),
        int(payload.get("failed") or 0),
    )  # fmt: skip
