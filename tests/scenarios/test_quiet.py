"""A healthy job with all its pauses and small troubles accuses no machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.quiet import play_quiet
from minder.simulate.demo.options import DemoOptions

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


@pytest.mark.release
@pytest.mark.parametrize("plain", [False, True], ids=["declared pauses", "undeclared pauses"])
def test_a_quiet_lab_accuses_no_machine(plain: bool, tmp_path: Path) -> None:
    options = DemoOptions("none", tmp_path, steps=150, evaluate_every=50, plain=plain, masked=plain)
    run = play_quiet(options, 45.0)
    assert run.outcome.wrong == ()
    assert len(run.disturbances) >= 2
