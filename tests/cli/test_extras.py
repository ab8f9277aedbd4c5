"""What needs torch says so in one line, before it starts anything."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from minder.cli import main


@pytest.mark.parametrize("words", [["demo", "--out", "{}"], ["run", "--", "{}/train.py"]], ids=lambda words: words[0])
def test_without_torch_the_extra_is_named(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(signal, "signal", lambda number, action: None)  # the command would keep them
    assert main([word.format(tmp_path) for word in words]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "minder: torch is not installed: run `pip install 'minder-cluster[torch]'`"
