"""What the two machines of a pair test said, as one result; and which tests are done again (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minder.diagnose.diagnostics.pairs import PairResult, PairTest, judge_pairs
from minder.edge.probes.pair import BLOCK_BYTES
from minder.model.probes import ProbeResult

__all__ = ["Side", "blamed_tests", "join_sides", "replaced"]

Side = ProbeResult | str  # what one machine said; or why it took no part, one line

_BROKEN = ("not_judged", "not_applicable")


def join_sides(test: PairTest, listener: Side, caller: Side) -> PairResult:
    """A side that could not take part makes it a test that was not run: what the other side found of it is then nothing of the link."""
    absent = [f"{name}: {why}" for name, side in zip(test.machines, (listener, caller), strict=True) if (why := _absence(side))]
    if absent or isinstance(listener, str) or isinstance(caller, str):
        return PairResult(test, None, detail="; ".join(absent))
    faults = [f"{name}: {side.detail}" for name, side in zip(test.machines, (listener, caller), strict=True) if side.state == "failed"]
    forward, backward = _value(listener, "pair_send_bandwidth"), _value(listener, "pair_receive_bandwidth")
    rates = [rate for rate in (forward, backward) if rate]
    latency = [value for name in ("pair_send_latency", "pair_receive_latency") if (value := _value(listener, name)) is not None]
    if faults or len(rates) < 2:
        return PairResult(test, False, detail="; ".join(faults), forward_bytes_per_s=forward, backward_bytes_per_s=backward)
    return PairResult(test, True, BLOCK_BYTES / min(rates), min(rates), max(latency, default=None), "", forward, backward)


def blamed_tests(results: Sequence[PairResult], domains: Mapping[str, Mapping[str, str]] | None = None) -> list[PairTest]:
    """Of links that are to blame as it stands: a link is to blame that is bad twice, since one test may meet a busy moment."""
    graph = judge_pairs(results, domains)
    return [found.test for found, edge in zip(results, graph.edges, strict=True) if edge.blamed]


def replaced(results: Sequence[PairResult], again: PairResult) -> list[PairResult]:
    """With a second result in the first one's place; one that could not be run says nothing, and changes nothing."""
    return [again if found.test == again.test and again.passed is not None else found for found in results]


def _absence(side: Side) -> str:
    """Why it took no part, "" if it did."""
    if isinstance(side, str):
        return side or "no answer"
    return side.detail or "the probe said nothing" if side.state in _BROKEN else ""


def _value(found: ProbeResult, name: str) -> float | None:
    return next((item.value for item in found.measures if item.name == name), None)
