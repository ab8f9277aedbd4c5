from __future__ import annotations

from minder.actuators.dry_run import DryRunActuator
from minder.types import Decision, Verdict


def test_it_says_what_it_would_do_and_does_nothing() -> None:
    verdict = Verdict(1.0, "machine", "evict", ("m1",), "stall", 0.9, 0.0)
    result = DryRunActuator().execute(Decision("evict-1", 1.0, "evict", ("m1",), "act", "", verdict))
    assert (result.outcome, result.detail) == ("dry_run", "would evict m1")
