"""Asks NCCL's RAS subsystem, which runs inside the job's processes and answers on one port of each machine: NCCL 2.28.9 was asked live, on
one GPU (docs/gpu.md). JSON first: it gives every rank's counts, the text of 2.28 only those that it calls a mismatch.

An answer may take as long as its own time-out, may never come, and may say OK while a watchdog fires.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from dataclasses import asdict

from minder.edge.signals.nccl_ras import RasReport, read_ras
from minder.model.evidence import Signal

__all__ = ["ask_ras", "ras_signal"]

_HOST, _PORT = "127.0.0.1", 28028
_MOST_BYTES = 4 << 20
_MOST_NAMED = 64


async def ask_ras(deadline_s: float, port: int = _PORT) -> RasReport | None:
    """The report of `ncclras` where it is installed, else of the port; None where nothing answers in time."""
    for ask in (_ask_client, _ask_port_json, _ask_port_text):
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            report = read_ras(await asyncio.wait_for(ask(port, deadline_s), deadline_s))
            if report is not None:
                return report
    return None


async def _ask_client(port: int, deadline_s: float) -> str:
    client = shutil.which("ncclras")
    if client is None:
        return ""
    arguments = ("-v", "-f", "json", "-p", str(port), "-t", str(max(1, int(deadline_s))))
    process = await asyncio.create_subprocess_exec(
        client, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        return (await _read(process.stdout)).decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _ask_port_json(port: int, deadline_s: float) -> str:
    return await _ask_port(port, b"SET FORMAT json\nverbose status\n")


async def _ask_port_text(port: int, deadline_s: float) -> str:
    return await _ask_port(port, b"verbose status\n")


async def _ask_port(port: int, question: bytes) -> str:
    reader, writer = await asyncio.open_connection(_HOST, port)
    try:
        writer.write(question)
        await writer.drain()
        return (await _read(reader)).decode(errors="replace")
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while len(content) < _MOST_BYTES and (block := await reader.read(65536)):
        content += block
    return content


def ras_signal(machine: str, report: RasReport | None) -> Signal:
    """What was heard of RAS on this machine, about the whole job, silence included."""
    if report is None:
        return Signal(time.time(), "ras", machine, "RAS does not answer", data={"answered": False})
    named = {side: [asdict(item) for item in getattr(report, side)[:_MOST_NAMED]] for side in ("silent", "behind", "ahead")}
    message = f"RAS says {', '.join(report.problems) or 'OK'}"
    return Signal(time.time(), "ras", machine, message, data={"answered": True, "problems": list(report.problems), **named})
