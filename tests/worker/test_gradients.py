"""The gradient guard names the rank with the poisoned gradient, and changes no bit of a healthy run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minder.edge.worker import pulse
from minder.edge.worker.gradients import check_gradient, install_gradient_guard
from minder.edge.worker.spikes import GradientSpikes
from minder.model.errors import BadInputError

SCRIPT = Path(__file__).parent / "scripts" / "guarded.py"


def _train(tmp_path: Path, mode: str) -> list[dict[str, Any]]:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(2):
        env = {**os.environ, "MINDER_HEARTBEAT_FILE": str(tmp_path / f"{mode}-{rank}"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), str(rank), str(store.port), mode]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    try:
        found = [json.loads(process.communicate(timeout=200)[0]) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    return sorted(found, key=lambda item: item["rank"])


@pytest.mark.lab
def test_healthy_run_is_the_same_bit_for_bit_with_the_guard(tmp_path: Path) -> None:
    plain, guarded = _train(tmp_path, "plain"), _train(tmp_path, "guard")
    assert [rank["losses"] for rank in plain] == [rank["losses"] for rank in guarded]
    assert plain[0]["weights"] == guarded[0]["weights"] == guarded[1]["weights"]
    assert guarded[0]["flags"] == []


@pytest.mark.lab
def test_poisoned_rank_raises_and_no_rank_sees_the_sum(tmp_path: Path) -> None:
    healthy, poisoned = _train(tmp_path, "nan")
    assert poisoned["own"] and poisoned["error"] == "NonFiniteGradient" and poisoned["victim"] is False
    assert poisoned["flags"] == [1]
    assert healthy["victim"] is True and healthy["flags"] == []
    assert len(healthy["losses"]) == 3 and healthy["weights"] == poisoned["weights"]


@pytest.mark.lab
def test_record_only_marks_the_rank_and_goes_on(tmp_path: Path) -> None:
    healthy, poisoned = _train(tmp_path, "record")
    assert len(healthy["losses"]) == len(poisoned["losses"]) == 6
    assert poisoned["flags"][0] == 1


@pytest.mark.lab
def test_a_spike_of_one_rank_is_told_by_that_rank_alone(tmp_path: Path) -> None:
    """300 times the gradient is 90,000 times its square. What the step made of the weights is everybody's a step later."""
    healthy, spiked = _train(tmp_path, "spike")
    step, squared, usual = spiked["spikes"][0]
    assert step == 40 and squared > 5_000 * usual > 0.0
    assert 40 not in [item[0] for item in healthy["spikes"]]
    assert len(healthy["losses"]) == len(spiked["losses"]) == 60 and healthy["weights"] == spiked["weights"]


@pytest.mark.lab
def test_a_spike_of_all_ranks_is_told_by_all(tmp_path: Path) -> None:
    assert [rank["spikes"][0][0] for rank in _train(tmp_path, "spikes")] == [40, 40]


def test_a_loop_of_ones_own_may_watch_for_spikes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    spikes: list[tuple[int, float, float]] = []
    monkeypatch.setattr(pulse, "beat_spike", lambda *args: spikes.append(args))
    past = GradientSpikes()
    for step in range(30):
        assert check_gradient(torch.ones(100), step, past=past)
    assert check_gradient(torch.full((100,), 80.0), 30, past=past)
    ((step, squared, usual),) = spikes
    assert step == 30 and squared == pytest.approx(640_000.0) and usual == pytest.approx(100.0)


@pytest.mark.parametrize(("kind", "value"), [("float16", 300.0), ("float32", 1e25), ("bfloat16", 1e25)])
def test_finite_numbers_whose_squares_overflow_are_finite(kind: str, value: float) -> None:
    torch = pytest.importorskip("torch")
    assert check_gradient(torch.full((10_000,), value, dtype=getattr(torch, kind)), 0)
    poisoned = torch.full((10_000,), value, dtype=getattr(torch, kind))
    poisoned[77] = float("nan")
    assert not check_gradient(poisoned, 0, "record")


def test_other_models_are_refused() -> None:
    with pytest.raises(BadInputError, match="DistributedDataParallel"):
        install_gradient_guard(object())
