"""The frame of a probe's process: options in, one JSON document on standard output, an end that nothing outlives."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.model.children import end_with_parent
from minder.wire.codec import to_json

__all__ = ["Measure", "document", "run"]

Measure = Callable[[Mapping[str, Any]], Finding]
_SPARE_S = 5.0


def run(probe: Probe, measure: Measure, arguments: Sequence[str] | None = None) -> None:
    """Measure and print. An error that the probe does not expect ends the process with a traceback and status 1: nothing is known then."""
    parser = argparse.ArgumentParser(prog=f"python -m minder.edge.probes.{probe.name}", description=probe.says)
    parser.add_argument("--json", action="store_true", help="one JSON document; otherwise a line for each measurement")
    parser.add_argument(
        "--options", default="{}", help='a JSON object, such as {"folder": "/scratch"}; "-": it is read from standard input'
    )
    parser.add_argument("--limit", type=float, default=probe.limit_s, help="seconds after which the process ends itself")
    parser.add_argument("--nice", type=int, default=0, help="priority, as of nice(1)")
    given = parser.parse_args(arguments)
    _bound(given.limit + _SPARE_S, given.nice)
    output = _keep_output()
    options = json.loads(sys.stdin.read() if given.options == "-" else given.options)
    finding = measure({"limit_s": given.limit, **options})
    with os.fdopen(output, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(document(probe, finding)) if given.json else _lines(finding))
        stream.write("\n")


def document(probe: Probe, finding: Finding) -> dict[str, Any]:
    """What the runner reads."""
    return {"probe": probe.name, "version": probe.version, **to_json(finding)}


def _bound(limit_s: float, nice: int) -> None:
    """A probe ends with the process that started it, and by itself where that one was stopped."""
    end_with_parent()
    signal.setitimer(signal.ITIMER_REAL, limit_s)  # SIGALRM ends the process
    if nice:
        os.nice(nice)


def _keep_output() -> int:
    """Standard output for the document alone: what libraries print goes to standard error."""
    kept = os.dup(1)
    os.set_inheritable(kept, False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return kept


def _lines(finding: Finding) -> str:
    rows = [f"{item.name}{' ' + item.device if item.device else ''}: {item.value:.6g} {item.unit}" for item in finding.measures]
    return "\n".join([finding.state + (f": {finding.detail}" if finding.detail else ""), *rows])
