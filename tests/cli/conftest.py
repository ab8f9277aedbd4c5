"""Commands as the shell starts them, on a ledger of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minder.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_on_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """run_on_ledger("machine", "list", ...) -> exit status, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        status = main([*words, "--ledger", str(tmp_path / "ledger.db")])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call
