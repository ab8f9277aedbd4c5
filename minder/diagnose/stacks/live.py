"""A capture from what the agents answer (`/v1/capture` with stacks and processes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minder.diagnose.stacks.pyspy import parse_json
from minder.diagnose.stacks.records import Capture, Process

__all__ = ["capture_from_agents"]


def capture_from_agents(answers: Iterable[Mapping[str, Any]]) -> Capture:
    """One capture from the answers of all machines (minder.edge.agent.capture). The states of the `processes` part go with the stacks.

    A process that py-spy could not read keeps the reason as its problem. One below a rank (`parent`) that could not be read is left out
    unless its state says something, and so is one of which only a state is known: most are helpers. The capture's time is that of the
    latest answer.
    """
    processes: list[Process] = []
    times: list[float] = []
    for answer in answers:
        states = {row["pid"]: str(row.get("state") or "") for row in _rows(answer, "processes") if isinstance(row.get("pid"), int)}
        found = [_process(str(answer.get("machine", "")), row, states) for row in _rows(answer, "stacks")]
        processes += [process for process in found if process.threads or not process.child or process.state[:1] in ("D", "T")]
        times += [time_s] if isinstance(time_s := answer.get("time_s"), (int, float)) else []
    return Capture(tuple(processes), max(times, default=None))


def _rows(answer: Mapping[str, Any], part: str) -> Sequence[Mapping[str, Any]]:
    rows = answer.get(part)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _process(machine: str, row: Mapping[str, Any], states: Mapping[int, str]) -> Process:
    pid, rank = row.get("pid"), row.get("rank")
    threads = parse_json(row.get("data")) if row.get("format") == "py-spy-json" else None
    return Process(
        machine,
        pid if isinstance(pid, int) else None,
        rank if isinstance(rank, int) else None,
        states.get(pid, "") if isinstance(pid, int) else "",
        threads or (),
        "" if threads else str(row.get("data") or "the agent sent no stack")[:160],
        child=isinstance(row.get("parent"), int),
    )
