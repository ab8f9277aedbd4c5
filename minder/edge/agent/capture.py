"""Evidence on request: connections, stacks, process states, kernel log and last log lines, inside a deadline; and, where it is
asked for by name, which peers can be reached.

Arguments and environments of processes are never part of it: they carry secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from minder.edge.agent.kernel import read_kernel_tail
from minder.edge.agent.reach import try_peers
from minder.edge.agent.stacks import dump_stacks
from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import read_stat, read_text, read_tree
from minder.model.errors import BadInputError
from minder.model.telemetry import Flow
from minder.wire.codec import to_json

__all__ = ["PARTS", "CaptureRequest", "capture", "parse_request"]

PARTS = ("flows", "stacks", "processes", "kernel", "logs")
_BY_NAME = ("reach",)  # speaks to other machines: never without being asked for
_LOG_LINES, _LOG_BYTES = 50, 65536
_MOST_SAMPLES, _MOST_PEERS = 100, 64
_FLOWS_SHARE = 0.1  # of one core, at most, for looking again: a look costs more where a host has many connections of others


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """samples, interval_s: how often the connections are looked at, so that progress differs from standstill. native: stacks with
    compiled frames. peers: IPs that are tried too, where `what` has "reach"."""

    what: tuple[str, ...] = PARTS
    deadline_s: float = 10.0
    samples: int = 1
    interval_s: float = 0.1
    native: bool = False
    peers: tuple[str, ...] = ()


def parse_request(body: Any) -> CaptureRequest:
    """A decoded JSON body. Raises BadInputError that names the field."""
    if not isinstance(body, dict):
        raise BadInputError('the body must be an object such as {"what": ["flows"]}')
    what = body.get("what", list(PARTS))
    if not isinstance(what, list) or not set(map(str, what)) <= {*PARTS, *_BY_NAME}:
        raise BadInputError(f"what is {what!r}: a list of {', '.join((*PARTS, *_BY_NAME))}")
    deadline_s = _number(body, "deadline_s", 10.0, 0.1, 60.0)
    samples = int(_number(body, "samples", 1, 1, _MOST_SAMPLES))
    interval_s = _number(body, "interval_s", 0.1, 0.0, 10.0)
    native = body.get("native", False)
    if not isinstance(native, bool):
        raise BadInputError(f"native is {native!r}: true or false")
    return CaptureRequest(tuple(what), deadline_s, samples, interval_s, native, _peers(body.get("peers", [])))


def _peers(value: Any) -> tuple[str, ...]:
    try:
        if not isinstance(value, list) or len(value) > _MOST_PEERS:
            raise ValueError
        return tuple(str(ip_address(str(item))) for item in value)
    except ValueError:
        raise BadInputError(f"peers is {str(value)[:80]!r}: a list of at most {_MOST_PEERS} IP addresses") from None


def _number(body: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise BadInputError(f"{name} is {value!r}: a number from {low:g} to {high:g}")
    return float(value)


async def capture(
    machine: str, processes: Sequence[JobProcess], request: CaptureRequest, kernel_log: Path, show_states: bool = True
) -> dict[str, Any]:
    """All parts at once; a part that does not come in time is reported as an empty one. show_states: False masks T and wchan."""
    ends_s = time.monotonic() + request.deadline_s
    answer: dict[str, Any] = {
        "machine": machine,
        "time_s": time.time(),
        "job": next((process.job for process in processes), None),
        "flows": [],
        "stacks": [],
        "processes": [],
        "kernel": [],
        "logs": {},
        "reach": [],
        "late": [],
    }
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "flows": lambda: _flows(machine, processes, request, ends_s),
        "reach": lambda: _reach(machine, processes, ends_s, request.peers),
        "stacks": lambda: dump_stacks(processes, ends_s, request.native),
        "processes": lambda: asyncio.to_thread(_states, processes, show_states),
        "kernel": lambda: asyncio.to_thread(read_kernel_tail, kernel_log),
        "logs": lambda: asyncio.to_thread(_logs, processes),
    }
    tasks = {name: asyncio.ensure_future(parts[name]()) for name in request.what}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=max(0.0, ends_s - time.monotonic()) + 0.2)
    for name, task in tasks.items():
        if not task.done():
            task.cancel()
            answer["late"].append(name)
        elif task.exception() is not None:
            answer["late"].append(f"{name}: {task.exception()}")
        else:
            answer[name] = task.result()
    return answer


async def _flows(machine: str, processes: Sequence[JobProcess], request: CaptureRequest, ends_s: float) -> list[Any]:
    """Who holds which socket is asked once: it costs more than a look, and a job that waits opens none. Where looks are so costly that
    they cannot be taken in time, there are fewer, at least two of them."""
    exporter = FlowExporter(machine)
    found: list[Flow] = []
    due_s = time.monotonic()
    last_s = due_s + (request.samples - 0.5) * request.interval_s
    for index in range(request.samples):
        if due_s > (ends_s if index < 2 else min(ends_s, last_s)):
            break
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        flows, cost_s = await asyncio.to_thread(_look, exporter, processes, index == 0)
        found.extend(flows)
        due_s = max(due_s + request.interval_s, time.monotonic() + (cost_s / _FLOWS_SHARE - cost_s if index else 0.0))
    return [to_json(flow) for flow in found]


def _look(exporter: FlowExporter, processes: Sequence[JobProcess], fresh: bool) -> tuple[list[Flow], float]:
    """(connections, the seconds of one core that it took)"""
    begun_s = time.thread_time()
    return exporter.flows(processes, time.time(), fresh), time.thread_time() - begun_s


async def _reach(machine: str, processes: Sequence[JobProcess], ends_s: float, peers: Sequence[str]) -> list[Any]:
    return [to_json(attempt) for attempt in await try_peers(machine, processes, ends_s, peers)]


def _states(processes: Sequence[JobProcess], show_states: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for process in processes:
        for pid in read_tree([process.pid]):
            stat = read_stat(pid)
            if stat is None:
                continue
            wchan = (read_text(f"/proc/{pid}/wchan") or "").strip("\0\n ")
            rows.append(
                {
                    "pid": pid,
                    "rank": process.rank,
                    "name": stat.name,
                    "state": stat.state if show_states else None,
                    "threads": stat.threads,
                    "rss_bytes": stat.rss_bytes,
                    "cpu_s": stat.cpu_s,
                    "wchan": wchan if show_states and wchan not in ("", "0") else None,
                }
            )
    return rows


def _logs(processes: Sequence[JobProcess]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for process in processes:
        if process.log is None:
            continue
        name = f"rank{process.rank}" if process.rank is not None else f"slot{process.slot}"
        try:
            with Path(process.log).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _LOG_BYTES))
                text = file.read().decode(errors="replace").rstrip("\r\n")
        except OSError:
            continue
        lines = text.split("\n")[-_LOG_LINES:] if text else []
        found[name] = [line.rstrip("\r").rpartition("\r")[2] for line in lines]  # of a progress bar its last state
    return found
