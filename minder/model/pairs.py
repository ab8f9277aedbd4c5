"""What pair tests found: machines, the tests between them, and what was concluded. Records of the judgement, the ledger and the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["EdgeState", "NodeState", "PairEdge", "PairGraph", "PairNode", "PairWord"]

EdgeState = Literal["passed", "slow", "failed", "not_judged"]
NodeState = Literal["good", "slow", "faulty", "not_judged"]


@dataclass(frozen=True, slots=True)
class PairEdge:
    """One test as a page draws it, and whether the link is to blame: it failed or was slow although both machines are good.
    seconds: of the fixed exchange in its slower direction. forward: from the first machine to the second."""

    machines: tuple[str, str]
    round: int
    state: EdgeState
    seconds: float | None
    bandwidth_bytes_per_s: float | None
    latency_s: float | None
    shared: str = ""
    detail: str = ""
    blamed: bool = False
    forward_bytes_per_s: float | None = None
    backward_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class PairNode:
    machine: str
    state: NodeState
    reason: str
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PairGraph:
    """The conclusion. median_s: of the machines' best times, which "slow" is measured against; None without times. domain: "switch:leaf-3"
    where all of its tested machines fail: the switch is likelier than each of them."""

    nodes: tuple[PairNode, ...]
    edges: tuple[PairEdge, ...]
    median_s: float | None
    domain: str = ""

    @property
    def faulty(self) -> tuple[str, ...]:
        return tuple(node.machine for node in self.nodes if node.state == "faulty")

    @property
    def slow(self) -> tuple[str, ...]:
        return tuple(node.machine for node in self.nodes if node.state == "slow")

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Links to blame, each once."""
        return tuple(dict.fromkeys(edge.machines for edge in self.edges if edge.blamed))


@dataclass(frozen=True, slots=True)
class PairWord:
    """What the newest pair tests say of one machine. time_s: when they were judged. peers: machines to which its link is to blame."""

    time_s: float
    machine: str
    state: NodeState
    reason: str
    peers: tuple[str, ...] = ()

    @property
    def names_it(self) -> bool:
        """Whether the machine itself failed, or was slow, with two others."""
        return self.state in ("faulty", "slow")
