"""What a loader asks, and what a script says of one rank's own numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import minder
from minder.edge.checkpoint import resumed
from minder.edge.worker import pulse, skips
from minder.edge.worker.own_numbers import OwnNumbers
from minder.model.errors import BadInputError
from minder.wire.heartbeat import NONFINITE_LOCAL_GRADIENT, HeartbeatView, read_heartbeat


class Channel:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> bool:
        self.said.append({"kind": kind, **fields})
        return True


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    found = Channel()
    monkeypatch.setattr(skips, "current", lambda: found)
    return found


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(pulse, "_own", OwnNumbers())
    pulse.switch_page(str(tmp_path / "heartbeats" / "page"), 3, 1)
    yield tmp_path / "heartbeats" / "page"
    monkeypatch.setattr(resumed, "_step", -1)


def view(page: Path) -> HeartbeatView:
    return read_heartbeat(page)


def test_a_loader_that_asks_says_to_the_launcher_what_it_honours(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert minder.skipped_batches() == ()
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "7,5-6")
    assert minder.skipped_batches() == (range(5, 8),)
    assert channel.said == [{"kind": "skips", "batches": ""}, {"kind": "skips", "batches": "5-7"}]
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "x")
    with pytest.raises(BadInputError, match="names no batches"):
        minder.skipped_batches()


@pytest.mark.parametrize("numbers", [{"own_loss": math.nan}, {"own_grad_norm": math.inf, "own_loss": 1.0}])
def test_one_ranks_own_number_that_is_not_finite_marks_its_page(page: Path, numbers: dict[str, float]) -> None:
    minder.heartbeat(7, 2.0, **numbers)
    flagged, last = view(page).recent
    assert (flagged.step, flagged.flags, last.loss) == (7, NONFINITE_LOCAL_GRADIENT, 2.0)


def test_one_ranks_own_gradient_norm_is_followed_without_a_guard(page: Path) -> None:
    for step in range(1, 31):
        minder.heartbeat(step, own_grad_norm=2.0 if step < 30 else 200.0)
    (spike,) = view(page).spikes
    assert (spike.step, spike.squared) == (30, 40_000.0) and spike.usual == pytest.approx(4.0)
    assert pulse.swallowed() == 0


def test_the_step_under_way_is_known_before_the_first_heartbeat_of_a_generation(page: Path) -> None:
    """A NaN in the first step after a resume is that step's, not the job's first."""
    resumed.note(41)
    assert pulse.next_step() == 42
    minder.heartbeat(42)
    assert pulse.next_step() == 43
    resumed.note(None)
    pulse.switch_page(str(page), 3, 2)
    assert pulse.next_step() == 1


def test_the_lines_of_the_page_do_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/batches.md"""
    torch = pytest.importorskip("torch")
    text = (Path(__file__).parents[2] / "docs" / "batches.md").read_text(encoding="utf-8")
    loop, moments = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "1")
    saved: list[Any] = []
    checkpoints = SimpleNamespace(load_latest=lambda state: 1, save=lambda step, state: saved.append(state))
    names: dict[str, Any] = {"checkpoints": checkpoints, "state": {}, "steps": 3, "data": list(range(10))}
    exec(loop, names)
    assert (names["step"], names["batch"]) == (3, 3), "without batch 1 the third step has batch 3"
    model = torch.nn.Linear(1, 1)
    exec(moments, {**names, "model": model, "optimizer": torch.optim.AdamW(model.parameters())})
    assert saved[0]["moments"].clipped == 0
