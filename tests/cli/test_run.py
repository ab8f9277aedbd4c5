"""`minder run` behind another controller: what it does when its turn comes."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minder.app import build as app
from minder.cli.run import _lead, _runs_over
from minder.config import JobConfig
from minder.record.incidents import Ledger, kinds


class Built(Exception):
    """It would begin the job."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    def build(*unused: Any, **more: Any) -> None:
        more["ledger"].close()
        raise Built

    monkeypatch.delenv("MINDER_LEDGER", raising=False)
    monkeypatch.setattr(app, "build", build)
    return JobConfig.model_validate(
        {"name": "llm", "state_dir": str(tmp_path), "machines": [{"name": "m0", "agent": "http://127.0.0.1:9"}]}
    )


@pytest.mark.parametrize("outcome", ["finished", "failed"])
def test_a_job_that_ended_while_it_waited_is_not_begun_again(config: JobConfig, tmp_path: Path, outcome: str) -> None:
    stop: Any = SimpleNamespace(stopping=threading.Event())
    over = _runs_over(config)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kinds.JOB_ENDED, {"outcome": outcome}, job="llm")
    assert _lead(config, False, stop, over) == outcome
    with pytest.raises(Built):  # whoever types the command now wants another run
        _lead(config, False, stop, _runs_over(config))
