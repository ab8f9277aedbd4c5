from __future__ import annotations

from pathlib import Path

import pytest

from minder.model.errors import BadInputError
from minder.record.incidents import find_ledger


def test_the_ledger_is_where_somebody_said_else_where_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINDER_LEDGER", "MINDER_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert find_ledger() == str(Path.home() / ".local" / "state" / "minder" / "ledger.db")
    monkeypatch.setenv("MINDER_STATE_DIR", "/state")
    assert find_ledger() == "/state/ledger.db"
    monkeypatch.setenv("MINDER_LEDGER", "postgresql://db/minder")
    assert find_ledger() == "postgresql://db/minder"
    assert find_ledger("here.db") == "here.db"


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_name_leads_to_no_other_ledger(given: str) -> None:
    with pytest.raises(BadInputError, match="--ledger is empty"):
        find_ledger(given)
