"""A version of a job's code on its way to one launcher: offered as a list, then what it misses, in pieces."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any

from minder.model.errors import WireError
from minder.wire.client import MachineClient
from minder.wire.code_store import CHUNK_BYTES
from minder.wire.code_tree import CodeFile, tree_of

__all__ = ["deliver"]

_OFFER_S, _PIECE_S = 15.0, 15.0
_ROUNDS = 3  # of what is missing: another controller may send the same at the same time


async def deliver(
    client: MachineClient, body: Mapping[str, Any], read: Callable[[CodeFile, int], bytes], turns: asyncio.Semaphore
) -> Mapping[str, Any]:
    """Returns the launcher's answer, which says that it is ready. Raises WireError where it takes no such version, NoAnswerError where it
    is silent. turns: how many launchers are sent code at once."""
    async with turns:
        answer = await client.offer_update(body, _OFFER_S)
        for _ in range(_ROUNDS):
            if answer.get("ready"):
                return answer
            files = {item.sha256: item for item in tree_of(body.get("files")).files}
            for sha256 in answer.get("missing") or ():
                if sha256 not in files:
                    raise WireError(f"launcher of {client.machine} misses a file that the update does not have")
                await _send(client, str(body["code"]), files[sha256], read)
            answer = await client.offer_update(body, _OFFER_S)
    if answer.get("ready"):
        return answer
    raise WireError(f"launcher of {client.machine} still misses {len(answer.get('missing') or ())} files of the update")


async def _send(client: MachineClient, code: str, item: CodeFile, read: Callable[[CodeFile, int], bytes]) -> None:
    offset = 0
    while True:
        data = await asyncio.to_thread(read, item, offset)
        if len(data) < min(CHUNK_BYTES, item.size_bytes - offset):
            raise WireError(f"{item.path} of the update is cut off in the store: give the update again")
        piece = {"code": code, "sha256": item.sha256, "offset": offset, "data": base64.b64encode(data).decode()}
        await client.send_piece(piece, _PIECE_S)
        offset += len(data)
        if offset >= item.size_bytes:
            return
