"""The connection of two machines that test each other: made on the job's network, proven on both sides, with frames on it.

One listens on its own address of the job's network for as long as the order runs; the other calls until it is answered. Each proves that it
has the order's secret and generation (HMAC-SHA-256 over fresh numbers of both), and the secret itself is never sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

from minder.edge.probes.pair_order import PairOrder

__all__ = ["ForeignCallersError", "Link", "NoContactError", "meet"]

_LARGEST_BYTES = 1 << 16
_RETRY_S = 0.2
_PROOF_S = 2.0
_BUFFER_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")


class NoContactError(Exception):
    """The other machine did not come, or could not be reached: one line."""


class ForeignCallersError(Exception):
    """Callers without the secret took the place of the peer: nothing is known of the link."""


class WrongBytesError(Exception):
    """What was gathered is not what was sent."""


class Link:
    """A TCP connection with frames: `say` and `hear` JSON documents, `send` and `read` plain bytes. Every method raises OSError where the
    connection breaks or the other side is silent for too long."""

    def __init__(self, end: socket.socket, silence_s: float) -> None:
        self._end = end
        end.settimeout(silence_s)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)  # what waits in it must leave over a slow link, too

    def send(self, data: bytes | memoryview) -> None:
        self._end.sendall(data)

    def read(self, size: int) -> bytearray:
        found = bytearray(size)
        view, done = memoryview(found), 0
        while done < size:
            count = self._end.recv_into(view[done:])
            if not count:
                raise ConnectionError("the other side closed the connection")
            done += count
        return found

    def say(self, document: Mapping[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send(_LENGTH.pack(len(text)) + text)

    def hear(self) -> dict[str, Any]:
        (size,) = _LENGTH.unpack(self.read(_LENGTH.size))
        if size > _LARGEST_BYTES:
            raise ConnectionError(f"the other side announced a frame of {size} bytes")
        try:
            found = json.loads(self.read(size))
        except ValueError:
            raise ConnectionError("the other side sent what is no JSON") from None
        if not isinstance(found, dict):
            raise ConnectionError("the other side sent no object")
        return found

    def wait_for(self, silence_s: float) -> None:
        """From now on the other side may be silent for so long."""
        self._end.settimeout(silence_s)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


@contextlib.contextmanager
def meet(order: PairOrder, contact_s: float, silence_s: float) -> Iterator[Link]:
    """The proven connection to the peer. contact_s: so long it is waited for; silence_s: so long the peer may be silent later. Raises
    NoContactError, ForeignCallersError, and OSError where the own address cannot be had."""
    end_s = time.monotonic() + contact_s
    with socket.socket(_family(order)) as own:
        own.bind((order.own, 0))  # a machine that has another address says nothing of the link
    link = _listen(order, end_s, silence_s) if order.role == "listen" else _call(order, end_s, silence_s)
    try:
        yield link
    finally:
        link.close()


def _listen(order: PairOrder, end_s: float, silence_s: float) -> Link:
    family, foreign = _family(order), 0
    with socket.create_server((order.own, order.port), family=family, backlog=8) as server:
        while (left_s := end_s - time.monotonic()) > 0:
            server.settimeout(left_s)
            try:
                end, _ = server.accept()
            except TimeoutError:
                break
            link = Link(end, min(_PROOF_S, left_s))
            with contextlib.suppress(OSError):
                if _proves_as_listener(link, order):
                    link.wait_for(silence_s)
                    return link
            foreign += 1
            link.close()
    if foreign:
        raise ForeignCallersError(f"{foreign} callers at {order.own}:{order.port} did not prove that they have this order's secret")
    raise NoContactError(f"{order.peer} did not connect to {order.own}:{order.port}")


def _call(order: PairOrder, end_s: float, silence_s: float) -> Link:
    why = "no answer"
    while (left_s := end_s - time.monotonic()) > 0:
        try:
            end = socket.create_connection((order.peer, order.port), min(3.0, left_s), source_address=(order.own, 0))
        except OSError as error:
            why = str(error.strerror or error)
        else:
            link = Link(end, _PROOF_S)
            try:
                if _proves_as_caller(link, order):
                    link.wait_for(silence_s)
                    return link
                why = "what listens there has another secret or generation"
            except OSError as error:
                why = str(error)
            link.close()
        time.sleep(min(_RETRY_S, max(0.0, end_s - time.monotonic())))
    raise NoContactError(f"{order.peer}:{order.port} was not reached from {order.own}: {why}")


def _proves_as_listener(link: Link, order: PairOrder) -> bool:
    mine = secrets.token_hex(16)
    link.say({"nonce": mine})
    heard = link.hear()
    theirs = str(heard.get("nonce"))
    if not hmac.compare_digest(str(heard.get("proof")), _proof(order, "connect", mine, theirs)):
        return False
    link.say({"proof": _proof(order, "listen", mine, theirs)})
    return True


def _proves_as_caller(link: Link, order: PairOrder) -> bool:
    mine, theirs = secrets.token_hex(16), str(link.hear().get("nonce"))
    link.say({"nonce": mine, "proof": _proof(order, "connect", theirs, mine)})
    return hmac.compare_digest(str(link.hear().get("proof")), _proof(order, "listen", theirs, mine))


def _proof(order: PairOrder, role: str, of_listener: str, of_caller: str) -> str:
    text = f"{role} {order.generation} {of_listener} {of_caller}".encode()
    return hmac.new(order.secret.encode(), text, hashlib.sha256).hexdigest()


def _family(order: PairOrder) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in order.own else socket.AF_INET
