"""Agents and launchers: do they answer, in which version, and whose clock is off."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minder import __version__
from minder.config import JobConfig
from minder.doctor.finding import Finding
from minder.doctor.steps import look_at_logs
from minder.model.errors import WireError
from minder.wire.client import MachineClient, MachineEndpoints
from minder.wire.plain import PlainHttp

__all__ = ["look_at_endpoints"]

_PATIENCE_S = 5.0
_SKEW_S = 1.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one process said. offset_s: its clock minus ours, within error_s (half the round trip)."""

    machine: str
    refusal: str = ""
    version: str = ""
    offset_s: float = 0.0
    error_s: float = 0.0
    says: str = ""  # the machine that it takes itself for
    logs: tuple[Mapping[str, Any], ...] = ()  # that it follows for steps


def look_at_endpoints(config: JobConfig) -> list[Finding]:
    endpoints = config.endpoints()
    agents = [item for item in endpoints if item.agent is not None]
    launchers = [item for item in endpoints if item.launcher is not None]
    found = []
    if agents:
        answers = asyncio.run(_ask_all(agents, lambda client: client.health(_PATIENCE_S), config.tls.context()))
        found += [
            _reached("agents", answers, "start `minder agent` there, open its port, or mend its address or token file"),
            *_named(answers),
        ]
        if any(not item.refusal for item in answers):
            found += [_versions(answers), _clocks(answers), *look_at_logs({item.machine: item.logs for item in answers})]
        else:
            found.append(Finding("versions, clocks", "note", "no agent answers, so nothing is known of them"))
    else:
        found.append(
            Finding("agents", "note", "job.toml names none", "without agents there are no sockets, exits, kernel messages or stacks")
        )
    if launchers:
        answers = asyncio.run(_ask_all(launchers, lambda client: client.state(_PATIENCE_S), config.tls.context()))
        found.append(_reached("launchers", answers, "start `minder launch` there, open its port, or mend its address or token file"))
    return found


async def _ask_all(
    endpoints: Sequence[MachineEndpoints], ask: Callable[[MachineClient], Awaitable[Mapping[str, Any]]], tls: ssl.SSLContext | None
) -> list[_Answer]:
    limit = asyncio.Semaphore(200)
    with contextlib.closing(PlainHttp(tls)) as http:

        async def one(item: MachineEndpoints) -> _Answer:
            async with limit:
                return await _ask(MachineClient(item, http), ask)

        return list(await asyncio.gather(*(one(item) for item in endpoints)))


async def _ask(client: MachineClient, ask: Callable[[MachineClient], Awaitable[Mapping[str, Any]]]) -> _Answer:
    begun_s = time.time()
    try:
        answer = await asyncio.wait_for(ask(client), _PATIENCE_S + 1.0)
        now_s = time.time()
        offset_s = float(answer.get("now_s", now_s)) - (begun_s + now_s) / 2.0
    except (WireError, TimeoutError, TypeError, ValueError) as error:
        return _Answer(client.machine, refusal=str(error) or "no answer")
    logs = tuple(log for log in answer.get("logs") or () if isinstance(log, dict))
    error_s, says = (now_s - begun_s) / 2.0, str(answer.get("machine", ""))
    return _Answer(client.machine, "", str(answer.get("version", "")), offset_s, error_s, says, logs)


def _reached(what: str, answers: Sequence[_Answer], mend: str) -> Finding:
    silent = [item for item in answers if item.refusal]
    seen = f"{len(answers) - len(silent)} of {len(answers)} answer"
    if not silent:
        return Finding(what, "ok", seen)
    reasons = "; ".join(item.refusal for item in silent[:_SHOWN]) + ("; ..." if len(silent) > _SHOWN else "")
    return Finding(what, "missing", f"{seen}: {reasons}", mend)


def _named(answers: Sequence[_Answer]) -> list[Finding]:
    """An agent that takes itself for another machine accuses that one."""
    wrong = [item for item in answers if not item.refusal and item.says and item.says != item.machine]
    if not wrong:
        return []
    seen = ", ".join(f"the agent of {item.machine} calls itself {item.says}" for item in wrong[:_SHOWN])
    return [Finding("machine names", "missing", seen, "start the agent with --machine NAME, or mend name or address in job.toml")]


def _versions(answers: Sequence[_Answer]) -> Finding:
    by_version: dict[str, list[str]] = defaultdict(list)
    for item in answers:
        if not item.refusal:
            by_version[item.version or "unknown"].append(item.machine)
    seen = ", ".join(f"{version} on {len(machines)}" for version, machines in sorted(by_version.items()))
    if set(by_version) <= {__version__}:
        return Finding("versions", "ok", f"agents {seen}; here {__version__}")
    mend = "upgrade in the order of docs/install.md: a controller works with agents one version back, not with newer ones"
    return Finding("versions", "note", f"agents {seen}; here {__version__}", mend)


def _clocks(answers: Sequence[_Answer]) -> Finding:
    known = [item for item in answers if not item.refusal]
    off = sorted((item for item in known if abs(item.offset_s) - item.error_s > _SKEW_S), key=lambda item: -abs(item.offset_s))
    if off:
        seen = ", ".join(f"{item.machine} {item.offset_s:+.1f} s" for item in off[:_SHOWN])
        return Finding(
            "clocks", "missing", f"{len(off)} of {len(known)} are off: {seen}", "let all machines follow one time source (chrony)"
        )
    worst = max((abs(item.offset_s) for item in known), default=0.0)
    return Finding("clocks", "ok", f"within {worst:.2f} s of ours")
