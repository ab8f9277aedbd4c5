from __future__ import annotations

from pathlib import Path

import pytest

from minder.cli import main


@pytest.mark.parametrize("there", [True, False])
def test_a_ledger_that_is_not_there_yet_is_named_before_it_begins(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path that was mistyped looks like a cluster in which nothing ever happened."""
    served = list[object]()
    monkeypatch.setattr("serve.run.run_service", lambda settings, listening: served.append(settings))
    ledger = tmp_path / "ledger.db"
    if there:
        ledger.touch()
    assert main(["serve", "--ledger", str(ledger)]) == 0
    assert len(served) == 1
    assert (f"there is no ledger {ledger} yet" in capsys.readouterr().err) is not there
