"""Sending a piece of a file as the answer to a request, by the kernel: its bytes pass through no buffer of this process.

uvicorn has no way for that, so the protocol lends its socket: h11 counts the bytes (`send_with_data_passthrough` is made for sendfile), and
a thread sends them. The event loop waits for neither disk nor network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import h11
from starlette.responses import Response

from minder.edge.listening import PatientProtocol
from minder.model.log import event

__all__ = ["FileBody", "SendingProtocol"]

_log = logging.getLogger("minder.cache")
_SILENT_MS = 5_000  # a receiver that takes nothing for so long has gone


class SendingProtocol(PatientProtocol):
    """Applications find it in the request's scope, as state["protocol"]."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {**app_state, "protocol": self}, _loop)


class FileBody(Response):
    """`count` bytes of a file from `begin` on, which it must have. pool: whose thread sends them. Raises OSError before anything is sent
    where the file is gone."""

    media_type = "application/octet-stream"

    def __init__(self, path: Path, begin: int, count: int, pool: ThreadPoolExecutor) -> None:
        super().__init__(headers={"content-length": str(count)})
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._begin, self._count, self._pool = begin, count, pool

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        protocol = scope["state"]["protocol"]
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD" and self._count:
                await self._lend(protocol)
            await send({"type": "http.response.body", "body": b""})
        finally:
            os.close(self._file)

    async def _lend(self, protocol: SendingProtocol) -> None:
        while protocol.transport.get_write_buffer_size():
            await asyncio.sleep(0.001)  # the head goes first
        protocol.conn.send_with_data_passthrough(h11.Data(data=_Counted(self._count)))  # type: ignore[arg-type]
        lent = os.dup(protocol.transport.get_extra_info("socket").fileno())
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, partial(_send, lent, self._file, self._begin, self._count))
        except OSError as error:
            event(_log, logging.INFO, "body cut off", detail=str(error))
            protocol.transport.abort()  # a receiver that is left sees that bytes are missing, and asks for the rest
        finally:
            os.close(lent)


class _Counted:
    """Stands for so many bytes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


def _send(to: int, file: int, begin: int, count: int) -> None:
    """Raises OSError (ConnectionError, TimeoutError) where the receiver goes or stands still."""
    writable = select.poll()
    writable.register(to, select.POLLOUT)
    end = begin + count
    while begin < end:
        try:
            sent = os.sendfile(to, file, begin, end - begin)
        except BlockingIOError:
            if not writable.poll(_SILENT_MS):
                raise TimeoutError("the receiver takes nothing") from None
            continue
        if not sent:
            raise OSError("the file became shorter while it was sent")
        begin += sent
