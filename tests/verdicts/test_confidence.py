from __future__ import annotations

from minder.diagnose.verdicts.telemetry import calibrated, strength


def test_confidence_rises_with_agreement_and_falls_with_company() -> None:
    assert calibrated(strength(1, 0.0, 0)) < calibrated(strength(2, 0.0, 0)) < calibrated(strength(4, 1.0, 0)) <= 0.99
    assert calibrated(strength(2, 0.0, 2)) < calibrated(strength(2, 0.0, 0))
