"""Two machines exchange data: bandwidth and latency of each direction by itself, and every byte compared by its SHA-256.

    python -m minder.edge.probes.pair --json --options '{"pair": {...}}'      (minder.edge.probes.pair_order)

TCP over one connection first, which needs no library. Where both have torch, an all-gather follows: NCCL where both have GPUs, else gloo.
Its store is the proven connection itself, so that no store listens anywhere. The caller joins the results of the two.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import statistics
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts, kernel_facts
from minder.edge.probes.pair_link import ForeignCallersError, Link, NoContactError, WrongBytesError, meet
from minder.edge.probes.pair_order import PairOrder, parse_pair
from minder.edge.probes.program import run
from minder.edge.probes.starved import thread_starved_s
from minder.model.probes import Measurement

__all__ = ["BLOCK_BYTES", "PROBE", "measure"]

PROBE = Probe(
    name="pair",
    version=1,
    says="two machines exchange data, each direction by itself; every byte is compared",
    limit_s=90.0,
    needs=("peers",),
    measures={
        "pair_send_bandwidth": "B/s to the peer, one stream",
        "pair_receive_bandwidth": "B/s from the peer",
        "pair_send_latency": "s, median of 4 KiB there and one byte back",
        "pair_receive_latency": "s, the same from the peer",
        "pair_all_gather_bandwidth": "B/s that one rank sends and receives, where both have torch",
    },
    source="Acme's two-round NCCL test (NSDI 2024), DLRover's node check",
)

BLOCK_BYTES = 8 << 20
_MOST_ROUNDS, _ROUND_S, _ALL_S = 8, 2.0, 3.0  # of several rounds the best counts: a busy moment is no slow link
_PIECE = 1 << 18
_PINGS, _PING_BYTES = 40, 4096
_CONTACT_S, _SILENCE_S = 15.0, 20.0
_STARVED_SHARE = 0.5
_HEAD = struct.Struct(">Q")


def measure(options: Mapping[str, Any]) -> Finding:
    """options: pair (an order's parameters), contact_s, block_bytes (equal on both), corrupt (for tests: one sent bit is wrong)."""
    if "pair" not in options:
        return Finding("not_applicable", "it needs a peer: `minder job diagnose NAME --pairs` orders it on two machines")
    order = parse_pair(options["pair"])
    contact_s = min(float(options.get("contact_s", _CONTACT_S)), float(options.get("limit_s", PROBE.limit_s)) / 3.0)
    patience = _Patience()
    try:
        with meet(order, contact_s, _SILENCE_S) as link:
            return _exchange(link, order, options, patience)
    except NoContactError as error:
        return patience.late(f"no contact within {contact_s:g} s: {error}")
    except ForeignCallersError as error:
        return Finding("not_judged", str(error))
    except OSError as error:
        return Finding("not_judged", f"it cannot use {order.own}:{order.port}: {error.strerror or error}")


class _Patience:
    """The limits of this test are times in which a machine answers, if it has a processor."""

    def __init__(self) -> None:
        self._begun_s, self._waited_s = time.monotonic(), thread_starved_s()

    def late(self, detail: str, measures: tuple[Measurement, ...] = (), facts: Mapping[str, str] | None = None) -> Finding:
        """One of them was passed: a fault of the link or of one of the two, unless this machine kept the test waiting for most of it."""
        passed_s, waited_s = time.monotonic() - self._begun_s, thread_starved_s() - self._waited_s
        if waited_s < _STARVED_SHARE * passed_s:
            return Finding("failed", detail, measures, facts or {})
        busy = f"this machine was busy: of {passed_s:.0f} s the test waited {waited_s:.0f} s for a processor; {detail}"
        return Finding("not_judged", busy, measures, facts or {})


def _exchange(link: Link, order: PairOrder, options: Mapping[str, Any], patience: _Patience) -> Finding:
    """What is known when the connection breaks is a fault of the link, or of one of the two."""
    measures: list[Measurement] = []
    facts = {"block": str(int(options.get("block_bytes", BLOCK_BYTES))), **cpu_facts(), **kernel_facts()}
    try:
        wrong = _by_tcp(link, order, options, measures)
        wanted = order.collective and (not order.gpus_only or _has_gpus())
        has_torch = wanted and importlib.util.find_spec("torch") is not None
        link.say({"wrong": wrong, "torch": has_torch})
        heard = link.hear()
        theirs = str(heard.get("wrong") or "")
        if has_torch and heard.get("torch") and not wrong and not theirs:
            facts |= _by_torch(link, order, measures)
    except OSError as error:
        return patience.late(f"the connection with {order.peer} broke: {error.strerror or error}", tuple(measures), facts)
    except WrongBytesError as error:
        return Finding("failed", f"the all-gather with {order.peer} failed: {error}", tuple(measures), facts)
    except RuntimeError as error:  # torch.distributed: a time-out, a connection that it lost
        return patience.late(f"the all-gather with {order.peer} failed: {str(error).splitlines()[0][:200]}", tuple(measures), facts)
    said = "; ".join(text for text in (wrong, f"the peer says: {theirs}" if theirs else "") if text)
    return Finding("failed" if said else "measured", said, tuple(measures), facts)


def _has_gpus() -> bool:
    """By the devices that the drivers of NVIDIA and AMD make: loading torch to ask takes seconds."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _by_tcp(link: Link, order: PairOrder, options: Mapping[str, Any], measures: list[Measurement]) -> str:
    """Both directions, one after the other. What came wrong, "" for nothing."""
    size, corrupt = int(options.get("block_bytes", BLOCK_BYTES)), bool(options.get("corrupt", False))
    wrong = ""
    for sends in (order.role == "listen", order.role != "listen"):
        name = "send" if sends else "receive"
        latency_s = _ping(link) if sends else _answer_pings(link)
        rounds = _send_rounds(link, size, corrupt) if sends else _receive_rounds(link)
        measures.append(Measurement(f"pair_{name}_bandwidth", max(rate for rate, _ in rounds), "B/s", "higher"))
        measures.append(Measurement(f"pair_{name}_latency", latency_s, "s", "lower", tolerance=200e-6))
        if not sends and not all(equal for _, equal in rounds):
            wrong = f"what came from {order.peer} is not what was sent: its SHA-256 differs"
    return wrong


def _ping(link: Link) -> float:
    """Seconds from 4 KiB to their one-byte answer. The peer learns them: they are of its receiving direction."""
    block, found = bytes(_PING_BYTES), []
    for _ in range(_PINGS):
        begun = time.perf_counter()
        link.send(block)
        link.read(1)
        found.append(time.perf_counter() - begun)
    link.say({"latency_s": statistics.median(found)})
    return statistics.median(found)


def _answer_pings(link: Link) -> float:
    for _ in range(_PINGS):
        link.read(_PING_BYTES)
        link.send(b"x")
    return float(link.hear()["latency_s"])


def _send_rounds(link: Link, size: int, corrupt: bool) -> list[tuple[float, bool]]:
    """The sender says whether another round follows."""
    found, end_s = [], time.monotonic() + _ALL_S
    for number in range(_MOST_ROUNDS):
        found.append(_send(link, size, corrupt))
        more = number + 1 < _MOST_ROUNDS and time.monotonic() < end_s
        link.say({"more": more})
        if not more:
            break
    return found


def _receive_rounds(link: Link) -> list[tuple[float, bool]]:
    found = [_receive(link)]
    while link.hear().get("more"):
        found.append(_receive(link))
    return found


def _send(link: Link, size: int, corrupt: bool) -> tuple[float, bool]:
    """Random bytes in pieces, as many as go in the time, then their hash. The peer measures, and says (B/s, whether all was as sent)."""
    data, digest, sent = bytearray(os.urandom(size)), hashlib.sha256(), 0
    view, end_s = memoryview(data), time.monotonic() + _ROUND_S
    while sent < size and (sent == 0 or time.monotonic() < end_s):
        piece = view[sent : sent + _PIECE]
        link.send(_HEAD.pack(len(piece)))
        link.send(piece)
        sent += len(piece)
    digest.update(view[:sent])
    if corrupt:
        data[0] ^= 4
        digest = hashlib.sha256(view[:sent])
    link.send(_HEAD.pack(0))
    link.say({"sha256": digest.hexdigest()})
    heard = link.hear()
    return float(heard["bandwidth"]), bool(heard["equal"])


def _receive(link: Link) -> tuple[float, bool]:
    """The clock runs from the first piece's head to the last byte; hashes are taken after it."""
    pieces: list[bytearray] = []
    (size,) = _HEAD.unpack(link.read(_HEAD.size))
    begun = last = time.perf_counter()
    while size:
        pieces.append(link.read(size))
        last = time.perf_counter()
        (size,) = _HEAD.unpack(link.read(_HEAD.size))
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    equal = digest.hexdigest() == link.hear().get("sha256")
    rate = sum(map(len, pieces)) / max(1e-9, last - begun)
    link.say({"bandwidth": rate, "equal": equal})
    return rate, equal


def _by_torch(link: Link, order: PairOrder, measures: list[Measurement]) -> dict[str, str]:
    from minder.edge.probes.pair_gather import all_gather

    found = all_gather(link, order)
    measures.append(Measurement("pair_all_gather_bandwidth", found.bandwidth, "B/s", "higher"))
    return found.facts


if __name__ == "__main__":
    run(PROBE, measure)
