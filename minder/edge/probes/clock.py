"""How far this machine's clock is from the controller's, and whether the kernel calls it synchronised. The clock is read, never set."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="clock",
    version=1,
    says="offset of the wall clock against the controller's",
    limit_s=10.0,
    measures={
        "clock_offset": "s ahead of the controller's clock (negative: behind); half the round trip is its uncertainty",
        "clock_round_trip": "s that the order's clock reading took there and back",
        "clock_max_error": "s, what the kernel's time discipline thinks its error may be",
    },
    source="Cristian, 1989: half the round trip bounds the error",
    disturbs=False,
)

_SMALL_S = 0.025  # of each of the two clocks that are compared: nothing of minder's is decided on less than 0.05 s
_UNSYNCHRONISED = 0x0040  # STA_UNSYNC of adjtimex(2)


def measure(options: Mapping[str, Any]) -> Finding:
    """options: controller_time_s and round_trip_s of the order; received_s: this machine's clock when it came, as the agent says."""
    given = [options.get(name) for name in ("controller_time_s", "received_s", "round_trip_s")]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given):
        return Finding("not_applicable", "no controller's time came with the order")
    controller_s, received_s, round_trip_s = map(float, given)  # type: ignore[arg-type]
    offset_s = received_s - controller_s - round_trip_s / 2.0
    measures = [
        Measurement("clock_offset", offset_s, "s", "same", tolerance=round_trip_s / 2.0 + _SMALL_S, bad="fail"),
        Measurement("clock_round_trip", round_trip_s, "s"),
    ]
    status, max_error_s = _discipline()
    if max_error_s is not None:
        measures.append(Measurement("clock_max_error", max_error_s, "s"))
    synchronised = {None: "unknown", True: "no", False: "yes"}[None if status is None else bool(status & _UNSYNCHRONISED)]
    return Finding("measured", f"synchronised by the kernel's word: {synchronised}", tuple(measures))


def _discipline() -> tuple[int | None, float | None]:
    """Status bits and largest error of adjtimex(2), which is asked with no mode set: it changes nothing."""

    class Timex(ctypes.Structure):
        _fields_ = (("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
                    ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_char * 256))  # fmt: skip

    timex = Timex()
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None, None
    return (None, None) if answer < 0 else (int(timex.status), timex.maxerror * 1e-6)


if __name__ == "__main__":
    run(PROBE, measure)
