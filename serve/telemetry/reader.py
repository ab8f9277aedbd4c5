"""The process that reads a window of a machine's telemetry: one order as JSON on standard input, one answer on standard output.

It has a limit on memory, and what it loads (polars, numpy) the service does not hold.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from minder.config import TelemetryConfig
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.past import PastWindow, read_prometheus, read_recorded
from minder.model.errors import MinderError
from minder.model.telemetry import TelemetryExcerpt
from minder.wire.codec import to_json

__all__ = ["main", "read"]

_MOST_BYTES = 1536 * 1024 * 1024


def read(order: dict[str, Any]) -> dict[str, Any]:
    """order: telemetry (the job's table), prometheus (whether that is asked), recording (a folder or null), and the fields of PastWindow.
    The answer: source, excerpt, scores (times and values); or no_data with the reason."""
    telemetry = TelemetryConfig.model_validate(order["telemetry"])
    window = PastWindow(order["machine"], tuple(order["machines"]), order["begin_s"], order["end_s"])
    reasons = []
    if order["prometheus"]:
        try:
            identity = telemetry.identity(window.machines)
            excerpt, scores = read_prometheus(telemetry.options(), identity, load_mapping(telemetry.mapping), window)
            if excerpt.metrics or scores:
                return _answer("prometheus", excerpt, scores)
            reasons.append(f"the Prometheus at {telemetry.address} has no sample of {window.machine} in this window")
        except MinderError as error:
            reasons.append(str(error))
    if order["recording"] is not None:
        try:
            excerpt = read_recorded(Path(order["recording"]), telemetry.interval_s, window)
            if excerpt.metrics:
                return _answer("recording", excerpt, [])
            reasons.append(f"the job's recording has no sample of {window.machine} in this window")
        except MinderError as error:
            reasons.append(str(error))
    return {"no_data": "; ".join(reasons)}


def _answer(source: str, excerpt: TelemetryExcerpt, scores: list[tuple[float, float]]) -> dict[str, Any]:
    return {"source": source, "excerpt": {**to_json(excerpt), "fault_s": None, "verdict_s": None}, "scores": scores}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(read(json.loads(sys.stdin.read()))))


if __name__ == "__main__":
    main()
