"""What the ranks of this machine ask their cache, over a Unix socket in its folder: one JSON object a line, one answer each.

Only this user reaches the socket: the folder has mode 0700.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from minder.edge.cache.cache import Cache
from minder.edge.cache.members import Member
from minder.edge.cache.pull import Source
from minder.edge.cache.record import RecordName
from minder.model.errors import MinderError, WireError
from minder.model.log import event
from minder.wire.codec import from_json

__all__ = ["serve_ranks"]

_log = logging.getLogger("minder.cache")
_LARGEST_LINE_BYTES = 1 << 24  # the addresses of all machines
_THREADS = 64  # a rank that waits for its backup holds one


async def serve_ranks(cache: Cache) -> asyncio.Server:
    """Listen; a socket that an earlier cache left behind is replaced. Raises OSError."""
    path = cache.settings.socket_path
    path.unlink(missing_ok=True)
    pool = ThreadPoolExecutor(_THREADS, "minder-rank")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await asyncio.get_running_loop().run_in_executor(pool, partial(_answer, cache, line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:
            event(_log, logging.INFO, "rank went", why=type(error).__name__)  # or sent a line without end: what it had handed over stays
        finally:
            writer.close()

    server = await asyncio.start_unix_server(talk, path, limit=_LARGEST_LINE_BYTES)
    path.chmod(0o600)
    return server


def _answer(cache: Cache, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"result": _VERBS[request["verb"]](cache, request)}
    except (MinderError, OSError) as error:
        return {"error": str(error)}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"no request of this protocol: {type(error).__name__} {error}"}


def _name(request: Mapping[str, Any]) -> RecordName:
    found = RecordName.parse(request["name"])
    if found is None:
        raise WireError(f"{request['name']!r} names no record")
    return found


_VERBS: dict[str, Callable[[Cache, Mapping[str, Any]], Any]] = {
    "hello": lambda cache, request: cache.hello(request.get("flush_dir", ""), request.get("wait_s", 0.0)),
    "join": lambda cache, request: cache.join(from_json(Member, request["member"]), request.get("peers")),
    "left": lambda cache, request: cache.ask_left(request["urls"], request["wait_s"]),
    "room": lambda cache, request: cache.make_room(request["rank"], request["body_bytes"], request.get("in_flight", ())),
    "keep": lambda cache, request: cache.keep(_name(request), request["wait_s"]),
    "commit": lambda cache, request: cache.commit(request["step"], request["generation"]),
    "fetch": lambda cache, request: cache.fetch(
        _name(request), request["url"], [Source(item["url"], _name(item)) for item in request.get("bodies", ())], request.get("tokens")
    ),
    "leave": lambda cache, request: cache.leave(request["rank"], request["generation"]),
}
