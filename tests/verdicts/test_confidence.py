from __future__ import annotations

from minder.diagnose.verdicts.telemetry import calibrated, log_odds


def test_confidence_rises_with_agreement_and_falls_with_company() -> None:
    one, two = (calibrated(log_odds(metrics, "slowdown", False, 0)) for metrics in (1, 2))
    assert one < two < calibrated(log_odds(2, "slowdown", True, 0)) <= 0.99
    assert calibrated(log_odds(2, "unknown", False, 0)) < two
    assert calibrated(log_odds(2, "slowdown", False, 2)) < calibrated(log_odds(2, "slowdown", False, 1)) < two
