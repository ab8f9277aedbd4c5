"""Caches of machines that have left the job since its newest committed step: evicted is not dead, and what one of them holds may lie
nowhere else. They are asked only where a committed step cannot be had without them, never waited for beyond a limit, and what they give
passes the same checks as any other copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from minder.edge.cache.pull import read_state
from minder.model.errors import WireError

__all__ = ["Peer", "Peers", "ask_all"]

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """A machine's cache: its address, the newest generation that it was part of, and the token of that one."""

    machine: str
    url: str
    generation: int
    token: str


class Peers:
    """Known to a cache from its ranks, which know all machines when they meet. Not kept in a file: one cache that knows is enough."""

    def __init__(self) -> None:
        self._known: dict[str, Peer] = {}

    def meet(self, urls: Mapping[str, str], generation: int, token: str) -> None:
        """Machines of a new generation, and the addresses of their caches."""
        for machine, url in urls.items():
            self._known[machine] = Peer(machine, url, generation, token)

    def forget_before(self, generation: int) -> None:
        """A step was committed in this generation: its machines have all that the job needs."""
        self._known = {machine: peer for machine, peer in self._known.items() if peer.generation >= generation}

    def left(self, generation: int) -> list[Peer]:
        """Those that are not part of this generation, the latest to leave first."""
        found = [peer for peer in self._known.values() if peer.generation < generation]
        return sorted(found, key=lambda peer: (-peer.generation, peer.machine))


def ask_all(peers: Sequence[Peer], job: str, wait_s: float) -> list[dict[str, Any]]:
    """What each of them holds, and the token that it lets in, of those that answer within wait_s and say that they are what they were."""
    if not peers:
        return []
    pool = ThreadPoolExecutor(min(len(peers), _AT_ONCE), "minder-left")
    asked = {pool.submit(_ask, peer, wait_s): peer for peer in peers}
    done = wait(asked, wait_s).done
    pool.shutdown(wait=False, cancel_futures=True)
    said = [(asked[each], each.result()) for each in asked if each in done]
    return [
        {**answer, "url": peer.url, "token": peer.token}
        for peer, answer in said
        if (answer.get("machine"), answer.get("job")) == (peer.machine, job)
    ]


def _ask(peer: Peer, wait_s: float) -> dict[str, Any]:
    try:
        return read_state(peer.url, peer.token, wait_s)
    except (WireError, OSError):
        return {}
